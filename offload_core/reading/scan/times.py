"""A range of publish times, and which ledgers and blocks of a topic cannot hold any message of it.

Entries lie nearly in the order of their publish times: each producer's clock stamps them, and they are stored as they
arrive. Rows are chosen by their own time, exactly. What is not read at all is chosen by a few blocks' first entries,
with `slack_ms` to spare. Source: docs/spark.md, Time; ADR 0013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import IndexedBlock
from offload_core.reading.scan.probe import Probe, probe_block
from offload_core.reading.scan.runs import read_share
from offload_core.reading.scan.tasks import LedgerShare, TimeRange
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.json_text import whole_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MOST_PASSED = 8
"""So many blocks, or ledgers, are looked at for one that tells of times."""


def time_range(start: int | datetime | None, stop: int | datetime | None, slack_ms: int) -> TimeRange | None:
    """A range of publish times: milliseconds since the epoch, or times that know their zone. None without bounds.

    Raises:
        OptionError: a time without a zone, or a negative slack.
    """
    if slack_ms < 0:
        raise OptionError("the slack of times is negative", expected="0 or more", found=slack_ms)
    if start is None and stop is None:
        return None
    return TimeRange(start_ms=_milliseconds(start), stop_ms=_milliseconds(stop), slack_ms=slack_ms)


def parse_time(text: str, option: str) -> int | datetime:
    """A time as a person writes it: milliseconds since the epoch, or ISO 8601 with a zone.

    Raises:
        OptionError: another form; `option` is named.
    """
    if (milliseconds := whole_number(text)) is not None:
        return milliseconds
    expected = "milliseconds since the epoch, or a time like 2026-11-21T08:30:00Z"
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(f"{option} is not a time", expected=expected, found=text) from error
    if time.tzinfo is None:
        raise OptionError(f"{option} has no zone", expected=expected, found=text)
    return time


def _milliseconds(time: int | datetime | None) -> int | None:
    """Rounded up: publish times are whole milliseconds, so both an inclusive start and an exclusive stop stay right."""
    if time is None or isinstance(time, int):
        return time
    if time.tzinfo is None:
        raise OptionError(
            "a time has no zone", expected="one with tzinfo, or milliseconds since the epoch", found=str(time)
        )
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def narrow(tier: Tier, shares: Sequence[LedgerShare], times: TimeRange) -> list[LedgerShare]:
    """What of a topic's ledgers can hold messages of a range of times.

    Two binary searches, each over the ledgers and then over the blocks of one. `shares` are all of the topic's, in
    order; ledgers that cannot be read are kept where they lie between others.

    Raises:
        StoreError: the store fails.
    """
    search = _Search(tier)
    kept = list(shares)
    if times.stop_ms is not None:
        kept = _cut_after(search, kept, times.stop_ms + times.slack_ms)
    if times.start_ms is not None:
        kept = _cut_before(search, kept, times.start_ms - times.slack_ms)
    return kept


class _Blocks:
    """The blocks of these extents, one after another, each made when it is asked for."""

    def __init__(self, extents: Sequence[LedgerExtent]) -> None:
        self._extents = extents
        self._begins = np.cumsum([0, *(len(extent.ledger.blocks) for extent in extents)])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, at: int) -> tuple[LedgerExtent, IndexedBlock]:
        number = int(np.searchsorted(self._begins, at, side="right")) - 1
        extent = self._extents[number]
        return extent, extent.ledger.blocks[at - int(self._begins[number])]


class _Search:
    """Probes of one topic's blocks, each made once."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._read: dict[int, LedgerShare] = {}
        self._probes: dict[tuple[str, int], Probe | None] = {}

    def read(self, share: LedgerShare) -> LedgerShare:
        """The share with the ledger's index read."""
        found = self._read.get(share.ledger_id)
        if found is None:
            found = self._read[share.ledger_id] = read_share(self._tier, share)
        return replace(share, ledger=found.ledger)

    def blocks(self, share: LedgerShare) -> _Blocks:
        """The ledger's blocks, in order."""
        return _Blocks(self.read(share).ledger.extents)

    def probe(self, place: tuple[LedgerExtent, IndexedBlock]) -> Probe | None:
        """The first entries' times of a block."""
        extent, block = place
        at = extent.data_key, block.offset
        if at not in self._probes:
            self._probes[at] = probe_block(self._tier, extent, block)
        return self._probes[at]

    def probe_ledger(self, share: LedgerShare) -> Probe | None:
        """The first entries' times of a ledger."""
        blocks = self.blocks(share)
        return self.probe(blocks[0]) if blocks else None


def _cut_before(search: _Search, shares: list[LedgerShare], border_ms: int) -> list[LedgerShare]:
    """Leave out what lies before entries that are all older than the border."""

    def is_near(probe: Probe | None) -> bool | None:
        return None if probe is None else probe.latest_ms >= border_ms

    readable = [i for i, share in enumerate(shares) if share.ledger.is_readable]
    ledgers = _count_until(
        len(readable), lambda i: is_near(search.probe_ledger(shares[readable[i]])), unknown=True
    )
    if not ledgers:
        return shares
    at = readable[ledgers - 1]
    share = search.read(shares[at])
    blocks = search.blocks(share)
    number = _count_until(len(blocks), lambda i: is_near(search.probe(blocks[i])), unknown=True)
    first = search.probe(blocks[number - 1]) if number else None
    if first is not None and first.entry_id > share.asked.start:
        share = replace(share, asked=replace(share.asked, start=first.entry_id, start_batch=0))
    return [share, *shares[at + 1 :]]


def _cut_after(search: _Search, shares: list[LedgerShare], border_ms: int) -> list[LedgerShare]:
    """Leave out what lies behind entries of which none is older than the border."""

    def is_new(probe: Probe | None) -> bool | None:
        return None if probe is None else probe.earliest_ms >= border_ms

    readable = [i for i, share in enumerate(shares) if share.ledger.is_readable]
    ledgers = _count_until(
        len(readable), lambda i: is_new(search.probe_ledger(shares[readable[i]])), unknown=False
    )
    kept = shares[: readable[ledgers]] if ledgers < len(readable) else shares
    if not ledgers:
        return kept
    at = readable[ledgers - 1]
    share = search.read(kept[at])
    blocks = search.blocks(share)
    number = _count_until(len(blocks), lambda i: is_new(search.probe(blocks[i])), unknown=False)
    first = search.probe(blocks[number]) if number < len(blocks) else None
    asked = share.asked
    if first is not None and (asked.stop is None or first.entry_id < asked.stop):
        asked = replace(asked, stop=first.entry_id, stop_batch=0)
    share = replace(share, asked=asked, ends_by_time=True)
    return [*kept[:at], share, *kept[at + 1 :]]


def _count_until(count: int, holds: Callable[[int], bool | None], *, unknown: bool) -> int:
    """How many of 0 … `count` − 1 come before the first that `holds`, by halving; `count` if none does.

    For one of which `holds` does not tell, such as a block of which a filter left nothing, the next one counts that it
    tells of; `unknown` where none of a few does.

    Where it does not hold for all that follow one that it holds for, the answer is the border of some such run: what is
    cut off there is as right to cut off as elsewhere.
    """
    low, high = 0, count
    while low < high:
        middle = at = (low + high) // 2
        found = holds(at)
        while found is None and at + 1 < min(high, middle + _MOST_PASSED):
            at += 1
            found = holds(at)
        if found is None:
            found, at = unknown, middle
        if found:
            high = at
        else:
            low = at + 1
    return low
