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

from offload_core.metadata.catalogue import Ledger, Topic, concurrently
from offload_core.reading.scan.positions import Offsets, Position, check_offsets, check_topics, position_of
from offload_core.reading.scan.pruning import Condition, narrow, restrict_shares
from offload_core.reading.scan.runs import AskedRange, read_share, report_gaps, runs_of
from offload_core.reading.scan.tasks import EntryRange, LedgerShare, Neighbours, Run, ScanTask, TimeRange
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

    With `neighbour_bytes` each task is told so much of what lies around it, for messages in chunks: in `around`, if
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
    by_topic = [restrict_shares(_shares(topic, of_topic), bounds.conditions) for topic, of_topic in asked]
    times = bounds.times
    if times is not None:
        by_topic = concurrently(lambda shares: narrow(tier, shares, times), by_topic)
    for (topic, of_topic), shares in zip(asked, by_topic, strict=True):
        report_gaps(topic, of_topic, {share.ledger_id for share in shares}, fail=fail)
    planned: list[Run | LedgerShare] = [share for shares in by_topic for share in _readable(shares)]
    planned = _runs_of_some(tier, planned, lambda share: share.asked != EntryRange(), fail)
    total = sum(each.data_bytes for each in planned)
    share_bytes = max(1, min(task_bytes, -(-total // max(1, min_partitions))))
    planned = _runs_of_some(tier, planned, lambda share: share.data_bytes > share_bytes, fail)
    tasks = list(_pack(planned, share_bytes))
    if neighbour_bytes is None:
        return tasks
    whole = AskedRange(first=None, stop=None)
    ledgers = {
        topic.full_name: [share for share in _shares(topic, whole) if share.ledger.is_readable]
        for topic in (topics if around is None else around)
    }
    return add_neighbours(tasks, ledgers, neighbour_bytes)


def first_asked(tier: Tier, topic: Topic, bounds: Bounds) -> Position | None:
    """The begin of a topic's range, whatever the conditions; None if the range is empty.

    Raises:
        StoreError: the store fails.
    """
    asked = _asked(topic, bounds)
    shares = [] if asked is None else [each for each in _shares(topic, asked) if each.ledger.is_readable]
    if bounds.asked_times is not None:
        shares = narrow(tier, shares, bounds.asked_times)
    return Position(shares[0].ledger_id, shares[0].asked.start) if shares else None


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


def _shares(topic: Topic, asked: AskedRange) -> list[LedgerShare]:
    """The ledgers of a topic's range, with those that cannot be read."""
    in_range = [ledger for ledger in topic.ledgers if asked.holds(ledger)]
    last_readable = max((ledger.ledger_id for ledger in in_range if ledger.is_readable), default=-1)
    last_offloaded = max((ledger.ledger_id for ledger in topic.ledgers if ledger.was_offloaded), default=-1)
    return [
        LedgerShare(
            topic=topic.full_name,
            partition=topic.partition,
            ledger=ledger,
            asked=_range_in(ledger, asked),
            ends_at=asked.stop,
            is_closed=topic.name is not None and ledger.ledger_id < last_offloaded,
            is_last=topic.name is None or ledger.ledger_id >= last_readable,
        )
        for ledger in in_range
    ]


def _readable(shares: Sequence[LedgerShare]) -> Iterator[LedgerShare]:
    for share in shares:
        if share.ledger.is_readable:
            _warn_of_copies(share)
            yield share


def _range_in(ledger: Ledger, asked: AskedRange) -> EntryRange:
    start = asked.first if asked.first is not None and asked.first.ledger_id == ledger.ledger_id else None
    stop = asked.stop if asked.stop is not None and asked.stop.ledger_id == ledger.ledger_id else None
    return EntryRange(
        start=start.entry_id if start else 0,
        start_batch=start.batch_index if start else 0,
        # with a batch index the entry is read as well, up to that message
        stop=stop.entry_id + bool(stop.batch_index) if stop else None,
        stop_batch=stop.batch_index if stop else 0,
    )


def _warn_of_copies(share: LedgerShare) -> None:
    superseded = share.ledger.superseded
    if superseded:
        _log.warning(
            "ledger %d of %s has %d complete copies that are not read, since newer ones are: %s",
            share.ledger.ledger_id,
            share.label,
            len(superseded),
            ", ".join(stored.key.data_key for stored in superseded),
        )


def _runs_of_some(
    tier: Tier, planned: Sequence[Run | LedgerShare], which: Callable[[LedgerShare], bool], fail: bool
) -> list[Run | LedgerShare]:
    """The runs of those ledgers whose index is read, or that `which` holds for: theirs are read now, many at once."""
    unread = [
        each
        for each in planned
        if isinstance(each, LedgerShare) and each.ledger.unread is not None and which(each)
    ]
    read = iter(concurrently(lambda share: read_share(tier, share), unread))
    chosen = {id(share) for share in unread}
    result: list[Run | LedgerShare] = []
    for each in planned:
        if id(each) in chosen:
            result.extend(runs_of(next(read), fail))
        elif isinstance(each, LedgerShare) and each.ledger.unread is None:
            result.extend(runs_of(each, fail))
        else:
            result.append(each)
    return result


def _pack(planned: Sequence[Run | LedgerShare], share: int) -> Iterator[ScanTask]:
    """Fill tasks until each has about its share of bytes; a run is split between its blocks."""
    packed: list[Run | LedgerShare] = []
    used = 0
    for run in planned:
        begin = 0
        lengths = run.blocks.lengths.tolist() if isinstance(run, Run) else [run.data_bytes]
        for i, length in enumerate(lengths):
            if used and used + length > share:
                if i > begin:
                    packed.append(_part(run, begin, i))
                yield ScanTask(runs=tuple(packed))
                packed, used, begin = [], 0, i
            used += length
        packed.append(_part(run, begin, len(lengths)))
    if packed:
        yield ScanTask(runs=tuple(packed))


def _part(run: Run | LedgerShare, begin: int, end: int) -> Run | LedgerShare:
    """The run's blocks `begin` … `end` − 1; what is not read yet is not split."""
    if isinstance(run, LedgerShare) or (begin, end) == (0, len(run.blocks)):
        return run
    following = run.blocks[end].first_entry_id if end < len(run.blocks) else None
    return replace(
        run,
        blocks=run.blocks[begin:end],
        next_entry_id=run.next_entry_id if following is None else following,
        payload_bytes=None,
        ends_by_time=run.ends_by_time and following is None,
    )


MOST_LEDGERS = 16
"""The most ledgers on either side: tasks stay small where ledgers are."""


def add_neighbours(
    tasks: Sequence[ScanTask], ledgers: Mapping[str | None, Sequence[LedgerShare]], most_bytes: int
) -> list[ScanTask]:
    """The tasks with their neighbours of about `most_bytes` on either side.

    `ledgers` are all that can be read of each topic, whole, in order.
    """
    ids = {topic: [share.ledger_id for share in shares] for topic, shares in ledgers.items()}
    result = []
    for task in tasks:
        ends: dict[str | None, tuple[Run | LedgerShare, Run | LedgerShare]] = {}
        for each in task.runs:
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
    first: Run | LedgerShare, ledgers: Sequence[LedgerShare], ids: Sequence[int]
) -> Iterator[LedgerShare]:
    """The ledgers before a task's first run, the nearest first."""
    if isinstance(first, LedgerShare):
        begin = first.asked.start
    else:
        begin = max(first.start_entry_id, first.blocks[0].first_entry_id)
    at = bisect_left(ids, first.ledger_id)
    if begin and at < len(ids) and ids[at] == first.ledger_id:
        yield replace(ledgers[at], asked=EntryRange(stop=begin))
    for i in range(at - 1, -1, -1):
        yield ledgers[i]


def _after(
    last: Run | LedgerShare, ledgers: Sequence[LedgerShare], ids: Sequence[int]
) -> Iterator[LedgerShare]:
    """The ledgers after a task's last run, in order."""
    if isinstance(last, LedgerShare):
        end = last.asked.stop
    else:
        known = (last.stop_entry_id, last.blocks[-1].end_entry_id or last.next_entry_id)
        end = min((each for each in known if each is not None), default=None)
    at = bisect_right(ids, last.ledger_id)
    if end is not None and at and ids[at - 1] == last.ledger_id:
        yield replace(ledgers[at - 1], asked=EntryRange(start=end))
    for i in range(at, len(ids)):
        yield ledgers[i]


def _nearest(shares: Iterator[LedgerShare], most_bytes: int) -> tuple[list[LedgerShare], bool]:
    """Ledgers until they have so many bytes, and whether these are all; of one that is cut it is not known how many."""
    taken: list[LedgerShare] = []
    left = most_bytes
    for share in shares:
        if left <= 0 or len(taken) >= MOST_LEDGERS:
            return taken, False
        taken.append(share)
        if share.asked == EntryRange():
            left -= share.data_bytes
    return taken, True
