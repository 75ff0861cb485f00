"""The 128 bytes before a block's entries, of PIP-17 and of streaming objects.

Both: u32 magic, i64 header length, i64 block length, i64 first entry id; streaming adds i64 ledger id. The rest is
zero and not looked at. Source: docs/formats/pip17.md and docs/formats/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offload_core.format.codec.named_fields import NamedFields
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    FormatError,
    IndexMismatchError,
    TruncatedError,
)

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
