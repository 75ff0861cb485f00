"""Managed ledgers' records in a metadata store, by topic: which there are, and the records of those that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.deletion_claim import is_claim
from offload_core.metadata.record_paths import CONCURRENCY, list_names, read_record
from offload_hooks.errors import FormatError
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore


class StoreRecords:
    """The records of a metadata store; see `record_source.Records`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._names: dict[TopicName, str] = {}
        self._twin: str | None = None

    @property
    def why_incomplete(self) -> str | None:
        """A store that can be written keeps the records itself; one that is only read passes on what others tell.

        Once `topics` was asked: nor may two records be of one topic, only one of which is read: an old name with its
        cluster in it, or one that Pulsar would encode otherwise.
        """
        if self._twin is not None:
            return f"another record is of the same topic as that of {self._twin}"
        if callable(getattr(self._store, "put", None)):
            return None
        return "a broker's answers leave out what the caller may not see, and the segments of ledgers"

    @property
    def writable(self) -> ManagedLedgerRecords | None:
        """The same records, to be changed; None of a store that is only read."""
        if self.why_incomplete is not None:
            return None
        return ManagedLedgerRecords(cast("WritableMetadataStore", self._store))

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics of these namespaces, or of all."""
        names: dict[TopicName, str] = {}
        for name in list_names(self._store, namespaces):
            topic = topic_of_managed_ledger(name)
            other = names.setdefault(topic, name)
            if other == name or self._is_claim(name):
                continue
            names[topic] = name
            if not self._is_claim(other):
                self._twin = name
        self._names |= names
        return list(names)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read the records of these topics, as they are now, several at once; one that there is none of is left out."""
        wanted = list(topics)
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="offload-records") as pool:
            found = pool.map(lambda topic: read_record(self._store, self.name(topic)), wanted)
            return {
                topic: record[0]
                for topic, record in zip(wanted, found, strict=True)
                if record is not None and not is_claim(record[0])
            }

    def _is_claim(self, name: str) -> bool:
        """Whether a topic has no record of this name, but a placeholder."""
        try:
            record = read_record(self._store, name)
        except FormatError:
            return False
        return record is None or is_claim(record[0])

    def name(self, topic: TopicName) -> str:
        """The managed ledger's name, by which its record is found."""
        return self._names.get(topic) or managed_ledger_of_topic(topic)
