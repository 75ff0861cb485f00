"""Builders of Pulsar entries (by the generated protobuf classes) and of whole objects; a reader of these."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import cramjam
import google_crc32c
import numpy as np
from isal import isal_zlib

from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
    padding,
)
from offload_core.format.codec.blocks import BlockCursor, write_block
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import BlockEntry, IndexedBlock, ObjectIndex
from offload_core.format.codec.ledger_metadata import (
    DigestType,
    Ensemble,
    LedgerInfo,
    LedgerMetadata,
    LedgerState,
)
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index, plan_blocks
from offload_core.format.codec.streaming import pack_streaming_index, streaming_block_length
from offload_core.storage.tier import Tier
from offload_hooks.errors import placed
from offload_hooks.ledger_stores import LedgerReader
from offload_proto.messages_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    BrokerEntryMetadata,
    EncryptionKeys,
    MessageMetadata,
    SingleMessageMetadata,
)

CODECS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    ZLIB: lambda data: bytes(isal_zlib.compress(data)),
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
"""Compressors by number, in the forms that Pulsar's clients write."""

PUBLISH_TIME_MS = 1_700_000_000_000
UUID_OF_OBJECTS = UUID("00000000-1111-4222-8333-0000000000aa")


# --- entries -----------------------------------------------------------------------------------


