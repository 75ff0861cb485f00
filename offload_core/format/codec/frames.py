"""Entry frames in a block, in plain Python: the oracle of `kernels.frames`, and the one that names faults.

A frame is `i32 length, i64 entry id, payload`; after the last one the pattern `FE DC DE AD`, repeated from its own
start, fills the block. Entries of a block have consecutive ids, of a filtered ledger ascending ones. Source:
docs/formats/pip17.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offload_core.format.codec.named_fields import NamedFields
from offload_hooks.errors import BadLengthError, EntryOrderError, PaddingError, TruncatedError

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
