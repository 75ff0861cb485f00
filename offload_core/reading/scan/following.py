"""Follow topics as ledgers and segments arrive: positions reached, and how far the next read goes.

A frontier is the next position of each topic. `TopicFollower` lists the tier again after an interval; `advance` moves a
frontier by at most a batch; `SettledAdvance` stops it before the first transaction that is open. The keys of a bucket's
objects begin with random numbers, so a listing cannot go on where the last one ended; with records nothing is listed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.catalogue import Catalogue, Ledger, Topic, TopicName, concurrently
from offload_core.reading.scan.extents import least, lose, report_lost_objects
from offload_core.reading.scan.positions import Offsets, Position, check_offsets
from offload_core.reading.scan.select import Selection, select_topics
from offload_core.reading.scan.transactions import TailReader
from offload_core.reading.scan.transactions.outcomes import Table, name_transactions
from offload_hooks.errors import UnknownTopicError

Frontier = Mapping[TopicName, Position]
"""The next position of each topic; one that is not in it is read from its beginning."""

BEGINNING = Position(0, 0)


def resume_offsets(topics: Sequence[Topic], reached: Frontier, start: Offsets) -> tuple[list[Topic], Offsets]:
    """Restrict topics to the ledgers from the positions reached on, and return the scan's starts.

    Topics that `reached` does not name begin at `start`; those that are gone are passed over.

    Raises:
        OptionError: `start` has another form.
    """
    check_offsets(start, "start")
    # Also of topics that are not read: planning refuses them.
    offsets: dict[TopicName, Position | Literal["earliest", "latest"]]
    offsets = {} if isinstance(start, str) else dict(start)
    narrowed = []
    for topic in topics:
        name, rest = topic.name, topic
        if name is not None and name in reached:
            rest = _from(topic, reached[name])
            offsets[name] = reached[name] if rest.ledgers and _is_inside(reached[name]) else "earliest"
        elif name is not None and isinstance(start, str):
            offsets[name] = start
        narrowed.append(rest)
    return narrowed, offsets


def between(
    topics: Sequence[Topic], start: Frontier, end: Frontier
) -> tuple[list[Topic], Frontier, Frontier]:
    """Restrict topics to the ledgers between two frontiers, and return their positions as a scan's bounds.

    A position at a ledger's beginning needs no bound, nor does that ledger have to be there.
    """
    narrowed: list[Topic] = []
    starts: dict[TopicName, Position] = {}
    stops: dict[TopicName, Position] = {}
    for topic in topics:
        if topic.name is None or topic.name not in end:
            continue
        first, last = start.get(topic.name, BEGINNING), end[topic.name]
        if first >= last:
            continue
        if _is_inside(first):
            starts[topic.name] = first
        if _is_inside(last):
            stops[topic.name] = last
        rest = _from(topic, first)
        until = last.ledger_id + _is_inside(last)
        narrowed.append(
            replace(rest, ledgers=tuple(ledger for ledger in rest.ledgers if ledger.ledger_id < until))
        )
    return narrowed, starts, stops


def _from(topic: Topic, position: Position) -> Topic:
    """The topic without the ledgers before a position."""
    return replace(
        topic, ledgers=tuple(ledger for ledger in topic.ledgers if ledger.ledger_id >= position.ledger_id)
    )


def _is_inside(position: Position) -> bool:
    """True if messages of the position's ledger come before it."""
    return position.entry_id > 0 or position.batch_index > 0


