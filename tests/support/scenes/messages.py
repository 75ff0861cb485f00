"""Keys, and entries that are encrypted by them as Pulsar's clients do it."""

from __future__ import annotations

import base64
import binascii
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from entries import CODECS, PUBLISH_TIME_MS, frame_entry, key_values

from offload_core.format.messages.entry import EntryParts, Message, read_messages, split_entry
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS, arrow_schema
from offload_core.format.messages.message_decoder import EntryCounts, MessageDecoder
from offload_core.format.messages.payload_opener import PayloadOpener
from offload_hooks.errors import MetadataError
from offload_proto.messages_pb2 import EncryptionKeys, MessageIdData, MessageMetadata

OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)


@functools.cache
def private_key(name: str) -> rsa.RSAPrivateKey:
    """The key of this name, made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(name: str, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """The private key of this name, as PEM."""
    return private_key(name).private_bytes(Encoding.PEM, form, NoEncryption())


def public_pem(name: str) -> bytes:
    """The public key of this name, as PEM."""
    key = private_key(name).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def write_keys(folder: Path, *names: str) -> Path:
    """A folder with a file `NAME.pem` for each name."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.pem").write_bytes(private_pem(name))
    return folder


@functools.cache  # as a producer does, which wraps a data key once for many messages
def wrapped(data_key: bytes, name: str) -> bytes:
    """A data key, encrypted for the key of this name."""
    return private_key(name).public_key().encrypt(data_key, OAEP)


