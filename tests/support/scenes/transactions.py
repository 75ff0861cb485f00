"""Histories of transactions, a simulated broker, and reference implementations of kernels."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crash_points import Points
from entries import LedgerPart, WrittenObject, batch_entry, entry, marker, pip17_object, streaming_object
from hypothesis import strategies as st
from managed_ledgers import NAME, environment_of
from mapfiles import mapfile

from offload_core.format.codec.block_layout import padding
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.messages.entry import (
    NewMessage,
    TransactionId,
    pack_entry,
    pack_tombstone,
    split_entry,
)
from offload_core.metadata.records import EntryPosition
from offload_core.reading.transaction_buffers import BufferState, SnapshotStore, TransactionBuffer
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    open_managed_ledger,
)
from offload_hooks.errors import FormatError
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

Position = tuple[int, int]
"""Ledger, entry."""

Transaction = tuple[int, int]
"""Most and least bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a topic.

    `messages` is 0 for a message that is in no batch. Of a commit or abort `transaction` is whose it is; a `tombstone`
    stands for an entry that a filter left out, a `snapshot` is a marker of another kind.
    """

    kind: Literal["messages", "commit", "abort", "tombstone", "snapshot"]
    transaction: Transaction | None = None
    messages: int = 0

    def pack(self, number):
        """The entry, the `number`th of its topic."""
        ids = {}
        if self.transaction is not None:
            ids = {"txnid_most_bits": self.transaction[0], "txnid_least_bits": self.transaction[1]}
        common = {"publish_time": 1_700_000_000_000 + number, **ids}
        if self.kind == "messages":
            values = [b"%d/%d" % (number, i) for i in range(max(self.messages, 1))]
            return batch_entry(values, **common) if self.messages else entry(values[0], **common)
        if self.kind == "tombstone":
            return pack_tombstone(entry(b"left out", **common))
        types = {"commit": 21, "abort": 22, "snapshot": 12}
        return marker(types[self.kind], **common)


PLAIN = Event(kind="messages")
ONE = (0, 1)
OTHER = (0, 2)


def of(transaction, messages=0):
    """A message of a transaction."""
    return Event(kind="messages", transaction=transaction, messages=messages)


def commit(transaction):
    """The marker of its commit."""
    return Event(kind="commit", transaction=transaction)


def abort(transaction):
    """The marker of its abort."""
    return Event(kind="abort", transaction=transaction)


def ledger(ledger_id, *events):
    """A ledger in which these happen, a few entries a block."""
    payloads = [event.pack(100 * ledger_id + i) for i, event in enumerate(events)]
    return pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of a simulated broker for a history.

    `committed` and `uncommitted` have the messages (ledger, entry, batch index) of either isolation, the latter with
    the state of the transaction, None outside of one.
    """

    committed: list[tuple[int, int, int]]
    uncommitted: list[tuple[int, int, int, str | None]]


def simulate(history, start, stop):
    """Go through a topic as a broker does that keeps it, from `start`, and read it up to `stop`.

    A transaction is ongoing from its first entry to its marker; nothing from the first ongoing one on is read. What was
    aborted once stays aborted, also if that was before `start`.
    """
    events = [(position, event) for position, event in history if position >= start]
    ongoing = {}
    aborted = {event.transaction for at, event in history if event.kind == "abort" and at < start}
    for position, event in events:
        if event.transaction is None:
            continue
        if event.kind == "messages" and event.transaction not in aborted:
            ongoing.setdefault(event.transaction, position)
        elif event.kind in ("commit", "abort"):
            ongoing.pop(event.transaction, None)
            if event.kind == "abort":
                aborted.add(event.transaction)
    end = min([stop, *ongoing.values()])
    committed, uncommitted = [], []
    for position, event in events:
        if event.kind != "messages" or position >= stop:
            continue
        state = None
        if event.transaction is not None:
            is_open = event.transaction in ongoing and position >= ongoing[event.transaction]
            state = "aborted" if event.transaction in aborted else "open" if is_open else "committed"
        places = [(*position, i) for i in (range(event.messages) if event.messages else (-1,))]
        uncommitted += [(*place, state) for place in places]
        if state != "aborted" and position < end:
            committed += places
    return Seen(committed=committed, uncommitted=uncommitted)


