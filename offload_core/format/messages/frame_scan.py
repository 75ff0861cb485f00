"""Frames in damaged PIP-17 or streaming blocks, walked frame by frame, whatever their lengths declare.

Nothing is accepted for its place alone. A frame is taken if its entry's checksum matches, or, without one, if the next
frame fits; a wrong length is found by where the next frame begins. Where a walk ends, the next frame or block that can
be right is searched for. The caller decides which entry a frame has. Source: docs/repair.md.

Pulsar's entries mostly have a CRC-32C over all but a broker's own metadata. One without it may have changed; that it
can be parsed is some evidence, in objects whose other entries can.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    BLOCK_MAGIC,
    FRAME_HEADER_BYTES,
    PADDING,
    BlockHeader,
    parse_block_header,
)
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.entry import CHECKSUM_MAGIC, skip_broker_metadata, split_entry
from offload_hooks.errors import FormatError


class DamagedBytes(Protocol):
    """Bytes of a damaged object: `size` of them, to be read anywhere."""

    @property
    def size(self) -> int: ...  # noqa: D102 - see the class

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes from `offset` on, fewer where the object ends."""


_CHECKSUM_HEAD_BYTES = 6


class EntryVerdict(enum.Enum):
    """Certainty of an entry's bytes."""

    SOUND = "sound"
    """Its checksum matches."""
    PLAIN = "plain"
    """It has no checksum, and nothing speaks against it."""
    UNSURE = "unsure"
    """It has no checksum, and cannot be parsed, though other entries of its object can."""
    BAD = "bad"
    """Its checksum does not match."""


def judge_entry(entry: bytes, *, are_pulsars: bool) -> EntryVerdict:
    """Judge an entry; `are_pulsars` if the object has entries of Pulsar's."""
    try:
        start = skip_broker_metadata(entry)
    except FormatError:
        return EntryVerdict.UNSURE if are_pulsars else EntryVerdict.PLAIN
    if len(entry) - start >= _CHECKSUM_HEAD_BYTES:
        magic, stored = struct.unpack_from(">HI", entry, start)
        if magic == CHECKSUM_MAGIC:
            found = crc32c(entry[start + _CHECKSUM_HEAD_BYTES :])
            return EntryVerdict.SOUND if found == stored else EntryVerdict.BAD
    return EntryVerdict.PLAIN if not are_pulsars or can_be_parsed(entry) else EntryVerdict.UNSURE


def can_be_parsed(entry: bytes) -> bool:
    """Return whether it is an entry of Pulsar's, by its form."""
    try:
        split_entry(entry)
    except FormatError:
        return False
    return True


@dataclass(slots=True, kw_only=True)
class FoundFrame:
    """A frame: its place, the id that is stored in it, and its payload's bytes.

    Attributes:
        entry_id: as stored; −1 of something that should be a frame, and cannot be recognised.
        length: of the payload; found by a search where the stored one is wrong.
        is_linked: it begins where the one before it ends, or the block's header.
        is_exact: the stored length is right.
        size: bytes of the entry, where they are stored in another form.
    """

    offset: int
    entry_id: int
    length: int
    verdict: EntryVerdict
    is_linked: bool
    is_exact: bool = True
    size: int | None = None

    @property
    def end(self) -> int:
        """The begin of the next frame."""
        return self.offset + FRAME_HEADER_BYTES + self.length


@dataclass(slots=True, kw_only=True)
class BlockFrames:
    """Frames of one block, or of the rest of one.

    Attributes:
        offset: its begin.
        header: the block's; None if that is damaged or gone.
        header_bytes: the bytes in its place; empty if it begins in the middle of a block.
        stop: its end, after its padding.
        ends_well: a block's right end follows its last frame.
    """

    offset: int
    header: BlockHeader | None
    header_bytes: bytes = b""
    frames: list[FoundFrame] = field(default_factory=list)
    stop: int = 0
    ends_well: bool = False

    @property
    def begins_block(self) -> bool:
        """True if it begins with a block."""
        return bool(self.header_bytes)


