"""From a catalogue and what is asked for to tasks: bounds per topic, blocks per ledger, runs packed by size.

Topics and ledgers are read in order; a task takes blocks from as many ledgers as its share of bytes asks for, and a
large ledger is split between its blocks. What cannot be read is an error or a warning, never silence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offload_core.catalogue import Ledger, Piece, Topic
from offload_core.codec.index import IndexedBlock
from offload_core.scan.neighbours import Outside, add_neighbours
from offload_core.scan.positions import Offsets, Position, check_offsets, check_topics, position_of
from offload_core.scan.tasks import Run, ScanTask
from offload_hooks.errors import DataLossError

DEFAULT_TASK_BYTES = 128 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where to start and end, and what to do about ledgers in between that have no complete copy."""

    start: Offsets = "earliest"
    stop: Offsets = "latest"
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntryRange:
    """What is asked for of one ledger, as a `Run` has it."""

    start: int = 0
    start_batch: int = 0
    stop: int | None = None
    stop_batch: int = 0


def plan_tasks(
    topics: Sequence[Topic],
    bounds: Bounds,
    *,
    min_partitions: int = 1,
    task_bytes: int = DEFAULT_TASK_BYTES,
    neighbour_bytes: int | None = None,
) -> list[ScanTask]:
    """Tasks that together read the topics once; about as many as `min_partitions` where there are enough blocks.

    With `neighbour_bytes` each task is told so much of what lies around it, for messages in chunks.

    Raises:
        OptionError: a bound of another form.
        DataLossError: a ledger in the range has no complete copy (`fail_on_data_loss`).
    """
    read = {topic.name for topic in topics if topic.name is not None}
    for offsets, option in ((bounds.start, "start"), (bounds.stop, "stop")):
        check_offsets(offsets, option)
        check_topics(offsets, read, option)
    runs = [run for topic in topics for run in _plan_topic(topic, bounds)]
    share = max(1, min(task_bytes, -(-sum(run.data_bytes for run in runs) // max(1, min_partitions))))
    tasks = list(_pack(runs, share))
    if neighbour_bytes is None:
        return tasks
    outside = {str(topic.name) if topic.name else None: _outside(topic, bounds) for topic in topics}
    return add_neighbours(tasks, outside, neighbour_bytes)


def _outside(topic: Topic, bounds: Bounds) -> Outside:
    """What of a topic is not asked for: before its first position, and from its last one on."""
    start = position_of(bounds.start, topic.name, "earliest")
    stop = position_of(bounds.stop, topic.name, "latest")

    def before() -> Iterator[Run]:
        if isinstance(start, Position):
            for ledger in reversed(topic.ledgers):
                if ledger.ledger_id <= start.ledger_id:
                    asked = _range_in(ledger, None, replace(start, batch_index=0))
                    yield from reversed(list(_plan_ledger(topic, ledger, asked)))

    def after() -> Iterator[Run]:
        if isinstance(stop, Position):
            behind = replace(stop, entry_id=stop.entry_id + bool(stop.batch_index), batch_index=0)
            for ledger in topic.ledgers:
                if ledger.ledger_id >= stop.ledger_id:
                    yield from _plan_ledger(topic, ledger, _range_in(ledger, behind, None))

    return Outside(before=before, after=after)


def _plan_topic(topic: Topic, bounds: Bounds) -> Iterator[Run]:
    start = position_of(bounds.start, topic.name, "earliest")
    stop = position_of(bounds.stop, topic.name, "latest")
    if start == "latest" or stop == "earliest":
        return
    first = start if isinstance(start, Position) else None
    last = stop if isinstance(stop, Position) else None
    in_range = [
        ledger
        for ledger in topic.ledgers
        if (first is None or ledger.ledger_id >= first.ledger_id)
        and (last is None or ledger.ledger_id <= last.ledger_id)
    ]
    _check_bounds(topic, first, bounds.fail_on_data_loss)
    for ledger in _readable(topic, in_range, bounds.fail_on_data_loss):
        asked = _range_in(ledger, first, last)
        _check_begin(topic, ledger, asked, bounds.fail_on_data_loss)
        yield from _plan_ledger(topic, ledger, asked)


def _range_in(ledger: Ledger, first: Position | None, last: Position | None) -> _EntryRange:
    start = first if first is not None and first.ledger_id == ledger.ledger_id else None
    stop = last if last is not None and last.ledger_id == ledger.ledger_id else None
    return _EntryRange(
        start=start.entry_id if start else 0,
        start_batch=start.batch_index if start else 0,
        # with a batch index the entry is read as well, up to that message
        stop=stop.entry_id + bool(stop.batch_index) if stop else None,
        stop_batch=stop.batch_index if stop else 0,
    )


def _check_bounds(topic: Topic, first: Position | None, fail: bool) -> None:
    if first is not None and all(ledger.ledger_id != first.ledger_id for ledger in topic.ledgers):
        _lose(
            f"{topic.label} was asked for from {first}, but that ledger has no copy here",
            first.ledger_id,
            fail,
            found=f"ledgers {', '.join(str(ledger.ledger_id) for ledger in topic.ledgers)}",
        )


def _check_begin(topic: Topic, ledger: Ledger, asked: _EntryRange, fail: bool) -> None:
    there = ledger.pieces[0].first_entry_id
    if asked.start < there and (asked.stop is None or asked.start < asked.stop):
        _lose(
            f"the first entries of a ledger of {topic.label} have no copy here",
            ledger.ledger_id,
            fail,
            found=f"entries from {there} on",
        )


def _readable(topic: Topic, ledgers: Sequence[Ledger], fail: bool) -> Iterator[Ledger]:
    """The ledgers that have a complete copy. Those without one at the end may still be on their way: a warning.

    Unless their record says that there is one. A ledger without entries has nothing to lose.
    """
    last = max((ledger.ledger_id for ledger in ledgers if ledger.pieces), default=-1)
    for ledger in ledgers:
        if ledger.pieces:
            _warn_of_copies(topic, ledger)
            yield ledger
            continue
        if ledger.entries == 0:
            continue
        problems = ledger.why_not_read
        what = f"a ledger of {topic.label} has no complete copy"
        is_lost = ledger.record is not None and ledger.record.has_complete_copy
        if (ledger.ledger_id < last and topic.name is not None) or is_lost:
            _lose(what, ledger.ledger_id, fail, found=problems)
        else:
            _log.warning("%s (ledger %d): %s. It is not read", what, ledger.ledger_id, problems)


def _warn_of_copies(topic: Topic, ledger: Ledger) -> None:
    if ledger.superseded:
        _log.warning(
            "ledger %d of %s has %d complete copies that are not read, since newer ones are: %s",
            ledger.ledger_id,
            topic.label,
            len(ledger.superseded),
            ", ".join(stored.key.data_key for stored in ledger.superseded),
        )


def _lose(what: str, ledger_id: int, fail: bool, found: str) -> None:
    error = DataLossError(
        what, ledger_id=ledger_id, found=found, hint="Set failOnDataLoss to false to read what there is."
    )
    if fail:
        raise error
    _log.warning("%s", error)


def _plan_ledger(topic: Topic, ledger: Ledger, asked: _EntryRange) -> Iterator[Run]:
    for piece in ledger.pieces:
        end = _least(piece.stop_entry_id, asked.stop)
        blocks = tuple(_overlapping(piece.ledger.blocks, asked.start, end))
        if not blocks or (end is not None and end <= asked.start):
            continue
        cut = end is not None and end == asked.stop
        following = _following(topic, ledger, piece)
        yield Run(
            topic=str(topic.name) if topic.name else None,
            partition=topic.name.partition if topic.name else -1,
            ledger_id=ledger.ledger_id,
            object_format=piece.stored.key.object_format,
            data_key=piece.stored.key.data_key,
            blocks=blocks,
            start_entry_id=asked.start,
            start_batch=asked.start_batch,
            stop_entry_id=end,
            stop_batch=asked.stop_batch if cut else 0,
            next_entry_id=None if following is None else _least(following, asked.stop),
            payload_bytes=_payload_bytes(ledger, piece, blocks, asked),
            sequence_file=piece.stored.index.sequence_file if piece.stored.index else None,
            checksum_key=piece.stored.checksum_key,
        )


def _following(topic: Topic, ledger: Ledger, piece: Piece) -> int | None:
    """The entry that must follow a piece: the next piece's first, or the end of a ledger that is closed.

    The last ledger of a topic may still be on its way: nothing must follow what there is, or what its record says that
    there is.
    """
    if piece is not ledger.pieces[-1]:
        return piece.stop_entry_id
    behind = [other for other in topic.ledgers if other.ledger_id > ledger.ledger_id and other.attempts]
    if topic.name is not None and behind:
        end = ledger.entries
    else:
        end = None if ledger.record is None else ledger.record.offloaded_stop
    return piece.stop_entry_id if end is None else end


def _payload_bytes(
    ledger: Ledger, piece: Piece, blocks: tuple[IndexedBlock, ...], asked: _EntryRange
) -> int | None:
    whole = len(ledger.pieces) == 1 and piece.first_entry_id == 0 and len(blocks) == len(piece.ledger.blocks)
    return piece.ledger.payload_bytes if whole and asked == _EntryRange() else None


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _overlapping(blocks: Sequence[IndexedBlock], start: int, stop: int | None) -> Iterator[IndexedBlock]:
    for block in blocks:
        if block.end_entry_id is not None and block.end_entry_id <= start:
            continue
        if stop is not None and block.first_entry_id >= stop:
            continue
        yield block


def _pack(runs: Sequence[Run], share: int) -> Iterator[ScanTask]:
    """Fill tasks with blocks until each has about its share of bytes; a run is split between its blocks."""
    packed: list[Run] = []
    used = 0
    for run in runs:
        begin = 0
        for i, block in enumerate(run.blocks):
            if used and used + block.length > share:
                if i > begin:
                    packed.append(_part(run, begin, i))
                yield ScanTask(runs=tuple(packed))
                packed, used, begin = [], 0, i
            used += block.length
        packed.append(_part(run, begin, len(run.blocks)))
    if packed:
        yield ScanTask(runs=tuple(packed))


def _part(run: Run, begin: int, end: int) -> Run:
    """The run's blocks `begin` … `end` − 1."""
    if (begin, end) == (0, len(run.blocks)):
        return run
    following = run.blocks[end].first_entry_id if end < len(run.blocks) else None
    return replace(
        run,
        blocks=run.blocks[begin:end],
        next_entry_id=run.next_entry_id if following is None else following,
        payload_bytes=None,
    )
