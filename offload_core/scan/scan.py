"""A scan: which tasks read what was asked for, and their batches.

The tasks are planned when the scan is made; they are picklable, and any process that has the Tier can read one. What
became of transactions is looked up when `tasks` is first asked for. Whoever iterates over the scan itself pays for that
only in topics that have transactions, from the first one on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from offload_core.scan.read import read_task
from offload_core.scan.runs import read_share, runs_of
from offload_core.scan.tasks import LedgerShare, Neighbours, ReadOptions, Run, ScanTask
from offload_core.scan.transactions import TransactionResolver
from offload_core.tier import Tier
from offload_hooks.errors import UnresolvedTransactionError


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Tasks over a Tier; iterate over its record batches, or hand `tasks` to workers.

    `planned` are the tasks before transactions are resolved, `resolver` is what resolves them; None if nothing that is
    read depends on it.
    """

    tier: Tier
    planned: tuple[ScanTask, ...]
    options: ReadOptions
    resolver: TransactionResolver | None = None

    @cached_property
    def tasks(self) -> tuple[ScanTask, ...]:
        """The tasks, for any worker.

        Raises:
            FormatError, StoreError: of the objects that transactions are looked up in.
        """
        return self.planned if self.resolver is None else self.resolver.resolve_all(self.planned)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self.options.schema

    @property
    def data_bytes(self) -> int:
        """Bytes that a full read fetches, without what the lookup of transactions does."""
        return sum(task.data_bytes for task in self.planned)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All batches, task after task, in order of topics and positions."""
        for _, batches in self.parts():
            yield from batches

    def parts(self) -> Iterator[tuple[ScanTask, Iterator[pa.RecordBatch]]]:
        """The scan's tasks in order, each with its batches, to be read to their end before the next is asked for.

        A task in which a topic's first transaction is met ends there, and goes on as another.
        """
        # What conditions leave out counts as well, so that it does not do to look from the first transaction on.
        looks_before = self.resolver is not None and self.resolver.bounds is not None
        rest = deque(self.tasks if looks_before else self.planned)
        while rest:
            task = rest.popleft()
            met: list[UnresolvedTransactionError] = []
            yield task, self._read(task, met)
            if met and self.resolver is not None:
                behind, topic = _behind(self.tier, task, met[0], self.options.fail_on_data_loss)
                rest = deque(self.resolver.resolve((behind, *rest), topic))

    def _read(self, task: ScanTask, met: list[UnresolvedTransactionError]) -> Iterator[pa.RecordBatch]:
        """A task's batches, up to a transaction that is not resolved: then that is put into `met`."""
        try:
            yield from read_task(self.tier, task, self.options)
        except UnresolvedTransactionError as error:
            if self.resolver is None:
                raise
            met.append(error)

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as Arrow's own reader, which Arrow, DuckDB, Polars and others take."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(iter(self), schema=self.schema)


def _with_read(near: Neighbours, read: Sequence[Run | LedgerShare | None], topic: str | None) -> Neighbours:
    """The neighbours of what is left of a task, whose first part has been read: chunks may begin there."""
    of_topic = tuple(each for each in read if each is not None and each.topic == topic)
    return replace(near, before=(*near.before, *of_topic))


def _behind(
    tier: Tier, task: ScanTask, met: UnresolvedTransactionError, fail: bool
) -> tuple[ScanTask, str | None]:
    """What is left of a task from where its read stopped, and the topic of the run that it stopped in."""
    for i, each in enumerate(task.runs):
        if each.ledger_id != met.ledger_id or met.entry_id is None:
            continue
        runs = (each,) if isinstance(each, Run) else tuple(runs_of(read_share(tier, each), fail))
        for j, run in enumerate(runs):
            if run.data_key == met.key:
                rest = (run.starting_at(met.entry_id), *runs[j + 1 :], *task.runs[i + 1 :])
                read = (*task.runs[:i], *runs[:j], run.stopping_at(met.entry_id))
                near = _with_read(task.neighbours.get(run.topic, Neighbours()), read, run.topic)
                neighbours = {**task.neighbours, run.topic: near}
                return replace(task, runs=rest, neighbours=neighbours), run.topic
    raise AssertionError("a read stops in a run of its task")