def frames_in(
    window: bytes, lowest: int, highest: int, bound: bool, distance: int, *, may_be_empty: bool
) -> list[int]:
    """Find the places in a window where frames of entries from `lowest` on may begin.

    `distance` is that of the window from the place that is searched from.
    """
    if len(window) < FRAME_HEADER_BYTES:
        return []
    array = np.frombuffer(window, dtype=np.uint8)
    count = len(array) - FRAME_HEADER_BYTES + 1
    small = (array[4 : 4 + count] == 0) & (array[5 : 5 + count] == 0) & (array[6 : 6 + count] == 0)
    may_be = small & (array[:count] < 0x80)
    if not may_be_empty:
        may_be &= np.any([array[place : place + count] for place in range(4)], axis=0)
    at = np.flatnonzero(may_be)
    ids = np.zeros(len(at), dtype=np.int64)
    for place in range(7, FRAME_HEADER_BYTES):
        ids = ids << 8 | array[at + place]
    most = highest + (at + distance) // FRAME_HEADER_BYTES if bound else np.full(len(at), highest)
    found: list[int] = at[(ids >= lowest) & (ids <= most)].tolist()
    return found


MOST_ENTRY_BYTES = 1 << 28
"""A frame that declares more is not accepted."""

_FRAME = struct.Struct(">iq")
_HEADER_REST = {ObjectFormat.PIP17: 28, ObjectFormat.STREAMING: 36}
_CHECKSUM_MAGIC = CHECKSUM_MAGIC.to_bytes(2, "big")
_SEARCHED_AT_ONCE = 1 << 20
_LOOKED_AT = 64
_PADDED_ENDS = 16
"""Number of ends to try, before a block's padding, of an entry whose length is wrong."""
_FAR = 1 << 40
"""Entry ids beyond this are not searched for."""


