"""A topic's transaction buffer and its snapshot: which transactions are open, which entries were aborted.

The state of the buffer as entries and markers pass, its snapshot's bytes, and the store of records that keeps them.
Source: docs/transactions.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.cycle_search import rare_search_for_cycles
from offload_core.format.messages.entry import TransactionId
from offload_core.format.messages.kernels.transaction_ranges import ABORT, COMMIT
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores.resolved_writes import delete_resolved, put_resolved, until_first
from offload_hooks.errors import EntryOrderError, MetadataError, VersionConflictError, placed
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.metadata_stores import WritableMetadataStore, check_path

if TYPE_CHECKING:
    from typing_extensions import Self

_NONE = (-1, -1)
"""Pulsar's text of the position before all entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSnapshot:
    """A transaction buffer as far as it is settled.

    Attributes:
        stable_position: all entries up to here are of no transaction, or of one that has ended; None for none.
        aborted: transactions that were aborted, and where the last is that is known of each.
    """

    stable_position: EntryPosition | None
    aborted: Mapping[TransactionId, EntryPosition] = field(default_factory=dict)

    @property
    def stop(self) -> EntryPosition:
        """The first position that is not settled."""
        stable = self.stable_position
        return EntryPosition(0, 0) if stable is None else EntryPosition(stable.ledger_id, stable.entry_id + 1)

    def is_behind(self, other: BufferSnapshot) -> bool:
        """True if the other one is settled farther."""
        return self.stop < other.stop


def pack_snapshot(snapshot: BufferSnapshot, topic: str) -> bytes:
    """Encode a snapshot of a topic, by its full name.

    AVRO's record of Pulsar's `TransactionBufferSnapshot`: `aborts`, null or an array of records of four longs
    (`entryId`, `ledgerId`, `txnIdLeastBits`, `txnIdMostBits`); `maxReadPositionEntryId`, `maxReadPositionLedgerId`;
    `topicName`, null or text.
    """
    numbers = [
        (last.entry_id, last.ledger_id, transaction.least_bits, transaction.most_bits)
        for transaction, last in snapshot.aborted.items()
    ]
    stable = snapshot.stable_position
    entry_id, ledger_id = _NONE if stable is None else (stable.entry_id, stable.ledger_id)
    name = topic.encode()
    # a union's branch comes first, an array's items after their count, and 0 ends it
    blocks = [len(numbers), *chain.from_iterable(numbers)] if numbers else []
    return _packed([1, *blocks, 0, entry_id, ledger_id, 1, len(name)]) + name


@rare_search_for_cycles()
def parse_snapshot(data: bytes, topic: str) -> BufferSnapshot:
    """Decode a snapshot of this topic.

    Raises:
        MetadataError: it is none, or another topic's.
    """
    longs = _Longs(data)
    blocks = list(longs.blocks() if longs.branch() else ())
    entry_id, ledger_id = longs.take(2).tolist()
    found = longs.text() if longs.branch() else None
    longs.end()
    if found not in (None, topic):
        raise MetadataError("a snapshot of transactions is another topic's", expected=topic, found=found)
    aborted: dict[TransactionId, EntryPosition] = {}
    for block in blocks:
        entry_ids, ledger_ids, least_bits, most_bits = block.T.tolist()
        positions = map(EntryPosition._make, zip(ledger_ids, entry_ids, strict=True))
        ids = map(TransactionId._make, zip(most_bits, least_bits, strict=True))
        aborted.update(zip(ids, positions, strict=True))
    stable = (ledger_id, entry_id)
    return BufferSnapshot(
        stable_position=None if stable == _NONE else EntryPosition(*stable), aborted=aborted
    )


_MOST_BYTES = 10
"""No long of AVRO takes more."""


