"""How far a stream may read on: from a position in each topic to the next, within a budget. Nothing is fetched.

Where the next ledger is still on its way to the tier, the stream waits. Source: docs/spark.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.catalogue import Ledger, Topic, TopicName
from offload_core.reading.scan.frontier import BEGINNING, Frontier
from offload_core.reading.scan.gaps import report_lost_objects
from offload_core.reading.scan.positions import Position
from offload_hooks.errors import DataLossError

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Budget:
    """What may still be read, stored bytes and entries; None for no limit. The first entry is always within it."""

    max_bytes: int | None = None
    max_entries: int | None = None
    _is_touched: bool = False

    def take(self, entries: int, data_bytes: int) -> int:
        """How many of the next entries, which have so many bytes together, are within it; they are taken off."""
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
    """Some consecutive entries of one block; `end` is the position behind them.

    None at all where it shows only now that no more of a ledger will come, or where a filter left out all of them.
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
    budget: Budget,
    *,
    stops: Frontier | None = None,
    fail_on_data_loss: bool,
) -> dict[TopicName, Position]:
    """Where a stream that has come to `start` may read to; a block of each topic in turn, within the budget.

    Topics end at `stops`, which take nothing off the budget of the others.

    Raises:
        DataLossError: a ledger will not be readable any more, but ones behind it are, or an object is lost and nothing
            tells of which ledger (`fail_on_data_loss`).
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
        count = budget.take(step.entries, step.data_bytes) if step.entries else 0
        if count or not step.entries:
            reached[name] = step.after(count)
        if count < step.entries:
            break
        walks.append((name, walk))
    return reached


def _steps(topic: Topic, start: Position, fail: bool) -> Iterator[_Step]:
    """The blocks that are there from a position on, up to the first ledger that is still on its way."""
    report_lost_objects(topic, fail)
    ledgers = [ledger for ledger in topic.ledgers if ledger.ledger_id >= start.ledger_id]
    for i, ledger in enumerate(ledgers):
        behind = any(other.extents or other.is_lost for other in ledgers[i + 1 :])
        if not ledger.extents:
            if ledger.has_nothing_to_lose:
                continue
            if not _is_lost(ledger, behind):
                return
            _lose(topic, ledger, fail)
            continue
        yield from _ledger_steps(ledger, start.entry_id if ledger.ledger_id == start.ledger_id else 0, behind)
        if ledger.lost_tail is not None:
            _lose(topic, ledger, fail)
        if not _is_whole(ledger, behind):
            return


def _up_to(stop: Position | None, steps: Iterator[_Step]) -> Iterator[_Step]:
    """The steps before the entry at `stop`; of one that it lies in, what comes before it."""
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


def _is_lost(ledger: Ledger, behind: bool) -> bool:
    """Whether a ledger without a complete copy will never have one.

    By its record it may be still in BookKeeper. Without records its attempts failed if later ledgers are there, and it
    is lost if an index is left of it, which is written after its data.
    """
    return ledger.is_lost or (ledger.record is None and behind)


def _lose(topic: Topic, ledger: Ledger, fail: bool) -> None:
    lost = ledger.lost_tail
    error = DataLossError(
        f"a ledger of {topic.label} has no complete copy",
        ledger_id=ledger.ledger_id,
        entry_id=None if lost is None else lost[1],
        found=ledger.why_not_read if lost is None else f"{lost[0].key.data_key}: {lost[0].detail}",
        hint="Set failOnDataLoss to false to read what there is.",
    )
    if fail:
        raise error
    _log.warning("%s", error)


def _is_whole(ledger: Ledger, behind: bool) -> bool:
    """Whether no more entries of a ledger will come; by its record, or since a later one is there."""
    if ledger.formats != (ObjectFormat.STREAMING,):
        return True
    if ledger.record is None:
        return behind
    entries, stop = ledger.record.info.entries, ledger.record.offloaded_stop
    return bool(entries) and stop is not None and stop >= (entries or 0)


def _ledger_steps(ledger: Ledger, start_entry_id: int, behind: bool) -> Iterator[_Step]:
    known_end = ledger.extents[-1].stop_entry_id
    if known_end is None:
        known_end = ledger.entries
    whole = _is_whole(ledger, behind)
    if whole and start_entry_id == known_end:
        yield _Step(
            first=Position(ledger.ledger_id, start_entry_id),
            entries=0,
            data_bytes=0,
            end=Position(ledger.ledger_id + 1, 0),
        )
        return
    for extent in ledger.extents:
        if (
            not extent.ledger.blocks
            and extent.stop_entry_id is not None
            and start_entry_id < extent.stop_entry_id
        ):
            is_last = whole and extent is ledger.extents[-1]
            yield _Step(
                first=Position(ledger.ledger_id, max(start_entry_id, extent.first_entry_id)),
                entries=0,
                data_bytes=0,
                end=Position(ledger.ledger_id + 1, 0)
                if is_last
                else Position(ledger.ledger_id, extent.stop_entry_id),
            )
        for number, block in enumerate(extent.ledger.blocks, 1):
            end = block.end_entry_id
            if end is None:
                end = extent.stop_entry_id if extent.stop_entry_id is not None else known_end
            elif extent.stop_entry_id is not None:
                end = min(end, extent.stop_entry_id)
            if end is None:
                _log.warning("ledger %d: it is not known yet where its segment ends", ledger.ledger_id)
                return
            first = max(start_entry_id, block.first_entry_id)
            if first >= end:
                continue
            is_last = whole and extent is ledger.extents[-1] and number == len(extent.ledger.blocks)
            yield _Step(
                first=Position(ledger.ledger_id, first),
                entries=end - first,
                data_bytes=block.length,
                end=Position(ledger.ledger_id + 1, 0) if is_last else Position(ledger.ledger_id, end),
            )
