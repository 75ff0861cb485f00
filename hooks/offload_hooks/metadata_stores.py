"""Metadata stores, which hold the records of managed ledgers: a value and its version for each path.

A store is a plugin of the entry-point group `pulsar_offload.metadata_stores`, under the scheme of its URLs. It is
called with the URL, and with its options by name; like a driver, it declares them by its parameters. One that only
reads is a `MetadataStore`; one that keeps our own records is a `WritableMetadataStore`, and changes a value by
compare-and-set only: a writer states the version that it read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from offload_hooks.errors import InvalidKeyError


class MetadataStore(Protocol):
    """A metadata store that is open for reading.

    Paths are Pulsar's own, `/managed-ledgers/<tenant>/<namespace>/persistent/<topic>`, the topic encoded as in a
    managed ledger's name. Calls may come from many threads at once. Each ends within the store's time limits; the store
    itself makes a request again where that may help. No error holds a credential.
    """

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value at `path` as it is stored, and its version; None if there is none.

        Raises:
            AccessDeniedError, StoreUnavailableError, StoreTimeoutError, StoreError: the store fails, with the place.
            FormatError: the store answers with something else than its protocol allows.
        """

    def children(self, path: str) -> Collection[str]:
        """The names directly below `path`, each once; none if there is nothing. Errors as `get`."""

    def close(self) -> None:
        """Release connections and threads. Nothing may be called afterwards but `close`."""


class WritableMetadataStore(MetadataStore, Protocol):
    """A metadata store that is also written: a dict from paths to values, each with a version.

    A path may have a value, and others below it; one does not need the other. A written value is seen by every later
    read of any process, and is durable. Many processes and threads write at once; also children that were forked from
    a process that has the store open. Paths are checked by `check_path`.

    A version belongs to one value at one path for ever: a later value, also after a deletion, has another one. So a
    value is unchanged exactly if its version is.
    """

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Store a value if the present one has `expected_version` (None: if there is none); return its version.

        Raises:
            VersionConflictError: the present value has another version, or there is none, or (None) there is one.
            OutcomeUnknownError: it may have been stored; as long as `expected_version` is there, it may still be. With
                any other error nothing was changed and nothing will be.
            InvalidKeyError: a path that is none. OptionError: a value that is too large for the store.
            AccessDeniedError, StoreFullError, StoreUnavailableError, StoreError: the store fails, with the place.
        """

    def delete(self, path: str, expected_version: int) -> None:
        """Delete the value if it has this version; values below it stay. Errors as `put`."""


def check_path(path: str) -> str:
    """The path, if a metadata store can have it: `/` and parts that are printable, not empty, not `.` or `..`.

    Raises:
        InvalidKeyError: it cannot. Names come from users and servers, and none may lead elsewhere.
    """
    start, *parts = path.split("/")
    if start or not parts or not all(_is_part(part) for part in parts):
        raise InvalidKeyError("a metadata store cannot have this path", found=repr(path))
    return path


def _is_part(part: str) -> bool:
    # no characters from U+FFF0 on: ZooKeeper has none of them
    return part not in ("", ".", "..") and part.isprintable() and max(part) < "\ufff0"
