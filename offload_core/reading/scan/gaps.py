"""Ledgers in a range that cannot be read: which of them belong together, and what is said about them.

A gap is a run of ledgers without a readable copy. It is **loss** if entries of it were asked for that must be there: a
readable ledger follows it, a record says that it was offloaded, an index is left of a copy whose data is gone, or the
range ends in it or behind it by a position.
Else it is what is not offloaded yet: `latest` means the end of what is, and a warning says where that was. Source:
docs/spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from offload_core.metadata.catalogue import Ledger, Topic
from offload_core.reading.scan.positions import Position
from offload_hooks.errors import DataLossError

_MOST_NAMED = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRange:
    """What is asked for of a topic: from `first` (inclusive) to `stop` (exclusive), None for as far as there is."""

    first: Position | None
    stop: Position | None

    @property
    def is_empty(self) -> bool:
        """Whether it ends before it begins."""
        return self.first is not None and self.stop is not None and self.first >= self.stop

    def holds(self, ledger: Ledger) -> bool:
        """Whether entries of a ledger are asked for."""
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
            # Of objects that name no topic nobody knows which ledgers follow each other.
            yield Gap(ledgers=tuple(missing), is_loss=topic.name is not None or asked.stop is not None)
            missing = []
    count = len(missing) if asked.stop is not None else _lost(missing)
    if missing[:count]:
        yield Gap(ledgers=tuple(missing[:count]), is_loss=True)
    if missing[count:]:
        yield Gap(ledgers=tuple(missing[count:]), is_loss=False)


def _lost(last: Sequence[Ledger]) -> int:
    """How many of the last ledgers were offloaded, by the record of the last of them, or an index that is left."""
    return max((i + 1 for i, ledger in enumerate(last) if ledger.is_lost), default=0)


def report_gaps(topic: Topic, asked: AskedRange, wanted: Collection[int], *, fail: bool) -> None:
    """Say what of a range cannot be read, each gap once. A ledger whose index is unread is taken to be readable.

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
    """Say which objects of a topic are lost, if nothing tells which of its ledgers lack entries: any may.

    Raises:
        DataLossError: there is one (`fail`); else a warning for each.
    """
    for stored in topic.lost:
        what = f"an object of {topic.label} cannot be read, and nothing tells which entries it has"
        lose(what, None, fail, found=f"{stored.key.data_key}: {stored.detail}")


def lose(what: str, ledger_id: int | None, fail: bool, *, found: str, expected: str | None = None) -> None:
    """Raise a `DataLossError`, or write it down as a warning."""
    error = DataLossError(
        what,
        ledger_id=ledger_id,
        expected=expected,
        found=found,
        hint="Set failOnDataLoss to false to read what there is.",
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
    """Segments that are lost after the last one of a ledger that is read; one between two shows when they are read."""
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
    """A start or an end in a ledger that is not there."""
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
    """The last ledger's rest that is not offloaded yet, as far as its record tells."""
    ledger = _last_readable(topic)
    if ledger is None or asked.stop is not None or ledger.record is None:
        return
    if ledger.ledger_id not in wanted:
        return
    end, entries = ledger.record.offloaded_stop, ledger.record.info.entries
    if end is not None and (not ledger.record.info.is_closed if entries is None else end < entries):
        rest = f"from entry {end} on" if entries is None else f"entries {end} to {entries - 1}"
        _log.warning(
            "%s: of ledger %d, %s are not offloaded yet", _read_to(topic, asked), ledger.ledger_id, rest
        )


# --- words -------------------------------------------------------------------------------------


def _last_readable(topic: Topic) -> Ledger | None:
    return next((ledger for ledger in reversed(topic.ledgers) if ledger.is_readable), None)


def _read_to(topic: Topic, asked: AskedRange) -> str:
    """How far a topic is read, whose end was not given as a position."""
    ledger = _last_readable(topic)
    if ledger is None or not asked.holds(ledger):
        return f"nothing of {topic.label} is read"
    end = None if ledger.record is None else ledger.record.offloaded_stop
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
    """The first and the last position that is missing."""
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
