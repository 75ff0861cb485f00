"""The layout of a block of PIP-17 and streaming objects: header, entry frames, padding; all of it in plain Python.

The header has 128 bytes. Both formats: u32 magic, i64 header length, i64 block length, i64 first entry id; streaming
adds i64 ledger id. The rest is zero and ignored. A frame is `i32 length, i64 entry id, payload`; after the last one the
pattern `FE DC DE AD`, repeated from its own start, fills the block. Entries of a block have consecutive ids, of an
object with gaps ascending ones. `walk_frames` is the reference implementation of `kernels.frames`, and names faults.
Source: docs/formats/pip17.md and docs/formats/streaming.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    PaddingError,
    TruncatedError,
)


class Span(NamedTuple):
    """A span of bytes with a meaning: its begin, its length, its name, and its value as text."""

    offset: int
    length: int
    name: str
    value: str = ""
    is_wrong: bool = False

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.offset + self.length


class NamedFields:
    """Big-endian fields; `struct` packs and parses all of them.

    Args:
        fields: each name with its code in `struct`; a name that begins with `magic` is shown in hexadecimal.
    """

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.struct = struct.Struct(">" + "".join(code for _, code in fields))
        self._fields = fields

    def spans(self, data: bytes | memoryview, position: int, *, base: int = 0) -> Iterator[Span]:
        """The fields at `data[position:]`, as far as there are bytes; `base` is the place of `data` in its object."""
        for name, code in self._fields:
            size = struct.calcsize(f">{code}")
            if position + size > len(data):
                return
            (value,) = struct.unpack_from(f">{code}", data, position)
            yield Span(
                base + position, size, name, f"{value:08X}" if name.startswith("magic") else str(value)
            )
            position += size


BLOCK_HEADER_BYTES = 128
BLOCK_MAGIC = {ObjectFormat.PIP17: 0xFBDBABCB, ObjectFormat.STREAMING: 0x26A66D32}

HEADER_FIELDS = NamedFields(
    ("magic", "I"),
    ("header length", "q"),
    ("block length", "q"),
    ("first entry id", "q"),
    ("ledger id (streaming)", "q"),
)
_HEADER = HEADER_FIELDS.struct


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHeader:
    """A block's header. `block_length` counts header, entries and padding, in bytes.

    `ledger_id` is None in PIP-17 objects: there the object's key has it.
    """

    object_format: ObjectFormat
    block_length: int
    first_entry_id: int
    ledger_id: int | None


def pack_block_header(header: BlockHeader) -> bytes:
    """The header's 128 bytes."""
    head = _HEADER.pack(
        BLOCK_MAGIC[header.object_format],
        BLOCK_HEADER_BYTES,
        header.block_length,
        header.first_entry_id,
        header.ledger_id or 0,
    )
    return head.ljust(BLOCK_HEADER_BYTES, b"\0")


def parse_block_header(
    data: bytes | bytearray | memoryview, object_format: ObjectFormat, *, offset: int = 0
) -> BlockHeader:
    """The header at the start of `data`; `offset` is its place in the object, for errors.

    Raises:
        TruncatedError: fewer than 128 bytes.
        BadMagicError: not a block of this format.
        BadLengthError: a header length other than 128, a block shorter than its header, or a negative id.
    """
    for fault in find_header_faults(data, object_format, offset=offset):
        raise fault
    _, _, block_length, first_entry_id, ledger_id = _HEADER.unpack_from(data)
    return BlockHeader(
        object_format=object_format,
        block_length=block_length,
        first_entry_id=first_entry_id,
        ledger_id=ledger_id if object_format is ObjectFormat.STREAMING else None,
    )


def find_header_faults(
    data: bytes | bytearray | memoryview,
    object_format: ObjectFormat,
    *,
    offset: int,
    indexed: BlockHeader | None = None,
) -> Iterator[FormatError]:
    """Yield all that is wrong with the header at the start of `data`, also that it is not the one of its index.

    Without magic and header length it is no header at all, and nothing else is compared.

    Raises:
        TruncatedError: fewer than 128 bytes.
    """
    if len(data) < BLOCK_HEADER_BYTES:
        raise TruncatedError(
            "a block's header is cut off",
            offset=offset,
            expected=f"{BLOCK_HEADER_BYTES} bytes",
            found=len(data),
        )
    magic, header_length, block_length, first_entry_id, ledger_id = _HEADER.unpack_from(data)
    has_magic = magic == BLOCK_MAGIC[object_format]
    if not has_magic:
        yield BadMagicError(
            f"this is not a block of a {object_format.value} object",
            offset=offset,
            expected=f"{BLOCK_MAGIC[object_format]:08X}",
            found=f"{magic:08X}",
        )
    if header_length != BLOCK_HEADER_BYTES:
        yield BadLengthError(
            "a block declares a header of another length",
            offset=offset + 4,
            expected=BLOCK_HEADER_BYTES,
            found=header_length,
        )
        if not has_magic:
            return
    if block_length < BLOCK_HEADER_BYTES:
        yield BadLengthError(
            "a block declares to be shorter than its header",
            offset=offset + 12,
            expected=f"{BLOCK_HEADER_BYTES} or more",
            found=block_length,
        )
    elif indexed is not None and block_length != indexed.block_length:
        yield _mismatch("length", offset + 12, indexed.block_length, block_length)
    if first_entry_id < 0:
        yield BadLengthError(
            "a block's first entry id is negative",
            offset=offset + 20,
            expected="0 or more",
            found=first_entry_id,
        )
    elif indexed is not None and first_entry_id != indexed.first_entry_id:
        yield _mismatch("first entry", offset + 20, indexed.first_entry_id, first_entry_id)
    if indexed is not None and indexed.ledger_id not in (None, ledger_id):
        yield _mismatch("ledger", offset + 28, indexed.ledger_id, ledger_id)