def key_values(properties: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Properties as the keyword arguments of protobuf classes take them."""
    return [{"key": key, "value": value} for key, value in properties]


def frame_entry(
    metadata: bytes, payload: bytes, *, checksum: bool = True, broker: bytes | None = None
) -> bytes:
    """An entry of serialised parts: broker metadata and checksum if asked for, metadata, payload."""
    body = struct.pack(">i", len(metadata)) + metadata + payload
    if checksum:
        body = struct.pack(">HI", 0x0E01, google_crc32c.value(body)) + body
    if broker is not None:
        body = struct.pack(">Hi", 0x0E02, len(broker)) + broker + body
    return body


def entry(
    payload: bytes = b"",
    *,
    compression: int = NONE,
    checksum: bool = True,
    broker: BrokerEntryMetadata | None = None,
    properties: Iterable[tuple[str, str]] = (),
    unknown: bytes = b"",
    **metadata: Any,
) -> bytes:
    """An entry of one message; `metadata`: fields of `MessageMetadata`; `unknown` is appended."""
    fields: dict[str, Any] = {
        "producer_name": "producer",
        "sequence_id": 0,
        "publish_time": PUBLISH_TIME_MS,
        "properties": key_values(properties),
    }
    if compression:
        fields |= {"compression": compression, "uncompressed_size": len(payload)}
    record = MessageMetadata(**fields | metadata)
    return frame_entry(
        record.SerializePartialToString() + unknown,
        CODECS[compression](payload) if compression in CODECS else payload,
        checksum=checksum,
        broker=None if broker is None else broker.SerializeToString(),
    )


def single(
    payload: bytes | None = b"", *, properties: Iterable[tuple[str, str]] = (), **fields: Any
) -> bytes:
    """One message of a batch. `fields` are more fields of `SingleMessageMetadata`; None is a null value."""
    if payload is None:
        fields["null_value"] = True
    value = payload or b""
    record = SingleMessageMetadata(
        **{"payload_size": len(value), "properties": key_values(properties)} | fields
    ).SerializePartialToString()
    return struct.pack(">i", len(record)) + record + value


def batch_entry(messages: Sequence[bytes], *, singles: bool = False, **options: Any) -> bytes:
    """A batch of payloads, or with `singles` of messages that `single` made; `options` as of `entry`."""
    parts = messages if singles else [single(message) for message in messages]
    return entry(b"".join(parts), **{"num_messages_in_batch": len(parts)} | options)


def marker(marker_type: int = 22, **metadata: Any) -> bytes:
    """A broker's marker: transaction commit (21) or abort (22), replicated snapshots (10 … 13)."""
    defaults = {"producer_name": "pulsar.txn.marker", "sequence_id": 2**64 - 1}
    return entry(b"", marker_type=marker_type, **defaults | metadata)


def encrypted_entry(payload: bytes, **options: Any) -> bytes:
    """An entry whose payload is passed on as it is: encrypted, with one data key."""
    encryption = {
        "encryption_keys": [
            EncryptionKeys(key="key", value=b"data key", metadata=key_values([("version", "1")]))
        ],
        "encryption_algo": "AES/GCM/NoPadding",
        "encryption_param": b"12 bytes long",
    }
    return entry(payload, **encryption | options)


def chunk_entries(payload: bytes, chunk_bytes: int, **options: Any) -> list[bytes]:
    """A message cut into chunks, one entry each."""
    chunks = [payload[i : i + chunk_bytes] for i in range(0, len(payload), chunk_bytes)]
    whole = {"uuid": "producer-0", "num_chunks_from_msg": len(chunks), "total_chunk_msg_size": len(payload)}
    return [entry(chunk, chunk_id=i, **whole | options) for i, chunk in enumerate(chunks)]


# --- objects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenObject:
    """A data and an index object, and the (ledger, entry, payload) that they hold, in order of the index."""

    key: ObjectKey
    data: bytes
    index: bytes
    entries: tuple[tuple[int, int, bytes], ...]


def ledger_metadata(payloads: Sequence[bytes], **changes: Any) -> LedgerMetadata:
    """The metadata of a closed ledger of these payloads."""
    fields: dict[str, Any] = {
        "write_quorum_size": 1,
        "ensemble_size": 1,
        "ack_quorum_size": 1,
        "length": sum(map(len, payloads)),
        "last_entry_id": len(payloads) - 1,
        "state": LedgerState.CLOSED,
        "ensembles": (Ensemble(first_entry_id=0, members=("bookie-0:3181",)),),
        "digest_type": DigestType.CRC32C,
        "ctime_ms": PUBLISH_TIME_MS,
    }
    return LedgerMetadata(**fields | changes)


def borders(payloads: Sequence[bytes]) -> np.ndarray:
    """The borders of payloads that are joined; int64, one more than payloads."""
    return np.concatenate([[0], np.cumsum([len(payload) for payload in payloads])]).astype(np.int64)


def pack_block(header: BlockHeader, payloads: Sequence[bytes]) -> bytes:
    """A whole block of these payloads."""
    values = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    out = np.empty(header.block_length, dtype=np.uint8)
    write_block(out, header, values, borders(payloads), 0, len(payloads))
    return out.tobytes()


Block = tuple[int, Mapping[int, bytes]]
"""The first id that its header has, and its entries by id."""


def _stored_block(
    object_format: ObjectFormat, ledger_id: int | None, block: Block, block_length: int
) -> bytes:
    """A block of entries whose ids ascend, padded to this length if it is shorter."""
    first, entries = block
    frames = b"".join(struct.pack(">iq", len(payload), i) + payload for i, payload in entries.items())
    length = max(block_length, BLOCK_HEADER_BYTES + len(frames))
    header = BlockHeader(
        object_format=object_format, block_length=length, first_entry_id=first, ledger_id=ledger_id
    )
    return pack_block_header(header) + frames + padding(length - BLOCK_HEADER_BYTES - len(frames))


def pip17_object(
    payloads: Sequence[bytes] | Mapping[int, bytes],
    *,
    ledger_id: int = 7,
    max_block_bytes: int = 1 << 20,
    metadata: LedgerMetadata | None = None,
) -> WrittenObject:
    """A PIP-17 object of one ledger of these payloads; of a mapping, of those ids only."""
    entries = dict(payloads) if isinstance(payloads, Mapping) else dict(enumerate(payloads))
    metadata = metadata or ledger_metadata(list(entries.values()))
    ids = list(entries)
    blocks, lengths = [], []
    for plan in plan_blocks(np.array(list(map(len, entries.values())), dtype=np.int64), max_block_bytes):
        own = {i: entries[i] for i in ids[plan.first : plan.last]}
        blocks.append((ids[plan.first] if plan.first else 0, own))
        lengths.append(plan.block_length)
    if not entries:  # all were left out: one block all the same
        blocks, lengths = [(0, {})], [0]
    return pip17_of_blocks(blocks, metadata, ledger_id=ledger_id, block_lengths=lengths)


def pip17_of_blocks(
    blocks: Sequence[Block],
    metadata: LedgerMetadata,
    *,
    ledger_id: int = 7,
    block_lengths: Sequence[int] | None = None,
) -> WrittenObject:
    """A PIP-17 object of these blocks, which may have gaps; by default each ends with its last entry."""
    data, lines = b"", []
    for number, (block, length) in enumerate(zip(blocks, block_lengths or [0] * len(blocks), strict=True), 1):
        lines.append(BlockEntry(first_entry_id=block[0], part_number=number, offset=len(data)))
        data += _stored_block(ObjectFormat.PIP17, None, block, length)
    return WrittenObject(
        key=ObjectKey(folder="", uuid=UUID_OF_OBJECTS, ledger_id=ledger_id, is_index=False),
        data=data,
        index=pack_pip17_index(metadata, lines, len(data)),
        entries=tuple((ledger_id, i, payload) for _, own in blocks for i, payload in own.items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPart:
    """A ledger's payloads in a streaming object, from `first_entry_id` on; a block for each list."""

    ledger_id: int
    blocks: Sequence[Sequence[bytes]]
    first_entry_id: int = 0


def streaming_object(parts: Sequence[LedgerPart], *, min_block_bytes: int = 512) -> WrittenObject:
    """A streaming object of these parts of ledgers."""
    ledgers = []
    for part in parts:
        blocks, stop = [], part.first_entry_id
        for payloads in part.blocks:
            blocks.append((stop, dict(enumerate(payloads, stop))))
            stop += len(payloads)
        ledgers.append((LedgerInfo(ledger_id=part.ledger_id, entries=stop, timestamp_ms=0), blocks))
    return streaming_of_blocks(ledgers, min_block_bytes=min_block_bytes)


def streaming_of_blocks(
    ledgers: Sequence[tuple[LedgerInfo, Sequence[Block]]], *, min_block_bytes: int = 200
) -> WrittenObject:
    """A streaming object of these blocks of ledgers, which may have gaps."""
    data, lines, entries = b"", [], []
    numbers = count(1)
    for info, blocks in ledgers:
        lines.append((info, []))
        for first, own in blocks:
            content = sum(FRAME_HEADER_BYTES + len(payload) for payload in own.values())
            length = streaming_block_length(content, min_block_bytes)
            line = BlockEntry(first_entry_id=first, part_number=next(numbers), offset=len(data))
            lines[-1][1].append(line)
            data += _stored_block(ObjectFormat.STREAMING, info.ledger_id, (first, own), length)
            entries += [(info.ledger_id, i, payload) for i, payload in own.items()]
    return WrittenObject(
        key=ObjectKey(folder="", uuid=UUID_OF_OBJECTS, ledger_id=None, is_index=False),
        data=data,
        index=pack_streaming_index(lines, len(data)),
        entries=tuple(entries),
    )


def read_object(
    data: bytes,
    index: bytes | ObjectIndex,
    key: ObjectKey,
    *,
    into: list[tuple[int, int, bytes]] | None = None,
    gaps: bool = False,
) -> list[tuple[int, int, bytes]]:
    """All (ledger, entry, payload) of an object, by the cursor; `into` keeps them when an error is raised.

    `gaps`: any ids may be missing.
    """
    found: list[tuple[int, int, bytes]] = [] if into is None else into
    parsed = index if isinstance(index, ObjectIndex) else parse_index(index, key)
    with placed(key=key.data_key):
        for ledger in parsed.ledgers:
            for block in ledger.blocks:
                _read_block(data, parsed.object_format, ledger.ledger_id, block, found, gaps)
    return found


def _read_block(
    data: bytes,
    object_format: ObjectFormat,
    ledger_id: int,
    block: IndexedBlock,
    found: list[tuple[int, int, bytes]],
    gaps: bool,
) -> None:
    part = memoryview(data)[block.offset : block.offset + block.length]
    cursor = BlockCursor(part, object_format, ledger_id, block, gaps=gaps)
    columns = [np.empty(64, dtype=np.int64) for _ in range(3)]
    while not cursor.done:
        count = cursor.locate(*columns, 1 << 40)
        located = zip(*(column[:count].tolist() for column in columns), strict=True)
        found += [(ledger_id, entry_id, bytes(part[at : at + size])) for entry_id, at, size in located]


def read_through(
    reader: LedgerReader, first: int, last: int, max_bytes: int = 1 << 20
) -> Iterator[tuple[int, bytes]]:
    """Ids and payloads of a ledger, by one read after another."""
    while first <= last:
        batch = reader.read(first, last, max_bytes)
        assert batch.first_entry_id >= first
        assert batch.stop_entry_id > first
        yield from enumerate(map(bytes, batch), batch.first_entry_id)
        first = batch.stop_entry_id


def read_sparse_through(reader: Any, first: int, last: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The same of a cold copy that may have gaps."""
    while first <= last:
        read = reader.read_sparse(first, last, max_bytes)
        assert read.stop_entry_id > first
        for batch in read.runs():
            yield from enumerate(map(bytes, batch), batch.first_entry_id)
        first = read.stop_entry_id


def spans_of(payloads: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A read-only uint8 array of the joined payloads, and their offsets and lengths (int64)."""
    ends = borders(payloads)
    block = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    block.flags.writeable = False
    return block, ends[:-1].copy(), np.diff(ends)


# --- Changes of bytes at a place: one bit, some bytes over others, some more, some fewer.


SomeBytes = Callable[[bytes, Random], bytes]
"""Bytes to put into data, chosen by its content."""

Mutation = Callable[[bytes, int, Random], bytes]
"""Data, the place and the dice → the changed data."""


def mutations(some_bytes: SomeBytes) -> list[Mutation]:
    """The kinds of changes; `some_bytes` makes the inserted bytes."""

    def overwrite(data: bytes, at: int, random: Random) -> bytes:
        new = some_bytes(data, random)[: len(data) - at]
        return data[:at] + new + data[at + len(new) :]

    def insert(data: bytes, at: int, random: Random) -> bytes:
        return data[:at] + some_bytes(data, random) + data[at:]

    return [flip, overwrite, insert, delete]


def flip(data: bytes, at: int, random: Random) -> bytes:
    """One bit of a byte."""
    out = bytearray(data)
    out[at] ^= 1 << random.randrange(8)
    return bytes(out)


def delete(data: bytes, at: int, random: Random) -> bytes:
    """Up to 24 bytes are gone."""
    return data[:at] + data[at + random.randint(1, 24) :]


# --- The objects of a ledger, written again by our codec with the same entries and the same metadata.


def read_whole(tier: Tier, key: str) -> bytes:
    """All bytes of a small object."""
    return bytes(tier.read_range(key, 0, tier.stat(key).size_bytes))


def rewritten(data: bytes, index: bytes, key: ObjectKey, max_block_bytes: int) -> WrittenObject:
    """A PIP-17 object with the entries and the ledger metadata of the one that has these bytes."""
    parsed = parse_index(index, key)
    (ledger,) = parsed.ledgers
    assert isinstance(ledger.metadata, LedgerMetadata)
    return pip17_object(
        [payload for _, _, payload in read_object(data, parsed, key)],
        ledger_id=ledger.ledger_id,
        metadata=ledger.metadata,
        max_block_bytes=max_block_bytes,
    )
