"""Arguments that every driver checks alike: blocks, receipts and ranges, before anything is asked of a store."""

from __future__ import annotations

from collections.abc import Sequence

from offload_hooks import BlockReceipt, ByteRange, Capabilities, ReadableBuffer, Upload
from offload_hooks.errors import RangeError, UploadError


def checked_block(
    upload: Upload, part_number: int, offset: int, data: ReadableBuffer, limits: Capabilities
) -> memoryview:
    """A block's bytes, once part, offset and size are such as the store can take; else `UploadError`."""
    view = memoryview(data).cast("B")
    fault = None
    if part_number < 1 or offset < 0 or not view.nbytes:
        fault = "a block is at least one byte, of a part from 1, at an offset from 0"
    elif part_number > limits.max_blocks:
        fault = f"the store takes no more than {limits.max_blocks:,} blocks of one object"
    elif view.nbytes > limits.max_block_bytes:
        fault = f"the store takes no block of more than {limits.max_block_bytes:,} bytes"
    if fault:
        raise UploadError(
            fault, key=upload.key, block=part_number, offset=offset, found=f"{view.nbytes:,} bytes"
        )
    return view


def object_size(upload: Upload, receipts: Sequence[BlockReceipt], limits: Capabilities) -> int:
    """The size of the object that these receipts, of parts from 1 without gap, cover; else `UploadError`."""
    end, last_part = 0, 0
    for receipt in receipts:
        if receipt.part_number != last_part + 1 or receipt.offset != end or receipt.length < 1:
            raise UploadError(
                "the blocks are out of order, overlap or leave a hole",
                key=upload.key,
                block=receipt.part_number,
                expected=f"part {last_part + 1} at byte {end}",
                found=f"part {receipt.part_number}, {receipt.length} bytes at byte {receipt.offset}",
            )
        end, last_part = end + receipt.length, receipt.part_number
    if not receipts:
        raise UploadError("an object needs at least one block", key=upload.key)
    for receipt in receipts[:-1]:
        if receipt.length < limits.min_block_bytes:
            raise UploadError(
                "the store takes no block this small but the last one of an object",
                key=upload.key,
                block=receipt.part_number,
                expected=f"{limits.min_block_bytes:,} bytes or more",
                found=f"{receipt.length:,} bytes",
            )
    return end


def check_range(wanted: ByteRange) -> None:
    """Refuse a range that no object has: negative or empty (`RangeError`)."""
    if wanted.offset < 0 or wanted.length < 1:
        raise bad_range(wanted)


def bad_range(wanted: ByteRange, size_bytes: int | None = None) -> RangeError:
    """The error for a range that the object does not have; `size_bytes` is the object's size, if it is known."""
    end = "its end" if size_bytes is None else f"byte {size_bytes}, where it ends"
    return RangeError(
        "the object does not have this range",
        key=wanted.key,
        offset=wanted.offset,
        expected=f"1 or more bytes from byte 0 to {end}",
        found=f"{wanted.length} bytes from byte {wanted.offset}",
    )
