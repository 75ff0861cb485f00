"""Resolve the transactions of planned tasks: which entries are hidden, and where to stop.

As a broker's max read position, the first transaction that stays open ends what is read of a topic.
Source: docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from offload_core.metadata.catalogue import Ledger, TierReader, Topic, TopicName, concurrently
from offload_core.reading.scan.extents import extents_of, read_scan_ledger
from offload_core.reading.scan.options import ScanOptions
from offload_core.reading.scan.plan import Bounds, first_asked
from offload_core.reading.scan.tasks import NO_ENTRIES, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.transactions.outcomes import END, NOTHING, Outcome, Place, TransactionLook
from offload_core.reading.scan.transactions.summaries import SummaryMemory, SummaryStore
from offload_core.storage.tier import open_like
from offload_hooks.errors import UnresolvedTransactionError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResolver:
    """Resolves the transactions of a scan's tasks.

    Attributes:
        topics: the topics of the scan, with all ledgers that may be read for it.
        asked: the scan's options. With `committed` tasks end before the first open transaction.
        memory: the summaries of this process; None for none.
        bounds: what was asked for, if conditions left out some of it: a transaction that is open there counts.
        is_settled: the range was found to have nothing open, so that with `committed` it is an error.
    """

    tier: TierReader
    topics: tuple[Topic, ...]
    asked: ScanOptions
    memory: SummaryMemory | None = None
    bounds: Bounds | None = None
    is_settled: bool = False

    def resolve(self, tasks: Sequence[ScanTask], topic: str | None) -> tuple[ScanTask, ...]:
        """The tasks, those extents of them resolved that are of `topic` (its full name), in their order.

        Raises:
            FormatError, StoreError: of the objects that are read.
            UnresolvedTransactionError: see `is_settled`.
        """
        with self._look() as look:
            return self._resolve(tasks, topic, look)

    def resolve_all(self, tasks: Sequence[ScanTask]) -> tuple[ScanTask, ...]:
        """The tasks with all topics resolved; errors as of `resolve`."""
        resolved = tuple(tasks)
        with self._look() as look:
            for topic in dict.fromkeys(extent.topic for task in tasks for extent in task.extents):
                resolved = self._resolve(resolved, topic, look)
        return resolved

    def open_in(self, ranges: Mapping[TopicName, tuple[Place, Place]]) -> dict[TopicName, Outcome]:
        """Find open transactions in ranges of topics (start inclusive, stop exclusive), for topics that have any.

        Raises:
            FormatError, StoreError: of the objects that are read.
        """
        found = {}
        with self._look() as look:
            for topic in self.topics:
                if topic.name is not None and topic.name in ranges:
                    outcome = look.look(topic, {}, *ranges[topic.name])
                    if outcome.unsettled:
                        found[topic.name] = outcome
        return found

    @contextmanager
    def _look(self) -> Iterator[TransactionLook]:
        """Open the place of summaries for a pass over topics."""
        tier, asked = self.tier.store, self.asked
        look = TransactionLook(tier=tier, verify_checksums=asked.verify_checksums, memory=self.memory)
        if asked.summaries is None:
            yield look
            return
        with open_like(tier, asked.summaries, **self.tier.options) as store:
            yield replace(look, kept=SummaryStore(store))

    def _resolve(
        self, tasks: Sequence[ScanTask], topic: str | None, look: TransactionLook
    ) -> tuple[ScanTask, ...]:
        scan_ledgers = [
            each
            for task in tasks
            for each in task.extents
            if isinstance(each, ScanLedger) and each.topic == topic
        ]
        read_one = partial(read_scan_ledger, self.tier.store)
        read = {each.ledger_id: each for each in concurrently(read_one, scan_ledgers)}
        of_tasks: list[tuple[ScanTask, list[ScanExtent | ScanLedger]]] = []
        for task in tasks:
            extents: list[ScanExtent | ScanLedger] = []
            for each in task.extents:
                if isinstance(each, ScanLedger) and each.topic == topic:
                    extents.extend(extents_of(read[each.ledger_id], self.asked.fail_on_data_loss))
                else:
                    extents.append(each)
            of_tasks.append((task, extents))
        asked = [
            extent
            for _, extents in of_tasks
            for extent in extents
            if isinstance(extent, ScanExtent) and extent.topic == topic
        ]
        known = {ledger_id: scan_ledger.ledger for ledger_id, scan_ledger in read.items()}
        outcome = self._outcome(asked, known, look) if asked else NOTHING
        cut = outcome.first_open if self.asked.isolation == "committed" else None
        resolved = []
        for task, extents in of_tasks:
            applied: list[ScanExtent | ScanLedger] = []
            for each in extents:
                if isinstance(each, ScanExtent) and each.topic == topic:
                    applied.extend(_apply(each, outcome, cut))
                else:
                    applied.append(each)
            if applied:
                resolved.append(_ending_at(replace(task, extents=tuple(applied)), topic, cut))
        return tuple(resolved)

    def _outcome(
        self, asked: Sequence[ScanExtent], known: Mapping[int, Ledger], look: TransactionLook
    ) -> Outcome:
        """The outcome of the transactions of `asked`, a topic's extents in order."""
        first, last = asked[0], asked[-1]
        (topic,) = (each for each in self.topics if each.full_name == first.topic)
        start = (first.ledger_id, first.start_entry_id)
        begin = None if self.bounds is None else first_asked(self.tier.store, topic, self.bounds)
        if begin is not None:
            start = min(start, (begin.ledger_id, begin.entry_id))
        stop = (last.ledger_id, END if last.stop_entry_id is None else last.stop_entry_id)
        outcome = look.look(topic, known, start, stop)
        if outcome.unsettled and self.asked.isolation == "committed":
            self._report_open(topic, outcome)
        return outcome

    def _report_open(self, topic: Topic, outcome: Outcome) -> None:
        count, named = outcome.name_open()
        ledger_id, entry_id, *_ = outcome.unsettled[0]
        if self.is_settled:
            raise UnresolvedTransactionError(
                f"the outcome of a transaction of {topic.label} was known, and is not known any more",
                ledger_id=ledger_id,
                entry_id=entry_id,
                found=named,
                hint="Its marker may be in a ledger that is gone since. With isolation = uncommitted it is read.",
            )
        _log.warning(
            "%s: the outcome of %d transactions is not known%s: %s. Nothing from %d:%d on is read, as by a consumer; "
            "isolation uncommitted reads all",
            topic.label,
            count,
            ""
            if self.asked.ledger is None
            else " from this ledger alone, their markers may lie in later ones",
            named,
            ledger_id,
            entry_id,
        )


def _apply(extent: ScanExtent, outcome: Outcome, cut: Place | None) -> Iterator[ScanExtent]:
    """The extent with the outcome of its entries; None if it has no entry before `cut`."""
    kept: ScanExtent | None = extent
    if cut is not None and extent.ledger_id >= cut[0]:
        kept = extent.stopping_at(cut[1]) if extent.ledger_id == cut[0] else None
    if kept is None:
        return
    begin = max(kept.start_entry_id, kept.blocks[0].first_entry_id)
    end = kept.stop_entry_id if kept.stop_entry_id is not None else kept.blocks[-1].end_entry_id
    which, none = (extent.data_key, extent.ledger_id), NO_ENTRIES
    yield replace(
        kept,
        aborted=outcome.aborted.get(which, none).within(begin, end),
        open=outcome.open.get(which, none).within(begin, end),
        resolved=True,
    )


def _ending_at(task: ScanTask, topic: str | None, cut: Place | None) -> ScanTask:
    """The task without its topic after `cut`: chunks there are hidden, as if not yet sent."""
    near = task.neighbours.get(topic)
    if cut is None or near is None:
        return task
    return replace(task, neighbours={**task.neighbours, topic: replace(near, after=(), reaches_end=True)})
