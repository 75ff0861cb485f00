"""A topic's transaction buffer and its snapshot: which transactions are open, which entries were aborted.

The state of the buffer as entries and markers pass, its snapshot's bytes, and the store of records that keeps them.
Source: docs/transactions.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.messages.entry import TransactionId
from offload_core.format.messages.kernels.transaction_ranges import ABORT, COMMIT
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores.resolved_writes import delete_resolved, put_resolved, until_first
from offload_hooks.errors import EntryOrderError, MetadataError, PayloadError, VersionConflictError, placed
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.metadata_stores import WritableMetadataStore, check_path

if TYPE_CHECKING:
    from typing_extensions import Self

_NONE = (-1, -1)
"""Pulsar's text of the position before all entries."""

_SCHEMA = """{"type": "record", "name": "TransactionBufferSnapshot", "fields": [
  {"name": "aborts", "type": ["null", {"type": "array", "items": {
    "type": "record", "name": "AbortTxnMetadata", "fields": [
      {"name": "entryId", "type": "long"}, {"name": "ledgerId", "type": "long"},
      {"name": "txnIdLeastBits", "type": "long"}, {"name": "txnIdMostBits", "type": "long"}]}}]},
  {"name": "maxReadPositionEntryId", "type": "long"},
  {"name": "maxReadPositionLedgerId", "type": "long"},
  {"name": "topicName", "type": ["null", "string"]}]}"""


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
    """Encode a snapshot of a topic, by its full name."""
    numbers = [
        (last.entry_id, last.ledger_id, transaction.least_bits, transaction.most_bits)
        for transaction, last in snapshot.aborted.items()
    ]
    stable = snapshot.stable_position
    entry_id, ledger_id = _NONE if stable is None else (stable.entry_id, stable.ledger_id)
    name = topic.encode()
    # a union's branch comes first, an array's items after their count, and 0 ends it
    blocks = [len(numbers), *chain.from_iterable(numbers)] if numbers else []
    return b"".join(map(_long, [1, *blocks, 0, entry_id, ledger_id, 1, len(name)])) + name


def parse_snapshot(data: bytes, topic: str) -> BufferSnapshot:
    """Decode a snapshot of this topic.

    Raises:
        MetadataError: it is none, or another topic's.
    """
    from offload_core.format.schemas.avro_reference import (
        read_datum,  # here, for most topics have no transactions
    )

    schema = _schema()
    try:
        record = read_datum(data, schema, schema)
    except PayloadError as error:
        raise MetadataError(f"a snapshot of transactions is damaged: {error.what}") from error
    if record["topicName"] not in (None, topic):
        raise MetadataError(
            "a snapshot of transactions is another topic's", expected=topic, found=record["topicName"]
        )
    stable = (record["maxReadPositionLedgerId"], record["maxReadPositionEntryId"])
    return BufferSnapshot(
        stable_position=None if stable == _NONE else EntryPosition(*stable),
        aborted=dict(_aborts(record["aborts"] or ())),
    )


def _aborts(records: Any) -> Iterator[tuple[TransactionId, EntryPosition]]:
    for each in records:
        yield (
            TransactionId(each["txnIdMostBits"], each["txnIdLeastBits"]),
            EntryPosition(each["ledgerId"], each["entryId"]),
        )


@cache
def _schema() -> Any:
    from offload_core.format.schemas.avro_types import parse_avro

    return parse_avro(_SCHEMA)


def _long(number: int) -> bytes:
    """A long of AVRO: zigzag, seven bits a byte."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


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