def _packed(numbers: Sequence[int]) -> bytes:
    """Longs of AVRO: zigzag, seven bits a byte."""
    longs = np.array(numbers, dtype=np.int64)
    values = ((longs << 1) ^ (longs >> 63)).view(np.uint64)
    sizes = np.ones(len(values), dtype=np.int64)
    for place in range(1, _MOST_BYTES):
        sizes += (values >> np.uint64(7 * place)) != 0
    begins = np.cumsum(sizes) - sizes
    octets = np.empty(int(sizes.sum()), dtype=np.uint8)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        more = np.where(sizes[rows] > place + 1, 0x80, 0).astype(np.uint8)
        octets[begins[rows] + place] = (values[rows] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F | more
    return octets.tobytes()


class _Longs:
    """The longs of AVRO (zigzag, seven bits a byte) that a datum consists of, and the text at its end.

    All bytes are decoded as longs at once, also those of the text: in Python a snapshot of a hundred thousand aborted
    transactions takes two seconds. Sequences that are no longs are none only where one is taken.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._offset = 0
        octets = np.frombuffer(data, dtype=np.uint8)
        self._ends = np.flatnonzero(octets < 0x80) + 1
        begins = np.concatenate([np.zeros(1, dtype=np.int64), self._ends])[:-1]
        self._sizes = self._ends - begins
        values = np.zeros(len(begins), dtype=np.uint64)
        for place in range(min(_MOST_BYTES, int(self._sizes.max(initial=0)))):
            rows = np.flatnonzero(self._sizes > place)
            values[rows] |= (octets[begins[rows] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        self._lasts = octets[self._ends - 1]
        self._values = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """The next longs; `MetadataError` if there are not so many."""
        stop = self._at + count
        sizes, lasts = self._sizes[self._at : stop], self._lasts[self._at : stop]
        if count < 0 or len(sizes) < count:
            raise self._damaged("it ends early")
        if ((sizes > _MOST_BYTES) | ((sizes == _MOST_BYTES) & (lasts > 1))).any():
            raise self._damaged("a number has more than 64 bits")
        values = self._values[self._at : stop]
        self._at = stop
        self._offset = int(self._ends[stop - 1]) if stop else 0
        return values

    def branch(self) -> bool:
        """True if a union with null has its other branch."""
        found = int(self.take(1)[0])
        if found not in (0, 1):
            raise self._damaged(f"a union of two types has no branch {found}")
        return found == 1

    def blocks(self) -> Iterator[npt.NDArray[np.int64]]:
        """The items of an array of four longs each, by blocks: int64 (items, 4)."""
        while count := int(self.take(1)[0]):
            if count < 0:
                self.take(1)  # the bytes of the block
            yield self.take(4 * abs(count)).reshape(-1, 4)

    def text(self) -> str:
        """The text that comes next, which ends the datum."""
        size = int(self.take(1)[0])
        found = self._data[self._offset :]
        if len(found) != size:
            raise self._damaged("its topic's name does not end where it does")
        try:
            text = found.decode()
        except UnicodeDecodeError as error:
            raise self._damaged("its topic's name is no text") from error
        self._offset = len(self._data)
        return text

    def end(self) -> None:
        """Refuse what follows."""
        if self._offset < len(self._data):
            raise self._damaged("it goes on after its end")

    def _damaged(self, why: str) -> MetadataError:
        return MetadataError(f"a snapshot of transactions is damaged: {why}", offset=self._offset)


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
        """Persist a snapshot, unless there is one that is settled farther; return the one that is stored then.

        Errors as `advance`.
        """
        return self._write(name, snapshot, create=True) or snapshot

    def advance(self, name: str, snapshot: BufferSnapshot) -> BufferSnapshot | None:
        """Write as `write` does, if a snapshot exists; None if there is none, or none any more.

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
        """Replace the snapshot with an empty one: the topic is read from its first entry on.

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


Decision = Literal["committed", "aborted", "undecided"]
"""The outcome of an entry: `committed` also if it is of no transaction."""

Event = tuple[int, int, int, int, int]
"""First entry, stop entry, type of marker or 0 for messages, most and least bits."""


class BufferState(Enum):
    """The state of a buffer's recovery."""

    NO_SNAPSHOT = "NoSnapshot"
    INITIALIZING = "Initializing"
    READY = "Ready"


class _Opened(NamedTuple):
    """The begin of a transaction, and the last position before it."""

    before: EntryPosition | None
    first: EntryPosition


class TransactionBuffer:
    """The state of a topic's transactions. Not thread-safe.

    Attributes:
        state: see the module.
        last_position: of the last entry that was given, or that the snapshot stands for; None for none.
    """

    def __init__(self) -> None:
        self.state = BufferState.NO_SNAPSHOT
        self.last_position: EntryPosition | None = None
        self._open: OrderedDict[TransactionId, _Opened] = OrderedDict()
        self._aborted: dict[TransactionId, EntryPosition] = {}

    @classmethod
    def restore(cls, snapshot: BufferSnapshot) -> Self:
        """A buffer as of a snapshot, `INITIALIZING`: the entries after its stable position must follow."""
        buffer = cls()
        buffer.state = BufferState.INITIALIZING
        buffer.last_position = snapshot.stable_position
        buffer._aborted.update(snapshot.aborted)
        return buffer

    def become_ready(self) -> None:
        """Note that all entries were given and a snapshot is persisted."""
        self.state = BufferState.READY

    def add(self, ledger_id: int, entries: EntryBatch) -> None:
        """Take the next entries, after all that were given; ids that are skipped are of no entries.

        A batch without entries means that there are none before its `stop_entry_id`.

        Raises:
            FormatError: an entry is not Pulsar's, or damaged; with its place. Nothing was taken.
            EntryOrderError: they are not after the others.
        """
        if not len(entries):
            self._pass(ledger_id, entries.stop_entry_id)
            return
        first = EntryPosition(ledger_id, entries.first_entry_id)
        if self.last_position is not None and first <= self.last_position:
            raise EntryOrderError(
                "entries were given to a transaction buffer out of order",
                ledger_id=ledger_id,
                entry_id=entries.first_entry_id,
                expected=f"after {self.last_position}",
            )
        for entry_id, stop, marker, *transaction in find_events(ledger_id, entries):
            before = EntryPosition(ledger_id, entry_id - 1) if entry_id else self.last_position
            opened = _Opened(before, EntryPosition(ledger_id, entry_id))
            self._take(TransactionId(*transaction), marker, opened, EntryPosition(ledger_id, stop - 1))
        self._pass(ledger_id, entries.stop_entry_id)

    @property
    def stable_position(self) -> EntryPosition | None:
        """The last position before the first entry of any open transaction; None if nothing is before it."""
        return next((each.before for each in self._open.values()), self.last_position)

    @property
    def open_transactions(self) -> Mapping[TransactionId, EntryPosition]:
        """The transactions that have entries and no marker, with the first entry of each, in the order of these."""
        return {transaction: each.first for transaction, each in self._open.items()}

    @property
    def aborted(self) -> Mapping[TransactionId, EntryPosition]:
        """The aborted transactions, with the last known position of each: its marker, or an entry after it."""
        return self._aborted

    def is_open(self, transaction: TransactionId) -> bool:
        """True if it has entries and no marker."""
        return transaction in self._open

    def is_aborted(self, transaction: TransactionId) -> bool:
        """True if it has a marker of its abort."""
        return transaction in self._aborted

    def decide(self, position: EntryPosition, transaction: TransactionId | None) -> Decision:
        """Decide the outcome of an entry, by its position and its transaction (None for none).

        `undecided` after the stable position, and while the buffer is not `READY`.
        """
        stable = self.stable_position
        if self.state is not BufferState.READY or stable is None or position > stable:
            return "undecided"
        return "aborted" if transaction is not None and transaction in self._aborted else "committed"

    def end_before(self, last: EntryPosition) -> None:
        """Note that all transactions that began up to here have ended, by markers that were left out."""
        for transaction in [each for each, opened in self._open.items() if opened.first <= last]:
            del self._open[transaction]

    def forget_before(self, ledger_id: int) -> None:
        """Forget aborted transactions that have nothing in this ledger or a later one: the topic has no others."""
        for transaction in [each for each, last in self._aborted.items() if last.ledger_id < ledger_id]:
            del self._aborted[transaction]

    def snapshot(self) -> BufferSnapshot:
        """The snapshot to persist; the entries after its stable position have the rest."""
        return BufferSnapshot(stable_position=self.stable_position, aborted=dict(self._aborted))

    def _pass(self, ledger_id: int, stop_entry_id: int) -> None:
        if stop_entry_id:
            self.last_position = EntryPosition(ledger_id, stop_entry_id - 1)

    def _take(self, transaction: TransactionId, marker: int, opened: _Opened, last: EntryPosition) -> None:
        known = self._aborted.get(transaction)
        if marker == COMMIT:
            self._open.pop(transaction, None)
            self._aborted.pop(transaction, None)
        elif marker == ABORT or (not marker and known is not None):
            self._open.pop(transaction, None)
            self._aborted[transaction] = last if known is None else max(known, last)
        elif not marker:
            self._open.setdefault(transaction, opened)


def find_events(ledger_id: int | None, entries: EntryBatch) -> Iterator[Event]:
    """The transaction or marker of each entry, in order; None for entries that are in no ledger yet.

    Errors as `TransactionBuffer.add`.
    """
    finder = TransactionFinder(ledger_id, verify_checksums=True)
    offsets = np.asarray(entries.offsets)
    entry_ids = np.arange(entries.first_entry_id, entries.stop_entry_id)
    finder.add(LocatedEntries(np.asarray(entries.data), None, entry_ids, offsets[:-1], np.diff(offsets)))
    ranges, markers, _ = finder.tables()
    if not (len(ranges) or len(markers)):
        return iter(())
    events: list[Event] = [(first, stop, 0, most, least) for first, stop, most, least in ranges.tolist()]
    events += [(entry, entry + 1, kind, most, least) for entry, kind, most, least in markers.tolist()]
    return iter(sorted(events))
