"""Snapshots of transaction buffers in a metadata store: one for each managed ledger, at a path of ours.

Each is right for its stable position for ever, however late it is written: so of two the farther one stays, whoever
wrote it, and nothing is locked.
"""

from __future__ import annotations

from contextlib import suppress

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores.resolved_writes import delete_resolved, put_resolved, until_first
from offload_core.reading.transactions.snapshot import BufferSnapshot, pack_snapshot, parse_snapshot
from offload_hooks.errors import VersionConflictError, placed
from offload_hooks.metadata_stores import WritableMetadataStore, check_path

_ROOT = "/transaction-buffers"


class SnapshotStore:
    """Snapshots by the names of managed ledgers; calls may come from many threads at once.

    All raise the store's errors, with the path; of a record that cannot be parsed a `MetadataError`.

    Args:
        store: where they are; it is not closed.
    """

    def __init__(self, store: WritableMetadataStore) -> None:
        self._store = store
        self._last: tuple[str, bytes, BufferSnapshot] | None = None

    def read(self, name: str) -> BufferSnapshot | None:
        """The last snapshot of a managed ledger; None if there is none."""
        found = self._read(name)
        return None if found is None else found[0]

    def write(self, name: str, snapshot: BufferSnapshot) -> BufferSnapshot:
        """Persist a snapshot, unless one is there that is settled farther; the one that is there then.

        Errors as `advance`.
        """
        return self._write(name, snapshot, create=True) or snapshot

    def advance(self, name: str, snapshot: BufferSnapshot) -> BufferSnapshot | None:
        """As `write`, if there is one already; None if there is none, or none any more.

        Raises:
            OptionError: it has more aborted transactions than the store takes in one value.
            VersionConflictError, OutcomeUnknownError: see `until_first`, `put_resolved`.
        """
        return self._write(name, snapshot, create=False)

    def _write(self, name: str, snapshot: BufferSnapshot, *, create: bool) -> BufferSnapshot | None:
        def turn() -> BufferSnapshot | None:
            found = self._read(name)
            if found is None and not create:
                return None
            if found is not None and (found[0] == snapshot or snapshot.is_behind(found[0])):
                return found[0]
            self._put(name, snapshot, None if found is None else found[1])
            return snapshot

        return until_first(turn)

    def reset(self, name: str) -> None:
        """Put a snapshot of nothing in the place of whatever is there: the topic is read from its first entry on.

        For a topic that had transactions before it was opened with them here, or whose snapshot is damaged.
        """

        def turn() -> None:
            found = self._store.get(_path(name))
            self._put(name, BufferSnapshot(stable_position=None), None if found is None else found[1])

        until_first(turn)

    def delete(self, name: str) -> None:
        """Delete the snapshot, if there is one; one that is written meanwhile stays."""
        path = _path(name)
        found = self._store.get(path)
        if found is not None:
            with suppress(VersionConflictError):
                delete_resolved(self._store, path, found[1])

    def _read(self, name: str) -> tuple[BufferSnapshot, int] | None:
        path = _path(name)
        found = self._store.get(path)
        if found is None:
            return None
        last = self._last
        if last is not None and last[:2] == (name, found[0]):
            return last[2], found[1]  # of thousands of aborted transactions it takes long to parse
        with placed(key=path):
            snapshot = parse_snapshot(found[0], topic_of_managed_ledger(name).full)
        self._last = name, found[0], snapshot
        return snapshot, found[1]

    def _put(self, name: str, snapshot: BufferSnapshot, version: int | None) -> None:
        data = pack_snapshot(snapshot, topic_of_managed_ledger(name).full)
        put_resolved(self._store, _path(name), data, version)
        self._last = name, data, snapshot


def _path(name: str) -> str:
    return check_path(f"{_ROOT}/{name}")
