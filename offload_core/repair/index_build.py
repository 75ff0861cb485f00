"""An index made anew from a data object that is right, in the form that Pulsar writes.

Where blocks begin, how many entries there are and how long they are is counted. What no data object says of its ledger
(when it was made, on which bookies, custom metadata) comes from what is left of the old index, else from a record;
else it is left out. Source: docs/repair.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from offload_core.codec.entry_directory import STRIDE_BYTES, first_of_each_stride, pack_directory
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.index import BlockEntry
from offload_core.codec.ledger_info import LedgerInfo, parse_ledger_info
from offload_core.codec.ledger_metadata import (
    DigestType,
    Ensemble,
    LedgerMetadata,
    LedgerState,
    parse_ledger_metadata,
)
from offload_core.codec.mapfile.header import (
    LONG_WRITABLE,
    SYNC_BYTES,
    FileCompression,
    SequenceHeader,
)
from offload_core.codec.mapfile.writer import INDEX_INTERVAL, SequenceFileWriter
from offload_core.codec.object_format import ObjectFormat
from offload_core.codec.pip17 import pack_pip17_index
from offload_core.codec.streaming import pack_streaming_index
from offload_core.repair.contents import Contents, LedgerContents
from offload_core.repair.mapfile_scan import IndexedRecord
from offload_hooks.errors import FormatError

_PIP17_HEAD = struct.Struct(">IiqqiI")
_STREAMING_HEAD_BYTES = 24
_LEDGER = struct.Struct(">qii")
_BLOCK_BYTES = 20
_NO_BOOKIE = "bookie:0"


def pip17_metadata_in(index: bytes) -> LedgerMetadata | None:
    """What is left of the ledger's metadata in an index that is damaged elsewhere."""
    if len(index) < _PIP17_HEAD.size:
        return None
    length = _PIP17_HEAD.unpack_from(index)[5]
    if not 0 < length <= len(index) - _PIP17_HEAD.size:
        return None
    try:
        return parse_ledger_metadata(index[_PIP17_HEAD.size : _PIP17_HEAD.size + length])
    except FormatError:
        return None


def streaming_infos_in(index: bytes) -> dict[int, LedgerInfo]:
    """What is left of the ledgers' infos in an index, up to where it cannot be followed."""
    found: dict[int, LedgerInfo] = {}
    position = _STREAMING_HEAD_BYTES
    while position + _LEDGER.size <= len(index):
        ledger_id, count, length = _LEDGER.unpack_from(index, position)
        begin = position + _LEDGER.size
        if length < 0 or count < 0 or begin + length > len(index):
            break
        try:
            info = parse_ledger_info(index[begin : begin + length])
        except FormatError:
            break
        if info.ledger_id == ledger_id:
            found.setdefault(ledger_id, info)
        position = begin + length + count * _BLOCK_BYTES
    return found


def pip17_index(
    ledger: LedgerContents,
    metadata: LedgerMetadata | None,
    data_length: int,
    blocks: Sequence[BlockEntry],
    *,
    recorded: LedgerInfo | None = None,
    is_filtered: bool = False,
    with_directory: bool = False,
) -> bytes:
    """The index of a PIP-17 object.

    Args:
        metadata: what is left of the old one.
        recorded: what the ledger's record says.
        is_filtered: then the ledger's own count and size are not those of the object.
    """
    known = metadata or _new_metadata(recorded)
    last = ledger.stop - 1
    if is_filtered and known.last_entry_id is not None:
        last = max(last, known.last_entry_id)
    length = known.length if is_filtered and metadata is not None else ledger.payload_bytes
    directory = b""
    if with_directory:
        ids = np.array([entry.entry_id for entry in ledger.entries], dtype=np.int64)
        frames = np.array([entry.offset - FRAME_HEADER_BYTES for entry in ledger.entries], dtype=np.int64)
        directory = pack_directory(first_of_each_stride(ids, frames, STRIDE_BYTES, None))
    changed = replace(known, last_entry_id=last, length=length, state=LedgerState.CLOSED)
    return pack_pip17_index(changed, blocks, data_length, directory)


def streaming_index(
    contents: Contents,
    infos: Mapping[int, LedgerInfo],
    recorded: Mapping[int, LedgerInfo],
    data_length: int,
    blocks: Mapping[int, Sequence[BlockEntry]],
) -> bytes:
    """The index of a streaming object; `infos` is what is left of the old one, `recorded` what records say."""
    ledgers = []
    for ledger in contents.ledgers:
        info = infos.get(ledger.ledger_id) or recorded.get(ledger.ledger_id)
        if info is None or not info.is_closed or (info.entries or 0) < ledger.stop:
            properties = info.properties if info is not None else ()
            info = LedgerInfo(ledger_id=ledger.ledger_id, entries=ledger.stop, properties=properties)
        ledgers.append((info, blocks[ledger.ledger_id]))
    return pack_streaming_index(ledgers, data_length)


def numbered(contents: Contents) -> dict[int, list[BlockEntry]]:
    """The blocks of each ledger, with their parts' numbers over the object, from 1."""
    in_order = sorted(
        (block.offset, ledger.ledger_id) for ledger in contents.ledgers for block in ledger.blocks
    )
    numbers = {offset: number for number, (offset, _) in enumerate(in_order, start=1)}
    return {
        ledger.ledger_id: [replace(block, part_number=numbers[block.offset]) for block in ledger.blocks]
        for ledger in contents.ledgers
    }


def mapfile_index(records: Iterable[IndexedRecord], data_key: str, sync: bytes) -> bytes:
    """The index file of a MapFile, as Hadoop writes it; its sync is made of the data file's and its key."""
    own = hashlib.sha256(sync + data_key.encode()).digest()[:SYNC_BYTES]
    header = SequenceHeader(compression=FileCompression.BLOCK, value_class=LONG_WRITABLE, sync=own)
    writer = SequenceFileWriter(header)
    indexed_count, indexed_position = -INDEX_INTERVAL, 0
    for count, record in enumerate(records):
        if count >= indexed_count + INDEX_INTERVAL and record.position > indexed_position:
            writer.append(record.key, record.position.to_bytes(8, "big"))
            indexed_count, indexed_position = count, record.position
    return writer.finish()


def index_of(
    object_format: ObjectFormat,
    contents: Contents,
    *,
    old: bytes,
    recorded: Mapping[int, LedgerInfo],
    data_length: int,
    is_filtered: bool,
    with_directory: bool = False,
) -> bytes:
    """The index of an object of blocks whose contents are clean; `old` is what there is of its old index."""
    blocks = numbered(contents)
    if object_format is ObjectFormat.STREAMING:
        return streaming_index(contents, streaming_infos_in(old), recorded, data_length, blocks)
    (ledger,) = contents.ledgers
    return pip17_index(
        ledger,
        pip17_metadata_in(old),
        data_length,
        blocks[ledger.ledger_id],
        recorded=recorded.get(ledger.ledger_id),
        is_filtered=is_filtered,
        with_directory=with_directory,
    )


def _new_metadata(recorded: LedgerInfo | None) -> LedgerMetadata:
    """What BookKeeper would say of a ledger of which nothing else is known."""
    closed_ms = None if recorded is None or not recorded.is_closed else recorded.timestamp_ms
    return LedgerMetadata(
        write_quorum_size=1,
        ensemble_size=1,
        ack_quorum_size=1,
        length=0,
        state=LedgerState.CLOSED,
        ensembles=(Ensemble(first_entry_id=0, members=(_NO_BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        ctime_ms=closed_ms,
    )
