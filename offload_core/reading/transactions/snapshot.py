"""What is persisted of a transaction buffer, between value and bytes: Pulsar's `TransactionBufferSnapshot`, in AVRO.

Open transactions are not in it: all their entries are behind the stable position, and are read again.
Source: docs/formats/transaction-snapshot.md; the AVRO specification 1.12, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.metadata.records import EntryPosition
from offload_hooks.errors import MetadataError, PayloadError

_NONE = (-1, -1)
"""As Pulsar writes the position before all entries."""

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
        """Whether the other one is settled farther."""
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
    # a union's branch comes first, an array's items behind their count, and 0 ends it
    blocks = [len(numbers), *chain.from_iterable(numbers)] if numbers else []
    return b"".join(map(_long, [1, *blocks, 0, entry_id, ledger_id, 1, len(name)])) + name


def parse_snapshot(data: bytes, topic: str) -> BufferSnapshot:
    """Decode a snapshot of this topic.

    Raises:
        MetadataError: it is none, or another topic's.
    """
    from offload_core.format.schemas.avro.plain import (
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
    from offload_core.format.schemas.avro.types import parse_avro

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
