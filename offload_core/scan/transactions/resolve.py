"""Planned tasks → tasks that know what became of transactions: which entries are not to be seen, and where to stop.

Looked through are the ledgers of the range from its start on, and those behind its end only while a transaction of the
range has no marker yet. As a broker's max read position, the first transaction that stays open ends the range.
Source: docs/transactions.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from offload_core.catalogue import Ledger, Piece, Topic, concurrently
from offload_core.messages.kernels.fields import ABORTED, OPEN
from offload_core.scan.entry_ranges import NO_ENTRIES, EntryRanges
from offload_core.scan.runs import read_ledger, read_share, runs_of
from offload_core.scan.tasks import Isolation, LedgerShare, Run, ScanTask
from offload_core.scan.transactions.outcomes import outcomes
from offload_core.scan.transactions.summary import LedgerSummary
from offload_core.scan.transactions.summary_store import SummaryStore
from offload_core.scan.transactions.survey import MOST_WORKERS, Part, survey
from offload_core.tier import Tier, open_like

Table = npt.NDArray[np.int64]

_END = 2**63 - 1
_NAMED = 10
"""So many open transactions are named."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPlace:
    """Where summaries are kept: a path or URL; `options` are for one of the tier's own driver."""

    location: str | os.PathLike[str]
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """A part that was looked through, and which of its entries count (`begin` … `end` − 1)."""

    part: Part
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """By data object and ledger the entries that were aborted, and those that are open; where the first of these is."""

    aborted: Mapping[tuple[str, int], EntryRanges]
    open: Mapping[tuple[str, int], EntryRanges]
    first_open: tuple[int, int] | None


