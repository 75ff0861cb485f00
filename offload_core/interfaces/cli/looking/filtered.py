"""What a filter did to offloaded entries, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from offload_core.format.codec.extent import LedgerExtent
from offload_core.metadata.records.filter_record import indexed_filter
from offload_core.writing.filters import DroppedEntries, FilterMode, FilterRecord, parse_filter_record
from offload_hooks.errors import FormatError

_PLACES = {FilterMode.GAP: "gaps", FilterMode.TOMBSTONE: "tombstones"}


def filter_note(records: Iterable[FilterRecord]) -> str:
    """What is in the places of how many entries, as in `gaps for 2 of 3 entries by transactions`; empty for none."""
    sums: dict[tuple[str, FilterMode], tuple[DroppedEntries, DroppedEntries]] = {}
    for record in records:
        key = record.name, record.mode
        kept, dropped = sums.get(key, (DroppedEntries(), DroppedEntries()))
        sums[key] = kept + record.kept, dropped + record.total_dropped
    return ", ".join(
        f"{_PLACES[mode]} for {dropped.entries:,} of {kept.entries + dropped.entries:,} entries by {name}"
        for (name, mode), (kept, dropped) in sums.items()
    )


def indexed(extents: Iterable[LedgerExtent]) -> list[FilterRecord]:
    """Of those that have one, in their indexes; one that cannot be read is passed over."""
    return _readable(partial(indexed_filter, extent.ledger) for extent in extents)


def recorded(texts: Iterable[str | None]) -> list[FilterRecord]:
    """Of offload contexts, without None; one that cannot be read is passed over."""
    return _readable(partial(parse_filter_record, text) for text in texts if text is not None)


def _readable(reads: Iterable[Callable[[], FilterRecord | None]]) -> list[FilterRecord]:
    found = []
    for read in reads:
        with suppress(FormatError):
            found.append(read())
    return [record for record in found if record is not None]


def filter_to_json(record: FilterRecord) -> dict[str, Any]:
    """As it is stored; see docs/formats/filter-record.md."""
    return record.to_json()
