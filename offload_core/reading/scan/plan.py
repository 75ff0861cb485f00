"""Plan a scan: from a catalogue and its bounds to tasks; ledgers are packed by size, and large ones are cut.

Topics and ledgers are read in order; a task takes as many as its share of bytes allows. Indexes are read here only of
ledgers that are cut, between their blocks or by a bound; the tasks read the others (ADR 0013). Each task names the
ledgers around it, as far as messages in chunks may reach; their indexes and blocks are read only when a message needs
them (`chunks_around`). Data that cannot be read is an error or a warning.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offload_core.format.cycle_search import rare_search_for_cycles
from offload_core.metadata.catalogue import Ledger, Topic, concurrently
from offload_core.reading.scan.extents import AskedRange, extents_of, read_scan_ledger, report_gaps
from offload_core.reading.scan.positions import Offsets, Position, check_offsets, check_topics, position_of
from offload_core.reading.scan.pruning import Condition, narrow, restrict_ledgers
from offload_core.reading.scan.tasks import (
    ALL_ENTRIES,
    EntryRange,
    Neighbours,
    ScanExtent,
    ScanLedger,
    ScanTask,
    TimeRange,
)
from offload_core.storage.tier import Tier

DEFAULT_TASK_BYTES = 128 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a scan in positions and times, and the policy for ledgers without a complete copy.

    What cannot hold a row for which all `conditions` hold is left out as well; `times` may be those that hold for them,
    and `asked_times` are those without.
    """

    start: Offsets = "earliest"
    stop: Offsets = "latest"
    fail_on_data_loss: bool = True
    times: TimeRange | None = None
    conditions: tuple[Condition, ...] = ()
    asked_times: TimeRange | None = None


