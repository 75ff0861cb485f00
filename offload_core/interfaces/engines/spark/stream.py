"""`spark.readStream.format("pulsar_offload")`: a tier that is followed as ledgers and segments arrive.

An offset is a position for each topic's partition, in the JSON of `startingOffsets`: the next to read. It is all that a
checkpoint keeps. Planning runs in one Python process of the driver for the life of the query. A stream's columns are
fixed when it begins; schemas of topics that appear later go with the tasks that read them. Source: docs/spark.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.format.schemas import Payloads
from offload_core.interfaces.engines.spark import read_limits
from offload_core.interfaces.engines.spark.query_errors import explained
from offload_core.interfaces.engines.spark.reader import OffloadPartition, OffloadReader
from offload_core.interfaces.engines.spark.source_options import SourceOptions, open_source
from offload_core.metadata.catalogue import Catalogue, TierReader, Topic, TopicName, parse_topic
from offload_core.reading.scan import Bounds, Report, ScanOptions, plan_tasks, select_catalogue
from offload_core.reading.scan.following import (
    BatchLimit,
    Frontier,
    SettledAdvance,
    TopicFollower,
    advance,
    between,
)
from offload_core.reading.scan.positions import Position, check_topics, offsets_to_json, parse_offsets
from offload_core.reading.scan.scanning import payloads_of, read_store
from offload_core.reading.scan.transactions import TailReader
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError, SchemaError
from offload_hooks.schemas import SchemaHistory

_HINT = (
    "A stream keeps the columns that it began with. Save the topic's schemas (offload schemas pull), begin the query "
    "with a readerSchema that fits all its topics, or leave the topic out of topicsPattern."
)


class NewTopics:
    """The topics that a stream has met since it began.

    Args:
        payloads: the schemas that it began with.
        asked: name who knows those of others.
    """

    def __init__(self, payloads: Payloads, asked: ScanOptions) -> None:
        self._payloads = payloads
        self._asked = ScanOptions(schemas=asked.schemas)
        self._histories: dict[str, SchemaHistory] = {}

    def histories(self, tier: TierReader, topics: Sequence[Topic]) -> dict[str, SchemaHistory]:
        """The schemas of those of the topics that are new; each is asked for once.

        Raises:
            SchemaError: they are not known, or make other columns.
            StoreError: the provider's.
        """
        new = {topic.name.base for topic in topics if topic.name is not None} - set(self._payloads.histories)
        for name in sorted(new - set(self._histories)):
            try:
                found = payloads_of(tier, self._asked, [parse_topic(name)])
                assert found is not None
                self._payloads.with_topics(found.histories).value_fields()
            except SchemaError as error:
                raise SchemaError(
                    f"{name} came after the stream had begun, and cannot be read with its columns: {error}",
                    hint=_HINT,
                ) from error
            self._histories.update(found.histories)
        return {name: self._histories[name] for name in new}


Offset = dict[str, Any]
"""`{"topic": {"<partition>": "<ledger>:<entry>:<batch index>"}}`."""


class OffloadStreamReader(DataSourceStreamReader, read_limits.SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their tasks on executors."""

    def __init__(self, options: SourceOptions, schema: StructType, report: Report | None = None) -> None:
        if options.scan.stop != "latest":
            raise OptionError("a stream has no end", expected="endingOffsets latest, or a batch query")
        if not read_limits.ARE_THERE and (options.max_bytes_per_trigger or options.max_offsets_per_trigger):
            raise OptionError(
                "this Spark has no limits of micro-batches of Python sources",
                expected="Spark 4.2 or later, or no maxBytesPerTrigger and maxOffsetsPerTrigger",
                found=f"Spark {pyspark.__version__}",
            )
        # The first to be unpickled: it compares versions.
        self._reader = OffloadReader(options, schema, report)
        self._options = options
        self._following: tuple[TierReader, TopicFollower] | None = None
        self._settled: SettledAdvance | None = None
        self._initial: Frontier | None = None
        self._reached: Frontier = {}
        payloads = self._reader.tasks.read_options.payloads
        self._new_topics = None if payloads is None else NewTopics(payloads, options.scan)

    @explained
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The start of a new query. A topic without a position in it is read from its beginning.

        Spark asks more than once until the first micro-batch has ended: `latest` does not move meanwhile.

        Raises:
            UnknownTopicError: a topic that is named is not here.
        """
        if self._initial is None:
            self._follower.check_named()
            self._initial = self._reached = self._initial_frontier()
        return offsets_to_json(self._initial)

    def _initial_frontier(self) -> Frontier:
        starting = self._options.stream_start
        if starting == "earliest":
            return {}
        topics = self._follower.topics()
        ends = advance(topics, {}, BatchLimit(), fail_on_data_loss=False)
        if starting == "latest":
            return ends
        check_topics(starting, {topic.name for topic in topics if topic.name}, "startingOffsets")
        return {
            name: given if isinstance(given, Position) else ends[name]
            for name, given in starting.items()
            if given != "earliest" and (isinstance(given, Position) or name in ends)
        }

    @explained
    def latestOffset(  # noqa: N802
        self, start: Offset | None = None, limit: read_limits.ReadLimit | None = None
    ) -> Offset:
        """Up to where the next micro-batch reads: `start` itself if there is nothing new.

        With `isolation` = `committed` that is before the first message of each topic whose transaction is open. Before
        Spark 4.2 there is neither start nor limit; what is lost is reported by `partitions` then.
        """
        topics = self._follower.topics()
        frontier = self._reached if start is None else _positions(start)
        fail = start is not None and self._options.scan.fail_on_data_loss
        self._follower.check_late(topics, frontier, fail_on_data_loss=fail)
        of_batch = BatchLimit()
        if not isinstance(limit, read_limits.ReadAllAvailable):
            of_batch.max_bytes = self._options.max_bytes_per_trigger
            of_batch.max_entries = self._options.max_offsets_per_trigger
        if self._reader.tasks.read_options.hides_open:
            if self._settled is None:
                tails = TailReader(tier=self._store, asked=self._options.scan)
                self._settled = SettledAdvance(tails)
            reached = self._settled(topics, frontier, of_batch, fail_on_data_loss=fail)
        else:
            reached = advance(topics, frontier, of_batch, fail_on_data_loss=fail)
        self._reached = reached
        return start if start is not None and reached == frontier else offsets_to_json(reached)

    @explained
    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Up to where there is something to read, for the progress of a query; Spark asks from 4.2 on."""
        ends = advance(self._follower.topics(), self._reached, BatchLimit(), fail_on_data_loss=False)
        return offsets_to_json(ends) or None

    def getDefaultReadLimit(self) -> read_limits.ReadLimit:  # noqa: N802
        """The limits of the options; where there are both, `latestOffset` keeps the other one as well."""
        options = self._options
        if options.max_bytes_per_trigger is not None:
            return read_limits.ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_offsets_per_trigger is not None:
            return read_limits.ReadMaxRows(options.max_offsets_per_trigger)
        return read_limits.ReadAllAvailable()

    @explained
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop looking for new ledgers."""
        self._follower.freeze()

    @explained
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks between two offsets: the same rows whenever it is asked.

        Raises:
            SchemaError: a topic that is new has other columns than the stream.
        """
        topics, read = self._follower.topics(), self._reader.tasks.read_options
        first, last = _positions(start), _positions(end)
        moved = {name: position for name, position in last.items() if first.get(name) != position}
        check_topics(moved, {topic.name for topic in topics if topic.name}, "the stream's offset")
        narrowed, starts, stops = between(topics, first, moved)
        tasks = plan_tasks(
            self._store,
            narrowed,
            Bounds(start=starts, stop=stops, fail_on_data_loss=self._options.scan.fail_on_data_loss),
            min_partitions=self._options.min_partitions,
            task_bytes=self._options.max_partition_bytes,
            neighbour_bytes=read.neighbour_bytes,
            around=topics,
        )
        histories = (
            None if self._new_topics is None else self._new_topics.histories(self._opened[0], narrowed)
        )
        return [OffloadPartition(task, histories) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called."""
        return self._reader.read(partition)

    def stop(self) -> None:
        """Close the tier that planning has opened."""
        if self._following is not None:
            self._following[0].close()
            self._following = None

    @property
    def _follower(self) -> TopicFollower:
        return self._opened[1]

    @property
    def _store(self) -> Tier:
        return read_store(self._opened[0], self._options.scan)

    @property
    def _opened(self) -> tuple[TierReader, TopicFollower]:
        """Opened where planning runs; an executor never asks for it."""
        if self._following is None:
            options = self._options
            tier = open_source(options)
            selection = options.scan.selection(options.topics, may_be_absent=True)

            def look(known: Catalogue | None) -> Catalogue:
                return select_catalogue(tier, selection, options.scan, known=known)

            follower = TopicFollower(look, selection, interval_s=options.refresh_interval_ms / 1000)
            self._following = tier, follower
        return self._following


def _positions(offset: Offset) -> dict[TopicName, Position]:
    """An offset of ours, or one that was written into a checkpoint by hand."""
    parsed = parse_offsets(json.dumps(offset), "the stream's offset")
    if isinstance(parsed, str) or not all(isinstance(each, Position) for each in parsed.values()):
        raise OptionError("the stream's offset has no positions", found=json.dumps(offset))
    return dict(parsed)  # type: ignore[arg-type]
