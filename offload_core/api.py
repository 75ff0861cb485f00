"""What a Python program starts with: `open_tier`, and the tier to list and scan."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from offload_core.catalogue import (
    Catalogue,
    RecordSource,
    TopicName,
    list_catalogue,
    open_records,
    parse_topic,
    record_catalogue,
)
from offload_core.executors import Executor, ThreadExecutor
from offload_core.messages.encryption import CryptoFailureAction
from offload_core.messages.schema import Level, Mode
from offload_core.metadata import ManagedLedgerInfo
from offload_core.scan import (
    DEFAULT_TASK_BYTES,
    Bounds,
    Condition,
    Offsets,
    Position,
    ReadOptions,
    Scan,
    Selection,
    plan_tasks,
    restrict_times,
    resume_offsets,
    select_records,
    select_topics,
    time_range,
)
from offload_core.scan.estimate import ScanEstimate, estimate_scan
from offload_core.scan.opening import key_provider_of, key_provider_spec
from offload_core.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    DEFAULT_TIME_SLACK_MS,
    Chunks,
    Isolation,
    KeyProviderSpec,
)
from offload_core.scan.transactions import SummaryPlace, TransactionResolver
from offload_core.schemas import CORRUPT_RECORD, Payloads, SchemaSource, choose_payloads, open_provider
from offload_core.tier import MeasuredTier, Tier, open_beside, open_store
from offload_hooks.errors import OptionError

if TYPE_CHECKING:  # imported by whoever exports
    from offload_core.export import ExportReport, Listener, ParquetOptions


class TierReader:
    """A tier that is open for reading: `store` is the Tier itself, `options` are those its driver was given by name."""

    def __init__(self, store: Tier, *, options: Mapping[str, object] | None = None) -> None:
        self.store = store
        self.options = dict(options or {})

    def also(self, *tiers: str | os.PathLike[str] | Tier) -> TierReader:
        """This tier, read by records together with others that have what is not here; closing it closes all."""
        return TierReader(open_beside(self.store, tiers, self.options), options=self.options)

    def records(
        self, source: RecordSource, options: Mapping[str, object] | None = None
    ) -> dict[TopicName, ManagedLedgerInfo]:
        """All managed ledgers' records of a source, by topic.

        Args:
            source: a path or URL of a record's file, or of a tree of them, `<tenant>/<namespace>/persistent/<topic>`;
                for a file elsewhere `persistent://TENANT/NAMESPACE/TOPIC=FILE`; the URL of a metadata store, such as
                a broker's admin REST or a ZooKeeper (docs/metadata-stores.md); or records by topic.
            options: those of the source. Without any, a URL of the tier's own driver is opened with the tier's.

        Raises:
            OptionError, PluginError, FormatError, StoreError.
        """
        with open_records(source, self.store, self.options, options) as records:
            return records.read(records.topics())

    def catalogue(
        self,
        *,
        prefix: str = "",
        records: RecordSource | None = None,
        records_options: Mapping[str, object] | None = None,
        executor: Executor | None = None,
    ) -> Catalogue:
        """The topics and ledgers that lie here, with what is wrong with them.

        Args:
            prefix: only objects whose keys begin so; with `records` the folder that they lie in.
            records: managed ledgers' records (see `records`), which say what there is. Without them the tier is listed,
                and Pulsar's own streaming objects have no topic.
            records_options: the options of `records`.
            executor: who looks at what is listed or recorded; None for this process.
        """
        if records is None:
            return list_catalogue(self.store, prefix=prefix, executor=executor)
        wanted = self.records(records, records_options)
        return record_catalogue(self.store, wanted, prefix=prefix, executor=executor)

    def scan(
        self,
        *,
        topic: str | Sequence[str] = (),
        topics_pattern: str | None = None,
        ledger: int | None = None,
        cluster: str | None = None,
        level: Level = "messages",
        columns: Sequence[str] | None = None,
        start: Offsets = "earliest",
        stop: Offsets = "latest",
        start_time: int | datetime | None = None,
        stop_time: int | datetime | None = None,
        time_slack_ms: int = DEFAULT_TIME_SLACK_MS,
        conditions: Sequence[Condition] = (),
        resume: Mapping[TopicName, Position] | None = None,
        min_partitions: int = 1,
        task_bytes: int = DEFAULT_TASK_BYTES,
        fail_on_data_loss: bool = True,
        verify_checksums: bool = True,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        isolation: Isolation = "committed",
        summaries: str | os.PathLike[str] | None = None,
        key_provider: str | tuple[str, Mapping[str, object]] | KeyProviderSpec | None = None,
        crypto_failure_action: CryptoFailureAction | None = None,
        chunks: Chunks = "joined",
        chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES,
        max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES,
        prefix: str = "",
        records: RecordSource | None = None,
        records_options: Mapping[str, object] | None = None,
        schemas: SchemaSource | Payloads | None = None,
        reader_schema: int | str | None = None,
        mode: Mode = "FAILFAST",
        corrupt_column: str = CORRUPT_RECORD,
    ) -> Scan:
        """Plan a read. No data is fetched before the scan is iterated over, or asked for its tasks.

        Args:
            topic: one topic's name, or several; a partitioned topic's base name stands for all its partitions.
            topics_pattern: instead of names, a regular expression that the whole name must match.
            ledger: only this ledger; without a topic also of objects that name none.
            cluster: only what this Pulsar cluster offloaded; needed where two share a bucket and name a topic alike.
            level: `messages`, or `entries` as they are stored.
            columns: the columns to make, in this order (docs/columns.md); None for the default ones.
            start, stop: `earliest`, `latest`, or a position per topic; a start is inclusive, a stop exclusive.
            start_time, stop_time: only messages published from then on, and before then: milliseconds since the epoch,
                or times with a zone. Blocks that cannot hold any are found by binary search, and not read.
            time_slack_ms: how much older than a message before it a message may be to be found by a range of times.
            conditions: leave out topics, ledgers and blocks that cannot hold a row for which all of them hold. What is
                read may hold other rows as well.
            resume: instead of a start, where topics go on that were read up to here before (see `resume_offsets`).
            min_partitions, task_bytes: plan so many tasks where there are enough blocks, or more of about these bytes.
            fail_on_data_loss: entries that are missing in the middle are an error, else a warning.
            verify_checksums: verify the CRC-32C of every entry that has one, and a MapFile by its `.crc` file.
            max_message_bytes: the most that one payload may decompress to, or the chunks of a message have together.
            isolation: `committed` for what a consumer sees of transactions, `uncommitted` for all.
            summaries: a path or URL where ledgers' summaries are kept, so that transactions are looked up only once.
            key_provider: who has the keys of encrypted messages (docs/encryption.md): a pair of name and options, or a
                text, `pem:directory=/keys`.
            crypto_failure_action: what becomes of messages for which there is no key, in Pulsar's words: `FAIL`,
                `DISCARD` or `CONSUME`, which passes on ciphertext. None for FAIL with a key provider, CONSUME without.
            chunks: `joined` to messages, or `raw`, one by one as they are stored.
            chunk_look_back_bytes: how far before a task the beginnings of its messages are looked for, in stored bytes.
            max_pending_chunk_bytes: the most that a task holds of incomplete messages.
            prefix: only objects whose keys begin so.
            records, records_options: managed ledgers' records, which say what there is to read (see `catalogue`).
            schemas: who knows the topics' schemas (docs/schemas.md): a path or URL of saved ones, a literal one, a
                provider's name. The columns are then those of the payload in place of `value`.
            reader_schema: the version of the schema, or a definition, that all messages are resolved to; None
                for each topic's newest.
            mode: what becomes of messages that cannot be read: that cannot be decoded, do not decrypt, or lack chunks.
                `FAILFAST` raises; `PERMISSIVE` gives null columns and the payload in `corrupt_column`, or passes on
                ciphertext, and warns; `DROPMALFORMED` leaves them out.
            corrupt_column: the name of that column.

        Raises:
            OptionError, UnknownTopicError, UnknownLedgerError, DataLossError, StoreError; of records FormatError; of
            schemas SchemaError; of schema and key providers PluginError.
        """
        options = ReadOptions(
            level=level,
            columns=None if columns is None else tuple(columns),
            verify_checksums=verify_checksums,
            max_message_bytes=max_message_bytes,
            fail_on_data_loss=fail_on_data_loss,
            times=restrict_times(time_range(start_time, stop_time, time_slack_ms), conditions, time_slack_ms),
            isolation=isolation,
            mode=mode,
            key_provider=key_provider_spec(key_provider),
            crypto_failure_action=crypto_failure_action,
            chunks=chunks,
            chunk_look_back_bytes=chunk_look_back_bytes,
            max_pending_chunk_bytes=max_pending_chunk_bytes,
        )
        if schemas is None:
            options.check()
        key_provider_of(options.key_provider)  # a wrong name or option is told here
        names = (topic,) if isinstance(topic, str) else tuple(topic)
        selection = Selection(topics=names, topics_pattern=topics_pattern, ledger_id=ledger, cluster=cluster)
        catalogue = self.look(
            selection, prefix=prefix, records=records, records_options=records_options, read_indexes=False
        )
        topics = select_topics(catalogue, selection)
        read, start = (topics, start) if resume is None else resume_offsets(topics, resume, start)
        if schemas is not None:
            if not isinstance(schemas, Payloads):
                if any(topic.name is None for topic in topics):
                    raise OptionError("ledgers whose topic is not known have no schema")
                schemas = self.payloads(
                    schemas,
                    [str(topic.name) for topic in topics],
                    reader_schema=reader_schema,
                    mode=mode,
                    corrupt_column=corrupt_column,
                )
            options = replace(options, payloads=schemas)
            options.check()
        bounds = Bounds(
            start=start,
            stop=stop,
            fail_on_data_loss=fail_on_data_loss,
            times=options.times,
            conditions=tuple(conditions),
            asked_times=time_range(start_time, stop_time, time_slack_ms),
        )
        tasks = plan_tasks(
            self.store,
            read,
            bounds,
            min_partitions=min_partitions,
            task_bytes=task_bytes,
            neighbour_bytes=chunk_look_back_bytes if options.joins_chunks else None,
            around=topics,
        )
        resolver = TransactionResolver(
            tier=self.store,
            topics=tuple(topics),
            isolation=isolation,
            verify_checksums=verify_checksums,
            fail_on_data_loss=fail_on_data_loss,
            ledger_alone=ledger is not None,
            summaries=None if summaries is None else SummaryPlace(location=summaries, options=self.options),
            bounds=bounds if conditions else None,
        )
        return Scan(
            tier=self.store,
            planned=tuple(tasks),
            options=options,
            resolver=resolver if options.needs_outcomes else None,
        )

    def explain_scan(self, **scan: Any) -> ScanEstimate:
        """What a scan takes, told before it is read (docs/cost.md); arguments and errors are those of `scan`."""
        measured = MeasuredTier(self.store)
        return estimate_scan(TierReader(measured, options=self.options).scan(**scan), measured.requests)

    def payloads(
        self,
        schemas: SchemaSource,
        topics: Sequence[str],
        *,
        reader_schema: int | str | None = None,
        mode: Mode = "FAILFAST",
        corrupt_column: str = CORRUPT_RECORD,
    ) -> Payloads:
        """How the payloads of topics become columns, for `scan` and the schema before; arguments, errors as there."""
        provider = open_provider(schemas, self.store, self.options)
        try:
            return choose_payloads(
                provider,
                [parse_topic(topic) for topic in topics],
                reader_schema=reader_schema,
                mode=mode,
                corrupt_column=corrupt_column,
            )
        finally:
            if provider is not schemas:
                provider.close()

    def look(
        self,
        selection: Selection,
        *,
        prefix: str = "",
        records: RecordSource | None = None,
        records_options: Mapping[str, object] | None = None,
        known: Catalogue | None = None,
        read_indexes: bool = True,
    ) -> Catalogue:
        """A catalogue that has what a selection reads; of what `known` has already, nothing is read again.

        With `read_indexes=False` those indexes are left to the tasks of a scan that planning can do without.

        Raises:
            OptionError, UnknownTopicError, UnknownLedgerError, StoreError; of records FormatError.
        """
        if records is None:
            return list_catalogue(self.store, prefix=prefix, known=known, read_indexes=read_indexes)
        with open_records(records, self.store, self.options, records_options) as source:
            wanted = select_records(source, selection)
        return record_catalogue(self.store, wanted, prefix=prefix, known=known, read_indexes=read_indexes)

    def export(
        self,
        to: str | os.PathLike[str],
        *,
        to_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        parquet: ParquetOptions | None = None,
        file_bytes: int = DEFAULT_TASK_BYTES,
        executor: Executor | None = None,
        follow_s: float | None = None,
        ended: threading.Event | None = None,
        listener: Listener | None = None,
        **scan: Any,
    ) -> ExportReport:
        """Export messages to Parquet files, an Iceberg or a Delta table (docs/export.md).

        Only what is new since the last export to the same place is, each message once, however that ended.

        Args:
            to: a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:PATH`.
            to_options: of a folder its driver's options, of Iceberg the catalog's properties, of Delta its storage
                options.
            columns: the columns to write; None for the default ones.
            parquet: how files are written.
            file_bytes: about this many stored bytes make a file of each topic and day in them.
            executor: who does the work; None for a thread a core.
            follow_s: look for what is new after so many seconds, again and again, until `ended` is set.
            ended: once it is set no further file begins, and the export returns when those under way are committed.
            listener: told once all is planned, and after each task.
            scan: which topics, and how to read them: as in `scan`, without an end in time.

        Raises:
            As `scan`, and MissingExtraError, FormatError, and StoreError of either side; what is committed stays so.
        """
        from offload_core.export import NEEDED_COLUMNS, ParquetOptions, run_export

        wanted = None if columns is None else [*columns, *(n for n in NEEDED_COLUMNS if n not in columns)]

        def plan(resume: Mapping[TopicName, Position]) -> Scan:
            return self.scan(**{**scan, "columns": wanted, "resume": resume, "task_bytes": file_bytes})

        return run_export(
            plan,
            to,
            to_options or {},
            executor=executor or ThreadExecutor(),
            parquet=parquet or ParquetOptions(),
            columns=columns,
            follow_s=follow_s,
            ended=threading.Event() if ended is None else ended,
            listener=listener,
        )

    def close(self) -> None:
        """Give back the store's connections and threads."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_tier(
    url_or_driver: str | os.PathLike[str],
    *,
    driver: str | None = None,
    layers: Sequence[str | tuple[str, Mapping[str, object]]] | None = None,
    **options: Any,
) -> TierReader:
    """Open a tier.

    Args:
        url_or_driver: a URL whose scheme picks the driver (`file:///data/tier`), a path, or a driver's name.
        driver: a driver's name, which overrides the scheme.
        layers: what stands before the driver, outermost first (docs/layers.md): each a pair of name and options, or
            a text, `retry` or `retry:attempts=5`. None for those that the driver asks for.
        options: the driver's own options.

    Raises:
        UnknownPluginError, MissingExtraError, BrokenPluginError, OptionError.
    """
    store = open_store(url_or_driver, driver=driver, layers=layers, upload_niceness=None, **options)
    return TierReader(store, options=options)