@rare_search_for_cycles()
def plan_tasks(
    tier: Tier,
    topics: Sequence[Topic],
    bounds: Bounds,
    *,
    min_partitions: int = 1,
    task_bytes: int = DEFAULT_TASK_BYTES,
    neighbour_bytes: int | None = None,
    around: Sequence[Topic] | None = None,
) -> list[ScanTask]:
    """Tasks that together read the topics once; about as many as `min_partitions` where there are enough blocks.

    With `neighbour_bytes` each task has this many bytes of neighbours, for messages in chunks: in `around`, if
    `topics` have not all of their ledgers.

    Raises:
        OptionError: a bound of another form.
        DataLossError: a ledger in the range has no complete copy (`fail_on_data_loss`).
        StoreError: the store fails.
    """
    read = {topic.name for topic in topics if topic.name is not None}
    for offsets, option in ((bounds.start, "start"), (bounds.stop, "stop")):
        check_offsets(offsets, option)
        check_topics(offsets, read, option)
    fail = bounds.fail_on_data_loss
    asked = [(topic, each) for topic in topics if (each := _asked(topic, bounds)) is not None]
    in_range = [_scan_ledgers(topic, of_topic) for topic, of_topic in asked]
    by_topic = [restrict_ledgers(scan_ledgers, bounds.conditions) for scan_ledgers in in_range]
    times = bounds.times
    if times is not None:
        by_topic = concurrently(lambda scan_ledgers: narrow(tier, scan_ledgers, times), by_topic)
    for (topic, of_topic), scan_ledgers in zip(asked, by_topic, strict=True):
        report_gaps(topic, of_topic, {scan_ledger.ledger_id for scan_ledger in scan_ledgers}, fail=fail)
    planned: list[ScanExtent | ScanLedger] = [
        scan_ledger for scan_ledgers in by_topic for scan_ledger in _readable(scan_ledgers)
    ]
    planned = _extents_of_some(tier, planned, lambda scan_ledger: scan_ledger.asked != ALL_ENTRIES, fail)
    total = sum(each.data_bytes for each in planned)
    share_bytes = max(1, min(task_bytes, -(-total // max(1, min_partitions))))
    planned = _extents_of_some(tier, planned, lambda scan_ledger: scan_ledger.data_bytes > share_bytes, fail)
    tasks = list(_pack(planned, share_bytes))
    if neighbour_bytes is None:
        return tasks
    whole = AskedRange(first=None, stop=None)
    known = {  # a topic in `around` may have more ledgers than that of its name in `topics`
        id(topic): scan_ledgers
        for (topic, of_topic), scan_ledgers in zip(asked, in_range, strict=True)
        if of_topic == whole
    }
    ledgers = {}
    for topic in topics if around is None else around:
        scan_ledgers = known.get(id(topic)) or _scan_ledgers(topic, whole)
        ledgers[topic.full_name] = [each for each in scan_ledgers if each.ledger.is_readable]
    return add_neighbours(tasks, ledgers, neighbour_bytes)


def first_asked(tier: Tier, topic: Topic, bounds: Bounds) -> Position | None:
    """The begin of a topic's range, whatever the conditions; None if the range is empty.

    Raises:
        StoreError: the store fails.
    """
    asked = _asked(topic, bounds)
    scan_ledgers = (
        [] if asked is None else [each for each in _scan_ledgers(topic, asked) if each.ledger.is_readable]
    )
    if bounds.asked_times is not None:
        scan_ledgers = narrow(tier, scan_ledgers, bounds.asked_times)
    return Position(scan_ledgers[0].ledger_id, scan_ledgers[0].asked.start) if scan_ledgers else None


def _asked(topic: Topic, bounds: Bounds) -> AskedRange | None:
    """A topic's range by positions; None if it is empty."""
    start = position_of(bounds.start, topic.name, "earliest")
    stop = position_of(bounds.stop, topic.name, "latest")
    if start == "latest" or stop == "earliest":
        return None
    asked = AskedRange(
        first=start if isinstance(start, Position) else None,
        stop=stop if isinstance(stop, Position) else None,
    )
    return None if asked.is_empty else asked


def _scan_ledgers(topic: Topic, asked: AskedRange) -> list[ScanLedger]:
    """The ledgers of a topic's range, with those that cannot be read."""
    in_range = [ledger for ledger in topic.ledgers if asked.holds(ledger)]
    last_readable = max((ledger.ledger_id for ledger in in_range if ledger.is_readable), default=-1)
    last_offloaded = max((ledger.ledger_id for ledger in topic.ledgers if ledger.was_offloaded), default=-1)
    name, partition = topic.full_name, topic.partition
    return [
        ScanLedger(
            topic=name,
            partition=partition,
            ledger=ledger,
            asked=_range_in(ledger, asked),
            ends_at=asked.stop,
            is_closed=topic.name is not None and ledger.ledger_id < last_offloaded,
            is_last=topic.name is None or ledger.ledger_id >= last_readable,
        )
        for ledger in in_range
    ]


def _readable(scan_ledgers: Sequence[ScanLedger]) -> Iterator[ScanLedger]:
    for scan_ledger in scan_ledgers:
        if scan_ledger.ledger.is_readable:
            _warn_of_copies(scan_ledger)
            yield scan_ledger


def _range_in(ledger: Ledger, asked: AskedRange) -> EntryRange:
    start = asked.first if asked.first is not None and asked.first.ledger_id == ledger.ledger_id else None
    stop = asked.stop if asked.stop is not None and asked.stop.ledger_id == ledger.ledger_id else None
    if start is None and stop is None:
        return ALL_ENTRIES
    return EntryRange(
        start=start.entry_id if start else 0,
        start_batch=start.batch_index if start else 0,
        # with a batch index the entry is read as well, up to that message
        stop=stop.entry_id + bool(stop.batch_index) if stop else None,
        stop_batch=stop.batch_index if stop else 0,
    )


def _warn_of_copies(scan_ledger: ScanLedger) -> None:
    superseded = scan_ledger.ledger.superseded if len(scan_ledger.ledger.attempts) > 1 else ()
    if superseded:
        _log.warning(
            "ledger %d of %s has %d complete copies that are not read, since newer ones are: %s",
            scan_ledger.ledger.ledger_id,
            scan_ledger.label,
            len(superseded),
            ", ".join(stored.key.data_key for stored in superseded),
        )


def _extents_of_some(
    tier: Tier, planned: Sequence[ScanExtent | ScanLedger], which: Callable[[ScanLedger], bool], fail: bool
) -> list[ScanExtent | ScanLedger]:
    """Resolve to extents the ledgers whose index is read, and those that `which` selects: theirs are read now."""
    unread = [
        each
        for each in planned
        if isinstance(each, ScanLedger) and which(each) and each.ledger.unread is not None
    ]
    read = iter(concurrently(lambda scan_ledger: read_scan_ledger(tier, scan_ledger), unread))
    chosen = {id(scan_ledger) for scan_ledger in unread}
    result: list[ScanExtent | ScanLedger] = []
    for each in planned:
        if id(each) in chosen:
            result.extend(extents_of(next(read), fail))
        elif isinstance(each, ScanLedger) and each.ledger.unread is None:
            result.extend(extents_of(each, fail))
        else:
            result.append(each)
    return result


def _pack(planned: Sequence[ScanExtent | ScanLedger], share: int) -> Iterator[ScanTask]:
    """Fill tasks until each has about its share of bytes; an extent is split between its blocks."""
    packed: list[ScanExtent | ScanLedger] = []
    used = 0
    for extent in planned:
        begin = 0
        lengths = extent.blocks.lengths.tolist() if isinstance(extent, ScanExtent) else [extent.data_bytes]
        for i, length in enumerate(lengths):
            if used and used + length > share:
                if i > begin:
                    packed.append(_part(extent, begin, i))
                yield ScanTask(extents=tuple(packed))
                packed, used, begin = [], 0, i
            used += length
        packed.append(_part(extent, begin, len(lengths)))
    if packed:
        yield ScanTask(extents=tuple(packed))


def _part(extent: ScanExtent | ScanLedger, begin: int, end: int) -> ScanExtent | ScanLedger:
    """The extent's blocks `begin` … `end` − 1; an extent that is not read yet is not split."""
    if isinstance(extent, ScanLedger) or (begin, end) == (0, len(extent.blocks)):
        return extent
    following = extent.blocks[end].first_entry_id if end < len(extent.blocks) else None
    return replace(
        extent.with_blocks(extent.blocks[begin:end]),
        next_entry_id=extent.next_entry_id if following is None else following,
        payload_bytes=None,
        ends_by_time=extent.ends_by_time and following is None,
    )


LEAST_LEDGER_BYTES = 8 << 20
"""What a ledger counts at least among neighbours: tasks stay small where ledgers are."""


def add_neighbours(
    tasks: Sequence[ScanTask], ledgers: Mapping[str | None, Sequence[ScanLedger]], most_bytes: int
) -> list[ScanTask]:
    """The tasks with their neighbours of about `most_bytes` on either side.

    `ledgers` are all that can be read of each topic, whole, in order.
    """
    ids = {
        topic: [scan_ledger.ledger_id for scan_ledger in scan_ledgers]
        for topic, scan_ledgers in ledgers.items()
    }
    result = []
    for task in tasks:
        ends: dict[str | None, tuple[ScanExtent | ScanLedger, ScanExtent | ScanLedger]] = {}
        for each in task.extents:
            ends[each.topic] = (ends.get(each.topic, (each, each))[0], each)
        near = {}
        for topic, (first, last) in ends.items():
            of_topic, of_ids = ledgers[topic], ids[topic]
            before, is_all = _nearest(_before(first, of_topic, of_ids), most_bytes)
            after, is_all_after = _nearest(_after(last, of_topic, of_ids), most_bytes)
            if before or after:
                near[topic] = Neighbours(
                    before=tuple(reversed(before)),
                    reaches_beginning=is_all,
                    after=tuple(after),
                    reaches_end=is_all_after,
                )
        result.append(replace(task, neighbours=near))
    return result


def _before(
    first: ScanExtent | ScanLedger, ledgers: Sequence[ScanLedger], ids: Sequence[int]
) -> Iterator[ScanLedger]:
    """The ledgers before a task's first extent, the nearest first."""
    if isinstance(first, ScanLedger):
        begin = first.asked.start
    else:
        begin = max(first.start_entry_id, first.blocks[0].first_entry_id)
    at = bisect_left(ids, first.ledger_id)
    if begin and at < len(ids) and ids[at] == first.ledger_id:
        yield replace(ledgers[at], asked=EntryRange(stop=begin))
    for i in range(at - 1, -1, -1):
        yield ledgers[i]


def _after(
    last: ScanExtent | ScanLedger, ledgers: Sequence[ScanLedger], ids: Sequence[int]
) -> Iterator[ScanLedger]:
    """The ledgers after a task's last extent, in order."""
    if isinstance(last, ScanLedger):
        end = last.asked.stop
    else:
        known = (last.stop_entry_id, last.blocks[-1].end_entry_id or last.next_entry_id)
        end = min((each for each in known if each is not None), default=None)
    at = bisect_right(ids, last.ledger_id)
    if end is not None and at and ids[at - 1] == last.ledger_id:
        yield replace(ledgers[at - 1], asked=EntryRange(start=end))
    for i in range(at, len(ids)):
        yield ledgers[i]


def _nearest(scan_ledgers: Iterator[ScanLedger], most_bytes: int) -> tuple[list[ScanLedger], bool]:
    """Ledgers up to a number of bytes, and True if these are all; the size of one that is cut is not known."""
    taken: list[ScanLedger] = []
    left = most_bytes
    for scan_ledger in scan_ledgers:
        if left <= 0:
            return taken, False
        taken.append(scan_ledger)
        of_whole = scan_ledger.data_bytes if scan_ledger.asked == ALL_ENTRIES else 0
        left -= max(LEAST_LEDGER_BYTES, of_whole)
    return taken, True