class FrameScan:
    """Walks one object.

    Args:
        gaps: ids may be missing on purpose.
        starts: begins of blocks by an index, which need not be right.

    Attributes:
        are_pulsars: whether the entries are Pulsar's, by the first that can be found.
    """

    def __init__(
        self, data: DamagedBytes, object_format: ObjectFormat, *, gaps: bool, starts: Collection[int] = ()
    ) -> None:
        self._data = data
        self._format = object_format
        self._gaps = gaps
        self._starts = sorted(starts)
        self._magic = struct.pack(">Iq", BLOCK_MAGIC[object_format], BLOCK_HEADER_BYTES)
        self.are_pulsars = self._sample()

    def stretches(self) -> Iterator[BlockFrames]:
        """Yield the blocks that are found, in the order of bytes."""
        position, expected, declared = 0, 0, 0
        while position < self._data.size:
            block = self._block_at(position) or self._headless(position, declared)
            if block is None or block.offset > position:
                found = self._search(position, 0, _FAR, bound=False)
                if found is not None and (block is None or found[0] < block.offset):
                    position, is_block = found
                    block = self._block_at(position) if is_block else None
                    block = block or BlockFrames(offset=position, header=None)
            if block is None:
                return
            if block.header is not None:
                expected = block.header.first_entry_id
                declared = block.offset + block.header.block_length
            begin = block.offset + (BLOCK_HEADER_BYTES if block.begins_block else 0)
            head = self._head(begin)
            if block.header is None and head is not None:
                expected = head[1]
            position = self._walk(block, begin, expected)
            block.stop = position
            if block.frames:
                expected = block.frames[-1].entry_id + 1
            yield block

    # --- blocks --------------------------------------------------------------------------------

    def _block_at(self, position: int) -> BlockFrames | None:
        header = self._header_at(position)
        if header is None:
            return None
        return BlockFrames(
            offset=position, header=header, header_bytes=self._data.read(position, BLOCK_HEADER_BYTES)
        )

    def _header_at(self, position: int) -> BlockHeader | None:
        data = self._data.read(position, BLOCK_HEADER_BYTES)
        if not data.startswith(self._magic):
            return None
        try:
            return parse_block_header(data, self._format, offset=position)
        except FormatError:
            return None

    def _headless(self, position: int, declared: int) -> BlockFrames | None:
        """A block whose header is damaged, if its first entry, where a header would end, is sound."""
        places = [position, declared, *(each for each in self._starts if each >= position)]
        for place in sorted({each for each in places if each >= position}):
            if place > position and self._header_at(place) is not None:
                return self._block_at(place)
            if place in (position, declared) or place in self._starts:
                frame = self._frame(place + BLOCK_HEADER_BYTES, None)
                if frame is not None and frame.verdict in (EntryVerdict.SOUND, EntryVerdict.PLAIN):
                    return BlockFrames(
                        offset=place, header=None, header_bytes=self._data.read(place, BLOCK_HEADER_BYTES)
                    )
        return None

    def _sample(self) -> bool:
        """Decide as a verifier does: if one of the first entries is Pulsar's, all are."""
        for begin in (0, *self._starts[:_LOOKED_AT], *self._headers()):
            position = begin + BLOCK_HEADER_BYTES
            for _ in range(_LOOKED_AT):
                head = self._head(position)
                if head is None:
                    break
                payload = self._data.read(position + FRAME_HEADER_BYTES, head[0])
                if judge_entry(payload, are_pulsars=False) is EntryVerdict.SOUND or can_be_parsed(payload):
                    return True
                position += FRAME_HEADER_BYTES + head[0]
        return any(map(self._has_checksum, self._find(_CHECKSUM_MAGIC)))

    def _has_checksum(self, position: int) -> bool:
        """Return whether an entry of Pulsar's begins at a place, with a frame before."""
        head = self._head(position - FRAME_HEADER_BYTES) if position >= FRAME_HEADER_BYTES else None
        if head is None or head[1] >= _FAR:
            return False
        return judge_entry(self._data.read(position, head[0]), are_pulsars=False) is EntryVerdict.SOUND

    def _headers(self) -> Iterator[int]:
        """The first places that look like a block's header."""
        return islice(self._find(self._magic), _LOOKED_AT)

    def _find(self, pattern: bytes) -> Iterator[int]:
        """Yield the places of these bytes."""
        for begin in range(0, self._data.size, _SEARCHED_AT_ONCE):
            window = self._data.read(begin, _SEARCHED_AT_ONCE + len(pattern) - 1)
            at = window.find(pattern)
            while at >= 0:
                yield begin + at
                at = window.find(pattern, at + 1)

    # --- frames --------------------------------------------------------------------------------

    def _walk(self, block: BlockFrames, position: int, expected: int) -> int:
        """Collect the frames of a block from `position` on; return its end."""
        linked = True
        while True:
            end = self._end_at(position, is_first=position == block.offset + BLOCK_HEADER_BYTES)
            if end is not None:
                block.ends_well = linked or bool(block.frames)
                return end
            frame = self._frame(position, expected)
            if frame is not None:
                frame.is_linked = linked
                block.frames.append(frame)
                expected, position, linked = self._following(frame, expected), frame.end, True
                continue
            found = self._search(position, expected, expected + 1, bound=True, end=self._known_end(block))
            following, is_block = (self._data.size, True) if found is None else found
            frame = self._of_wrong_length(position, expected, following, is_block)
            if frame is None:
                frame = FoundFrame(
                    offset=position, entry_id=-1, length=0, verdict=EntryVerdict.BAD, is_linked=linked
                )
                block.frames.append(frame)
                linked = False
            else:
                frame.is_linked = linked
                block.frames.append(frame)
                expected, linked = expected + 1, True
            if is_block:
                block.ends_well = frame.entry_id >= 0
                return following
            position = following
            head = self._head(position)
            if head is not None:
                expected = head[1]

    def _head(self, position: int) -> tuple[int, int] | None:
        """Length and id of a frame, if there may be one."""
        data = self._data.read(position, FRAME_HEADER_BYTES)
        if len(data) < FRAME_HEADER_BYTES:
            return None
        length, entry_id = _FRAME.unpack(data)
        room = min(self._data.size - position - FRAME_HEADER_BYTES, MOST_ENTRY_BYTES)
        return (length, entry_id) if 0 <= length <= room and entry_id >= 0 else None

    def _frame(self, position: int, expected: int | None) -> FoundFrame | None:
        """The frame at a place, if it can be accepted there."""
        head = self._head(position)
        if head is None:
            return None
        length, entry_id = head
        verdict = judge_entry(
            self._data.read(position + FRAME_HEADER_BYTES, length), are_pulsars=self.are_pulsars
        )
        end = position + FRAME_HEADER_BYTES + length
        if verdict is not EntryVerdict.SOUND:
            ids = {entry_id} if expected is None else {entry_id, expected}
            if not any(self._follows(end, each) for each in ids):
                return None
            if (
                verdict is not EntryVerdict.PLAIN
                and entry_id != expected
                and not self._is_followed(end, entry_id)
            ):
                return None
        return FoundFrame(offset=position, entry_id=entry_id, length=length, verdict=verdict, is_linked=True)

    def _follows(self, position: int, entry_id: int) -> bool:
        """Return whether this entry can end at a place: the next one is there, or a block's end."""
        return self._end_at(position) is not None or self._is_followed(position, entry_id)

    def _is_followed(self, position: int, entry_id: int) -> bool:
        """Return whether the next entry is at a place; one of its fields may be damaged, if the one after is right."""
        data = self._data.read(position, FRAME_HEADER_BYTES)
        if len(data) < FRAME_HEADER_BYTES:
            return False
        length, found = _FRAME.unpack(data)
        if found == entry_id + 1 or (self._gaps and entry_id < found < _FAR):
            return True
        if not 0 <= length <= self._data.size - position - FRAME_HEADER_BYTES:
            return False
        after = self._data.read(position + FRAME_HEADER_BYTES + length, FRAME_HEADER_BYTES)
        return len(after) == FRAME_HEADER_BYTES and _FRAME.unpack(after)[1] == entry_id + 2

    def _following(self, frame: FoundFrame, expected: int) -> int:
        """The id that comes next: by the frame itself, unless only what was expected fits."""
        head = self._head(frame.end)
        if frame.entry_id == expected or (head is not None and head[1] == frame.entry_id + 1):
            return frame.entry_id + 1
        return expected + 1

    def _of_wrong_length(
        self, position: int, expected: int, following: int, is_block: bool
    ) -> FoundFrame | None:
        """The frame at a place whose length is wrong, up to the next frame; its checksum must match."""
        data = self._data.read(position, FRAME_HEADER_BYTES)
        if len(data) < FRAME_HEADER_BYTES or _FRAME.unpack(data)[1] != expected:
            return None
        begin = position + FRAME_HEADER_BYTES
        for end in self._ends_before(begin, following) if is_block else (following,):
            if not 0 <= end - begin <= MOST_ENTRY_BYTES:
                continue
            payload = self._data.read(begin, end - begin)
            if judge_entry(payload, are_pulsars=self.are_pulsars) is EntryVerdict.SOUND:
                return FoundFrame(
                    offset=position,
                    entry_id=expected,
                    length=end - begin,
                    verdict=EntryVerdict.SOUND,
                    is_linked=True,
                    is_exact=False,
                )
        return None

    def _ends_before(self, begin: int, stop: int) -> Iterator[int]:
        """Yield the places where an entry may end: at `stop`, or where padding up to `stop` begins."""
        tail = self._data.read(max(begin, stop - _SEARCHED_AT_ONCE), min(stop - begin, _SEARCHED_AT_ONCE))
        yield stop
        for rest in range(4):
            at = len(tail) - rest
            if tail[at:] != PADDING[:rest]:
                continue
            while at >= 4 and tail[at - 4 : at] == PADDING:
                at -= 4
            for end in range(at, min(len(tail), at + 4 * _PADDED_ENDS), 4):
                yield stop - len(tail) + end

    def _end_at(self, position: int, *, is_first: bool = False) -> int | None:
        """Return the begin of the next block, if entries may end here: padding, a header, the object's end."""
        if position >= self._data.size:
            return position if position == self._data.size else None
        if not is_first and self._header_at(position) is not None:
            return position
        begin = self._data.read(position, 4)
        if begin == PADDING:
            return self._padding_end(position)
        for length in range(1, 4):
            rest = begin[:length]
            if rest == PADDING[: len(rest)] and (
                position + length == self._data.size or self._header_at(position + length) is not None
            ):
                return position + length
        return None

    def _padding_end(self, position: int) -> int:
        while position < self._data.size:
            found = np.frombuffer(self._data.read(position, _SEARCHED_AT_ONCE), dtype=np.uint8)
            pattern = np.resize(np.frombuffer(PADDING, dtype=np.uint8), len(found))
            wrong = np.flatnonzero(found != pattern)
            if len(wrong):
                return position + int(wrong[0])
            position += len(found)
        return position

    # --- searching for the next frame or block -------------------------------------------------

    def _known_end(self, block: BlockFrames) -> int | None:
        """Return the end of a block if more than its header shows it: no block begins before that."""
        if block.header is None:
            return None
        end = block.offset + block.header.block_length
        is_known = end == self._data.size or end in self._starts or self._header_at(end) is not None
        return end if is_known else None

    def _search(
        self, position: int, lowest: int, highest: int, *, bound: bool, end: int | None = None
    ) -> tuple[int, bool] | None:
        """The next place after `position` of a frame or a block, and whether it is a block; None if there is none.

        With `bound` ids are not further from `highest` than entries have room between: each has a frame's head at
        least. Before `end` there are only frames; at `end` there is a block or nothing.
        """
        origin, begin = position, position + 1
        while begin < self._data.size:
            window = self._data.read(begin, _SEARCHED_AT_ONCE + BLOCK_HEADER_BYTES)
            found = frames_in(
                window, lowest, highest, bound, begin - origin, may_be_empty=not self.are_pulsars
            )
            places = dict.fromkeys((begin + at for at in found), False)
            at = window.find(self._magic)
            while at >= 0:
                places[begin + at] = True
                at = window.find(self._magic, at + 1)
            for place in sorted(places):
                if end is not None and place >= end:
                    return end, True
                if end is not None and places[place]:
                    continue
                if place >= begin + _SEARCHED_AT_ONCE:
                    break
                if self._is_block(place) if places[place] else self._is_certain(place):
                    return place, places[place]
            begin += _SEARCHED_AT_ONCE
        return None if end is None or end > self._data.size else (end, True)

    def _is_block(self, position: int) -> bool:
        header = self._header_at(position)
        if header is None:
            return False
        rest = self._data.read(position, BLOCK_HEADER_BYTES)[_HEADER_REST[self._format] :]
        if any(rest) and position not in self._starts:
            return False
        first = position + BLOCK_HEADER_BYTES
        return (
            self._end_at(first, is_first=True) is not None
            or self._is_certain(first)
            or (position in self._starts)
        )

    def _is_certain(self, position: int) -> bool:
        """Return whether there is a frame at a searched place: by its checksum, or by two that follow it."""
        frame = self._frame(position, None)
        if frame is None or frame.verdict in (EntryVerdict.BAD, EntryVerdict.UNSURE):
            return False
        if frame.verdict is EntryVerdict.SOUND:
            return True
        if self._end_at(frame.end) is not None:
            return self.are_pulsars
        following = self._frame(frame.end, frame.entry_id + 1)
        return following is not None and following.entry_id > frame.entry_id
