"""Ledger stores: the hot tier, where entries are appended to ledgers before they are offloaded.

Its entry-point group is `pulsar_offload.ledger_stores`: a class or factory whose keyword arguments are its options,
all of which may be text. It is BookKeeper's model: a **ledger** is written by the one writer that created it, entry
after entry with ids from 0 on, until it is sealed; then it never changes. A ledger whose writer is gone, or is to be
gone, is **recovered**: its writer is fenced, and it is sealed with the entries that it has. No other process ever
appends to it.

A `LedgerStore` is read; a `WritableLedgerStore` has the writing half as well. A store that others write to, such as the
BookKeeper of a live cluster, is the first only.

All calls are synchronous and may come from many threads at once. None hangs: a wait for another process has a
deadline. Errors are those of `offload_hooks.errors`; they name ledger and entry, and for damage the file and byte.
A store serves the process that made it; a forked child makes its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload, runtime_checkable

from offload_hooks.values import ReadableBuffer

DEFAULT_READ_BYTES = 1 << 20
"""The most bytes of entries that a read gives by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatus:
    """The state of a ledger at one moment.

    Attributes:
        ledger_id: 0 or more, never given to another ledger of the store, also not after deletion.
        entry_count: acknowledged entries; their ids are 0 … `entry_count` − 1.
        size_bytes: bytes of their payloads (BookKeeper's length).
        sealed: whether it never changes any more.
        created_at_ms: when it was created, in ms since 1970, UTC.
        custom_metadata: given when it was created.
    """

    ledger_id: int
    entry_count: int
    size_bytes: int
    sealed: bool
    created_at_ms: int
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLedger:
    """A ledger that `WritableLedgerStore.recover` sealed, or found sealed.

    Attributes:
        status: the sealed ledger.
        lost_entry_count: number of acknowledged entries after its end, as far as the store knows. Only a store that may
            acknowledge before an entry is durable loses any, when its machine fails.
    """

    status: LedgerStatus
    lost_entry_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStoreDescription:
    """Description of a store, for people.

    Attributes:
        name: the store's kind.
        location: where it is; without credentials.
        max_entry_bytes: the largest payload that it takes; 0 if it is only read.
    """

    name: str
    location: str
    max_entry_bytes: int = 0


