"""Extents of a ledger's blocks, and the report of entries that have no copy.

The planner reads the indexes of ledgers that it cuts; the tasks read the others, some ahead of the reader.

A gap is consecutive ledgers without a readable copy. It is **loss** if the range includes entries of it that must
exist: a readable ledger follows it, it is recorded as offloaded, an index of a copy remains whose data is missing, or
the range ends in it or after it by a position. Otherwise it is not offloaded yet: `latest` means the end of what is,
and a warning says where that is. Loss is an error or a warning wherever it is noticed. Source: docs/spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable
from offload_core.metadata.catalogue import Ledger, Topic, extent_of, with_index
from offload_core.reading.scan.positions import Position
from offload_core.reading.scan.tasks import EntryRange, ScanExtent, ScanLedger
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import DataLossError

_MOST_NAMED = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRange:
    """A range of a topic: from `first` (inclusive) to `stop` (exclusive), None for no bound."""

    first: Position | None
    stop: Position | None

    @property
    def is_empty(self) -> bool:
        """True if it ends before it begins."""
        return self.first is not None and self.stop is not None and self.first >= self.stop

    def holds(self, ledger: Ledger) -> bool:
        """True if the range has entries of a ledger."""
        if self.first is not None and self.first.ledger_id > ledger.ledger_id:
            return False
        return self.stop is None or Position(ledger.ledger_id, 0) < self.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Ledgers of a topic, one after another, of which nothing can be read.

    Attributes:
        ledgers: those with entries, by ascending id.
        is_loss: whether something is missing that must be there.
    """

    ledgers: tuple[Ledger, ...]
    is_loss: bool


def find_gaps(topic: Topic, asked: AskedRange, wanted: Collection[int]) -> Iterator[Gap]:
    """The gaps of a topic in a range, in order."""
    missing: list[Ledger] = []
    for ledger in topic.ledgers:
        if not ledger.is_readable:
            if not ledger.has_nothing_to_lose and ledger.ledger_id in wanted:
                missing.append(ledger)
        elif missing:
            # Objects that name no topic: it is not known which ledgers follow each other.
            yield Gap(ledgers=tuple(missing), is_loss=topic.name is not None or asked.stop is not None)
            missing = []
    count = len(missing) if asked.stop is not None else _lost(missing)
    if missing[:count]:
        yield Gap(ledgers=tuple(missing[:count]), is_loss=True)
    if missing[count:]:
        yield Gap(ledgers=tuple(missing[count:]), is_loss=False)


def _lost(last: Sequence[Ledger]) -> int:
    """The number of the last ledgers that were offloaded, by a record or a remaining index."""
    return max((i + 1 for i, ledger in enumerate(last) if ledger.is_lost), default=0)


def report_gaps(topic: Topic, asked: AskedRange, wanted: Collection[int], *, fail: bool) -> None:
    """Report what of a range cannot be read, each gap once. A ledger whose index is unread counts as readable.

    `wanted` are the ledgers of the range that times and conditions leave, by id.

    Raises:
        DataLossError: a gap that is loss, with its ledgers and positions; with `fail` False a warning.
    """
    report_lost_objects(topic, fail)
    _report_bounds(topic, asked, fail)
    for gap in find_gaps(topic, asked, wanted):
        if gap.is_loss:
            _report_loss(topic, gap, asked, fail)
        else:
            _log.warning("%s: %s", _read_to(topic, asked), _missing(gap))
    _report_lost_tails(topic, asked, wanted, fail)
    _report_tail(topic, asked, wanted)


def report_lost_objects(topic: Topic, fail: bool) -> None:
    """Report lost objects of a topic if it is not known which of its ledgers lack entries: any may.

    Raises:
        DataLossError: there is one (`fail`); else a warning for each.
    """
    for stored in topic.lost:
        what = f"an object of {topic.label} cannot be read, and it is not known which entries it has"
        lose(what, None, fail, found=f"{stored.key.data_key}: {stored.detail}")


def lose(
    what: str,
    ledger_id: int | None,
    fail: bool,
    *,
    entry_id: int | None = None,
    found: str | None = None,
    expected: str | None = None,
    hint: str = "What there is can be read: {fail_on_data_loss=false}.",
) -> None:
    """Raise a `DataLossError`, or log it as a warning."""
    error = DataLossError(
        what, ledger_id=ledger_id, entry_id=entry_id, expected=expected, found=found, hint=hint
    )
    if fail:
        raise error
    _log.warning("%s", error)


