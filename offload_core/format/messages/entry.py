"""One Pulsar entry ↔ its messages, in plain Python over generated protobuf classes.

Layout: optional broker entry metadata, optional CRC-32C, message metadata, payload. Reading is the kernels' reference
implementation: it names the fault of an entry that they refuse, and serves `offload inspect`. Writing makes an entry
as Pulsar's clients send it, with a checksum, without compression, encryption and broker entry metadata; the bytes are
those of Pulsar's C++ and Python clients. The markers of transactions are a broker's; tombstones are ours.
Source: docs/formats/entry.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
from google.protobuf.message import DecodeError

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.messages.compression import Compression, compress, decompress_into
from offload_hooks.errors import (
    BadLengthError,
    ChecksumError,
    DecompressionError,
    FormatError,
    MetadataError,
    OptionError,
    TruncatedError,
    placed,
)
from offload_proto.messages_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata


class TransactionId(NamedTuple):
    """Two signed numbers of 64 bits, as in Pulsar's `TxnID`: which coordinator, and which of its transactions.

    In an entry's metadata the same bits are unsigned. All bits set, −1 in either, stands for none.
    """

    most_bits: int
    least_bits: int

    def __str__(self) -> str:
        return f"({self.most_bits},{self.least_bits})"


BROKER_METADATA_MAGIC = 0x0E02
CHECKSUM_MAGIC = 0x0E01


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParts:
    """An entry taken apart.

    Attributes:
        broker: what the broker put before it, a protobuf message `BrokerEntryMetadata`; None if nothing.
        metadata: its protobuf message `MessageMetadata`.
        payload: as stored: compressed, encrypted, a chunk or a batch, by `metadata`.
    """

    broker: BrokerEntryMetadata | None
    metadata: MessageMetadata
    payload: bytes

    @property
    def is_marker(self) -> bool:
        """True if it is a broker's marker, which no consumer sees."""
        return self.metadata.HasField("marker_type")

    @property
    def is_raw(self) -> bool:
        """True if its payload is passed on as it is: encrypted, or one chunk of a message."""
        return bool(self.metadata.encryption_keys) or self.metadata.num_chunks_from_msg > 1

    def opened(self, payload: bytes) -> EntryParts:
        """The same entry with its payload decrypted, or joined from chunks: it can be read now."""
        metadata = MessageMetadata()
        metadata.CopyFrom(self.metadata)
        metadata.ClearField("encryption_keys")
        metadata.ClearField("num_chunks_from_msg")
        return EntryParts(broker=self.broker, metadata=metadata, payload=payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of an entry.

    Attributes:
        batch_index: None when the entry is not a batch, or is passed on raw.
        metadata: its own, a protobuf message: of a batch its `SingleMessageMetadata`, otherwise the entry's.
        value: None for a null value.
    """

    batch_index: int | None
    metadata: MessageMetadata | SingleMessageMetadata
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLayout:
    """The place where the parts of an entry lie: half-open ranges of its bytes, each after its magic or its length.

    `broker` is the broker's metadata, after 2 bytes of magic and 4 of length; `checksum` the CRC-32C, after 2 of
    magic; `metadata` the message's, after 4 of length. The payload is the rest.
    """

    broker: tuple[int, int] | None
    checksum: tuple[int, int] | None
    metadata: tuple[int, int]


def locate_parts(entry: bytes) -> EntryLayout:
    """The places of an entry's parts; the parts themselves are not read.

    Raises:
        TruncatedError, BadLengthError: with the offset in the entry.
    """
    position = skip_broker_metadata(entry)
    broker = (6, position) if position else None
    checksum = None
    if _magic(entry, position) == CHECKSUM_MAGIC:
        checksum = (position + 2, position + 6)
        position += 6
    return EntryLayout(broker=broker, checksum=checksum, metadata=_sized(entry, position, "message metadata"))


def split_entry(entry: bytes, *, verify_checksum: bool = True) -> EntryParts:
    """Take an entry apart: the bytes that a ledger holds, in Pulsar's wire format.

    Raises:
        TruncatedError, BadLengthError, ChecksumError, MetadataError: with the offset in the entry.
    """
    position = skip_broker_metadata(entry)
    broker = None
    if position:
        broker = BrokerEntryMetadata()
        _parse(broker, entry[6:position], "broker entry metadata", 6)
    if _magic(entry, position) == CHECKSUM_MAGIC:
        (stored,) = struct.unpack_from(">I", entry, position + 2)
        position += 6
        found = crc32c(entry[position:])
        if verify_checksum and found != stored:
            raise ChecksumError(
                "a message's checksum does not match its bytes",
                offset=position - 4,
                expected=f"CRC-32C {stored:08x}",
                found=f"{found:08x}",
            )
    start, position = _sized(entry, position, "message metadata")
    metadata = MessageMetadata()
    _parse(metadata, entry[start:position], "message metadata", start)
    return EntryParts(broker=broker, metadata=metadata, payload=entry[position:])


def raise_fault(
    entries: LocatedEntries,
    row: int,
    *,
    ledger_id: int | None,
    verify_checksum: bool,
    read: Callable[[EntryParts], object] = lambda _: None,
) -> NoReturn:
    """Raise the error of an entry that the kernels refused, by its row; `read` reads what is in it.

    Raises:
        FormatError: a subclass, with ledger, entry and byte.
    """
    start = int(entries.offsets[row])
    entry = entries.array[start : start + int(entries.lengths[row])].tobytes()
    place = None if entries.base is None else entries.base + start
    with placed(ledger_id=ledger_id, entry_id=int(entries.entry_ids[row]), offset=place):
        try:
            parts = split_entry(entry, verify_checksum=verify_checksum)
        except FormatError as error:
            error.offset = None if place is None else place + (error.offset or 0)
            raise
        try:
            read(parts)
        except FormatError as error:
            error.offset = None  # it counts in the decompressed payload
            raise
        raise MetadataError("an entry's metadata is not right")


def skip_broker_metadata(entry: bytes) -> int:
    """The begin of the entry itself, after the metadata that a broker put before it; 0 if there is none.

    Raises:
        TruncatedError, BadLengthError: with the offset in the entry.
    """
    if _magic(entry, 0) != BROKER_METADATA_MAGIC:
        return 0
    return _sized(entry, 2, "broker entry metadata")[1]


def read_messages(parts: EntryParts, *, max_message_bytes: int) -> list[Message]:
    """The messages that a consumer sees of an entry: none of a marker, one that is raw, all of a batch.

    Raises:
        DecompressionError: the payload contradicts its declared size, or that is above `max_message_bytes`.
        BadLengthError, MetadataError: a batch that is not right.
    """
    metadata = parts.metadata
    if parts.is_marker:
        return []
    payload = parts.payload
    if metadata.compression and not parts.is_raw:
        if not metadata.HasField("uncompressed_size") or metadata.uncompressed_size > max_message_bytes:
            raise DecompressionError(
                "a compressed entry declares no size, or a larger one than is allowed",
                expected=f"at most {max_message_bytes} bytes (option max_message_bytes)",
                found=metadata.uncompressed_size if metadata.HasField("uncompressed_size") else "none",
            )
        out = np.empty(metadata.uncompressed_size, dtype=np.uint8)
        decompress_into(metadata.compression, payload, out)
        payload = out.tobytes()
    if parts.is_raw or not metadata.HasField("num_messages_in_batch"):
        value = None if metadata.null_value else payload
        return [Message(batch_index=None, metadata=metadata, value=value)]
    return _read_batch(payload, max(metadata.num_messages_in_batch, 0))


def _read_batch(payload: bytes, size: int) -> list[Message]:
    messages = []
    position = 0
    for i in range(size):
        start, position = _sized(payload, position, f"metadata of message {i} of a batch")
        single = SingleMessageMetadata()
        _parse(single, payload[start:position], f"metadata of message {i} of a batch", start)
        if not 0 <= single.payload_size <= len(payload) - position:
            raise BadLengthError(
                f"message {i} of a batch has a length that does not fit",
                offset=position,
                expected=f"0 to {len(payload) - position}",
                found=single.payload_size,
            )
        value = payload[position : position + single.payload_size]
        position += single.payload_size
        if not single.compacted_out:
            messages.append(
                Message(batch_index=i, metadata=single, value=None if single.null_value else value)
            )
    if position != len(payload):
        raise BadLengthError(
            "a batch goes on after its last message",
            offset=position,
            expected=f"the end after {size} messages",
            found=f"{len(payload) - position} more bytes",
        )
    return messages


def _magic(entry: bytes, position: int) -> int | None:
    if len(entry) - position < 6:
        return None
    return int.from_bytes(entry[position : position + 2], "big")


def _sized(data: bytes, position: int, what: str) -> tuple[int, int]:
    if len(data) - position < 4:
        raise TruncatedError(
            f"the length of {what} is cut off",
            offset=position,
            expected="4 bytes",
            found=len(data) - position,
        )
    (size,) = struct.unpack_from(">i", data, position)
    start = position + 4
    if not 0 <= size <= len(data) - start:
        raise BadLengthError(
            f"the length of {what} does not fit",
            offset=position,
            expected=f"0 to {len(data) - start}",
            found=size,
        )
    return start, start + size


def _parse(
    record: BrokerEntryMetadata | MessageMetadata | SingleMessageMetadata, data: bytes, what: str, offset: int
) -> None:
    try:
        record.ParseFromString(data)
    except DecodeError as error:
        raise MetadataError(f"{what} cannot be parsed: {error}", offset=offset) from error
    if not record.IsInitialized():
        missing = ", ".join(record.FindInitializationErrors())  # type: ignore[union-attr]
        raise MetadataError(f"{what} lacks what is required", offset=offset, expected=missing)


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
    compression: Compression = Compression.NONE,
) -> bytes:
    """An entry of these messages, at least one.

    Args:
        messages: one becomes an entry of its own, several a batch.
        producer_name: of the producer that they appear to come from.
        sequence_id: the first message's; those after it count on.
        publish_time_ms: in ms since 1970, UTC.
        schema_version: as Pulsar's schema registry names the schema of the values; None for plain bytes.
        transaction: that all messages of the entry are sent in; None for none.
        compression: of all messages together.

    Raises:
        OptionError: no message.
    """
    if not messages:
        raise OptionError("an entry without messages")
    first = messages[0]
    most, least = (None, None) if transaction is None else _unsigned(transaction)
    batch = b"".join(_in_batch(message, number) for number, message in enumerate(messages, sequence_id))
    is_compressed = compression is not Compression.NONE
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        compression=compression if is_compressed else None,
        uncompressed_size=len(batch) if is_compressed else None,
        partition_key=first.key,
        ordering_key=first.ordering_key,
        num_messages_in_batch=len(messages),
        schema_version=schema_version,
        txnid_most_bits=most,
        txnid_least_bits=least,
    ).SerializeToString()
    return _with_checksum([metadata, compress(compression, batch)])


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
    """Make the placeholder of an entry that is dropped: an abort marker of no transaction, which brokers pass over.

    It has the entry's publish time, by which brokers seek, and the metadata that a broker put before it: timestamp and
    index. A marker is returned unchanged, since brokers pass over it anyway.

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
    """An entry of its metadata and the bytes that follow."""
    body = b"".join([struct.pack(">i", len(parts[0])), *parts])
    return struct.pack(">HI", CHECKSUM_MAGIC, crc32c(body)) + body


def _unsigned(transaction: TransactionId) -> tuple[int, int]:
    most, least = transaction
    return most & _ALL_BITS, least & _ALL_BITS


def _in_batch(message: NewMessage, sequence_id: int) -> bytes:
    """A message as it stands in a batch: its metadata, with their length, and its value."""
    single = _single(message, sequence_id)
    return struct.pack(">i", len(single)) + single + (message.value or b"")


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
