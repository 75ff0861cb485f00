"""What a metadata store is: the place of managed ledgers' records, by path, with the version of each.

A store is a plugin of the entry-point group `pulsar_offload.metadata_stores`, under the scheme of its URLs. It is
called with the URL, and with its options by name; like a driver, it says what it needs by its parameters. This is the
half that reads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


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
            FormatError: the store answers with something else than its protocol says.
        """

    def children(self, path: str) -> Collection[str]:
        """The names directly below `path`, each once; none if there is nothing. Errors as `get`."""

    def close(self) -> None:
        """Give back connections and threads. Nothing may be called afterwards but `close`."""