_NOTHING = _Outcome(aborted={}, open={}, first_open=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResolver:
    """Resolves the transactions of a scan's tasks.

    Attributes:
        topics: the topics of the scan, with all ledgers that may be looked through.
        isolation: with `committed` tasks end before the first open transaction.
        fail_on_data_loss: what cannot be read is an error, as in the read itself.
        ledger_alone: whether the scan is of one ledger, whose topic's other ledgers are not looked through.
        summaries: where to keep summaries; None to keep none.
    """

    tier: Tier
    topics: tuple[Topic, ...]
    isolation: Isolation
    verify_checksums: bool
    fail_on_data_loss: bool
    ledger_alone: bool = False
    summaries: SummaryPlace | None = None

    def resolve(self, tasks: Sequence[ScanTask], topic: str | None) -> tuple[ScanTask, ...]:
        """The tasks, those runs of them resolved that are of `topic` (its full name), in their order.

        Raises:
            FormatError, StoreError: of the objects that are looked through.
        """
        with self._kept() as kept:
            return self._resolve(tasks, topic, kept)

    def resolve_all(self, tasks: Sequence[ScanTask]) -> tuple[ScanTask, ...]:
        """The tasks with all topics resolved; errors as of `resolve`."""
        resolved = tuple(tasks)
        with self._kept() as kept:
            for topic in dict.fromkeys(run.topic for task in tasks for run in task.runs):
                resolved = self._resolve(resolved, topic, kept)
        return resolved

    @contextmanager
    def _kept(self) -> Iterator[SummaryStore | None]:
        """The place of summaries, opened."""
        place = self.summaries
        if place is None:
            yield None
            return
        with open_like(self.tier, place.location, **place.options) as store:
            yield SummaryStore(store)

    def _resolve(
        self, tasks: Sequence[ScanTask], topic: str | None, kept: SummaryStore | None
    ) -> tuple[ScanTask, ...]:
        shares = [
            each
            for task in tasks
            for each in task.runs
            if isinstance(each, LedgerShare) and each.topic == topic
        ]
        read = {each.ledger_id: each for each in concurrently(partial(read_share, self.tier), shares)}
        fail = self.fail_on_data_loss
        of_tasks: list[tuple[ScanTask, list[Run | LedgerShare]]] = []
        for task in tasks:
            runs: list[Run | LedgerShare] = []
            for each in task.runs:
                if isinstance(each, LedgerShare) and each.topic == topic:
                    runs.extend(runs_of(read[each.ledger_id], fail))
                else:
                    runs.append(each)
            of_tasks.append((task, runs))
        asked = [run for _, runs in of_tasks for run in runs if isinstance(run, Run) and run.topic == topic]
        known = {ledger_id: share.ledger for ledger_id, share in read.items()}
        outcome = self._look(asked, known, kept) if asked else _NOTHING
        resolved = []
        for task, runs in of_tasks:
            applied: list[Run | LedgerShare] = []
            for each in runs:
                if isinstance(each, Run) and each.topic == topic:
                    applied.extend(self._apply(each, outcome))
                else:
                    applied.append(each)
            if applied:
                resolved.append(replace(task, runs=tuple(applied)))
        return tuple(resolved)

    def _apply(self, run: Run, outcome: _Outcome) -> Iterator[Run]:
        cut = outcome.first_open if self.isolation == "committed" else None
        kept: Run | None = run
        if cut is not None and run.ledger_id >= cut[0]:
            kept = run.stopping_at(cut[1]) if run.ledger_id == cut[0] else None
        if kept is None:
            return
        begin = max(kept.start_entry_id, kept.blocks[0].first_entry_id)
        end = kept.stop_entry_id if kept.stop_entry_id is not None else kept.blocks[-1].end_entry_id
        which, none = (run.data_key, run.ledger_id), NO_ENTRIES
        yield replace(
            kept,
            aborted=outcome.aborted.get(which, none).within(begin, end),
            open=outcome.open.get(which, none).within(begin, end),
            resolved=True,
        )

    def _look(self, asked: Sequence[Run], known: Mapping[int, Ledger], kept: SummaryStore | None) -> _Outcome:
        """Look through the ledgers that `asked`, a topic's runs in order, depend on.

        `known` are ledgers whose index has been read since the scan was planned, by id.
        """
        first, last = asked[0], asked[-1]
        stop = (last.ledger_id, _END if last.stop_entry_id is None else last.stop_entry_id)
        (topic,) = (each for each in self.topics if _name(each) == first.topic)
        behind = self._parts(topic, known, first.ledger_id, first.start_entry_id, stop)
        within = []
        for each in behind:
            if (each.part.run.ledger_id, _first_entry(each)) >= stop:
                behind = chain([each], behind)
                break
            within.append(each)
        ranges, markers = self._survey(within, kept, 0)
        ledger_ids = np.array([each.part.run.ledger_id for each in within], dtype=np.int64)
        in_ledger = ledger_ids[ranges[:, 0]]
        asked_for = (in_ledger < stop[0]) | ((in_ledger == stop[0]) & (ranges[:, 1] < stop[1]))
        ranges = ranges[asked_for]
        states = outcomes(ranges[:, [0, 1, 3, 4]], markers)
        looked = len(within)
        while len(unknown := np.flatnonzero(states == OPEN)):
            following = list(islice(behind, MOST_WORKERS))
            if not following:
                break
            _, later = self._survey(following, kept, looked)
            looked += len(following)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], later)
        return self._judge(first.topic, within, ranges, states)

    def _parts(
        self,
        topic: Topic,
        known: Mapping[int, Ledger],
        first_ledger: int,
        first_entry: int,
        stop: tuple[int, int],
    ) -> Iterator[_Looked]:
        """What there is to look through from a position on, in order; what lies behind `stop` in parts of its own.

        Objects that a filter has cleaned are left out: what is left in them counts as committed.
        """
        for ledger in self._ledgers(topic, known, first_ledger, stop[0]):
            begin = first_entry if ledger.ledger_id == first_ledger else 0
            for piece in ledger.pieces:
                end = _END if piece.stop_entry_id is None else piece.stop_entry_id
                if piece.stored.is_filtered or end <= begin:
                    continue
                for part in self._split(_whole_part(topic, ledger, piece), begin, stop):
                    yield _Looked(part=part, begin=max(begin, piece.first_entry_id), end=end)

    def _ledgers(
        self, topic: Topic, known: Mapping[int, Ledger], first_ledger: int, last_ledger: int
    ) -> Iterator[Ledger]:
        """The topic's ledgers from one on, with their indexes; those behind the last are read a few at a time."""
        from_there = [
            known.get(ledger.ledger_id, ledger)
            for ledger in topic.ledgers
            if ledger.ledger_id >= first_ledger
        ]
        begin, count = 0, sum(ledger.ledger_id <= last_ledger for ledger in from_there)
        while begin < len(from_there):
            some = from_there[begin : begin + max(count, MOST_WORKERS)]
            yield from concurrently(partial(read_ledger, self.tier), some)
            begin, count = begin + len(some), 0

    def _split(self, whole: Part, begin: int, stop: tuple[int, int]) -> Iterator[Part]:
        """Where no summary is kept, only the blocks that are needed, those behind the stop apart."""
        if self.summaries is not None:
            yield whole
            return
        run = whole.run.starting_at(begin)
        here = [block for block in run.blocks if (run.ledger_id, block.first_entry_id) < stop]
        for blocks in (tuple(here), run.blocks[len(here) :]):
            if blocks:
                yield replace(whole, run=replace(run, blocks=blocks, start_entry_id=0), is_whole=False)

    def _survey(
        self, parts: Sequence[_Looked], kept: SummaryStore | None, number: int
    ) -> tuple[Table, Table]:
        """Ranges (part, first, stop, most, least) and markers (part, entry, most, least, type) of parts.

        The parts are numbered from `number`.
        """
        summaries = survey(
            self.tier, [each.part for each in parts], kept=kept, verify_checksums=self.verify_checksums
        )
        ranges, markers = [np.empty((0, 5), dtype=np.int64)], [np.empty((0, 5), dtype=np.int64)]
        for i, (looked, summary) in enumerate(zip(parts, summaries, strict=True), start=number):
            clipped, of_part = _clip(looked, summary)
            ranges.append(np.insert(clipped, 0, i, axis=1))
            markers.append(np.insert(of_part[:, [0, 2, 3, 1]], 0, i, axis=1))
        return np.concatenate(ranges), np.concatenate(markers)

    def _judge(
        self, topic: str | None, parts: Sequence[_Looked], ranges: Table, states: npt.NDArray[np.int8]
    ) -> _Outcome:
        by_state: dict[int, dict[tuple[str, int], EntryRanges]] = {ABORTED: {}, OPEN: {}}
        for state, found in by_state.items():
            of_state = ranges[states == state]
            numbers, begins = np.unique(of_state[:, 0], return_index=True)
            for i, bounds in zip(numbers.tolist(), np.split(of_state[:, 1:3], begins[1:]), strict=False):
                run = parts[i].part.run
                found[(run.data_key, run.ledger_id)] = EntryRanges.of(bounds)
        unsettled = ranges[states == OPEN]
        first_open = None
        if len(unsettled):
            first_open = (parts[int(unsettled[0, 0])].part.run.ledger_id, int(unsettled[0, 1]))
            if self.isolation == "committed":
                self._warn(topic, parts, unsettled)
        return _Outcome(aborted=by_state[ABORTED], open=by_state[OPEN], first_open=first_open)

    def _warn(self, topic: str | None, parts: Sequence[_Looked], unsettled: Table) -> None:
        _, firsts = np.unique(unsettled[:, 3:], axis=0, return_index=True)
        named = [
            (f"({most},{least})", f"{parts[part].part.run.ledger_id}:{first}")
            for part, first, _, most, least in unsettled[np.sort(firsts)[:_NAMED]].tolist()
        ]
        _log.warning(
            "%s: the outcome of %d transactions is not known%s: %s%s. Nothing from %s on is read, as by a consumer; "
            "isolation uncommitted reads all",
            topic or "(unknown topic)",
            len(firsts),
            " from this ledger alone, their markers may lie in later ones" if self.ledger_alone else "",
            ", ".join(f"{transaction} at {place}" for transaction, place in named),
            f" and {len(firsts) - _NAMED} more" if len(firsts) > _NAMED else "",
            named[0][1],
        )


