"""A MapFile's data file, walked record by record or block by block, whatever is damaged between them.

A value that is compressed has zlib's own checksum; one that is not, its length twice; entries of Pulsar's have their
CRC-32C. After damage it searches for the next record or sync mark that is certain. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from offload_core.format.codec.ledger_metadata import LedgerMetadata, parse_ledger_metadata
from offload_core.format.codec.mapfile.index_file import METADATA_KEY
from offload_core.format.codec.mapfile.record_batches import (
    KEY_BYTES,
    RECORD_HEAD_BYTES,
    SYNC_ESCAPE,
    SYNC_MARK_BYTES,
    Inflater,
    SyncBlock,
    inflate,
    most_of,
    open_value,
    read_sync_block,
)
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    MAX_HEADER_BYTES,
    SYNC_BYTES,
    Buffer,
    CutOffError,
    FieldReader,
    FileCompression,
    SequenceHeader,
    pack_header,
    parse_header,
)
from offload_core.format.messages.frame_scan import (
    DamagedBytes,
    EntryVerdict,
    FoundFrame,
    can_be_parsed,
    judge_entry,
)
from offload_hooks.errors import FormatError

_RECORD = struct.Struct(">iiq")
_KEY_MARK = KEY_BYTES.to_bytes(4, "big") + b"\0\0\0"
"""The bytes after a record's length: the key's length, and the first bytes of an entry id."""

_SEARCHED_AT_ONCE = 1 << 20
_OFF = 4
"""Most bytes of a header that may be wrong."""


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """A record as a MapFile's index needs it: its key, and where it or its block begins."""

    key: int
    position: int