# --- reference implementations of kernels ------------------------------------------------------


def found_in(entries, first_entry_id):
    """Ranges, markers, tombstones and times of entries: the reference implementation of `find_transactions`."""
    ranges, markers, tombstones, times = [], [], [], []
    for entry_id, payload in enumerate(entries, start=first_entry_id):
        metadata = split_entry(payload).metadata
        times.append(_signed(metadata.publish_time))
        ids = _ids(metadata)
        is_marker = metadata.HasField("marker_type")
        if is_marker and metadata.marker_type in (20, 21, 22):
            if ids is not None:
                markers.append([entry_id, metadata.marker_type, *ids])
            elif tombstones and tombstones[-1][1] == entry_id:
                tombstones[-1][1] += 1
            else:
                tombstones.append([entry_id, entry_id + 1])
        elif not is_marker and ids is not None:
            if ranges and ranges[-1][1:] == [entry_id, *ids]:
                ranges[-1][1] += 1
            else:
                ranges.append([entry_id, entry_id + 1, *ids])
    return ranges, markers, tombstones, (min(times), max(times))


def last_entries_of(data, next_entry_id, least, gaps, is_entry):
    """The begin and id of the earliest frame that is linked to the end: the reference of `find_last_entries`."""
    found, end = len(data), len(data)
    for position in range(len(data) - 12, -1, -1):
        length, entry_id = struct.unpack_from(">iq", data, position)
        stop = position + 12 + length
        if position + 12 > end or length < 0 or stop > end or not max(least, 0) <= entry_id:
            continue
        if next_entry_id >= 0 and not (entry_id < next_entry_id if gaps else entry_id == next_entry_id - 1):
            continue
        if stop < end and not (found == len(data) and data[stop:] == padding(len(data) - stop)):
            continue
        if is_entry(data[position + 12 : stop]):
            found, end, next_entry_id = position, position, entry_id
    return found, next_entry_id


def is_entry(payload):
    """True if it is an entry of Pulsar's, by its form and its checksum."""
    try:
        split_entry(payload)
    except FormatError:
        return False
    return True


def outcomes_of(ranges, markers):
    """The reference implementation of `outcomes`, by looking at all markers for each range."""
    states = []
    for part, first, _, *ids in ranges:
        deciding = sorted(tuple(each) for each in markers if list(each[2:4]) == ids and each[4] in (21, 22))
        later = [each for each in deciding if each[:2] > (part, first)]
        before = [each for each in deciding if each[:2] < (part, first)]
        if later:
            states.append("committed" if later[0][4] == 21 else "aborted")
        else:
            states.append("aborted" if before and before[-1][4] == 22 else "open")
    return states


