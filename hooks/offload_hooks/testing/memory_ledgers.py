"""Ledgers in memory: a ledger store that does what the contract demands and nothing else.

All stores over one `MemoryLedgers` share them, as processes share a disk; another process sees none of them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from offload_hooks.errors import (
    LedgerClosedError,
    LedgerFencedError,
    OptionError,
    RangeError,
    UnknownLedgerError,
)
from offload_hooks.ledger_stores import (
    DEFAULT_READ_BYTES,
    EntryBatch,
    LedgerStatus,
    LedgerStoreDescription,
    RecoveredLedger,
)
from offload_hooks.values import ReadableBuffer

MAX_ENTRY_BYTES = 5 << 20
MAX_METADATA_BYTES = 4 << 10


@dataclass(slots=True, eq=False)
class MemoryLedger:
    """A ledger in memory; readers and writers hold the lock of its `MemoryLedgers`."""

    ledger_id: int
    custom_metadata: Mapping[str, bytes]
    created_at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    entries: list[bytes] = field(default_factory=list)
    sealed: bool = False
    fenced: bool = False

    def status(self) -> LedgerStatus:
        """As the contract has it."""
        return LedgerStatus(
            ledger_id=self.ledger_id,
            entry_count=len(self.entries),
            size_bytes=sum(map(len, self.entries)),
            sealed=self.sealed,
            created_at_ms=self.created_at_ms,
            custom_metadata=self.custom_metadata,
        )


@dataclass(slots=True)
class MemoryLedgers:
    """State that all stores over the same ledgers share."""

    ledgers: dict[int, MemoryLedger] = field(default_factory=dict)
    ids: itertools.count[int] = field(default_factory=itertools.count)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def find(self, ledger_id: int) -> MemoryLedger:
        """A ledger; `UnknownLedgerError` if it is not there."""
        found = self.ledgers.get(ledger_id)
        if found is None:
            raise UnknownLedgerError("there is no such ledger", ledger_id=ledger_id)
        return found


class MemoryLedgerWriter:
    """See `LedgerWriter`."""

    def __init__(self, ledger: MemoryLedger, store: MemoryLedgerStore) -> None:
        self._ledger = ledger
        self._store = store
        self._closed = False

    @property
    def ledger_id(self) -> int:
        """See `LedgerWriter`."""
        return self._ledger.ledger_id

    @property
    def status(self) -> LedgerStatus:
        """See `LedgerWriter`."""
        return self._ledger.status()

    def append(self, payload: ReadableBuffer) -> int:
        """See `LedgerWriter`."""
        return self.append_batch([payload])

    def append_batch(self, payloads: Sequence[ReadableBuffer]) -> int:
        """See `LedgerWriter`."""
        if not payloads or any(len(payload) > MAX_ENTRY_BYTES for payload in payloads):
            raise OptionError("no entries, or one that is too large", ledger_id=self.ledger_id)
        with self._store.shared.lock:
            self._check()
            first = len(self._ledger.entries)
            self._ledger.entries.extend(bytes(payload) for payload in payloads)
            return first

    def sync(self) -> None:
        """See `LedgerWriter`: nothing is less durable than anything else."""
        with self._store.shared.lock:
            self._check()

    def close(self) -> LedgerStatus:
        """See `LedgerWriter`."""
        with self._store.shared.lock:
            if not self._closed:
                self._check()
                self._closed = self._ledger.sealed = True
            return self._ledger.status()

    def _check(self) -> None:
        if self._closed or self._store.closed:
            raise LedgerClosedError("the ledger's writer was closed", ledger_id=self.ledger_id)
        if self._ledger.fenced:
            raise LedgerFencedError("another has recovered or deleted the ledger", ledger_id=self.ledger_id)


class MemoryLedgerReader:
    """See `LedgerReader`."""

    def __init__(self, ledger_id: int, store: MemoryLedgerStore) -> None:
        self._ledger_id = ledger_id
        self._store = store
        self._closed = False
        self.status()

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`."""
        with self._store.shared.lock:
            return self._find().status()

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        with self._store.shared.lock:
            entries = self._find().entries
            if not 0 <= first_entry_id <= last_entry_id < len(entries) or max_bytes < 1:
                raise RangeError(
                    "the ledger does not have these entries",
                    ledger_id=self._ledger_id,
                    expected=f"first ≤ last < {len(entries)}, at least 1 byte",
                    found=f"{first_entry_id} to {last_entry_id}, {max_bytes} bytes",
                )
            stop, used = first_entry_id + 1, len(entries[first_entry_id])
            while stop <= last_entry_id and used + len(entries[stop]) <= max_bytes:
                used += len(entries[stop])
                stop += 1
            return EntryBatch.of(first_entry_id, entries[first_entry_id:stop])

    def size_before(self, entry_id: int) -> int:
        """See `SizedLedgerReader`."""
        with self._store.shared.lock:
            entries = self._find().entries
            if not 0 <= entry_id <= len(entries):
                raise RangeError(
                    "the ledger does not have this entry",
                    ledger_id=self._ledger_id,
                    expected=f"0 to {len(entries)}",
                    found=entry_id,
                )
            return sum(map(len, entries[:entry_id]))

    def close(self) -> None:
        """See `LedgerReader`."""
        self._closed = True

    def _find(self) -> MemoryLedger:
        if self._closed or self._store.closed:
            raise LedgerClosedError("the ledger's reader was closed", ledger_id=self._ledger_id)
        return self._store.shared.find(self._ledger_id)


