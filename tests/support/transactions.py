"""Histories of transactions, the consumer's view of them by a plain simulation of a broker, and the kernels' twins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from entries import WrittenObject, batch_entry, entry, marker, pip17_object

from offload_core.messages.entry import split_entry
from offload_core.messages.new_entry import pack_tombstone
from offload_proto.messages_pb2 import MessageMetadata

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

    def pack(self, number: int) -> bytes:
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
ONE: Transaction = (0, 1)
OTHER: Transaction = (0, 2)


def of(transaction: Transaction, messages: int = 0) -> Event:
    """What a transaction sends."""
    return Event(kind="messages", transaction=transaction, messages=messages)


def commit(transaction: Transaction) -> Event:
    """The marker of its commit."""
    return Event(kind="commit", transaction=transaction)


def abort(transaction: Transaction) -> Event:
    """The marker of its abort."""
    return Event(kind="abort", transaction=transaction)


def ledger(ledger_id: int, *events: Event) -> WrittenObject:
    """A ledger in which these happen, a few entries a block."""
    payloads = [event.pack(100 * ledger_id + i) for i, event in enumerate(events)]
    return pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a simulated broker makes of a history.

    `committed` and `uncommitted` have the messages (ledger, entry, batch index) of either isolation, the latter with
    the state of the transaction, None outside of one.
    """

    committed: list[tuple[int, int, int]]
    uncommitted: list[tuple[int, int, int, str | None]]


def simulate(history: Iterable[tuple[Position, Event]], start: Position, stop: Position) -> Seen:
    """Go through a topic as a broker does that keeps it, from `start`, and read it up to `stop`.

    A transaction is ongoing from its first entry to its marker; nothing from the first ongoing one on is read. What was
    aborted once stays aborted, also if that was before `start`.
    """
    together = list(history)
    events = [(position, event) for position, event in together if position >= start]
    ongoing: dict[Transaction, Position] = {}
    aborted = {
        event.transaction for position, event in together if event.kind == "abort" and position < start
    }
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
    committed: list[tuple[int, int, int]] = []
    uncommitted: list[tuple[int, int, int, str | None]] = []
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


# --- twins of the kernels ----------------------------------------------------------------------


def found_in(
    entries: Sequence[bytes], first_entry_id: int, *, verify_checksums: bool = True
) -> tuple[list[list[int]], list[list[int]], list[list[int]], tuple[int, int]]:
    """Ranges, markers, tombstones and times of entries: the twin of `find_transactions`."""
    ranges: list[list[int]] = []
    markers: list[list[int]] = []
    tombstones: list[list[int]] = []
    times = []
    for entry_id, payload in enumerate(entries, start=first_entry_id):
        metadata = split_entry(payload, verify_checksum=verify_checksums).metadata
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


def outcomes_of(ranges: Sequence[Sequence[int]], markers: Sequence[Sequence[int]]) -> list[str]:
    """The twin of `outcomes`, by looking at all markers for each range."""
    states = []
    for part, first, *ids in ranges:
        deciding = sorted(tuple(each) for each in markers if list(each[2:4]) == ids and each[4] in (21, 22))
        behind = [each for each in deciding if each[:2] > (part, first)]
        before = [each for each in deciding if each[:2] < (part, first)]
        if behind:
            states.append("committed" if behind[0][4] == 21 else "aborted")
        else:
            states.append("aborted" if before and before[-1][4] == 22 else "open")
    return states


def _ids(metadata: MessageMetadata) -> tuple[int, int] | None:
    if not (metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")):
        return None
    ids = _signed(metadata.txnid_most_bits), _signed(metadata.txnid_least_bits)
    return None if -1 in ids else ids


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
