"""A data object from its blocks: several on their way at once, within a memory budget, committed or dropped whole.

Blocks are pulled from an iterator, so they are built while others are on their way. A block is asked for only when
the budget has room for the largest that may come; it is given back when the store has the block.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from offload_core.storage.tier.memory_budget import MemoryBudget
from offload_core.storage.tier.tier import BYTES, NO_METADATA, Tier
from offload_hooks import BlockReceipt, Capabilities, ObjectStat, ReadableBuffer, Upload
from offload_hooks.errors import OffloadError, OptionError

DEFAULT_PARTS_IN_FLIGHT = 8

_log = logging.getLogger(__name__)


def check_blocks(limits: Capabilities, block_bytes: int, total_bytes: int | None = None) -> None:
    """Refuse blocks that a store cannot take, before anything is sent (`OptionError`).

    Args:
        limits: of the driver.
        block_bytes: the size of all blocks but the last, which is not larger.
        total_bytes: the object's size, if it is known.
    """
    alone = total_bytes is not None and total_bytes <= block_bytes
    if block_bytes < 1:
        raise OptionError("a block is at least one byte", found=block_bytes)
    if block_bytes < limits.min_block_bytes and not alone:
        raise OptionError(
            "the blocks are smaller than this store takes",
            expected=f"{limits.min_block_bytes:,} bytes or more",
            found=f"{block_bytes:,} bytes",
        )
    if block_bytes > limits.max_block_bytes:
        raise OptionError(
            "the blocks are larger than this store takes",
            expected=f"{limits.max_block_bytes:,} bytes or less",
            found=f"{block_bytes:,} bytes",
        )
    if total_bytes is not None and -(-total_bytes // block_bytes) > limits.max_blocks:
        least = -(-total_bytes // limits.max_blocks)
        raise OptionError(
            f"an object of {total_bytes:,} bytes has more blocks of {block_bytes:,} bytes than this store takes",
            expected=f"{limits.max_blocks:,} blocks or less",
            found=f"{-(-total_bytes // block_bytes):,}",
            hint=f"Use blocks of {least:,} bytes or more.",
        )


def upload_blocks(
    tier: Tier,
    key: str,
    blocks: Iterable[ReadableBuffer],
    *,
    block_bytes: int,
    total_bytes: int | None = None,
    content_type: str = BYTES,
    user_metadata: Mapping[str, str] = NO_METADATA,
    create_only: bool = False,
    budget: MemoryBudget | None = None,
    parts_in_flight: int = DEFAULT_PARTS_IN_FLIGHT,
) -> ObjectStat:
    """Store a data object, block by block in their order, and make it visible; what `stat` would answer.

    Args:
        tier: where the object goes.
        key: of the object.
        blocks: the blocks; one is pulled when there is room for it.
        block_bytes: the size of the largest block, which all but the last have, where the store has a least size.
        total_bytes: the object's size if it is known, so that a store's limits are checked before the first byte.
        content_type: as the store keeps it beside the object.
        user_metadata: the same.
        create_only: fail if there is an object of this key.
        budget: what blocks in flight may take, the one that is being built among them; shared by uploads if need be.
        parts_in_flight: the most blocks on their way at once; fewer where the budget has no room for them.

    After an error of the store or of `blocks` the upload is aborted, and nothing is visible.

    Raises:
        OptionError: the store's limits or the budget do not allow such blocks; nothing was sent.
        StoreError: see `TierHooks`.
    """
    budget = MemoryBudget() if budget is None else budget
    if parts_in_flight < 1:
        raise OptionError("at least one part is in flight", found=parts_in_flight)
    check_blocks(tier.describe().capabilities, block_bytes, total_bytes)
    budget.check(block_bytes, "one block")
    upload = tier.begin_data(key, content_type=content_type, user_metadata=user_metadata)
    try:
        receipts = _write_all(tier, upload, iter(blocks), block_bytes, budget, parts_in_flight)
        return tier.commit_data(upload, receipts, create_only=create_only)
    except BaseException:
        _abort(tier, upload)
        raise


def _write_all(
    tier: Tier,
    upload: Upload,
    blocks: Iterator[ReadableBuffer],
    block_bytes: int,
    budget: MemoryBudget,
    parts_in_flight: int,
) -> list[BlockReceipt]:
    receipts: list[BlockReceipt] = []
    under_way: deque[Future[BlockReceipt]] = deque()
    offset = 0
    threads = min(parts_in_flight, budget.limit_bytes // block_bytes)
    with ThreadPoolExecutor(threads, thread_name_prefix="offload-upload") as pool:
        try:
            while True:
                budget.take(block_bytes)
                # The room may have come from a block that failed: then nothing more is built.
                while under_way and (under_way[0].done() or len(under_way) >= threads):
                    receipts.append(_result(under_way.popleft(), budget, block_bytes))
                block = _next(blocks, budget, block_bytes)
                if block is None:
                    break
                size = memoryview(block).nbytes
                budget.give_back(block_bytes - size)
                under_way.append(
                    pool.submit(_write, tier, upload, len(receipts) + len(under_way) + 1, offset, block)
                )
                under_way[-1].add_done_callback(lambda _, size=size: budget.give_back(size))  # type: ignore[misc]
                del block
                offset += size
            receipts += [future.result() for future in under_way]
        finally:
            for future in under_way:
                future.cancel()
    return receipts


def _write(tier: Tier, upload: Upload, part_number: int, offset: int, block: ReadableBuffer) -> BlockReceipt:
    return tier.write_block(upload, part_number, offset, block)


def _result(future: Future[BlockReceipt], budget: MemoryBudget, reserved: int) -> BlockReceipt:
    try:
        return future.result()
    except BaseException:
        budget.give_back(reserved)
        raise


def _next(blocks: Iterator[ReadableBuffer], budget: MemoryBudget, reserved: int) -> ReadableBuffer | None:
    """The next block; None, with the reserved bytes given back, if there is none or it cannot be made."""
    block: ReadableBuffer | None = None
    try:
        block = next(blocks, None)
        if block is not None and memoryview(block).nbytes > reserved:
            size = memoryview(block).nbytes
            block = None
            raise OptionError(
                "a block is larger than was announced",
                expected=f"{reserved:,} bytes or less",
                found=f"{size:,}",
            )
        return block
    finally:
        if block is None:
            budget.give_back(reserved)


def _abort(tier: Tier, upload: Upload) -> None:
    try:
        tier.abort_data(upload)
    except OffloadError as error:
        _log.warning("the upload %s of %s could not be dropped: %s", upload.upload_id, upload.key, error)