def seal(
    payload: bytes,
    *,
    names: tuple[str, ...] = ("orders",),
    data_key: bytes = b"k" * 32,
    values: Mapping[str, bytes] | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """The ciphertext of a payload, and the fields of `MessageMetadata` about it: the data key is wrapped for `names`.

    `values` are wrapped data keys to say instead.
    """
    vector = os.urandom(12)
    keys = [
        EncryptionKeys(key=name, value=(values or {}).get(name) or wrapped(data_key, name)) for name in names
    ]
    ciphertext = AESGCM(data_key).encrypt(vector, payload, None)
    return ciphertext, {"encryption_keys": keys, "encryption_param": vector}


def sealed_entry(
    payload: bytes,
    *,
    compression: int = 0,
    tampered: bool = False,
    names: tuple[str, ...] = ("orders",),
    data_key: bytes = b"k" * 32,
    values: Mapping[str, bytes] | None = None,
    **metadata: Any,
) -> bytes:
    """An entry whose payload is compressed, then encrypted as `seal` does it."""
    sealed, about = seal(CODECS[compression](payload), names=names, data_key=data_key, values=values)
    ciphertext = bytearray(sealed)
    if tampered:
        ciphertext[len(ciphertext) // 2] ^= 1
    if compression:
        about |= {"compression": compression, "uncompressed_size": len(payload)}
    if "properties" in metadata:
        metadata["properties"] = key_values(metadata["properties"])
    return stored_entry(bytes(ciphertext), **about | metadata)


def stored_entry(payload: bytes, **metadata: Any) -> bytes:
    """An entry of this payload as it is, whatever the metadata declares."""
    fields = {"producer_name": "producer", "sequence_id": 0, "publish_time": PUBLISH_TIME_MS} | metadata
    return frame_entry(MessageMetadata(**fields).SerializeToString(), payload)


# --- Chunked messages: their entries, interleaved and with losses, and which of them a consumer would read.


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message by a producer: in `chunks` entries, of which those in `lost` were never stored.

    With `chunks` 1 it is sent whole. `key_name` encrypts each chunk by itself. `transaction` is the one that all chunks
    are of, its most and least bits. `published_at` is in milliseconds.
    """

    producer: str
    number: int
    value: bytes
    chunks: int = 1
    codec: int = 0
    lost: frozenset[int] = frozenset()
    key_name: str | None = None
    transaction: tuple[int, int] | None = None
    published_at: int | None = None

    @property
    def uuid(self) -> str:
        """As Pulsar's producers make it."""
        return f"{self.producer}-{self.number}"

    def entries(self) -> list[bytes]:
        """One per chunk, the lost ones included."""
        common: dict[str, Any] = {"producer_name": self.producer, "sequence_id": self.number}
        if self.transaction is not None:
            common |= {"txnid_most_bits": self.transaction[0], "txnid_least_bits": self.transaction[1]}
        if self.published_at is not None:
            common |= {"publish_time": self.published_at}
        compressed = CODECS[self.codec](self.value)
        if self.codec:
            common |= {"compression": self.codec, "uncompressed_size": len(self.value)}
        if self.chunks == 1:
            return [self._entry(compressed, common)]
        common |= {"num_chunks_from_msg": self.chunks, "total_chunk_msg_size": len(compressed)}
        common["uuid"] = self.uuid
        size = max(1, -(-len(compressed) // self.chunks))
        parts = [compressed[i * size : (i + 1) * size] for i in range(self.chunks)]
        return [self._entry(part, common | {"chunk_id": i}) for i, part in enumerate(parts)]

    def _entry(self, payload: bytes, metadata: dict[str, Any]) -> bytes:
        if self.key_name is not None:
            payload, about = seal(payload, names=(self.key_name,))
            metadata = metadata | about
        return stored_entry(payload, **metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessages:
    """An entry of a topic: chunk `chunk_id` of a message."""

    message: SentMessage
    chunk_id: int
    payload: bytes


def interleaved(messages: Sequence[SentMessage], order: Sequence[int]) -> list[StoredMessages]:
    """The entries that are stored: each producer's in its order, and `order` has whose turn it is (modulo)."""
    waiting: dict[str, list[StoredMessages]] = {}
    for message in messages:
        waiting.setdefault(message.producer, []).extend(
            StoredMessages(message=message, chunk_id=i, payload=payload)
            for i, payload in enumerate(message.entries())
            if i not in message.lost
        )
    stored = []
    turns = iter(order)
    while remaining := [queue for queue in waiting.values() if queue]:
        stored.append(remaining[next(turns, 0) % len(remaining)].pop(0))
    return stored


def readable(entries: Sequence[StoredMessages]) -> list[tuple[int, bytes]]:
    """The messages a consumer reads: place of the last entry, and value, of each that has all its chunks."""
    return [
        (place, stored.message.value)
        for place, stored in enumerate(entries)
        if stored.chunk_id == stored.message.chunks - 1 and not stored.message.lost
    ]


# --- Rows of messages, column by column: by the decoder, and by a reference implementation over protobuf classes.


ALL_COLUMNS = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]
TOPIC = "persistent://tenant/namespace/topic"
Row = dict[str, Any]


def entry_spans(entries: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A read-only uint8 array of the entries, twelve bytes before each; their offsets and lengths (int64)."""
    block = np.frombuffer(b"".join(b"\xee" * 12 + entry for entry in entries), dtype=np.uint8)
    block.flags.writeable = False
    lengths = np.array([len(entry) for entry in entries], dtype=np.int64)
    return block, np.cumsum(lengths + 12) - lengths, lengths


def decoder(columns: Sequence[str] = ALL_COLUMNS, **options: Any) -> MessageDecoder:
    """A decoder of the topic `TOPIC`; `options` as of `MessageDecoder`."""
    given = {
        "ledger_id": 7,
        "partition": -1,
        "verify_checksums": True,
        "max_message_bytes": 1 << 20,
    } | options
    return MessageDecoder(topic=TOPIC, schema=arrow_schema("messages", columns), **given)


def comparable(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """The rows of record batches, with times as integers of µs (Python's own do not reach as far)."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, column in columns.items():
            if pa.types.is_timestamp(column.type):
                columns[name] = column.cast(pa.int64())
        rows += pa.table(columns).to_pylist()
    return rows


def decoded_rows(
    entries: Sequence[bytes],
    *,
    first_entry_id: int = 0,
    counts: EntryCounts | None = None,
    columns: Sequence[str] = ALL_COLUMNS,
    block_offset: int = 0,
    **options: Any,
) -> list[Row]:
    """The rows of consecutive entries by the decoder; `options` are those of `decoder`."""
    opener = PayloadOpener()
    if counts is not None:
        opener.counts = counts
    made = decoder(columns, **{"opener": opener} | options)
    block, offsets, lengths = entry_spans(entries)
    ids = np.arange(first_entry_id, first_entry_id + len(entries))
    return comparable(list(made.decode(block, block_offset, ids, offsets, lengths)))


# --- the reference implementation --------------------------------------------------------------


def reference_rows(
    entries: Sequence[bytes],
    *,
    first_entry_id: int = 0,
    ledger_id: int = 7,
    partition: int = -1,
    verify_checksums: bool = True,
    max_message_bytes: int = 1 << 20,
) -> list[Row]:
    """The rows of consecutive entries by `offload_core.format.messages.entry`."""
    rows = []
    for i, entry in enumerate(entries):
        parts = split_entry(entry, verify_checksum=verify_checksums)
        for message in read_messages(parts, max_message_bytes=max_message_bytes):
            place = {"__ledgerId": ledger_id, "__entryId": first_entry_id + i, "__partition": partition}
            rows.append(_row(parts, message, place))
    return rows


def _row(parts: EntryParts, message: Message, place: Row) -> Row:
    whole, own = parts.metadata, message.metadata
    batched = message.batch_index is not None
    size = max(whole.num_messages_in_batch, 0)
    event_time = _signed(own.event_time)
    later = size - 1 - message.batch_index if message.batch_index is not None else 0
    row = place | {
        "value": message.value,
        "__key": _key(message),
        "__topic": TOPIC,
        "__messageId": _message_id(message, size, place),
        "__publishTime": _micros(_signed(whole.publish_time)),
        "__eventTime": _micros(event_time) if event_time else None,
        "__messageProperties": [(_text(item.key), _text(item.value)) for item in own.properties],
        "__sequenceId": _signed(own.sequence_id if own.HasField("sequence_id") else whole.sequence_id),
        "__producerName": _text(whole.producer_name),
        "__batchIndex": message.batch_index if message.batch_index is not None else -1,
        "__batchSize": size if batched else 0,
        "__keyIsBase64": own.partition_key_b64_encoded,
        "__orderingKey": own.ordering_key if own.HasField("ordering_key") else None,
        "__schemaVersion": whole.schema_version if whole.HasField("schema_version") else None,
        "__nullValue": message.value is None,
        "__deliverAtTime": _micros(_number(whole, "deliver_at_time")),
        "__replicatedFrom": _text(whole.replicated_from) if whole.HasField("replicated_from") else None,
        "__replicateTo": [_text(name) for name in whole.replicate_to] or None,
        "__txnIdMost": _number(whole, "txnid_most_bits"),
        "__txnIdLeast": _number(whole, "txnid_least_bits"),
        "__txnState": None
        if _number(whole, "txnid_most_bits") is None or _number(whole, "txnid_least_bits") is None
        else "committed",
        "__uuid": _text(whole.uuid) if whole.HasField("uuid") else None,
        "__chunkId": _number(whole, "chunk_id"),
        "__numChunks": _number(whole, "num_chunks_from_msg"),
        "__chunkedSize": _number(whole, "total_chunk_msg_size"),
        "__compression": whole.compression,
        "__uncompressedSize": whole.uncompressed_size if whole.HasField("uncompressed_size") else None,
        "__valueIsRaw": parts.is_raw,
        "__encryptionAlgorithm": _text(whole.encryption_algo) if whole.HasField("encryption_algo") else None,
        "__encryptionParam": whole.encryption_param if whole.HasField("encryption_param") else None,
        "__encryptionKeys": _encryption_keys(whole),
        "__brokerPublishTime": None,
        "__brokerIndex": None,
    }
    if parts.broker is not None:
        if parts.broker.HasField("broker_timestamp") and _signed(parts.broker.broker_timestamp) != -1:
            row["__brokerPublishTime"] = _micros(_signed(parts.broker.broker_timestamp))
        if parts.broker.HasField("index") and _signed(parts.broker.index) >= 0:
            row["__brokerIndex"] = parts.broker.index - later
    return row


def _key(message: Message) -> bytes | None:
    own = message.metadata
    if not own.HasField("partition_key"):
        return None
    stored = own.partition_key
    key: bytes = stored if isinstance(stored, bytes) else stored.encode()
    if not own.partition_key_b64_encoded:
        return key
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise MetadataError("a key is not base64") from error


def _message_id(message: Message, batch_size: int, place: Row) -> bytes:
    fields: dict[str, int] = {"ledgerId": place["__ledgerId"], "entryId": place["__entryId"]}
    if place["__partition"] >= 0:
        fields["partition"] = place["__partition"]
    if message.batch_index is not None:
        fields |= {"batch_index": message.batch_index, "batch_size": batch_size}
    return MessageIdData(**fields).SerializeToString()


def _encryption_keys(whole: MessageMetadata) -> list[Row] | None:
    return [
        {
            "name": _text(key.key),
            "value": key.value,
            "metadata": [(_text(item.key), _text(item.value)) for item in key.metadata],
        }
        for key in whole.encryption_keys
    ] or None


def _number(whole: MessageMetadata, field: str) -> int | None:
    if not whole.HasField(field):
        return None
    number = _signed(getattr(whole, field))
    return None if number == -1 else number


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _micros(milliseconds: int | None) -> int | None:
    if milliseconds is None or abs(milliseconds) > (2**63 - 1) // 1000:
        return None
    return milliseconds * 1000


def _text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        raise MetadataError("a name is not UTF-8 text")
    return text
