"""A segment's object and index on their way, while the segment is still open: its blocks in, an outcome out.

A caller that hands over a block never waits. The store is called by threads of a shared pool, a few for each segment at
once, and by none while nothing is to be done. After an error all that the attempt left in the store is deleted, if the
store still answers, and the memory of all blocks is given back, before the outcome is set.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import FilterRecord
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload.attempt_objects import WrittenChecksums, delete_attempt
from offload_core.writing.offload.streaming_blocks import BuiltBlock
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import OffloadError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadedSegment:
    """A segment's copy in the tier, which is there durably.

    Attributes:
        begin, end: its first and its last entry.
        end_entry_ids: of each ledger in it, the last entry; in the ledgers' order.
        entries: how many it has; ids that a filter left out are not counted.
        payload_bytes: their bytes.
        data_bytes: the data object's length.
        blocks: the data object's blocks.
        filter_records: of each ledger, what a filter did to its entries; empty if none ran.
    """

    uuid: UUID
    begin: EntryPosition
    end: EntryPosition
    end_entry_ids: Mapping[int, int]
    entries: int
    payload_bytes: int
    data_bytes: int
    blocks: int
    filter_records: Mapping[int, FilterRecord] = field(default_factory=dict)


class SegmentOutcome(Future[OffloadedSegment]):
    """The outcome of a segment: `result()` waits in a thread, `await` in a coroutine. Both raise what went wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # one that stops waiting does not end the segment for others

    def __await__(self) -> Generator[Any, None, OffloadedSegment]:
        return asyncio.wrap_future(self).__await__()


class SegmentUpload:
    """The upload of one segment; its methods may be called by any thread.

    Args:
        key: the data object's.
        about: user metadata of an object, by its role, `data`, `index` or `checksums`.
        executor: calls the store; shared by many segments.
        budget: what the blocks' memory was taken from.
        parts_in_flight: the most blocks on their way at once; one if the driver wants them in order.
        checksums: write those of all blocks and the index beside them.

    `outcome` is its end, `failure` why it is about to fail; `on_failure` is called then, before the outcome is set.
    """

    def __init__(
        self,
        tier: Tier,
        key: ObjectKey,
        about: Callable[[str], Mapping[str, str]],
        executor: Executor,
        budget: MemoryBudget,
        *,
        parts_in_flight: int,
        checksums: bool = False,
    ) -> None:
        self.key = key
        self.outcome = SegmentOutcome()
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._tier = tier
        self._about = about
        self._executor = executor
        self._budget = budget
        self._most = 1 if tier.describe().capabilities.ordered_parts else parts_in_flight
        self._written = WrittenChecksums() if checksums else None
        self._lock = threading.Lock()
        self._queue: deque[BuiltBlock] = deque()
        self._in_flight = 0
        self._upload: Upload | None = None
        self._receipts: list[BlockReceipt] = []
        self._to_finish: tuple[bytes, OffloadedSegment] | None = None
        self._begun = False
        self._ending = False
        self._settled = False

    def send(self, block: BuiltBlock) -> None:
        """Take the next block; the blocks come in order."""
        with self._lock:
            self._queue.append(block)
            self._go_on()

    def finish(self, index: bytes, segment: OffloadedSegment) -> None:
        """End the blocks; the index object and the outcome follow when all is stored."""
        with self._lock:
            self._to_finish = index, segment
            self._go_on()

    def fail(self, error: BaseException) -> None:
        """End with this error, unless it ended already; the first error counts."""
        with self._lock:
            if self.failure is None and not self._settled:
                self.failure = error
            self._go_on()

    # --- under the lock ------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start what can be started now."""
        if self.failure is not None:
            while self._queue:
                self._budget.give_back(self._queue.popleft().taken_bytes)
            self._end_with(self._clean)
        elif self._upload is None:
            if self._queue and not self._begun:
                self._begun = True
                self._in_flight = 1
                self._executor.submit(self._begin)
        else:
            while self._queue and self._in_flight < self._most:
                self._in_flight += 1
                self._executor.submit(self._write, self._upload, self._queue.popleft())
            if self._to_finish is not None:
                self._end_with(self._complete, self._upload, *self._to_finish)

    def _end_with(self, step: Callable[..., None], *given: Any) -> None:
        """Start the last step, once, when no other is under way."""
        if not self._in_flight and not self._ending:
            self._ending = True
            self._executor.submit(step, *given)

    # --- in the pool ---------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            begun = self._tier.begin_data(self.key.data_key, user_metadata=self._about("data"))
        except BaseException as error:
            self._step_is_over(error)
        else:
            self._upload = begun
            self._step_is_over()

    def _write(self, upload: Upload, block: BuiltBlock) -> None:
        failure: BaseException | None = None
        try:
            if self._written is not None:
                self._written.take(block.part_number, block.data)
            self._receipts.append(self._tier.write_block(upload, block.part_number, block.offset, block.data))
        except BaseException as error:
            failure = error
        block.data = memoryview(b"")
        self._budget.give_back(block.taken_bytes)
        self._step_is_over(failure)

    def _step_is_over(self, error: BaseException | None = None) -> None:
        with self._lock:
            self.failure = self.failure or error
            self._in_flight -= 1
            self._go_on()

    def _complete(self, upload: Upload, index: bytes, segment: OffloadedSegment) -> None:
        try:
            self._tier.commit_data(upload, self._receipts)
            if self.failure is None and self._written is not None:
                self._written.write(self._tier, self.key, index, self._about("checksums"))
            if self.failure is None:
                self._tier.write_index(self.key.index_key, index, user_metadata=self._about("index"))
        except BaseException as error:
            self.fail(error)
        with self._lock:
            self._settled = self.failure is None
        if self._settled:
            self.outcome.set_result(segment)
        else:
            self._clean()

    def _clean(self) -> None:
        """Release and delete all of the attempt, then set the outcome."""
        assert self.failure is not None
        self.on_failure()
        try:
            if self._begun:
                self._delete()
        finally:
            self.outcome.set_exception(self.failure)

    def _delete(self) -> None:
        try:
            if self._upload is not None:
                self._tier.abort_data(self._upload)
            delete_attempt(self._tier, self.key)
        except OffloadError as error:
            _log.warning("the attempt %s could not be deleted: %s", self.key.uuid, error)