def _report_loss(topic: Topic, gap: Gap, asked: AskedRange, fail: bool) -> None:
    count = len(gap.ledgers)
    what = "a ledger" if count == 1 else f"{count} ledgers"
    lose(
        f"{what} of {topic.label} {'has' if count == 1 else 'have'} no complete copy",
        gap.ledgers[0].ledger_id,
        fail,
        expected=_positions(gap, asked),
        found=_reasons(gap),
    )


def _report_lost_tails(topic: Topic, asked: AskedRange, wanted: Collection[int], fail: bool) -> None:
    """Report segments that are lost after the last one that is read; one between two shows when they are read."""
    for ledger in topic.ledgers:
        lost = ledger.lost_tail if ledger.ledger_id in wanted else None
        if lost is not None and (asked.stop is None or Position(ledger.ledger_id, lost[1]) < asked.stop):
            stored, begin = lost
            lose(
                f"entries of a ledger of {topic.label} have no copy here",
                ledger.ledger_id,
                fail,
                expected=f"entries from {begin} on",
                found=f"{stored.key.data_key}: {stored.detail}",
            )


def _report_bounds(topic: Topic, asked: AskedRange, fail: bool) -> None:
    """Report a start or an end in a ledger that is missing."""
    ids = [ledger.ledger_id for ledger in topic.ledgers]
    here = f"ledgers {_named(ids)}"
    first, stop = asked.first, asked.stop
    if first is not None and first.ledger_id not in ids:
        before = bool(ids) and first.ledger_id < ids[0]
        but = f"begins with ledger {ids[0]} now" if before else "that ledger has no copy here"
        lose(f"{topic.label} was asked for from {first}, but {but}", first.ledger_id, fail, found=here)
    inside = stop is not None and (stop.entry_id > 0 or stop.batch_index > 0)
    if stop is not None and inside and stop.ledger_id not in ids and (not ids or stop.ledger_id > ids[0]):
        what = f"{topic.label} was asked for up to {stop}, but that ledger has no copy here"
        lose(what, stop.ledger_id, fail, found=here)


def _report_tail(topic: Topic, asked: AskedRange, wanted: Collection[int]) -> None:
    """Report the rest of the last ledger that is not offloaded yet by its record."""
    ledger = _last_readable(topic)
    if ledger is None or asked.stop is not None or ledger.record is None or ledger.hot is not None:
        return
    if ledger.ledger_id not in wanted:
        return
    end, entries = ledger.record.offloaded_stop, ledger.record.info.entries
    if end is not None and (not ledger.record.info.is_closed if entries is None else end < entries):
        rest = f"from entry {end} on" if entries is None else f"entries {end} to {entries - 1}"
        _log.warning(
            "%s: of ledger %d, %s are not offloaded yet", _read_to(topic, asked), ledger.ledger_id, rest
        )


def _last_readable(topic: Topic) -> Ledger | None:
    return next((ledger for ledger in reversed(topic.ledgers) if ledger.is_readable), None)


def _read_to(topic: Topic, asked: AskedRange) -> str:
    """State up to where a topic is read whose end was not given as a position."""
    ledger = _last_readable(topic)
    if ledger is None or not asked.holds(ledger):
        return f"nothing of {topic.label} is read"
    end = None if ledger.record is None or ledger.hot else ledger.record.offloaded_stop
    if end is None and ledger.extents:
        end = ledger.extents[-1].stop_entry_id
    where = f"ledger {ledger.ledger_id}" if end is None else f"{ledger.ledger_id}:{end}"
    return f"{topic.label} is read up to {where}"


def _missing(gap: Gap) -> str:
    if len(gap.ledgers) == 1:
        return f"ledger {gap.ledgers[0].ledger_id} has no complete copy ({_reasons(gap)})"
    ids = _named([ledger.ledger_id for ledger in gap.ledgers])
    return f"ledgers {ids} have no complete copy ({_reasons(gap)})"


def _reasons(gap: Gap) -> str:
    if len(gap.ledgers) == 1:
        return gap.ledgers[0].why_not_read
    reasons = [f"ledger {ledger.ledger_id}: {ledger.why_not_read}" for ledger in gap.ledgers[:_MOST_NAMED]]
    return "; ".join([*reasons, *_more(len(gap.ledgers))])