def _name(topic: Topic) -> str | None:
    return str(topic.name) if topic.name else None


def _first_entry(looked: _Looked) -> int:
    return max(looked.begin, looked.part.run.blocks[0].first_entry_id)


def _whole_part(topic: Topic, ledger: Ledger, piece: Piece) -> Part:
    stored = piece.stored
    run = Run(
        topic=_name(topic),
        partition=topic.name.partition if topic.name else -1,
        ledger_id=ledger.ledger_id,
        object_format=stored.key.object_format,
        data_key=stored.key.data_key,
        blocks=piece.ledger.blocks,
        sequence_file=stored.index.sequence_file if stored.index else None,
    )
    return Part(run=run, data_bytes=stored.data_bytes or 0, is_whole=True)


def _clip(looked: _Looked, summary: LedgerSummary) -> tuple[Table, Table]:
    """A part's ranges and markers, without what does not count."""
    ranges, markers = summary.ranges, summary.markers
    ranges = ranges[(ranges[:, 1] > looked.begin) & (ranges[:, 0] < looked.end)].copy()
    ranges[:, 0] = np.maximum(ranges[:, 0], looked.begin)
    ranges[:, 1] = np.minimum(ranges[:, 1], looked.end)
    return ranges, markers[(markers[:, 0] >= looked.begin) & (markers[:, 0] < looked.end)]
