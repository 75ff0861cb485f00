"""The records of a running Pulsar, and their mirrors in a store of our own.

Records are read, and replaced at the version that was read; nothing is created or deleted.

A broker keeps a topic's record and its version in memory from when it loads the topic until it unloads it. It takes no
notice of a write of ours. Its own next write, of the whole record, then fails; it closes the topic and loads it again,
which clients see as a pause of some 0.2 s. So writes are few, one for all ledgers of a topic, and the topic is reloaded
after each. Source: docs/tiering.md; BookKeeper's and Pulsar's records in ZooKeeper, tried with Pulsar 4.0.8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, cast

from offload_core.metadata.records import (
    ManagedLedgerInfo,
    StoredRecord,
    pack_stored_record,
    parse_stored_record,
)
from offload_core.metadata.records.live_changes import mirrored
from offload_core.metadata.stores.managed_ledger_records import ManagedLedgerRecords
from offload_core.metadata.stores.record_paths import is_record_path
from offload_core.storage.tier import registry
from offload_hooks.errors import AccessDeniedError, OptionError, placed
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore

_MIRRORS = "/live"
_NOT_STORED = -1
"""The version of a mirror that is not stored yet."""


class LiveStore(MetadataStore, Protocol):
    """A metadata store that can replace values which a running Pulsar wrote."""

    def replace(self, path: str, value: bytes, expected_version: int) -> int:
        """Replace the value if it has this version; return the new version. Errors as `WritableMetadataStore.put`."""


class LiveRecordStore:
    """A `WritableMetadataStore` of a running Pulsar's records, in which nothing can be created or deleted."""

    def __init__(self, store: LiveStore) -> None:
        self._store = store

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `MetadataStore`."""
        return self._store.get(path)

    def children(self, path: str) -> Collection[str]:
        """See `MetadataStore`."""
        return self._store.children(path)

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`; `AccessDeniedError` for a value that does not exist, or is no record."""
        if expected_version is None or not is_record_path(path):
            raise _refused(path)
        return self._store.replace(path, value, expected_version)

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`; always `AccessDeniedError`."""
        del expected_version
        raise _refused(path)

    def close(self) -> None:
        """See `MetadataStore`."""
        self._store.close()


class MirrorStore:
    """A `WritableMetadataStore` of the mirrors of a running Pulsar's records, each as new as the record is.

    Errors as of both stores; `FormatError` for a record that cannot be parsed.

    Args:
        own: has the mirrors, below `/live`, and all else that is written.
        live: has the records.
    """

    def __init__(self, own: WritableMetadataStore, live: MetadataStore) -> None:
        self._own = own
        self._live = live

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `MetadataStore`; of a topic that the cluster has no more, the mirror as it was."""
        found = self._own.get(_MIRRORS + path)  # first: the record is as new as what the mirror was made of
        live = self._live.get(path) if is_record_path(path) else None
        if live is None:
            return found
        known, version = ManagedLedgerInfo(), _NOT_STORED
        with placed(key=path):
            if found is not None:
                known, version = parse_stored_record(found[0]).info, found[1]
            mirror = mirrored(parse_stored_record(live[0]).info, known)
        return pack_stored_record(StoredRecord(info=mirror)), version

    def children(self, path: str) -> Collection[str]:
        """See `MetadataStore`: of the mirrors that are stored."""
        return self._own.children(_MIRRORS + path)

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        version = None if expected_version == _NOT_STORED else expected_version
        return self._own.put(_MIRRORS + path, value, version)

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        self._own.delete(_MIRRORS + path, expected_version)

    def close(self) -> None:
        """See `MetadataStore`."""
        self._own.close()


def _refused(path: str) -> AccessDeniedError:
    return AccessDeniedError(
        "of a running Pulsar only records that exist are changed; nothing else is written or deleted",
        key=path,
    )


def open_live_store(url: str, options: Mapping[str, object]) -> LiveStore:
    """Open the metadata store of a running Pulsar; the caller closes it.

    Raises:
        OptionError: a wrong option, or a store that cannot replace a value at its version, such as an admin REST.
        PluginError, StoreError: as `registry.make_metadata_store`.
    """
    scheme = url.partition(":")[0]
    store = registry.make_metadata_store(scheme, url, options)
    if not callable(getattr(store, "replace", None)):
        store.close()
        raise OptionError(
            "the records of a running Pulsar are changed in its ZooKeeper",
            expected="a URL such as zk://host:2181",
            found=f"{scheme}:",
        )
    return cast("LiveStore", store)


def live_records(store: LiveStore) -> ManagedLedgerRecords:
    """The records of a running Pulsar, each in the compression that it has."""
    return ManagedLedgerRecords(LiveRecordStore(store), compression=None)
