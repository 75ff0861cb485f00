"""Progress of a topic's offload, by its record; positions and times as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.writing.managed_ledger import first_unoffloaded
from offload_hooks.errors import OptionError


def parse_position(text: str) -> EntryPosition:
    """`ledger:entry`."""
    ledger, separator, entry = text.partition(":")
    if not (separator and ledger.isdecimal() and entry.isdecimal()):
        raise OptionError("this is not a position", expected="ledger:entry", found=repr(text))
    return EntryPosition(int(ledger), int(entry))


def parse_time_ms(time: datetime | str | None) -> int:
    """A time in ms since 1970, UTC."""
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise OptionError("this is not a time", expected="ISO 8601 with a zone", found=repr(time))
    return int(moment.astimezone(timezone.utc).timestamp() * 1000)


def is_offloaded_until(info: ManagedLedgerInfo, stop_ms: int) -> bool:
    """Return whether all that was appended before is in complete cold copies.

    When a ledger was begun is not recorded; but it was after the one before it was closed.
    """
    first = first_unoffloaded(info)
    ends: Iterable[int] = (
        ledger.info.timestamp_ms or 0
        for ledger in info.in_order
        if ledger.info.is_closed
        and ledger.ledger_id <= first.ledger_id
        and EntryPosition(ledger.ledger_id, ledger.info.entries or 0) <= first
    )
    return max(ends, default=0) >= stop_ms
