"""The 128 bytes before a block's entries, of PIP-17 and of streaming objects.

Both: u32 magic, i64 header length, i64 block length, i64 first entry id; streaming adds i64 ledger id. The rest is
zero and not looked at. Source: docs/formats/pip17.md and docs/formats/streaming.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.format.codec.named_fields import NamedFields
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import BadLengthError, BadMagicError, TruncatedError

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
    """What a block says of itself. `block_length` counts header, entries and padding, in bytes.

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


def unpack_block_header(
    data: bytes | bytearray | memoryview, *, offset: int = 0
) -> tuple[int, int, int, int, int]:
    """The header's fields, unchecked: magic, header length, block length, first entry id, ledger id (streaming only).

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
    return magic, header_length, block_length, first_entry_id, ledger_id


def parse_block_header(
    data: bytes | bytearray | memoryview, object_format: ObjectFormat, *, offset: int = 0
) -> BlockHeader:
    """The header at the start of `data`; `offset` is its place in the object, for errors.

    Raises:
        TruncatedError: fewer than 128 bytes.
        BadMagicError: not a block of this format.
        BadLengthError: a header length other than 128, a block shorter than its header, or a negative id.
    """
    magic, header_length, block_length, first_entry_id, ledger_id = unpack_block_header(data, offset=offset)
    if magic != BLOCK_MAGIC[object_format]:
        raise BadMagicError(
            f"this is not a block of a {object_format.value} object",
            offset=offset,
            expected=f"{BLOCK_MAGIC[object_format]:08X}",
            found=f"{magic:08X}",
        )
    if header_length != BLOCK_HEADER_BYTES:
        raise BadLengthError(
            "a block declares a header of another length",
            offset=offset + 4,
            expected=BLOCK_HEADER_BYTES,
            found=header_length,
        )
    if block_length < BLOCK_HEADER_BYTES:
        raise BadLengthError(
            "a block declares to be shorter than its header",
            offset=offset + 12,
            expected=f"{BLOCK_HEADER_BYTES} or more",
            found=block_length,
        )
    if first_entry_id < 0:
        raise BadLengthError(
            "a block's first entry id is negative",
            offset=offset + 20,
            expected="0 or more",
            found=first_entry_id,
        )
    return BlockHeader(
        object_format=object_format,
        block_length=block_length,
        first_entry_id=first_entry_id,
        ledger_id=ledger_id if object_format is ObjectFormat.STREAMING else None,
    )
