"""The index of a PIP-17 object, both ways, and the ends of its blocks.

One ledger per object. Bytes may follow the last block of an index (a fork appends a directory, our own writer another
one): they are tolerated.
An entry larger than a block gets a block of its own. Source: docs/formats/pip17.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES, NamedFields
from offload_core.format.codec.entry_directory import find_directory
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
from offload_core.format.codec.ledger_metadata import (
    LedgerMetadata,
    pack_ledger_metadata,
    parse_ledger_metadata,
)
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat
from offload_hooks.errors import BadLengthError, MetadataError, OptionError, placed

HEAD_FIELDS = NamedFields(
    ("magic", "I"),
    ("index length", "i"),
    ("data object length", "q"),
    ("block header length", "q"),
    ("number of blocks", "i"),
    ("metadata length", "I"),
)
_HEAD = HEAD_FIELDS.struct
_BLOCK = BLOCK_FIELDS.struct
_GREATEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A block to be written: entries `first` … `last` − 1 (positions in the input, half-open), its length in bytes."""

    first: int
    last: int
    block_length: int


def plan_blocks(entry_lengths: npt.NDArray[np.int64], max_block_bytes: int) -> Iterator[BlockPlan]:
    """The places at which Pulsar would end each block of a ledger.

    `entry_lengths`: int64, payload bytes of all the ledger's entries, in order. Every block but the last is exactly
    `max_block_bytes` long, the last ends with its last entry; an entry that fits no such block has one for itself.

    Raises:
        OptionError: `max_block_bytes` has no room for a header and an empty entry.
    """
    if max_block_bytes < BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES:
        raise OptionError(
            "the maximum block size is too small",
            expected=f"{BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES} bytes or more",
            found=max_block_bytes,
        )
    ends = np.cumsum(entry_lengths + FRAME_HEADER_BYTES)
    room = max_block_bytes - BLOCK_HEADER_BYTES
    first, count = 0, len(entry_lengths)
    while first < count:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + room, side="right"))
        if last == first:
            last = first + 1
            length = BLOCK_HEADER_BYTES + int(ends[first]) - before
        else:
            length = min(max_block_bytes, BLOCK_HEADER_BYTES + int(ends[-1]) - before)
        yield BlockPlan(first=first, last=last, block_length=length)
        first = last


def parse_pip17_index(data: bytes | memoryview, ledger_id: int) -> ObjectIndex:
    """Decode the index of the ledger `ledger_id` (which is in the object's key, not in its index).

    Raises:
        FormatError: a subclass that names the byte where the index contradicts itself.
    """
    length, data_length, _, count, metadata_length = read_head(data, HEAD_FIELDS, ObjectFormat.PIP17)
    if count < 1:
        raise BadLengthError("an index declares no block", offset=24, expected="1 or more", found=count)
    needed = _HEAD.size + metadata_length + count * _BLOCK.size
    if needed > length:
        raise BadLengthError(
            "an index is shorter than its metadata and blocks",
            offset=4,
            expected=f"{needed} bytes or more for {count} blocks and {metadata_length} bytes of metadata",
            found=length,
        )
    with placed(offset=_HEAD.size, ledger_id=ledger_id):
        metadata = parse_ledger_metadata(data[_HEAD.size : _HEAD.size + metadata_length])
        last = metadata.last_entry_id
        if last is None or last == _GREATEST:
            raise MetadataError("the metadata of an offloaded ledger has no last entry", found=last)
    blocks_at = _HEAD.size + metadata_length
    entries = read_block_entries(data, count, blocks_at)
    with placed(offset=blocks_at, ledger_id=ledger_id):
        lengths = block_lengths(entries["offset"], data_length)
        blocks = index_blocks(entries, lengths, last + 1)
        if blocks[0].offset != 0 or blocks[0].first_entry_id != 0:
            raise BadLengthError(
                "a PIP-17 object does not begin with its ledger's entry 0",
                expected="entry 0 at byte 0",
                found=f"entry {blocks[0].first_entry_id} at byte {blocks[0].offset}",
            )
    return ObjectIndex(
        object_format=ObjectFormat.PIP17,
        data_length=data_length,
        ledgers=(LedgerIndex(ledger_id=ledger_id, metadata=metadata, blocks=blocks),),
        directory=find_directory(data[:length], needed),
    )


def pack_pip17_index(
    metadata: LedgerMetadata, blocks: Sequence[BlockEntry], data_length: int, directory: bytes = b""
) -> bytes:
    """Encode an index as Pulsar does, and a directory of ours after its last block."""
    record = pack_ledger_metadata(metadata)
    return b"".join(
        [
            _HEAD.pack(
                INDEX_MAGIC[ObjectFormat.PIP17],
                _HEAD.size + len(record) + len(blocks) * _BLOCK.size + len(directory),
                data_length,
                BLOCK_HEADER_BYTES,
                len(blocks),
                len(record),
            ),
            record,
            *(_BLOCK.pack(block.first_entry_id, block.part_number, block.offset) for block in blocks),
            directory,
        ]
    )
