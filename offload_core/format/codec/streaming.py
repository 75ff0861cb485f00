"""The index of a streaming (PIP-76) object, both ways.

Several ledgers in one object, each with its blocks. The order of ledgers in the index is any; part numbers are not
relied on. Bytes after the index's declared length are tolerated. Source: docs/formats/streaming.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, NamedFields
from offload_core.format.codec.index import (
    BLOCK_FIELDS,
    BlockEntry,
    LedgerIndex,
    ObjectIndex,
    block_lengths,
    index_blocks,
    read_block_entries,
    read_head,
)
from offload_core.format.codec.ledger_metadata import LedgerInfo, pack_ledger_info, parse_ledger_info
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat
from offload_hooks.errors import BadLengthError, IndexMismatchError, TruncatedError, placed

LEAST_PADDING_BYTES = 4
"""Bytes that stay free at a streaming block's end, so that Pulsar's reader finds the end of its entries."""

MOST_LEDGERS = 1 << 16
"""An index of more is refused: a ledger takes 40 bytes there, and a kilobyte as a value."""

HEAD_FIELDS = NamedFields(
    ("magic", "I"), ("index length", "i"), ("data object length", "q"), ("block header length", "q")
)
LEDGER_FIELDS = NamedFields(("ledger id", "q"), ("number of blocks", "i"), ("metadata length", "i"))
_HEAD = HEAD_FIELDS.struct
_LEDGER = LEDGER_FIELDS.struct
_BLOCK = BLOCK_FIELDS.struct


def parse_streaming_index(data: bytes | memoryview) -> ObjectIndex:
    """Decode a streaming index.

    Raises:
        FormatError: a subclass that names the byte where the index contradicts itself.
    """
    length, data_length, _ = read_head(data, HEAD_FIELDS, ObjectFormat.STREAMING)
    stored = _read_ledgers(data[:length])
    with placed(offset=_HEAD.size):
        lengths = block_lengths(np.concatenate([entries["offset"] for _, entries in stored]), data_length)
    ledgers = []
    begin = 0
    for info, entries in stored:
        with placed(offset=_HEAD.size, ledger_id=info.ledger_id):
            blocks = index_blocks(entries, lengths[begin : begin + len(entries)], None)
        begin += len(entries)
        ledgers.append(LedgerIndex(ledger_id=info.ledger_id, metadata=info, blocks=blocks))
    return ObjectIndex(object_format=ObjectFormat.STREAMING, data_length=data_length, ledgers=tuple(ledgers))


def _read_ledgers(data: bytes | memoryview) -> list[tuple[LedgerInfo, npt.NDArray[np.void]]]:
    position = _HEAD.size
    stored: dict[int, tuple[LedgerInfo, npt.NDArray[np.void]]] = {}
    while position < len(data) or not stored:
        if len(data) - position < _LEDGER.size:
            raise TruncatedError(
                "an index ends inside a ledger's head",
                offset=position,
                expected=f"{_LEDGER.size} bytes",
                found=len(data) - position,
            )
        ledger_id, count, metadata_length = _LEDGER.unpack_from(data, position)
        with placed(offset=position, ledger_id=ledger_id):
            metadata_at = position + _LEDGER.size
            blocks_at = metadata_at + metadata_length
            end = blocks_at + count * _BLOCK.size
            if count < 1 or metadata_length < 0 or end > len(data):
                raise BadLengthError(
                    "a ledger's blocks and metadata do not fit the index",
                    expected=f"at least 1 block, and at most {len(data) - metadata_at} bytes",
                    found=f"{count} blocks and {metadata_length} bytes of metadata",
                )
            info = parse_ledger_info(data[metadata_at:blocks_at])
            if info.ledger_id != ledger_id or ledger_id in stored:
                raise IndexMismatchError(
                    "a ledger is listed twice, or with another's metadata",
                    expected=f"ledger {ledger_id}, once",
                    found=f"metadata of ledger {info.ledger_id}",
                )
            if len(stored) == MOST_LEDGERS:
                raise BadLengthError("an index lists too many ledgers", expected=f"at most {MOST_LEDGERS}")
        stored[ledger_id] = info, read_block_entries(data, count, blocks_at)
        position = end
    return list(stored.values())


def pack_streaming_index(
    ledgers: Sequence[tuple[LedgerInfo, Sequence[BlockEntry]]], data_length: int
) -> bytes:
    """Encode an index as Pulsar does, its ledgers in the order given."""
    parts = []
    for info, blocks in ledgers:
        record = pack_ledger_info(info)
        parts.append(_LEDGER.pack(info.ledger_id, len(blocks), len(record)) + record)
        parts.extend(_BLOCK.pack(block.first_entry_id, block.part_number, block.offset) for block in blocks)
    body = b"".join(parts)
    magic = INDEX_MAGIC[ObjectFormat.STREAMING]
    return _HEAD.pack(magic, _HEAD.size + len(body), data_length, BLOCK_HEADER_BYTES) + body


def streaming_block_length(content_bytes: int, min_block_bytes: int) -> int:
    """Length of a block with `content_bytes` of framed entries: Pulsar's minimum, and always some padding."""
    return max(min_block_bytes, BLOCK_HEADER_BYTES + content_bytes + LEAST_PADDING_BYTES)
