"""`scan`: from topics and options to tasks that read them, and their batches.

The tasks are planned when the scan is made; they are picklable, and any process that has the Tier can read one. Where
topics end, before transactions that are open, is found when `tasks` is first asked for. A caller that iterates over the
scan itself pays for that only in topics that have transactions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offload_core.format.cycle_search import rare_search_for_cycles
from offload_core.format.schemas import Payloads
from offload_core.metadata.catalogue import (
    Catalogue,
    TierReader,
    TopicName,
    list_catalogue,
    open_records,
    record_catalogue,
)
from offload_core.metadata.catalogue.record_source import read_priorities
from offload_core.metadata.catalogue.summaries import MOST_LINES, bytes_text, count_text, html_table
from offload_core.reading.scan.chunks_around import key_provider_of
from offload_core.reading.scan.following import resume_offsets
from offload_core.reading.scan.options import ScanOptions
from offload_core.reading.scan.plan import DEFAULT_TASK_BYTES, Bounds, plan_tasks
from offload_core.reading.scan.positions import Position
from offload_core.reading.scan.pruning import Condition, restrict_times, time_range
from offload_core.reading.scan.read import read_task
from offload_core.reading.scan.select import Selection, select_records, select_topics
from offload_core.reading.scan.tasks import ReadOptions, ScanTask
from offload_core.reading.scan.transactions import Cuts
from offload_core.reading.schema_providers import Sample, choose_payloads, open_provider
from offload_core.storage.tier import RecordsPlace, Tier, plugin_spec
from offload_hooks.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Tasks over a Tier; iterate over its record batches, or hand `tasks` to workers.

    What takes Arrow's streams (`__arrow_c_stream__`) takes a scan: `polars.DataFrame(scan)`, `duckdb.sql("FROM scan")`.

    `planned` are the tasks before it is known where topics end, `cuts` is what finds that; None if nothing that is read
    depends on it.
    """

    tier: Tier
    planned: tuple[ScanTask, ...]
    options: ReadOptions
    cuts: Cuts | None = None

    def __repr__(self) -> str:
        facts = "\n".join(f"  {name}: {text}" for name, text in self._facts())
        return f"Scan of {self._topics()}\n{facts}"

    def _repr_html_(self) -> str:
        return html_table(f"Scan of {self._topics()}", ("", ""), self._facts())

    def _topics(self) -> str:
        names = dict.fromkeys(extent.topic or "" for task in self.planned for extent in task.extents)
        shown = [name.removeprefix("persistent://") for name in list(names)[:_MOST_NAMES]]
        more = [f"{len(names) - len(shown):,} more"] if len(names) > len(shown) else []
        return ", ".join([*shown, *more]) or "no topics"

    def _facts(self) -> list[tuple[str, str]]:
        names = self.schema.names
        more = [f"{len(names) - MOST_LINES:,} more"] if len(names) > MOST_LINES else []
        return [
            ("reads", f"{bytes_text(self.data_bytes)} in {count_text(len(self.planned), 'task')}"),
            ("columns", ", ".join([*names[:MOST_LINES], *more])),
        ]

    @cached_property
    def tasks(self) -> tuple[ScanTask, ...]:
        """The tasks, for any worker.

        Raises:
            FormatError, StoreError: of the ends of topics, in which open transactions are searched for.
        """
        return self.planned if self.cuts is None else self.cuts.plan(self.planned)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self.options.schema

    @property
    def data_bytes(self) -> int:
        """Bytes that a full read fetches, without what the lookup of transactions does."""
        return sum(task.data_bytes for task in self.planned)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Iterate over the batches, task after task, in order of topics and positions."""
        for _, batches in self.parts():
            yield from batches

    def parts(self) -> Iterator[tuple[ScanTask, Iterator[pa.RecordBatch]]]:
        """The scan's tasks in order, each with its batches, to be read to their end before the next is asked for."""
        # Transactions in what conditions leave out count as well, so where topics end is found before.
        is_cut_before = self.cuts is not None and self.cuts.counts_more
        for planned in self.tasks if is_cut_before else self.planned:
            task = planned if self.cuts is None else self.cuts.cut(planned)
            if task is not None:
                yield task, read_task(self.tier, task, self.options, ends=self.cuts)

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as Arrow's own reader."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches as a stream of Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Read all rows into memory."""
        return pa.Table.from_batches(iter(self), schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas data frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        require_library("pandas")
        return self.to_table().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a Polars data frame.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        require_library("polars")
        import polars

        return polars.DataFrame(self)

    def head(self, count: int = 10) -> pa.Table:
        """The first rows; later batches are not read."""
        batches, left = [], count
        for batch in self if count > 0 else ():
            batches.append(batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(batches, schema=self.schema)


@rare_search_for_cycles()
def scan(
    tier: TierReader,
    topics: str | Iterable[str] = (),
    options: ScanOptions | None = None,
    *,
    catalogue: Catalogue | None = None,
    conditions: Sequence[Condition] = (),
    resume: Mapping[TopicName, Position] | None = None,
    min_partitions: int = 1,
    task_bytes: int = DEFAULT_TASK_BYTES,
    **keywords: Any,
) -> Scan:
    """Plan a read. No data is fetched before the scan is iterated over, or asked for its tasks.

    Args:
        tier: where to read.
        topics: one topic's name, or several; a partitioned topic's base name stands for all its partitions. None for
            all, or those of `topics_pattern` or `ledger`.
        options: which messages, and how.
        catalogue: the tier's contents, from `TierReader.catalogue`, so that it is not listed or looked up again; in
            place of `prefix`, `records` and `records_options`.
        conditions: leave out topics, ledgers and blocks that cannot hold a row for which all of them hold. What is
            read may hold other rows as well.
        resume: instead of a start, the positions up to which topics were read before.
        min_partitions: least number of tasks, if there are enough blocks.
        task_bytes: approximate size of a task.
        keywords: fields of `ScanOptions`, in place of those of `options`.

    Raises:
        OptionError, UnknownTopicError, UnknownLedgerError: a request that makes no sense, or of what does not exist.
        DataLossError, StoreError: of the tier.
        FormatError: of records.
        SchemaError: of schemas.
        PluginError: of schema and key providers.
    """
    asked = (options or ScanOptions()).having(**keywords)
    read = read_options(asked, conditions=conditions)
    if asked.schemas is None:
        read.check()
    key_provider_of(read.key_provider)  # refuses a wrong name or option
    selection = asked.selection((topics,) if isinstance(topics, str) else tuple(topics))
    if catalogue is None:
        catalogue = select_catalogue(tier, selection, asked, read_indexes=False)
    elif asked.prefix or asked.records is not None or asked.records_options:
        raise OptionError(
            "what there is to read is given twice",
            expected="a catalogue, or prefix and records",
            found="both",
        )
    selected = select_topics(catalogue, selection)
    left, start = (selected, asked.start) if resume is None else resume_offsets(selected, resume, asked.start)
    if asked.schemas is not None:
        if not isinstance(asked.schemas, Payloads) and any(topic.name is None for topic in selected):
            raise OptionError("ledgers whose topic is not known have no schema")
        names = [topic.name for topic in selected if topic.name is not None]
        read = replace(read, payloads=payloads_of(tier, asked, names, catalogue))
        read.check()
    bounds = Bounds(
        start=start,
        stop=asked.stop,
        fail_on_data_loss=asked.fail_on_data_loss,
        times=read.times,
        conditions=tuple(conditions),
        asked_times=time_range(asked.start_time, asked.stop_time, asked.time_slack_ms),
    )
    store = read_store(tier, asked)
    tasks = plan_tasks(
        store,
        left,
        bounds,
        min_partitions=min_partitions,
        task_bytes=task_bytes,
        neighbour_bytes=read.neighbour_bytes,
        around=selected,
    )
    cuts = None
    if read.hides_open:
        cuts = Cuts(store, asked, tasks, selected, bounds if conditions else None)
    return Scan(tier=store, planned=tuple(tasks), options=read, cuts=cuts)


def read_store(tier: TierReader, asked: ScanOptions) -> Tier:
    """The Tier from which the tasks of a scan are read; if it has a hot one, it knows where other copies are named."""
    store = tier.store
    priority = asked.read_priority
    if store.hot is None or asked.records is None or (priority is not None and not priority.falls_back):
        return store
    place = RecordsPlace(
        source=asked.records,
        options=dict(asked.records_options or {}),
        tier_options=tier.options,
        folder=asked.prefix,
        has_priorities=priority is None,
    )
    return store.with_hot(store.hot.with_records(place))


def select_catalogue(
    tier: TierReader,
    selection: Selection,
    asked: ScanOptions,
    *,
    known: Catalogue | None = None,
    read_indexes: bool = True,
) -> Catalogue:
    """A catalogue that has what a selection reads; of what `known` has already, nothing is read again.

    With `read_indexes=False` those indexes are left to the tasks of a scan that planning can do without.

    Raises:
        OptionError, UnknownTopicError, UnknownLedgerError, StoreError; of records FormatError.
    """
    prefix = asked.prefix
    if asked.records is None:
        if tier.store.hot is not None:
            raise OptionError("the ledgers of a hot tier are named by records", expected="the option records")
        listed = partial(
            list_catalogue,
            tier.store,
            prefix=prefix,
            known=known,
            read_indexes=read_indexes,
            cached=tier.catalogue_cache,
        )
        if selection.ledger_id is None:
            return listed()
        catalogue = listed(ledger_id=selection.ledger_id)
        # Whether a ledger that lacks its first entries is a topic's first, its other ledgers say.
        return listed() if _lacks_first_entries(catalogue, selection.ledger_id) else catalogue
    with open_records(asked.records, tier.store, tier.options, asked.records_options) as source:
        wanted = select_records(source, selection)
        priorities = {} if tier.store.hot is None else read_priorities(source, wanted, asked.read_priority)
    return record_catalogue(
        tier.store,
        wanted,
        prefix=prefix,
        known=known,
        read_indexes=read_indexes,
        priorities=priorities,
        cached=tier.catalogue_cache,
    )


def _lacks_first_entries(catalogue: Catalogue, ledger_id: int) -> bool:
    return any(
        ledger.extents and ledger.extents[0].first_entry_id
        for topic in catalogue.topics
        for ledger in topic.ledgers
        if ledger.ledger_id == ledger_id
    )


def read_options(
    asked: ScanOptions, *, conditions: Sequence[Condition] = (), payloads: Payloads | None = None
) -> ReadOptions:
    """The options that workers need; those of the same names are the same.

    Raises:
        OptionError: a time without a zone, or a key provider in another form.
    """
    times = time_range(asked.start_time, asked.stop_time, asked.time_slack_ms)
    made: dict[str, Any] = {
        "columns": None if asked.columns is None else tuple(asked.columns),
        "key_provider": None
        if asked.key_provider is None
        else plugin_spec(asked.key_provider, "key provider"),
        "times": restrict_times(times, conditions, asked.time_slack_ms),
        "payloads": payloads,
    }
    same = (each.name for each in fields(ReadOptions) if each.name not in made)
    return ReadOptions(**made, **{name: getattr(asked, name) for name in same})


def payloads_of(
    tier: TierReader, asked: ScanOptions, topics: Iterable[TopicName], catalogue: Catalogue | None = None
) -> Payloads | None:
    """Load the schemas by which payloads of topics become columns; None to leave `value` as it is.

    Raises:
        OptionError, SchemaError, PluginError, StoreError.
    """
    source = asked.schemas
    if source is None or isinstance(source, Payloads):
        return source
    provider = open_provider(source, tier.store, tier.options, sampler(tier, asked, catalogue))
    try:
        return choose_payloads(
            provider,
            topics,
            reader_schema=asked.reader_schema,
            mode=asked.mode,
            corrupt_column=asked.corrupt_column,
        )
    finally:
        if provider is not source:
            provider.close()


def sampler(tier: TierReader, asked: ScanOptions, catalogue: Catalogue | None = None) -> Sample:
    """Reads payloads of a topic's first messages, as a scan with these options would."""
    plain = asked.having(
        columns=("value",), level="messages", topics_pattern=None, schemas=None, reader_schema=None
    )
    if catalogue is not None:
        plain = plain.having(prefix="", records=None, records_options=None)

    def sample(topic: str, count: int) -> pa.Array:
        return scan(tier, topic, plain, catalogue=catalogue).head(count).column("value").combine_chunks()

    return sample


def require_library(library: str) -> None:
    """Refuse to go on without a library that the extra of its name installs: `MissingExtraError`."""
    if find_spec(library) is None:
        raise MissingExtraError(
            f"{library} is not installed", hint=f"Install it: pip install 'pulsar-offload[{library}]'"
        )
