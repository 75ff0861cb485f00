"""Messages → one Pulsar entry, a batch as Pulsar's clients send it: what is appended to a managed ledger.

With a checksum, without compression, encryption and broker entry metadata; the bytes are those of Pulsar's C++ client,
and of the Python client that is built on it. The markers of transactions are a broker's; tombstones are ours.
`split_entry` is the way back. Source: docs/formats/entry.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offload_core.format.messages.checksum import crc32c
from offload_core.format.messages.entry import CHECKSUM_MAGIC, skip_broker_metadata, split_entry
from offload_core.format.messages.transaction_id import TransactionId
from offload_hooks.errors import OptionError
from offload_proto.messages_pb2 import MessageMetadata, SingleMessageMetadata

_MARKER_PRODUCER = "pulsar.txn.marker"
_TOMBSTONE_PRODUCER = "pulsar.filtered"
_COMMIT, _ABORT = 21, 22
_ALL_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be written.

    Attributes:
        value: the payload; None for a null value, which deletes its key where a topic is compacted.
        key: of partitions and compaction.
        ordering_key: of consumers that share a subscription by keys, where it is not `key`.
        event_time_ms: in ms since 1970, UTC; None for none.
    """

    value: bytes | None
    key: str | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None


def pack_entry(
    messages: Sequence[NewMessage],
    *,
    producer_name: str,
    sequence_id: int,
    publish_time_ms: int,
    schema_version: bytes | None = None,
    transaction: TransactionId | None = None,
) -> bytes:
    """An entry of these messages, at least one.

    Args:
        sequence_id: the first message's; those after it count on.
        publish_time_ms: in ms since 1970, UTC.
        schema_version: as Pulsar's schema registry names the schema of the values; None for plain bytes.
        transaction: that all messages of the entry are sent in; None for none.

    Raises:
        OptionError: no message.
    """
    if not messages:
        raise OptionError("an entry without messages")
    first = messages[0]
    most, least = (None, None) if transaction is None else _unsigned(transaction)
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        partition_key=first.key,
        ordering_key=first.ordering_key,
        num_messages_in_batch=len(messages),
        schema_version=schema_version,
        txnid_most_bits=most,
        txnid_least_bits=least,
    ).SerializeToString()
    parts = [metadata]
    for number, message in enumerate(messages, sequence_id):
        single = _single(message, number)
        parts += struct.pack(">i", len(single)), single, message.value or b""
    return _with_checksum(parts)


def pack_marker(transaction: TransactionId, *, commits: bool, publish_time_ms: int) -> bytes:
    """The marker that ends a transaction in a topic, as a broker appends it: of its commit, or else of its abort."""
    most, least = _unsigned(transaction)
    metadata = MessageMetadata(
        producer_name=_MARKER_PRODUCER,
        sequence_id=_ALL_BITS,
        publish_time=publish_time_ms,
        marker_type=_COMMIT if commits else _ABORT,
        txnid_most_bits=most,
        txnid_least_bits=least,
    )
    return _with_checksum([metadata.SerializeToString()])


def pack_tombstone(entry: bytes) -> bytes:
    """What takes the place of an entry that is dropped: an abort marker of no transaction, which brokers pass over.

    It has the entry's publish time, by which is sought, and what a broker put before it: timestamp and index. In the
    place of a marker it stays itself, since brokers pass over it anyway.

    Raises:
        FormatError: as `split_entry`.
    """
    parts = split_entry(entry)
    if parts.is_marker:
        return entry
    metadata = MessageMetadata(
        producer_name=_TOMBSTONE_PRODUCER,
        sequence_id=0,
        publish_time=parts.metadata.publish_time,
        marker_type=_ABORT,
    )
    return entry[: skip_broker_metadata(entry)] + _with_checksum([metadata.SerializeToString()])


def _with_checksum(parts: Sequence[bytes]) -> bytes:
    """An entry of its metadata and what follows."""
    body = b"".join([struct.pack(">i", len(parts[0])), *parts])
    return struct.pack(">HI", CHECKSUM_MAGIC, crc32c(body)) + body


def _unsigned(transaction: TransactionId) -> tuple[int, int]:
    most, least = transaction
    return most & _ALL_BITS, least & _ALL_BITS


def _single(message: NewMessage, sequence_id: int) -> bytes:
    metadata = SingleMessageMetadata(
        properties=[{"key": name, "value": value} for name, value in message.properties.items()],
        partition_key=message.key,
        ordering_key=message.ordering_key,
        payload_size=len(message.value or b""),
        event_time=message.event_time_ms,
        sequence_id=sequence_id,
    )
    if message.value is None:
        metadata.null_value = True
    return metadata.SerializeToString()