_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class BatchLimit:
    """The stored bytes and entries that a batch may still take; None for no limit. Its first entry is always taken."""

    max_bytes: int | None = None
    max_entries: int | None = None
    _is_touched: bool = False

    def take(self, entries: int, data_bytes: int) -> int:
        """Subtract the next entries, which have this many bytes together; return how many the batch takes."""
        count = entries
        if self.max_entries is not None:
            count = min(count, self.max_entries)
        if self.max_bytes is not None and data_bytes * count > self.max_bytes * entries:
            count = self.max_bytes * entries // data_bytes
        if not self._is_touched:
            count, self._is_touched = max(count, 1), True
        if self.max_entries is not None:
            self.max_entries = max(0, self.max_entries - count)
        if self.max_bytes is not None:
            self.max_bytes = max(0, self.max_bytes - -(-data_bytes * count // entries))
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Some consecutive entries of one block; `end` is the position after them.

    It has no entries where it shows only now that a ledger is complete, or where a filter left out all of them.
    """

    first: Position
    entries: int
    data_bytes: int
    end: Position

    def after(self, count: int) -> Position:
        if count == self.entries:
            return self.end
        return Position(self.first.ledger_id, self.first.entry_id + count)


def advance(
    topics: Sequence[Topic],
    start: Frontier,
    limit: BatchLimit,
    *,
    stops: Frontier | None = None,
    fail_on_data_loss: bool,
) -> dict[TopicName, Position]:
    """Advance a stream from `start`: a block of each topic in turn, within the limit, which is used up.

    Topics end at `stops`, which take nothing off the limit of the others.

    Raises:
        DataLossError: a ledger will never be readable, but later ones are, or an object of an unknown ledger is lost
            (`fail_on_data_loss`).
    """
    reached = dict(start)
    walks = deque(
        (
            topic.name,
            _up_to(
                None if stops is None else stops.get(topic.name),
                _steps(topic, start.get(topic.name, BEGINNING), fail_on_data_loss),
            ),
        )
        for topic in topics
        if topic.name is not None
    )
    while walks:
        name, walk = walks.popleft()
        step = next(walk, None)
        if step is None:
            continue
        count = limit.take(step.entries, step.data_bytes) if step.entries else 0
        if count or not step.entries:
            reached[name] = step.after(count)
        if count < step.entries:
            break
        walks.append((name, walk))
    return reached


def _steps(topic: Topic, start: Position, fail: bool) -> Iterator[_Step]:
    """The blocks from a position on, up to the first ledger whose offload is not complete."""
    report_lost_objects(topic, fail)
    ledgers = [ledger for ledger in topic.ledgers if ledger.ledger_id >= start.ledger_id]
    for i, ledger in enumerate(ledgers):
        later = any(other.extents or other.is_lost for other in ledgers[i + 1 :])
        if not ledger.extents:
            if ledger.has_nothing_to_lose:
                continue
            if not _is_lost(ledger, later):
                return
            _lose_ledger(topic, ledger, fail)
            continue
        yield from _ledger_steps(ledger, start.entry_id if ledger.ledger_id == start.ledger_id else 0, later)
        if ledger.lost_tail is not None:
            _lose_ledger(topic, ledger, fail)
        if not _is_whole(ledger, later):
            return


def _up_to(stop: Position | None, steps: Iterator[_Step]) -> Iterator[_Step]:
    """Cut the steps at the entry `stop`."""
    for step in steps:
        if stop is None:
            yield step
            continue
        if step.first >= stop:
            return
        count = step.entries
        if step.first.ledger_id == stop.ledger_id:
            count = min(count, stop.entry_id - step.first.entry_id)
        if count < step.entries:
            data_bytes = -(-step.data_bytes * count // step.entries)
            step = replace(step, entries=count, data_bytes=data_bytes, end=step.after(count))
        yield step


def _is_lost(ledger: Ledger, later: bool) -> bool:
    """True if a ledger without a complete copy will never have one.

    By its record it may still be in BookKeeper. Without records its attempts failed if later ledgers are there, and it
    is lost if its index remains, which is written after its data.
    """
    return ledger.is_lost or (ledger.record is None and later)


def _lose_ledger(topic: Topic, ledger: Ledger, fail: bool) -> None:
    lost = ledger.lost_tail
    lose(
        f"a ledger of {topic.label} has no complete copy",
        ledger.ledger_id,
        fail,
        entry_id=None if lost is None else lost[1],
        found=ledger.why_not_read if lost is None else f"{lost[0].key.data_key}: {lost[0].detail}",
    )


def _is_whole(ledger: Ledger, later: bool) -> bool:
    """True if a ledger gets no more entries: by its record, or since a later one exists."""
    if ledger.record is not None and ledger.hot is not None:
        return ledger.record.info.is_closed
    if ledger.formats != (ObjectFormat.STREAMING,):
        return True
    if ledger.record is None:
        return later
    entries, stop = ledger.record.info.entries, ledger.record.offloaded_stop
    return bool(entries) and stop is not None and stop >= (entries or 0)


def _ledger_steps(ledger: Ledger, start_entry_id: int, later: bool) -> Iterator[_Step]:
    known_end = ledger.extents[-1].stop_entry_id
    if known_end is None:
        known_end = ledger.entries
    whole = _is_whole(ledger, later)
    next_ledger = Position(ledger.ledger_id + 1, 0)
    if whole and start_entry_id == known_end:
        first = Position(ledger.ledger_id, start_entry_id)
        yield _Step(first=first, entries=0, data_bytes=0, end=next_ledger)
        return
    for extent in ledger.extents:
        ends_ledger, stop = whole and extent is ledger.extents[-1], extent.stop_entry_id
        if not extent.blocks and stop is not None and start_entry_id < stop:
            yield _Step(
                first=Position(ledger.ledger_id, max(start_entry_id, extent.first_entry_id)),
                entries=0,
                data_bytes=0,
                end=next_ledger if ends_ledger else Position(ledger.ledger_id, stop),
            )
        for number, block in enumerate(extent.blocks, 1):
            end = least(block.end_entry_id, stop)
            if end is None:
                end = known_end
            if end is None:
                _log.warning("ledger %d: it is not known yet where its segment ends", ledger.ledger_id)
                return
            first_entry_id = max(start_entry_id, block.first_entry_id)
            if first_entry_id < end:
                is_last = ends_ledger and number == len(extent.blocks)
                yield _Step(
                    first=Position(ledger.ledger_id, first_entry_id),
                    entries=end - first_entry_id,
                    data_bytes=block.length,
                    end=next_ledger if is_last else Position(ledger.ledger_id, end),
                )


class SettledAdvance:
    """Advances a stream of messages before transactions that are open; see `advance`."""

    def __init__(self, tails: TailReader) -> None:
        self._tails = tails
        self._asked: tuple[object, ...] = ()
        self._topics: list[Topic] = []
        self._answer: dict[TopicName, Position] = {}
        self._waits: dict[TopicName, Position] = {}

    def __call__(
        self, topics: Sequence[Topic], start: Frontier, limit: BatchLimit, *, fail_on_data_loss: bool
    ) -> dict[TopicName, Position]:
        """Do the same as `advance`, and before the first entry of each topic whose transaction is open.

        Repeats its last answer while nothing has changed.

        Raises:
            DataLossError: as of `advance`.
            FormatError, StoreError: of the objects that are read.
        """
        asked = (dict(start), limit, fail_on_data_loss)
        same = len(topics) == len(self._topics) and all(
            ours is theirs for ours, theirs in zip(topics, self._topics, strict=True)
        )
        if same and asked == self._asked:
            return self._answer
        stops: dict[TopicName, Position] = {}
        while True:
            reached = advance(topics, start, replace(limit), stops=stops, fail_on_data_loss=fail_on_data_loss)
            found = self._open_in(topics, start, reached)
            if not found:
                break
            stops |= found  # each topic is stopped once, where its first open entry is
        self._asked, self._topics, self._answer = asked, list(topics), reached
        self._waits = {name: at for name, at in self._waits.items() if name in stops}
        return reached

    def _open_in(self, topics: Sequence[Topic], start: Frontier, end: Frontier) -> dict[TopicName, Position]:
        """The position of the first open entry of each topic between two frontiers."""
        moved = {topic.name for topic in between(topics, start, end)[0]}
        asked = [topic for topic in topics if topic.name in moved]

        def open_in(topic: Topic) -> Table:
            assert topic.name is not None
            first, last = start.get(topic.name, BEGINNING), end[topic.name]
            return self._tails.open_in(
                topic, (first.ledger_id, first.entry_id), (last.ledger_id, last.entry_id)
            )

        found = {}
        for topic, unsettled in zip(asked, concurrently(open_in, asked), strict=True):
            if not len(unsettled) or topic.name is None:
                continue
            at = found[topic.name] = Position(*unsettled[0, :2].tolist())
            if self._waits.get(topic.name) != at:
                self._waits[topic.name] = at
                _log.info(
                    "%s: the stream waits at %d:%d for the outcome of %d transactions: %s",
                    topic.name,
                    at.ledger_id,
                    at.entry_id,
                    *name_transactions(unsettled),
                )
        return found


Look = Callable[[Catalogue | None], Catalogue]
"""Makes a catalogue from the one before."""


class TopicFollower:
    """Lists the topics of a selection again after an interval.

    Args:
        look: lists the tier.
        selection: which of its topics; names may have nothing yet.
        interval_s: the least time between listings, in seconds.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        look: Look,
        selection: Selection,
        *,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._selection = selection
        self._interval_s = interval_s
        self._clock = clock
        self._looked_at = 0.0
        self._catalogue: Catalogue | None = None
        self._seen: dict[TopicName, set[int]] = {}
        self._is_frozen = False

    def topics(self, *, fresh: bool = False) -> list[Topic]:
        """The topics; listed again after the interval, or now with `fresh`, unless frozen."""
        catalogue = self._catalogue
        if catalogue is None or (not self._is_frozen and (fresh or self._is_old())):
            catalogue = self._catalogue = self._look(catalogue)
            self._looked_at = self._clock()
        return select_topics(catalogue, self._selection)

    def check_named(self) -> None:
        """Refuse names of topics of which nothing is here yet.

        Raises:
            UnknownTopicError: there is one.
        """
        self.topics()
        assert self._catalogue is not None
        try:
            select_topics(self._catalogue, replace(self._selection, may_be_absent=False))
        except UnknownTopicError as error:
            error.hint = "A pattern of topics waits for those that come later; so does one that is a name."
            raise

    def freeze(self) -> None:
        """List once more, and then never again."""
        self.topics(fresh=True)
        self._is_frozen = True

    def check_late(self, topics: list[Topic], reached: Frontier, *, fail_on_data_loss: bool) -> None:
        """Report ledgers that appeared before the position that a stream has reached: they would never be read.

        Raises:
            DataLossError: there is one (`fail_on_data_loss`).
        """
        for topic in topics:
            if topic.name is None:
                continue
            ledger_ids = {ledger.ledger_id for ledger in topic.ledgers if ledger.extents}
            seen = self._seen.setdefault(topic.name, ledger_ids)
            position = reached.get(topic.name)
            late = sorted(
                each for each in ledger_ids - seen if position is not None and each < position.ledger_id
            )
            seen |= ledger_ids
            if late:
                lose(
                    f"a ledger of {topic.label} came to the tier after later ones had been read",
                    late[0],
                    fail_on_data_loss,
                    found=f"ledgers {', '.join(map(str, late))}, when {position} had been reached",
                    hint="Read them by a batch query. With records, streams wait for ledgers in their order.",
                )

    def _is_old(self) -> bool:
        return self._clock() - self._looked_at >= self._interval_s
