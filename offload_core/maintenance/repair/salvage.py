"""Objects made from a damaged one: an index over data that is right, or a new pair that holds what can be saved.

An index counts where blocks begin, how many entries there are and how long they are. Facts of the
ledger that no data object has (time, bookies, custom metadata) come from what is left of the old index, else from a
record; else they are left out. A new pair has blocks as the offloader cuts them, and the same ids. Lost entries are
missing ids, recorded in the user metadata of both objects; nothing is put in their place. A MapFile is saved into a
PIP-17 object, which can record them. New objects are read back. Source: docs/repair.md."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import zip_longest
from uuid import UUID, uuid5

import numpy as np

from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
)
from offload_core.format.codec.entry_directory import STRIDE_BYTES, first_of_each_stride, pack_directory
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import BlockEntry, ObjectIndex
from offload_core.format.codec.kernels.frames import fill_padding, frame_entries
from offload_core.format.codec.ledger_metadata import (
    DigestType,
    Ensemble,
    LedgerInfo,
    LedgerMetadata,
    LedgerState,
    parse_ledger_info,
    parse_ledger_metadata,
)
from offload_core.format.codec.mapfile.sequence_file import LONG_WRITABLE, SYNC_BYTES, parse_whole_header
from offload_core.format.codec.mapfile.writer import IndexFileWriter
from offload_core.format.codec.object_format import ROLE_KEY, TOPIC_KEY, ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import LOST_KEY, REPAIRED_FROM_KEY, LostEntries, ObjectMarks
from offload_core.format.codec.pip17 import pack_pip17_index, plan_blocks
from offload_core.format.codec.streaming import (
    LEAST_PADDING_BYTES,
    pack_streaming_index,
    streaming_block_length,
)
from offload_core.format.messages.mapfile_scan import IndexedRecord
from offload_core.maintenance.repair.damaged_contents import Contents, FoundEntry, LedgerContents
from offload_core.storage.tier import Tier, upload_blocks
from offload_core.writing.offload.attempt_objects import user_metadata
from offload_core.writing.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_hooks.errors import FormatError

_PIP17_HEAD = struct.Struct(">IiqqiI")
_STREAMING_HEAD_BYTES = 24
_LEDGER = struct.Struct(">qii")
_BLOCK_BYTES = 20
_NO_BOOKIE = "bookie:0"


def pip17_metadata_in(index: bytes) -> LedgerMetadata | None:
    """Return what is left of the ledger's metadata in an index that is damaged elsewhere."""
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
    """Return what is left of the ledgers' infos in an index, up to where it cannot be followed."""
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
        recorded: the ledger's record.
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
    """The index of a streaming object; `infos` is what is left of the old one, `recorded` the ledgers' records."""
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


def mapfile_index(records: Iterable[IndexedRecord], data_key: str, sync: bytes, old: bytes = b"") -> bytes:
    """The index file of a MapFile, as Hadoop writes it; its sync is made of the data file's and its key.

    Args:
        old: what there is of its old index, whose header may have properties of the ledger.
    """
    own = hashlib.sha256(sync + data_key.encode()).digest()[:SYNC_BYTES]
    writer = IndexFileWriter()
    for record in records:
        writer.add(record.key, record.position)
    return writer.pack(own, mapfile_custom_in(old))


def mapfile_custom_in(index: bytes) -> tuple[tuple[str, str], ...]:
    """The properties of the ledger that stand in a MapFile's index, if its header can be read."""
    try:
        return parse_whole_header(index, LONG_WRITABLE).metadata
    except FormatError:
        return ()


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
    """Return the metadata that BookKeeper would have for a ledger of which only the record is known."""
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


_NAMESPACE = UUID("6f3a1f0e-6a54-4d0c-9a57-1d1c6d8f7f51")
"""Namespace of the uuids of salvaged objects."""


def salvaged_key(key: ObjectKey, contents: Contents) -> ObjectKey:
    """The key of the object that these contents are saved to: always the same one, so that a second call goes on."""
    digest = hashlib.sha256(key.data_key.encode())
    for ledger in contents.ledgers:
        digest.update(f"/{ledger.ledger_id} {ledger.first} {ledger.stop}".encode())
        places = [(entry.entry_id, entry.offset, entry.length) for entry in ledger.entries]
        digest.update(np.array(places, dtype=np.int64).tobytes())
    folder = "" if key.is_mapfile else key.folder
    return ObjectKey(
        folder=folder, uuid=uuid5(_NAMESPACE, digest.hexdigest()), ledger_id=key.ledger_id, is_index=False
    )