def _mismatch(name: str, offset: int, expected: int | None, found: int) -> IndexMismatchError:
    return IndexMismatchError(
        f"a block's {name} is not what its index says",
        offset=offset,
        expected=f"{expected} by the index",
        found=f"{found} in the block",
    )


FRAME_HEADER_BYTES = 12
PADDING = bytes.fromhex("FEDCDEAD")

FRAME_FIELDS = NamedFields(("entry length", "i"), ("entry id", "q"))
_FRAME = FRAME_FIELDS.struct


class Frame(NamedTuple):
    """One entry in a block: its id, the byte offset of its payload in the block, the payload's length."""

    entry_id: int
    offset: int
    length: int


def padding(length: int) -> bytes:
    """`length` bytes of padding."""
    return (PADDING * (length // 4 + 1))[:length]


def walk_frames(
    block: bytes | memoryview,
    start: int,
    end: int,
    first_entry_id: int,
    *,
    block_offset: int = 0,
    gaps: bool = False,
) -> Iterator[Frame]:
    """The frames in `block[start:end]`, whose ids are consecutive from `first_entry_id`, with `gaps` only ascending.

    `block_offset` is the block's place in its object, for the errors' offsets.

    Raises:
        TruncatedError, BadLengthError, EntryOrderError, PaddingError: the first fault there is.
    """
    position, entry_id = start, first_entry_id
    while position < end:
        remaining = end - position
        here = block_offset + position
        head = bytes(block[position : position + min(remaining, FRAME_HEADER_BYTES)])
        if head[:4] == PADDING[:remaining]:
            _check_padding(bytes(block[position:end]), entry_id, here)
            return
        if remaining < FRAME_HEADER_BYTES:
            raise TruncatedError(
                "an entry's frame is cut off by the block's end",
                entry_id=entry_id,
                offset=here,
                expected=f"{FRAME_HEADER_BYTES} bytes of frame, or padding",
                found=f"{remaining} bytes: {head.hex()}",
            )
        length, found_id = _FRAME.unpack(head)
        if length < 0:
            raise BadLengthError(
                "an entry's length is negative",
                entry_id=entry_id,
                offset=here,
                expected="0 or more",
                found=length,
            )
        if length > remaining - FRAME_HEADER_BYTES:
            raise BadLengthError(
                "an entry's length reaches past its block",
                entry_id=entry_id,
                offset=here,
                expected=f"at most {remaining - FRAME_HEADER_BYTES}",
                found=length,
            )
        if found_id != entry_id and (not gaps or found_id < entry_id):
            raise EntryOrderError(
                "an entry is not the one that must come next",
                entry_id=entry_id,
                offset=here + 4,
                expected=f"entry id {entry_id}" + (" or greater" if gaps else ""),
                found=f"entry id {found_id}",
            )
        yield Frame(found_id, position + FRAME_HEADER_BYTES, length)
        position += FRAME_HEADER_BYTES + length
        entry_id = found_id + 1


def _check_padding(tail: bytes, entry_id: int, offset: int) -> None:
    right = padding(len(tail))
    if tail != right:
        wrong = next(i for i in range(len(tail)) if tail[i] != right[i])
        raise PaddingError(
            "the padding after a block's last entry is broken",
            entry_id=entry_id,
            offset=offset + wrong,
            expected=f"{right[wrong]:02x}",
            found=f"{tail[wrong]:02x}",
        )


def pack_frames(payloads: Sequence[bytes], first_entry_id: int) -> bytes:
    """Frames of `payloads`, with ids from `first_entry_id` on."""
    return b"".join(
        _FRAME.pack(len(payload), first_entry_id + i) + payload for i, payload in enumerate(payloads)
    )