def _positions(gap: Gap, asked: AskedRange) -> str:
    """The first and the last missing position."""
    first = max(Position(gap.ledgers[0].ledger_id, 0), asked.first or Position(0, 0))
    last = gap.ledgers[-1]
    stop = None if last.entries is None else Position(last.ledger_id, last.entries)
    if asked.stop is not None and asked.stop.ledger_id == last.ledger_id:
        stop = asked.stop if stop is None else min(stop, asked.stop)
    begin = f"{first.ledger_id}:{first.entry_id}"
    if stop is None:
        return f"positions from {begin} on" + (
            f", to ledger {last.ledger_id}" if len(gap.ledgers) > 1 else ""
        )
    end = stop.entry_id if stop.batch_index else max(stop.entry_id - 1, 0)
    return f"positions {begin} to {stop.ledger_id}:{end}"


def _named(ids: Sequence[int]) -> str:
    return ", ".join([*(str(each) for each in ids[:_MOST_NAMED]), *_more(len(ids))]) or "none"


def _more(count: int) -> list[str]:
    return [f"and {count - _MOST_NAMED} more"] if count > _MOST_NAMED else []


INDEXES_AHEAD = 16
"""The number of indexes of a task that are fetched while its extents are read."""


def _lose_ledger(scan_ledger: ScanLedger, fail: bool) -> None:
    """Report that a ledger has no complete copy after all, as `report_gaps` does for those known before.

    If nothing follows, its offload may not be complete yet: a warning. Unless its record, or a remaining index, shows
    that there was a copy, or a position after it was asked for.

    Raises:
        DataLossError: it is lost, and `fail`.
    """
    ledger = scan_ledger.ledger
    if ledger.has_nothing_to_lose:
        return
    what = f"a ledger of {scan_ledger.label} has no complete copy"
    if ledger.is_lost or not scan_ledger.is_last or scan_ledger.ends_at is not None:
        lose(what, ledger.ledger_id, fail, found=ledger.why_not_read)
    else:
        _log.warning("%s (ledger %d): %s. It is not read", what, ledger.ledger_id, ledger.why_not_read)


def read_scan_ledger(tier: Tier, scan_ledger: ScanLedger) -> ScanLedger:
    """Read the ledger's index if it was not read; errors as of `read_ledger`."""
    return replace(scan_ledger, ledger=read_ledger(tier, scan_ledger.ledger))


def read_ledger(tier: Tier, ledger: Ledger) -> Ledger:
    """The ledger with its index read, if it was not.

    If the copy turns out to be broken, its extents are the hot copy, or none.

    Raises:
        StoreError: the store fails, or has the index no more.
    """
    unread = ledger.unread
    if unread is None:
        return ledger
    read = with_index(tier, unread)
    attempts = tuple(read if stored is unread else stored for stored in ledger.attempts)
    extents = () if read.index is None else (extent_of(read, read.index.ledgers[0]),)
    if read.index is None and ledger.hot is not None:
        _log.warning(
            "%s (ledger %d): %s. The hot copy is read", read.key.data_key, ledger.ledger_id, read.detail
        )
        extents = (ledger.hot,)
    return replace(ledger, attempts=attempts, extents=extents)


def extents_of(scan_ledger: ScanLedger, fail: bool) -> Iterator[ScanExtent]:
    """The extents of a ledger whose index is read.

    Raises:
        DataLossError: it has no complete copy after all, or its first entries have none (`fail`).
    """
    ledger, asked = scan_ledger.ledger, scan_ledger.asked
    if not ledger.extents:
        _lose_ledger(scan_ledger, fail)
        return
    there = ledger.extents[0].begin_entry_id
    if there is not None and asked.start < there and (asked.stop is None or asked.start < asked.stop):
        what, found = (
            f"the first entries of a ledger of {scan_ledger.label} have no copy here",
            f"entries from {there} on",
        )
        if ledger.is_first and not asked.start:
            _log.warning("%s (ledger %d): %s. They were trimmed, or are lost", what, ledger.ledger_id, found)
        else:
            lose(what, ledger.ledger_id, fail, found=found)
    _report_lost(scan_ledger, fail)
    yield from _extents(scan_ledger)


def _report_lost(scan_ledger: ScanLedger, fail: bool) -> None:
    """Report entries that were lost before a damaged object was repaired.

    Raises:
        DataLossError: some that were asked for, and `fail`.
    """
    asked = scan_ledger.asked
    for extent in scan_ledger.ledger.extents:
        lost = extent.marks.lost
        if lost is not None and lost.touches(scan_ledger.ledger.ledger_id, asked.start, asked.stop):
            what = f"entries of a ledger of {scan_ledger.label} were lost before its copy was repaired"
            lose(what, scan_ledger.ledger.ledger_id, fail, found=f"{extent.data_key} lacks {lost.pack()}")