@dataclass(slots=True, kw_only=True)
class Salvage:
    """An object to be saved.

    Args:
        lost: its lost entries.
        old_metadata: user metadata of the old objects; `old_index` what is left of the old index.
        recorded: the ledgers' records.
    """

    key: ObjectKey
    contents: Contents
    lost: LostEntries
    old_metadata: Mapping[str, str]
    old_index: bytes
    recorded: Mapping[int, LedgerInfo]
    is_filtered: bool
    _blocks: dict[int, list[BlockEntry]] = field(default_factory=dict)
    _length: int = 0

    @property
    def target(self) -> ObjectKey:
        """Return where it goes."""
        return salvaged_key(self.key, self.contents)

    def user_metadata(self, role: str) -> dict[str, str]:
        """User metadata of the new object: the old one's, and the lost entries."""
        extra = {name: value for name, value in self.old_metadata.items() if name != ROLE_KEY}
        if self.key.managed_ledger is not None:
            extra[TOPIC_KEY] = self.key.managed_ledger
        extra[REPAIRED_FROM_KEY] = self.key.data_key
        if self.lost.count:
            extra[LOST_KEY] = self.lost.pack()
        return user_metadata(role, f"pulsar-offload {version('pulsar-offload')}", extra)

    def write(self, tier: Tier) -> None:
        """Write data object and index; neither is read before the other exists. `StoreError`: of either."""
        self._blocks, self._length = {}, 0
        longest = max((entry.size for ledger in self.contents.ledgers for entry in ledger.entries), default=0)
        least = tier.describe().capabilities.min_block_bytes
        block_bytes = max(self._block_bytes(least), longest + BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + 4)
        upload_blocks(
            tier,
            self.target.data_key,
            self._built(tier, least),
            block_bytes=block_bytes,
            user_metadata=self.user_metadata("data"),
        )
        tier.write_index(self.target.index_key, self.index(), user_metadata=self.user_metadata("index"))

    def index(self) -> bytes:
        """The index of the written object."""
        ledgers = [
            replace(
                ledger,
                blocks=self._blocks[ledger.ledger_id],
                payload_bytes=sum(entry.size for entry in ledger.entries),
            )
            for ledger in self.contents.ledgers
            if ledger.ledger_id in self._blocks
        ]
        return index_of(
            self.target.object_format,
            replace(self.contents, ledgers=ledgers),
            old=self.old_index,
            recorded=self.recorded,
            data_length=self._length,
            is_filtered=self.is_filtered or bool(self.lost.count),
        )

    def _block_bytes(self, least: int) -> int:
        known = self.contents.block_bytes
        return (
            known if least <= known <= DEFAULT_MAX_BLOCK_BYTES and known >= 256 else DEFAULT_MAX_BLOCK_BYTES
        )

    def _built(self, tier: Tier, least: int) -> Iterator[memoryview]:
        is_streaming = self.target.object_format is ObjectFormat.STREAMING
        room = self._block_bytes(least) - (LEAST_PADDING_BYTES if is_streaming else 0)
        with_entries = [ledger for ledger in self.contents.ledgers if ledger.entries]
        for ledger in with_entries:
            lengths = np.array([entry.size for entry in ledger.entries], dtype=np.int64)
            plans = list(plan_blocks(lengths, room))
            for plan in plans:
                entries = ledger.entries[plan.first : plan.last]
                first = ledger.first if plan.first == 0 else entries[0].entry_id
                length = plan.block_length
                if is_streaming:
                    is_last = ledger is with_entries[-1] and plan is plans[-1]
                    content = sum(FRAME_HEADER_BYTES + entry.size for entry in entries)
                    length = streaming_block_length(content, 0 if is_last else least)
                yield self._block(tier, ledger, entries, first, length)

    def _block(
        self, tier: Tier, ledger: LedgerContents, entries: Sequence[FoundEntry], first: int, length: int
    ) -> memoryview:
        payloads = [self.contents.payload(entry) for entry in entries]
        header = BlockHeader(
            object_format=self.target.object_format,
            block_length=length,
            first_entry_id=first,
            ledger_id=ledger.ledger_id if self.target.ledger_id is None else None,
        )
        out = tier.new_block(length)
        out[:BLOCK_HEADER_BYTES] = np.frombuffer(pack_block_header(header), dtype=np.uint8)
        values = np.frombuffer(b"".join(payloads), dtype=np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in payloads])]).astype(np.int64)
        ids = np.array([entry.entry_id for entry in entries], dtype=np.int64)
        end = frame_entries(values, offsets, ids, 0, len(entries), out, BLOCK_HEADER_BYTES)
        fill_padding(out, end, length)
        blocks = self._blocks.setdefault(ledger.ledger_id, [])
        number = sum(map(len, self._blocks.values())) + 1
        blocks.append(BlockEntry(first_entry_id=first, part_number=number, offset=self._length))
        self._length += length
        return out.data[:length]


def has_entries(tier: Tier, key: ObjectKey, index: ObjectIndex, contents: Contents) -> bool:
    """Return whether an object of blocks holds these entries, each byte for byte, and no others.

    Raises:
        StoreError: the tier fails. FormatError: a block is not right.
    """
    saved = (
        (ledger.ledger_id, entry.entry_id, contents.payload(entry))
        for ledger in contents.ledgers
        for entry in ledger.entries
    )
    return all(one == two for one, two in zip_longest(_entries(tier, key, index), saved))


def _entries(tier: Tier, key: ObjectKey, index: ObjectIndex) -> Iterator[tuple[int, int, bytes]]:
    for ledger in index.ledgers:
        extent = LedgerExtent(key=key, ledger=ledger, marks=ObjectMarks(has_gaps=True))
        cursor = EntryCursor(extent)
        for block in extent.blocks:
            cursor.feed(block, tier.read_range(key.data_key, block.offset, block.length), block.offset)
            for array, _, entry_ids, offsets, lengths in cursor.located():
                for entry_id, offset, length in zip(entry_ids, offsets, lengths, strict=True):
                    yield ledger.ledger_id, int(entry_id), array[offset : offset + length].tobytes()