def _ids(metadata):
    if not (metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")):
        return None
    ids = _signed(metadata.txnid_most_bits), _signed(metadata.txnid_least_bits)
    return None if -1 in ids else ids


def _signed(number):
    return number - (1 << 64) if number >= 1 << 63 else number


# --- What tests of topics with transactions share: their messages, and how their snapshots are kept.


START = EntryPosition(0, 0)
NEVER = SnapshotPolicy(max_entries=1 << 40, interval_s=1 << 40)
"""Only on request."""

_numbers = itertools.count()


def message(transaction=None, *, publish_time_ms=1):
    """An entry with one message, which no other has."""
    return pack_entry(
        [NewMessage(value=b"%d" % next(_numbers))],
        producer_name="shop",
        sequence_id=0,
        publish_time_ms=publish_time_ms,
        transaction=transaction,
    )


def next_to(position, by=1):
    """The position `by` entries after it, in the same ledger."""
    return EntryPosition(position.ledger_id, position.entry_id + by)


# --- What a topic's entries say of its transactions, by going through all of them: the transaction buffer's model.


@dataclass
class Model:
    """Entries by position, with the transaction of each, and what became of the transactions."""

    entries: list[tuple[EntryPosition, bytes]] = field(default_factory=list)
    transactions: list[TransactionId | None] = field(default_factory=list)
    first: dict[TransactionId, EntryPosition] = field(default_factory=dict)
    aborted: set[TransactionId] = field(default_factory=set)

    @classmethod
    def of(cls, entries):
        """A model of all entries that there are."""
        model = cls()
        for position, payload in entries:
            model.add(position, bytes(payload))
        return model

    def add(self, position, payload):
        """The next entry."""
        metadata = split_entry(payload).metadata
        transaction = None
        if metadata.HasField("txnid_most_bits"):
            transaction = TransactionId(metadata.txnid_most_bits, metadata.txnid_least_bits)
        self.entries.append((position, payload))
        self.transactions.append(transaction)
        if transaction is None:
            return
        if metadata.HasField("marker_type"):
            self.first.pop(transaction, None)
            if metadata.marker_type == 22:
                self.aborted.add(transaction)
        elif transaction not in self.aborted:
            self.first.setdefault(transaction, position)

    @property
    def stable(self):
        """The last entry before the first of any open transaction."""
        first = min(self.first.values(), default=EntryPosition(1 << 62, 0))
        return max((position for position, _ in self.entries if position < first), default=None)

    def check(self, topic, where="", since=START):
        """Compare with a topic's status; entries before `since` were deleted."""
        status = topic.status()
        if status.state is BufferState.NO_SNAPSHOT:
            assert not any(self.transactions), where
            assert status.stable_position == topic.topic.last_position, where
            return
        assert status.state is BufferState.READY, where
        assert set(status.open_transactions) == set(self.first), where
        stable = self.stable
        assert status.stable_position == stable, where
        for (position, _), transaction in zip(self.entries, self.transactions, strict=True):
            if position >= since:
                expected = self.decide(position, transaction, stable)
                assert topic.decide(position, transaction) == expected, where

    def decide(self, position, transaction, stable):
        """The decision on an entry, with this stable position."""
        if stable is None or position > stable:
            return "undecided"
        return "aborted" if transaction in self.aborted else "committed"

    def check_snapshot(self, snapshot, where="", since=START):
        """Check a snapshot, and the buffer made of it and the entries after it."""
        buffer = TransactionBuffer.restore(snapshot)
        buffer.become_ready()
        stable, mine = snapshot.stable_position, self.stable
        if stable is not None and mine is not None:
            assert stable <= mine, where
        for (position, _), transaction in zip(self.entries, self.transactions, strict=True):
            if stable is not None and since <= position <= stable:
                assert buffer.decide(position, transaction) == self.decide(position, transaction, mine), where
        for position, payload in self.entries:
            if stable is None or position > stable:
                buffer.add(position.ledger_id, EntryBatch.of(position.entry_id, [payload]))
        assert set(buffer.open_transactions) == set(self.first), where
        there = {
            transaction
            for (position, _), transaction in zip(self.entries, self.transactions, strict=True)
            if transaction is not None and position >= since
        }
        assert {each for each in there if buffer.is_aborted(each)} == there & self.aborted, where


# --- Drawn histories of transactions, over ledgers in all formats.


TRANSACTIONS = [(0, 0), (0, 1), (1, 0), (2, 7)]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Events by ledger, and the objects that hold them."""

    events: Mapping[int, Sequence[Event]]
    objects: Mapping[int, Sequence[WrittenObject]]

    @property
    def in_order(self):
        return [
            ((ledger_id, entry_id), event)
            for ledger_id, events in self.events.items()
            for entry_id, event in enumerate(events)
        ]


@st.composite
def events(draw, *, late):
    """The events of a topic. With `late`, messages also come to transactions that were aborted."""
    fates = {each: draw(st.sampled_from(["commit", "abort", "open"])) for each in TRANSACTIONS}
    ended = set()
    happened = []
    for kind in draw(
        st.lists(st.sampled_from(["plain", "sent", "sent", "end", "other"]), min_size=1, max_size=40)
    ):
        if kind == "plain":
            happened.append(Event(kind="messages", messages=draw(st.sampled_from([0, 0, 1, 3]))))
        elif kind == "other":
            happened.append(Event(kind=draw(st.sampled_from(["tombstone", "snapshot"]))))
        else:
            each = draw(st.sampled_from(TRANSACTIONS))
            fate = fates[each]
            if kind == "sent" and (late or not (each in ended and fate == "abort")):
                happened.append(
                    Event(kind="messages", transaction=each, messages=draw(st.sampled_from([0, 1, 2])))
                )
            elif kind == "end" and fate != "open":
                happened.append(Event(kind=fate, transaction=each))
                ended.add(each)
    return happened or [Event(kind="messages")]


@st.composite
def histories(draw, *, late=False):
    happened = draw(events(late=late))
    borders = sorted(draw(st.sets(st.integers(1, max(1, len(happened) - 1)), max_size=3)))
    ledgers = {}
    objects = {}
    for number, (begin, end) in enumerate(zip([0, *borders], [*borders, len(happened)], strict=True)):
        if begin == end:
            continue
        ledger_id = 5 + 3 * number
        ledgers[ledger_id] = happened[begin:end]
        payloads = [event.pack(begin + i) for i, event in enumerate(happened[begin:end])]
        objects[ledger_id] = draw(st.sampled_from(FORMATS))(ledger_id, payloads)
    return History(events=ledgers, objects=objects)


def as_segments(ledger_id, payloads):
    """Two segments of two blocks each, as far as there are entries."""
    half = (len(payloads) + 1) // 2
    made = []
    for first, part in ((0, payloads[:half]), (half, payloads[half:])):
        blocks = [block for block in (part[: len(part) // 2], part[len(part) // 2 :]) if block]
        if blocks:
            segment = LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)
            made.append(streaming_object([segment]))
    return made


FORMATS = [
    lambda ledger_id, payloads: [pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=600)],
    as_segments,
    *(
        lambda ledger_id, payloads, kind=kind: [mapfile(payloads, ledger_id=ledger_id, compression=kind)]
        for kind in (FileCompression.RECORD, FileCompression.BLOCK)
    ),
]


# --- A topic with transactions whose record, snapshot and ledgers outlive processes, for crash matrices.


class TransactionalStores:
    """A topic whose record, snapshot and ledgers outlive processes."""

    def __init__(self):
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgers()

    def environment(self, points):
        return environment_of(self.metadata, MemoryLedgerStore(self.ledgers), None, points, cache_bytes=0)

    def open(self, points):
        environment = self.environment(points)
        topic = open_managed_ledger(environment, NAME, rollover=RolloverPolicy(max_entries=5, min_age_s=0))
        return TransactionalTopic(environment, topic, SnapshotPolicy(max_entries=4, interval_s=1 << 40))

    def live(self, points):
        """The life of the topic."""
        topic = self.open(points)
        topic.add_entries([message()])
        held, dropped, kept = topic.begin(), topic.begin(), topic.begin()
        topic.add_entries([message(), message(dropped)])
        topic.add_entries([message(kept), message(dropped)])
        topic.commit(kept)
        topic.abort(dropped)
        topic.add_entries([message(held), message()])
        topic.topic.roll()
        topic.snapshot()
        topic.add_entries([message(dropped), message()])
        topic.add_entries([message(), message(), message()])
        topic.status()

    def end(self, points):
        """End what was left open."""
        topic = self.open(points)
        for place, transaction in enumerate(topic.status().open_transactions):
            (topic.commit if place % 2 else topic.abort)(transaction)
        topic.snapshot()
        topic.topic.close()

    def check(self, where):
        """Open the topic anew, and compare."""
        topic = self.open(Points())
        model = Model.of(topic.topic.read_entries(START, 1000))
        model.check(topic, where)
        if self.snapshot() is None:
            assert not any(model.transactions), where
        else:
            model.check_snapshot(self.snapshot(), where)

    def snapshot(self):
        """The one that is persisted, if any."""
        return SnapshotStore(self.metadata).read(NAME)

    def entries(self):
        """All of them, read by a new owner."""
        return list(self.open(Points()).topic.read_entries(START, 1 << 20, 1 << 30))