def extents_around(tier: Tier, planned: ScanExtent | ScanLedger) -> tuple[ScanExtent, ...]:
    """The extents of a task's neighbour. Missing entries are reported by the task that reads them.

    Raises:
        StoreError: the store fails.
    """
    return (planned,) if isinstance(planned, ScanExtent) else tuple(_extents(read_scan_ledger(tier, planned)))


def _extents(scan_ledger: ScanLedger) -> Iterator[ScanExtent]:
    ledger, asked = scan_ledger.ledger, scan_ledger.asked
    for extent, later in zip(ledger.extents, [*ledger.extents[1:], None], strict=True):
        end = least(extent.stop_entry_id, asked.stop)
        blocks = extent.blocks.overlapping(asked.start, end)
        if not blocks or (end is not None and end <= asked.start):
            continue
        cut = end is not None and end == asked.stop
        following = _following(scan_ledger, extent, later)
        yield ScanExtent(
            topic=scan_ledger.topic,
            partition=scan_ledger.partition,
            key=extent.key,
            hot=extent.hot,
            ledger=replace(extent.ledger, blocks=blocks),
            begin_entry_id=asked.start,
            start_batch=asked.start_batch,
            stop_entry_id=end,
            stop_batch=asked.stop_batch if cut else 0,
            next_entry_id=None if following is None else least(following, asked.stop),
            payload_bytes=_payload_bytes(ledger, extent, blocks, asked),
            marks=extent.marks,
            sequence_file=extent.sequence_file,
            checksum_key=extent.checksum_key,
            ends_by_time=scan_ledger.ends_by_time,
        )


def extents_ahead(
    tier: Tier, planned: Sequence[ScanExtent | ScanLedger], fail: bool
) -> Generator[ScanExtent, None, None]:
    """The extents of a task, in order; indexes are fetched ahead. Close it when not read to the end.

    Raises:
        DataLossError: as `extents_of`.
        StoreError: the store fails.
    """
    has_unread = any(isinstance(each, ScanLedger) for each in planned)
    if not has_unread or tier.describe().capabilities.ranges_ahead < 1:
        for each in planned:
            yield from _resolved(tier, each, fail)
        return
    resolved = bounded_map(
        lambda each: _resolved(tier, each, fail),
        planned,
        at_once=INDEXES_AHEAD,
        ahead=INDEXES_AHEAD,
        name="offload-index",
    )
    with closing(resolved):
        for extents in resolved:
            yield from extents


def _resolved(tier: Tier, planned: ScanExtent | ScanLedger, fail: bool) -> Sequence[ScanExtent]:
    if isinstance(planned, ScanExtent):
        return (planned,)
    return tuple(extents_of(read_scan_ledger(tier, planned), fail))


def _following(scan_ledger: ScanLedger, extent: LedgerExtent, following: LedgerExtent | None) -> int | None:
    """The entry that must follow an extent: the begin of the next one, or the end of a ledger that is closed.

    The offload of a topic's last ledger may not be complete: nothing must follow what is stored, or recorded. Before a
    position that ends the read, all must be there. The end of an object with gaps is known by records only.
    """
    ledger, ends_at = scan_ledger.ledger, scan_ledger.ends_at
    if extent.marks.has_gaps and extent.ledger.end_entry_id is None:
        return None
    if following is not None:
        return following.begin_entry_id
    if scan_ledger.is_closed:
        end = ledger.entries
    elif ends_at is not None:
        is_open = ledger.record is not None and ledger.record.info.entries is None
        asked = (
            ends_at.entry_id + bool(ends_at.batch_index) if ends_at.ledger_id == ledger.ledger_id else None
        )
        end = asked if is_open else ledger.entries
    else:
        end = None if ledger.record is None or extent.hot else ledger.record.offloaded_stop
    return extent.stop_entry_id if end is None else end


def _payload_bytes(ledger: Ledger, extent: LedgerExtent, blocks: BlockTable, asked: EntryRange) -> int | None:
    if extent.marks.is_filtered or extent.marks.lost is not None:
        return None
    whole = len(ledger.extents) == 1 and extent.first_entry_id == 0 and len(blocks) == len(extent.blocks)
    return extent.ledger.payload_bytes if whole and asked == EntryRange() else None


def least(*bounds: int | None) -> int | None:
    """The least bound that is not None; None if all are."""
    return min((bound for bound in bounds if bound is not None), default=None)