class EntryBatch(Sequence[memoryview]):
    """Entries of a ledger that follow one another: their payloads, in one buffer.

    Args:
        first_entry_id: the id of the first.
        data: the payloads one after another (format `B`).
        offsets: the begin of each in `data`, and the end of the last: int64 (format `q`), one more than entries.
    """

    __slots__ = ("data", "first_entry_id", "offsets")

    def __init__(self, first_entry_id: int, data: memoryview, offsets: memoryview) -> None:
        self.first_entry_id = first_entry_id
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, first_entry_id: int, payloads: Iterable[ReadableBuffer]) -> EntryBatch:
        """A batch of these payloads, which are copied."""
        offsets, data = array("q", [0]), bytearray()
        for payload in payloads:
            data += payload
            offsets.append(len(data))
        return cls(first_entry_id, memoryview(bytes(data)), memoryview(offsets))

    @property
    def stop_entry_id(self) -> int:
        """One past the id of the last."""
        return self.first_entry_id + len(self)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        """The payload at a place in the batch, the first at 0."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.data[self.offsets[index] : self.offsets[index + 1]]

    def __repr__(self) -> str:
        return f"<EntryBatch of {len(self)} from {self.first_entry_id}, {self.offsets[-1]} bytes>"


class LedgerWriter(Protocol):
    """The one writer of a ledger.

    An entry is **acknowledged** when the call that appends it has returned. Then all readers see it, and it is there
    after a kill of the process; whether it is there after a failure of the machine as well, the store's options say.

    A call that raises `LedgerFailedError` has an unknown outcome: its entries, or the first of them, may be there.
    `WritableLedgerStore.recover` finds out, for the ids that it keeps are those that the calls would have answered.
    After any other error nothing of the call is there, and the writer can be used on.
    """

    @property
    def ledger_id(self) -> int:
        """The ledger."""

    @property
    def status(self) -> LedgerStatus:
        """The state as acknowledged by now; makes no request."""

    def append(self, payload: ReadableBuffer) -> int:
        """Append an entry; its id. Ids are dense, and of calls that follow one another they ascend.

        Raises:
            OptionError: the payload is larger than the store takes.
            StoreFullError: no room is left; room may come.
            LedgerFencedError: another has recovered or deleted the ledger. Nothing of the call is there.
            LedgerClosedError: it was closed.
            LedgerFailedError: see above; also for every further call.
            StoreError: the store fails otherwise.
        """

    def append_batch(self, payloads: Sequence[ReadableBuffer]) -> int:
        """Append entries that follow one another, no others between them; the id of the first. Errors as `append`.

        All are acknowledged or none. An `EntryBatch` is taken as well, with new ids. At least one.
        """

    def sync(self) -> None:
        """Make all entries durable that were acknowledged before: they survive a failure of the machine, too.

        Raises:
            LedgerFailedError: they are not durable, or it will never be known.
            LedgerFencedError, LedgerClosedError, StoreError: as `append`.
        """

    def close(self) -> LedgerStatus:
        """Seal the ledger, durably, with what has been acknowledged. Again: the same answer. Errors as `sync`."""


class LedgerReader(Protocol):
    """Reads one ledger, sealed or open, also of a writer in another process; it does not disturb the writer."""

    @property
    def ledger_id(self) -> int:
        """The ledger."""

    def status(self) -> LedgerStatus:
        """The ledger as it is now. `entry_count` never becomes less.

        Raises:
            UnknownLedgerError: it was deleted.
            FormatError, StoreError: as `read`.
        """

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """Entries from `first_entry_id` on, up to and with `last_entry_id`, but not more than `max_bytes` of payloads.

        At least one, however large; maybe fewer than there is room for. What was read stays as it is.

        Raises:
            RangeError: a negative or reversed range, or one that goes past the acknowledged entries.
            UnknownLedgerError: the ledger was deleted.
            FormatError: the bytes are damaged; ledger, entry, file (`key`) and byte are named.
            StoreError: the store fails otherwise.
        """

    def close(self) -> None:
        """Release its resources. Nothing may be called afterwards but `close`."""


@runtime_checkable
class SizedLedgerReader(Protocol):
    """An optional part of a `LedgerReader`: the sizes of its entries, without reading all of them."""

    def size_before(self, entry_id: int) -> int:
        """The bytes of the payloads of all entries before this one; it may be the one after the last.

        Errors as `LedgerReader.read`.
        """


@runtime_checkable
class FollowedLedgerReader(Protocol):
    """An optional part of a `LedgerReader`: wait for entries of a ledger that is being written, without asking on."""

    def wait_past(self, entry_count: int, timeout_s: float) -> LedgerStatus:
        """The state once the ledger has more than so many entries, or is sealed, or the time is over.

        Errors as `LedgerReader.status`.
        """

    def accept(self, entry_count: int) -> None:
        """Take it from another reader, perhaps of another process, that so many entries are acknowledged."""


class LedgerStore(Protocol):
    """The hot tier, or a part of it, that is read."""

    def describe(self) -> LedgerStoreDescription:
        """Describe the store; makes no request."""

    def open(self, ledger_id: int) -> LedgerReader:
        """Open a ledger for reading. No writer is fenced.

        Raises:
            UnknownLedgerError: there is none of this id.
            FormatError: it is damaged.
            StoreError: the store fails.
        """

    def verify(self, ledger_id: int) -> LedgerStatus:
        """Read and check all acknowledged entries, and the facts that a sealed ledger has of itself.

        Errors as `LedgerReader.read`.
        """

    def ledger_ids(self) -> Sequence[int]:
        """The ids of all ledgers, ascending."""

    def close(self) -> None:
        """Give back files, connections and threads. Nothing of the store may be called afterwards but `close`."""


class WritableLedgerStore(LedgerStore, Protocol):
    """A ledger store that this program writes to."""

    def create(self, custom_metadata: Mapping[str, bytes]) -> LedgerWriter:
        """Create a ledger, durably; its id is greater than that of every ledger created before, by any process.

        Args:
            custom_metadata: small, as BookKeeper's: whose the ledger is, for instance.

        Raises:
            OptionError: the metadata is larger than the store takes.
            StoreFullError, AccessDeniedError, StoreError: the store fails.
        """

    def recover(self, ledger_id: int, accept_loss: bool = False) -> RecoveredLedger:
        """Fence the ledger's writer, in any process, and seal the ledger with all whole entries, durably.

        All acknowledged entries are kept, but for those that were not durable when a machine failed. Others may be
        kept as well. A sealed ledger is not changed. After a crash it can be called again.

        Args:
            ledger_id: of the ledger.
            accept_loss: where acknowledged entries are damaged, seal the ledger before the first of them.

        Raises:
            UnknownLedgerError: there is none of this id.
            FormatError: acknowledged entries are damaged. The writer is fenced, but nothing is sealed or cut.
            StoreError: the store fails; `StoreTimeoutError` if another process holds the ledger too long.
        """

    def delete(self, ledger_id: int) -> bool:
        """Delete a ledger, durably: its writer is fenced, its space given back. Whether it was there.

        Readers get `UnknownLedgerError` from then on. After a crash it is there, or not; it can be called again.
        """

    def close(self) -> None:
        """See `LedgerStore`. Ledgers that are open for writing are made durable, but not sealed."""
