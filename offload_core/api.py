"""What a Python program starts with: `open_tier`, and the tier to list and scan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from offload_core.catalogue import (
    Catalogue,
    RecordSource,
    TopicName,
    list_catalogue,
    load_records,
    record_catalogue,
)
from offload_core.messages.schema import Level
from offload_core.metadata import ManagedLedgerInfo
from offload_core.scan import (
    DEFAULT_TASK_BYTES,
    Bounds,
    Offsets,
    ReadOptions,
    Scan,
    Selection,
    plan_tasks,
    select_records,
    select_topics,
)
from offload_core.scan.tasks import DEFAULT_MAX_MESSAGE_BYTES, Isolation
from offload_core.scan.transactions import SummaryPlace, TransactionResolver
from offload_core.tier import Tier, open_store


class TierReader:
    """A tier that is open for reading.

    `store` is the Tier itself, for single objects; `options` are those of its driver that were given by name.
    """

    def __init__(self, store: Tier, *, options: Mapping[str, object] | None = None) -> None:
        self.store = store
        self._options = dict(options or {})

    def records(self, source: RecordSource) -> dict[TopicName, ManagedLedgerInfo]:
        """Managed ledgers' records by topic.

        Args:
            source: a path or URL of a record's file, or of a tree of them, `<tenant>/<namespace>/persistent/<topic>`;
                for a file elsewhere `persistent://TENANT/NAMESPACE/TOPIC=FILE`; or records by topic. A URL of the
                tier's own driver is opened with the tier's options.

        Raises:
            OptionError, FormatError, StoreError.
        """
        return load_records(source, self.store, self._options)

    def catalogue(self, *, prefix: str = "", records: RecordSource | None = None) -> Catalogue:
        """The topics and ledgers that lie here, with what is wrong with them.

        Args:
            prefix: only objects whose keys begin so; with `records` the folder that they lie in.
            records: managed ledgers' records (see `records`), which say what there is. Without them the tier is listed,
                and Pulsar's own streaming objects have no topic.
        """
        if records is None:
            return list_catalogue(self.store, prefix=prefix)
        return record_catalogue(self.store, self.records(records), prefix=prefix)

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
        min_partitions: int = 1,
        task_bytes: int = DEFAULT_TASK_BYTES,
        fail_on_data_loss: bool = True,
        verify_checksums: bool = True,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        isolation: Isolation = "committed",
        summaries: str | os.PathLike[str] | None = None,
        prefix: str = "",
        records: RecordSource | None = None,
    ) -> Scan:
        """Plan a read. Nothing but indexes is fetched before the scan is iterated over, or asked for its tasks.

        Args:
            topic: one topic's name, or several; a partitioned topic's base name stands for all its partitions.
            topics_pattern: instead of names, a regular expression that the whole name must match.
            ledger: only this ledger; without a topic also of objects that name none.
            cluster: only what this Pulsar cluster offloaded; needed where two share a bucket and name a topic alike.
            level: `messages`, or `entries` as they are stored.
            columns: the columns to make, in this order (docs/columns.md); None for the default ones.
            start, stop: `earliest`, `latest`, or a position per topic; a start is inclusive, a stop exclusive.
            min_partitions: plan at least so many tasks where there are enough blocks.
            task_bytes: plan tasks of about this many bytes.
            fail_on_data_loss: entries that are missing in the middle are an error, else a warning.
            verify_checksums: verify the CRC-32C of every entry that has one, and a MapFile by its `.crc` file.
            max_message_bytes: the most that one payload may decompress to.
            isolation: `committed` for what a consumer sees of transactions, `uncommitted` for all.
            summaries: a path or URL where ledgers' summaries are kept, so that transactions are looked up only once.
            prefix: only objects whose keys begin so.
            records: managed ledgers' records, which say what there is to read (see `catalogue`).

        Raises:
            OptionError, UnknownTopicError, UnknownLedgerError, DataLossError, StoreError; of records FormatError.
        """
        options = ReadOptions(
            level=level,
            columns=None if columns is None else tuple(columns),
            verify_checksums=verify_checksums,
            max_message_bytes=max_message_bytes,
            fail_on_data_loss=fail_on_data_loss,
            isolation=isolation,
        )
        options.check()
        names = (topic,) if isinstance(topic, str) else tuple(topic)
        selection = Selection(topics=names, topics_pattern=topics_pattern, ledger_id=ledger, cluster=cluster)
        if records is None:
            catalogue = list_catalogue(self.store, prefix=prefix)
        else:
            wanted = select_records(self.records(records), selection)
            catalogue = record_catalogue(self.store, wanted, prefix=prefix)
        topics = select_topics(catalogue, selection)
        bounds = Bounds(start=start, stop=stop, fail_on_data_loss=fail_on_data_loss)
        tasks = plan_tasks(topics, bounds, min_partitions=min_partitions, task_bytes=task_bytes)
        place = None if summaries is None else SummaryPlace(location=summaries, options=self._options)
        resolver = TransactionResolver(
            tier=self.store,
            topics=tuple(topics),
            isolation=isolation,
            verify_checksums=verify_checksums,
            ledger_alone=ledger is not None,
            summaries=place,
        )
        return Scan(
            tier=self.store,
            planned=tuple(tasks),
            options=options,
            resolver=resolver if options.needs_outcomes else None,
        )

    def close(self) -> None:
        """Give back the store's connections and threads."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_tier(
    url_or_driver: str | os.PathLike[str],
    *,
    driver: str | None = None,
    layers: Sequence[str | tuple[str, Mapping[str, object]]] | None = None,
    **options: object,
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
    store = open_store(url_or_driver, driver=driver, layers=layers, **options)
    return TierReader(store, options=options)