class MemoryLedgerStore:
    """Ledgers in memory.

    Args:
        shared: the ledgers that it shares with other instances; None for its own.
    """

    def __init__(self, shared: MemoryLedgers | None = None) -> None:
        self.shared = shared or MemoryLedgers()
        self.closed = False

    def describe(self) -> LedgerStoreDescription:
        """See `LedgerStore`."""
        return LedgerStoreDescription(name="memory", location="memory:", max_entry_bytes=MAX_ENTRY_BYTES)

    def create(self, custom_metadata: Mapping[str, bytes]) -> MemoryLedgerWriter:
        """See `LedgerStore`."""
        if sum(len(key) + len(value) for key, value in custom_metadata.items()) > MAX_METADATA_BYTES:
            raise OptionError("a ledger's custom metadata is too large")
        with self._open() as shared:
            ledger = MemoryLedger(next(shared.ids), dict(custom_metadata))
            shared.ledgers[ledger.ledger_id] = ledger
        return MemoryLedgerWriter(ledger, self)

    def open(self, ledger_id: int) -> MemoryLedgerReader:
        """See `LedgerStore`."""
        with self._open():
            return MemoryLedgerReader(ledger_id, self)

    def recover(self, ledger_id: int, accept_loss: bool = False) -> RecoveredLedger:
        """See `LedgerStore`; nothing is ever lost."""
        del accept_loss
        with self._open() as shared:
            ledger = shared.find(ledger_id)
            ledger.fenced = ledger.sealed = True
            return RecoveredLedger(status=ledger.status())

    def verify(self, ledger_id: int) -> LedgerStatus:
        """See `LedgerStore`."""
        with self._open() as shared:
            return shared.find(ledger_id).status()

    def delete(self, ledger_id: int) -> bool:
        """See `LedgerStore`."""
        with self._open() as shared:
            ledger = shared.ledgers.pop(ledger_id, None)
            if ledger is None:
                return False
            ledger.fenced = True
            return True

    def ledger_ids(self) -> list[int]:
        """See `LedgerStore`."""
        with self._open() as shared:
            return sorted(shared.ledgers)

    def close(self) -> None:
        """See `LedgerStore`."""
        self.closed = True

    @contextmanager
    def _open(self) -> Iterator[MemoryLedgers]:
        if self.closed:
            raise LedgerClosedError("the ledger store was closed")
        with self.shared.lock:
            yield self.shared