class MapFileScan:
    """Walks one data file.

    Attributes:
        header: None if the kind of the file cannot be recognised.
        metadata: of the ledger, None if its record is damaged.
        frames: the entries, in the order of bytes; those of a block have its place, and their row in `rows`.
        records: all records, for an index.
        is_clean: nothing but records and sync marks was found, from the header to the end.
    """

    def __init__(self, data: DamagedBytes) -> None:
        self._data = data
        self.metadata: LedgerMetadata | None = None
        self.frames: list[FoundFrame] = []
        self.rows: dict[int, tuple[int, int]] = {}
        self.records: list[IndexedRecord] = []
        self.is_clean = True
        self._last: tuple[int, list[bytes]] | None = None
        self.header = self._read_header()
        self._are_pulsars = False
        if self.header is None:
            self.is_clean = False
        elif self.header.compression is FileCompression.BLOCK:
            self._walk_blocks(self.header)
        else:
            self._are_pulsars = self._sample(self.header)
            self._walk_records(self.header)

    @property
    def ends_well(self) -> bool:
        """True if the file ends with a whole record."""
        return bool(self.frames) and self.frames[-1].entry_id >= 0

    def payload(self, offset: int, length: int) -> bytes:
        """The entry whose record's value is at `offset`, `length` bytes as it is stored; of a block, its row there."""
        assert self.header is not None
        if self.header.compression is FileCompression.BLOCK:
            place, row = offset, length
            if self._last is None or self._last[0] != place:
                block = self._block(place, self.header)
                assert block is not None
                self._last = (place, [value for _, value in self._values(block[0])])
            return self._last[1][row]
        value: Buffer = self._data.read(offset, length)
        if self.header.compression is FileCompression.RECORD:
            value = inflate(value, most_of(length))
        return bytes(open_value(value, 0))

    def _read_header(self) -> SequenceHeader | None:
        data = self._data.read(0, MAX_HEADER_BYTES)
        try:
            return parse_header(data, BYTES_WRITABLE, end=self._data.size)
        except (FormatError, CutOffError):
            self.is_clean = False
        for compression in FileCompression:
            guess = SequenceHeader(
                compression=compression, value_class=BYTES_WRITABLE, sync=bytes(SYNC_BYTES)
            )
            length = guess.length
            known = pack_header(guess)[:-SYNC_BYTES]
            wrong = sum(one != two for one, two in zip(known, data, strict=False))
            if len(data) >= length and wrong <= _OFF:
                sync = data[length - SYNC_BYTES : length]
                return SequenceHeader(compression=compression, value_class=BYTES_WRITABLE, sync=sync)
        return None

    # --- records that stand alone --------------------------------------------------------------

    def _walk_records(self, header: SequenceHeader) -> None:
        mark = SYNC_ESCAPE.to_bytes(4, "big", signed=True) + header.sync
        position, linked, expected = header.length, True, METADATA_KEY
        while position < self._data.size:
            begin = position
            if self._data.read(position, SYNC_MARK_BYTES) == mark:
                position += SYNC_MARK_BYTES
            found = self._record(position, header)
            if found is None and position == begin and self._data.read(position, 4) == mark[:4]:
                self.is_clean = False  # a sync mark that is damaged
                found = self._record(position + SYNC_MARK_BYTES, header)
                position += SYNC_MARK_BYTES if found is not None else 0
            if found is None:
                self.is_clean = False
                if expected >= 0:
                    self._add(position, -1, 0, EntryVerdict.BAD, linked)
                following = self._search(position, max(expected, 0), header)
                if following is None:
                    return
                position, linked = following, False
                continue
            key, length, verdict, size = found
            if key == METADATA_KEY:
                self._take_metadata(position, length)
            else:
                self._add(position + RECORD_HEAD_BYTES, key, length, verdict, linked, size)
            self.records.append(IndexedRecord(key, begin))
            expected, linked = key + 1, True
            position += RECORD_HEAD_BYTES + length

    def _add(
        self, offset: int, entry_id: int, length: int, verdict: EntryVerdict, linked: bool, size: int = 0
    ) -> None:
        self.frames.append(
            FoundFrame(
                offset=offset, entry_id=entry_id, length=length, verdict=verdict, is_linked=linked, size=size
            )
        )

    def _record(self, position: int, header: SequenceHeader) -> tuple[int, int, EntryVerdict, int] | None:
        """Key, length of the stored value, verdict, the entry's size; None if there is no record."""
        head = self._data.read(position, RECORD_HEAD_BYTES)
        if len(head) < RECORD_HEAD_BYTES:
            return None
        length, key_length, key = _RECORD.unpack(head)
        length -= KEY_BYTES
        room = self._data.size - position - RECORD_HEAD_BYTES
        if key_length != KEY_BYTES or not 0 <= length <= room or key < METADATA_KEY:
            return None
        value: Buffer = self._data.read(position + RECORD_HEAD_BYTES, length)
        try:
            if header.compression is FileCompression.RECORD:
                value = inflate(value, most_of(length))
            payload = bytes(open_value(value, key))
        except FormatError:
            after = self._data.read(position + RECORD_HEAD_BYTES + length, RECORD_HEAD_BYTES)
            at_end = not after
            is_linked = len(after) == RECORD_HEAD_BYTES and _RECORD.unpack(after)[1:] == (KEY_BYTES, key + 1)
            return (key, length, EntryVerdict.BAD, 0) if at_end or is_linked else None
        if key == METADATA_KEY:
            return key, length, EntryVerdict.SOUND, len(payload)
        return key, length, judge_entry(payload, are_pulsars=self._are_pulsars), len(payload)

    def _sample(self, header: SequenceHeader) -> bool:
        position = header.length
        for _ in range(64):
            found = self._record(position, header)
            if found is None:
                following = self._search(position, 0, header)
                if following is None:
                    return False
                position = following
                continue
            key, length, verdict, _ = found
            if key >= 0 and verdict is not EntryVerdict.BAD:
                payload = self.payload(position + RECORD_HEAD_BYTES, length)
                if verdict is EntryVerdict.SOUND or can_be_parsed(payload):
                    return True
            position += RECORD_HEAD_BYTES + length
        return False

    def _take_metadata(self, position: int, length: int) -> None:
        try:
            self.metadata = parse_ledger_metadata(self.payload(position + RECORD_HEAD_BYTES, length))
        except FormatError:
            self.is_clean = False

    def _search(self, origin: int, lowest: int, header: SequenceHeader) -> int | None:
        """The next record after `origin` that is certain."""
        begin = origin + 1
        while begin < self._data.size:
            window = self._data.read(begin, _SEARCHED_AT_ONCE + RECORD_HEAD_BYTES)
            at = window.find(_KEY_MARK)
            while 0 <= at < _SEARCHED_AT_ONCE + 4:
                place = begin + at - 4
                if place > origin:
                    found = self._record(place, header)
                    room = (place - origin) // RECORD_HEAD_BYTES
                    is_sound = found is not None and found[2] in (EntryVerdict.SOUND, EntryVerdict.PLAIN)
                    if found is not None and is_sound and lowest <= found[0] <= lowest + room + 1:
                        return place
                at = window.find(_KEY_MARK, at + 1)
            begin += _SEARCHED_AT_ONCE
        return None

    # --- blocks --------------------------------------------------------------------------------

    def _walk_blocks(self, header: SequenceHeader) -> None:
        mark = SYNC_ESCAPE.to_bytes(4, "big", signed=True) + header.sync
        position, linked = header.length, True
        while position < self._data.size:
            found = self._block(position, header)
            if found is not None:
                block, end = found
                if self._take_block(position, block, linked):
                    position, linked = end, True
                    continue
                linked = False
            self.is_clean = False
            if found is None:
                self._add(position, -1, 0, EntryVerdict.BAD, linked)
            following = self._find(mark, position + 1)
            if following is None:
                return
            position, linked = following, False

    def _block(self, position: int, header: SequenceHeader) -> tuple[SyncBlock, int] | None:
        """The block at a place, and where it ends."""
        length = 1 << 16
        while True:
            window = self._data.read(position, length)
            reader = FieldReader(window, 0, self._data.size - position, position)
            try:
                block = read_sync_block(reader, header.sync, METADATA_KEY - 1, whole=True)
                return block, position + reader.position
            except CutOffError as cut:
                if length >= self._data.size - position:
                    return None
                length = max(cut.needed, 2 * length)
            except FormatError:
                return None

    def _take_block(self, position: int, block: SyncBlock, linked: bool) -> bool:
        """The entries of a block; False if some of them cannot be inflated."""
        count = 0
        for key, value in self._values(block):
            row, count = count, count + 1
            if key == METADATA_KEY:
                try:
                    self.metadata = parse_ledger_metadata(value)
                except FormatError:
                    self.is_clean = False
            else:
                self._are_pulsars = self._are_pulsars or can_be_parsed(value)
                self._add(
                    position, key, row, judge_entry(value, are_pulsars=self._are_pulsars), linked, len(value)
                )
                linked = True
            self.records.append(IndexedRecord(key, position))
        for key in block.keys.tolist()[count:]:
            self._add(position, key, 0, EntryVerdict.BAD, True)
        return count == len(block.keys)

    def _values(self, block: SyncBlock) -> Iterator[tuple[int, bytes]]:
        """The values of a block, as far as they can be inflated; of a damaged stream only those with a checksum."""
        whole = True
        try:
            inflate(block.values, int(block.lengths.sum()))
        except FormatError:
            whole = False
        inflater = Inflater(block.values)
        for key, length in zip(block.keys.tolist(), block.lengths.tolist(), strict=True):
            try:
                value = bytes(open_value(inflater.read(length), key))
            except FormatError:
                return
            if not whole and judge_entry(value, are_pulsars=True) is not EntryVerdict.SOUND:
                return
            yield key, value

    def _find(self, mark: bytes, begin: int) -> int | None:
        while begin < self._data.size:
            window = self._data.read(begin, _SEARCHED_AT_ONCE + len(mark))
            at = window.find(mark)
            if at >= 0:
                return begin + at
            begin += _SEARCHED_AT_ONCE
        return None
