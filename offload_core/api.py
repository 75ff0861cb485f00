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
from offload_core.messages.encryption import CryptoFailureAction
from offload_core.messages.schema import Level, Mode
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
from offload_core.scan.opening import key_provider_of, key_provider_spec
from offload_core.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    Chunks,
    KeyProviderSpec,
)
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
        mode: Mode = "FAILFAST",
        key_provider: str | tuple[str, Mapping[str, object]] | KeyProviderSpec | None = None,
        crypto_failure_action: CryptoFailureAction | None = None,
        chunks: Chunks = "joined",
        chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES,
        max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES,
        prefix: str = "",
        records: RecordSource | None = None,
    ) -> Scan:
        """Plan a read. Nothing but indexes is fetched before the scan is iterated over.

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
            max_message_bytes: the most that one payload may decompress to, or the chunks of a message have together.
            mode: what becomes of messages that cannot be read, that is, that do not decrypt, or lack chunks: `FAILFAST`
                raises, `PERMISSIVE` passes on ciphertext and warns, `DROPMALFORMED` leaves them out.
            key_provider: who has the keys of encrypted messages (docs/encryption.md): a pair of name and options, or a
                text, `pem:directory=/keys`.
            crypto_failure_action: what becomes of messages for which there is no key, in Pulsar's words: `FAIL`,
                `DISCARD` or `CONSUME`, which passes on ciphertext. None for FAIL with a key provider, CONSUME without.
            chunks: `joined` to messages, or `raw`, one by one as they are stored.
            chunk_look_back_bytes: how far the chunks of a message may be apart, in stored bytes, where a task lacks its
                beginning.
            max_pending_chunk_bytes: the most that a task holds of messages that are not complete yet.
            prefix: only objects whose keys begin so.
            records: managed ledgers' records, which say what there is to read (see `catalogue`).

        Raises:
            OptionError, UnknownTopicError, UnknownLedgerError, DataLossError, StoreError; of records FormatError; of
            the key provider PluginError.
        """
        options = ReadOptions(
            level=level,
            columns=None if columns is None else tuple(columns),
            verify_checksums=verify_checksums,
            max_message_bytes=max_message_bytes,
            fail_on_data_loss=fail_on_data_loss,
            mode=mode,
            key_provider=key_provider_spec(key_provider),
            crypto_failure_action=crypto_failure_action,
            chunks=chunks,
            chunk_look_back_bytes=chunk_look_back_bytes,
            max_pending_chunk_bytes=max_pending_chunk_bytes,
        )
        options.check()
        key_provider_of(
            options.key_provider
        )  # its name and options are right, or this is the moment to say so
        names = (topic,) if isinstance(topic, str) else tuple(topic)
        selection = Selection(topics=names, topics_pattern=topics_pattern, ledger_id=ledger, cluster=cluster)
        if records is None:
            catalogue = list_catalogue(self.store, prefix=prefix)
        else:
            wanted = select_records(self.records(records), selection)
            catalogue = record_catalogue(self.store, wanted, prefix=prefix)
        topics = select_topics(catalogue, selection)
        bounds = Bounds(start=start, stop=stop, fail_on_data_loss=fail_on_data_loss)
        tasks = plan_tasks(
            topics,
            bounds,
            min_partitions=min_partitions,
            task_bytes=task_bytes,
            neighbour_bytes=chunk_look_back_bytes if options.joins_chunks else None,
        )
        return Scan(tier=self.store, tasks=tuple(tasks), options=options)

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
