"""The writer of one ledger file: callers that come at the same time share one write, and one fsync.

Calls that come during a write gather in a group; the first of them to get the turn writes for all. A write takes
these steps, under the file's lock:

    1. check the state's other slot              changed: another has fenced this writer, and nothing is written
    2. write frames after the last entry         no room: it is taken back, by cutting the file there
    3. fsync, if the policy is `always`          a failure is final: what is on the disk can't be known any more
    4. write the state into the other slot       from here on readers see the entries
    5. the calls return                          they are acknowledged

A kill between 2 and 4 leaves entries that were not acknowledged; recovery keeps those that are whole.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import xxhash

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.kernels.hot_frames import frame_entries
from offload_core.storage.hot.descriptors import DescriptorPool, OpenFile
from offload_core.storage.hot.file_calls import FULL, lock, sync_file, translate, unlock, write_all
from offload_core.storage.hot.ledger_frames import FRAME_HEAD_BYTES, MAX_ENTRY_BYTES, frame_head, ledger_seed
from offload_core.storage.hot.ledger_layout import (
    SLOT_OFFSETS,
    STATE_BYTES,
    Footer,
    Header,
    Mark,
    State,
    pack_footer,
    pack_state,
)
from offload_core.storage.hot.sparse_index import SparseIndex
from offload_core.storage.hot.walk import give_buffer, take_buffer
from offload_hooks.errors import (
    LedgerClosedError,
    LedgerFailedError,
    LedgerFencedError,
    OffloadError,
    OptionError,
    StoreError,
)
from offload_hooks.ledger_stores import LedgerStatus
from offload_hooks.values import ReadableBuffer

PIECE_BYTES = 4 << 20
"""Bytes that are framed at once, unless one entry has more."""

FrameBatch = tuple[memoryview, int, int]
"""Frames, the index of their first entry, and one past that of their last."""


def checked(payload: ReadableBuffer, ledger_id: int) -> bytes:
    """The payload as bytes; `OptionError` if it is too large or no bytes."""
    try:
        data = payload if type(payload) is bytes else bytes(memoryview(payload))
    except TypeError:
        raise OptionError("an entry is no bytes", ledger_id=ledger_id, found=type(payload).__name__) from None
    if len(data) > MAX_ENTRY_BYTES:
        raise OptionError(
            "an entry is too large",
            ledger_id=ledger_id,
            expected=f"at most {MAX_ENTRY_BYTES}",
            found=len(data),
        )
    return data


class PayloadFrames:
    """Entries of one call or several, ready to be framed.

    Attributes:
        offsets: where each begins in `values`, and the end of the last (int64).
    """

    def __init__(self, payloads: Sequence[ReadableBuffer], ledger_id: int) -> None:
        try:
            joined = b"".join(payloads)
        except TypeError:
            raise OptionError("an entry is no bytes", ledger_id=ledger_id) from None
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.offsets: npt.NDArray[np.int64] = np.zeros(len(payloads) + 1, np.int64)
        np.cumsum(lengths, out=self.offsets[1:])
        if self.offsets[-1] != len(joined):
            raise OptionError("an entry is no contiguous run of bytes", ledger_id=ledger_id)
        if len(lengths) and lengths.max() > MAX_ENTRY_BYTES:
            raise OptionError(
                "an entry is too large",
                ledger_id=ledger_id,
                expected=f"at most {MAX_ENTRY_BYTES}",
                found=int(lengths.max()),
            )
        self.values: Bytes = read_only(joined)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[memoryview]:
        data = self.values.data
        return (data[a:b] for a, b in pairwise(self.offsets.tolist()))

    def frame_offsets(self) -> npt.NDArray[np.int64]:
        """Offsets of the frames from the first one's, and the end of the last."""
        return self.offsets + FRAME_HEAD_BYTES * np.arange(len(self.offsets), dtype=np.int64)

    def batches(self, first_entry_id: int, seed: int) -> Iterator[FrameBatch]:
        """The frames in batches; use each before the next is asked for."""
        ends = self.frame_offsets()
        first = 0
        buffer = bytearray()
        try:
            while first < len(self):
                last = int(np.searchsorted(ends, ends[first] + PIECE_BYTES, side="right")) - 1
                last = max(last, first + 1)
                needed = int(ends[last] - ends[first])
                if len(buffer) < needed:
                    buffer = take_buffer(needed)
                frame_entries(
                    self.values,
                    self.offsets,
                    first,
                    last,
                    first_entry_id + first,
                    crc32c_address(),
                    np.uint32(seed),
                    np.frombuffer(buffer, np.uint8),
                )
                yield memoryview(buffer)[:needed], first, last
                first = last
        finally:
            give_buffer(buffer)


@dataclass(slots=True)
class _Group:
    """Entries that are written together; `first_entry_id` or `error` once that was tried."""

    parts: list[bytes | PayloadFrames] = field(default_factory=list)
    entry_count: int = 0
    first_entry_id: int | None = None
    error: OffloadError | None = None


class FileLedgerWriter:
    """Writes one ledger; see `LedgerWriter`. The store makes it, with the file.

    Args:
        state: what the file's state is.
        always: whether each write is made durable before it is acknowledged.
        on_dirty: called when something was acknowledged that is not durable, once until `sync`.
        on_end: called when nothing will be written any more.
    """

    def __init__(
        self,
        *,
        path: str,
        header: Header,
        state: State,
        files: DescriptorPool,
        always: bool,
        lock_timeout_s: float,
        on_dirty: Callable[[FileLedgerWriter], None] | None,
        on_end: Callable[[FileLedgerWriter], None],
    ) -> None:
        self._path = path
        self._header = header
        self._seed = ledger_seed(header.ledger_id)
        self._state = state
        self._slot = pack_state(state, self._seed)
        self._other_slot = bytes(STATE_BYTES)
        self._files = files
        self._always = always
        self._lock_timeout_s = lock_timeout_s
        self._on_dirty = on_dirty
        self._on_end = on_end
        self._process = os.getpid()
        self._gathering = _Group()
        self._gate = threading.Lock()  # held for a moment, to join a group
        self._turn = threading.Lock()  # held while a group is written
        self._digest = xxhash.xxh3_128()
        self._durable = state.durable
        self._dirty = False
        self._ended: OffloadError | None = None
        self.index = SparseIndex()

    @property
    def ledger_id(self) -> int:
        """See `LedgerWriter`."""
        return self._header.ledger_id

    @property
    def status(self) -> LedgerStatus:
        """See `LedgerWriter`."""
        state = self._state
        return LedgerStatus(
            ledger_id=self.ledger_id,
            entry_count=state.acknowledged.entry_count,
            size_bytes=state.acknowledged.size_bytes,
            sealed=state.sealed,
            created_at_ms=self._header.created_at_ms,
            custom_metadata=self._header.custom_metadata,
        )

    def append(self, payload: ReadableBuffer) -> int:
        """See `LedgerWriter`."""
        return self._commit(checked(payload, self.ledger_id), 1)

    def append_batch(self, payloads: Sequence[ReadableBuffer]) -> int:
        """See `LedgerWriter`."""
        if not len(payloads):
            raise OptionError("a batch has no entries", ledger_id=self.ledger_id)
        return self._commit(PayloadFrames(payloads, self.ledger_id), len(payloads))

    def sync(self) -> None:
        """See `LedgerWriter`. Others append meanwhile."""
        with self._turn:
            self._check_usable()
            self._dirty = False
            wanted = self._state.acknowledged
            file = self._acquire()
        try:
            if self._durable.offset < wanted.offset:
                self._sync_or_fail(file)
            with self._turn:
                self._check_usable()
                if self._durable.offset < wanted.offset:
                    self._durable = wanted
                if self._durable == self._state.acknowledged:
                    file.unsynced = None
                self._lock(file)
                try:
                    if self._durable != self._state.durable:
                        self._publish(file, self._state.acknowledged)
                finally:
                    unlock(file.descriptor)
        finally:
            self._files.release(file)

    def close(self) -> LedgerStatus:
        """See `LedgerWriter`."""
        with self._turn:
            if not self._state.sealed:
                self._check_usable()
                with self._locked_file() as file:
                    self._seal(file)
                self._end(LedgerClosedError("the ledger was closed", ledger_id=self.ledger_id))
        return self.status

    def stop(self) -> None:
        """Make all durable and write no more, without sealing the ledger: its store is closed."""
        if self._ended is None:
            try:
                self.sync()
            except LedgerFencedError:
                pass  # its current holder has made it durable
            finally:
                with self._turn:
                    if self._ended is None:
                        self._end(
                            LedgerClosedError("the ledger's store was closed", ledger_id=self.ledger_id)
                        )

    # --- groups ----------------------------------------------------------------------------------

    def _commit(self, part: bytes | PayloadFrames, entry_count: int) -> int:
        """Append by a group of one's own or of others; the id of the first entry."""
        with self._gate:
            group = self._gathering
            place = group.entry_count
            group.parts.append(part)
            group.entry_count += entry_count
        with self._turn:
            if group.first_entry_id is None and group.error is None:
                with self._gate:
                    self._gathering = _Group()
                self._try_to_write(group)
        if group.first_entry_id is None:
            assert group.error is not None
            raise copy.copy(group.error) from group.error
        return group.first_entry_id + place

    def _try_to_write(self, group: _Group) -> None:
        try:
            self._check_usable()
            with self._locked_file() as file:
                group.first_entry_id = self._write(file, group.parts)
        except OffloadError as error:
            group.error = error
        except BaseException as error:
            group.error = self._fail("an append was interrupted", error)
            raise

    def _write(self, file: OpenFile, parts: list[bytes | PayloadFrames]) -> int:
        """Steps 2 to 4; the id of the first entry."""
        first, begin = self._state.acknowledged
        try:
            if len(parts) == 1 and isinstance(parts[0], bytes):
                count, length = 1, self._write_one(file, parts[0], first, begin)
            else:
                payloads = parts[0] if len(parts) == 1 else _together(parts, self.ledger_id)
                assert isinstance(payloads, PayloadFrames)
                count, length = len(payloads), self._write_many(file, payloads, first, begin)
        except OSError as error:
            raise self._taken_back(file, error) from error
        end = Mark(first + count, begin + length)
        if self._always:
            self._sync_or_fail(file)
            self._durable = end
        elif file.unsynced is None:
            file.unsynced = self._sync_before_leaving
        self._publish(file, end)
        if self._on_dirty is not None and not self._dirty:
            self._dirty = True
            self._on_dirty(self)
        return first

    def _write_one(self, file: OpenFile, payload: bytes, entry_id: int, offset: int) -> int:
        head = frame_head(self._seed, entry_id, payload)
        length = FRAME_HEAD_BYTES + len(payload)
        written = os.pwritev(file.descriptor, (head, payload), offset)
        if written < length:
            write_all(file.descriptor, (head + payload)[written:], offset + written)
        self._digest.update(head)
        self._digest.update(payload)
        self.index.add(entry_id, offset)
        return length

    def _write_many(self, file: OpenFile, payloads: PayloadFrames, first_entry_id: int, offset: int) -> int:
        digest = self._digest.copy()
        offsets = payloads.frame_offsets()
        for frames, first, _ in payloads.batches(first_entry_id, self._seed):
            write_all(file.descriptor, frames, offset + int(offsets[first]))
            digest.update(frames)
        self._digest = digest
        while (place := int(np.searchsorted(offsets, self.index.next_offset - offset))) < len(payloads):
            self.index.add(first_entry_id + place, offset + int(offsets[place]))
        return int(offsets[-1])

    # --- the file --------------------------------------------------------------------------------

    def _acquire(self) -> OpenFile:
        try:
            return self._files.acquire(self._path, writable=True)
        except LedgerClosedError as error:
            raise error.at(ledger_id=self.ledger_id) from None
        except FileNotFoundError as error:
            raise self._end(_fenced(self.ledger_id)) from error
        except OSError as error:
            raise translate(error, "open a ledger", self._path, self.ledger_id) from error

    @contextmanager
    def _locked_file(self) -> Iterator[OpenFile]:
        file = self._acquire()
        try:
            self._lock(file)
            try:
                yield file
            finally:
                unlock(file.descriptor)
        finally:
            self._files.release(file)

    def _lock(self, file: OpenFile) -> None:
        """Step 1, holding the lock from then on; `LedgerFencedError` if another has taken the ledger."""
        lock(file.descriptor, self._lock_timeout_s, self._path, self.ledger_id)
        assert file.pages is not None
        place = SLOT_OFFSETS[(self._state.sequence + 1) % 2]
        if file.pages[place : place + STATE_BYTES] != self._other_slot:
            unlock(file.descriptor)
            raise self._end(_fenced(self.ledger_id))

    def _publish(self, file: OpenFile, acknowledged: Mark, sealed: bool = False) -> None:
        """Step 4."""
        last = self._state
        state = State(last.sequence + 1, last.epoch, sealed, acknowledged, self._durable, last.boot)
        slot = pack_state(state, self._seed)
        place = SLOT_OFFSETS[state.sequence % 2]
        assert file.pages is not None
        file.pages[place : place + STATE_BYTES] = slot
        self._other_slot, self._slot, self._state = self._slot, slot, state

    def _seal(self, file: OpenFile) -> None:
        end = self._state.acknowledged
        footer = pack_footer(
            Footer(
                ledger_id=self.ledger_id,
                end=end,
                sealed_at_ms=time.time_ns() // 1_000_000,
                digest=self._digest.digest(),
                points=self.index.points(end.offset),
            )
        )
        try:
            write_all(file.descriptor, footer, end.offset)
            os.ftruncate(file.descriptor, end.offset + len(footer))
        except OSError as error:
            raise self._taken_back(file, error) from error
        self._sync_or_fail(file)
        self._durable = end
        file.unsynced = None
        for _ in SLOT_OFFSETS:  # both, so that damage to one can't bring back what was before
            self._publish(file, end, sealed=True)
            self._sync_or_fail(file)

    def _taken_back(self, file: OpenFile, error: OSError) -> OffloadError:
        """Cut off a partial write, if there was no room; return the error to raise."""
        if error.errno not in FULL:
            return self._fail("a write failed", error)
        try:
            os.ftruncate(file.descriptor, self._state.acknowledged.offset)
        except OSError as worse:
            return self._fail("a write that failed could not be taken back", worse)
        return translate(error, "append", self._path, self.ledger_id)

    def _sync_or_fail(self, file: OpenFile) -> None:
        try:
            sync_file(file.descriptor)
        except OSError as error:
            raise self._fail("an fsync failed", error) from error

    def _sync_before_leaving(self, file: OpenFile) -> None:
        """The descriptor is about to be closed; no thread writes by it meanwhile."""
        try:
            sync_file(file.descriptor)
            self._durable = self._state.acknowledged
        except OSError as error:
            self._fail("an fsync failed", error)

    # --- the end ---------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._ended is not None:
            raise copy.copy(self._ended)
        if os.getpid() != self._process:
            raise StoreError(
                "a ledger's writer is used in a forked child",
                ledger_id=self.ledger_id,
                hint="Make a store of its own there.",
            )

    def _fail(self, what: str, error: BaseException) -> OffloadError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return self._end(
            LedgerFailedError(
                f"{what}: {reason}",
                key=self._path,
                ledger_id=self.ledger_id,
                hint="Recover the ledger, which tells what of it is there, and go on in a new one.",
            )
        )

    def _end(self, error: OffloadError) -> OffloadError:
        """End the writer: further calls raise this."""
        if self._ended is None:
            self._ended = error
            self._on_end(self)
        return error


def _together(parts: list[bytes | PayloadFrames], ledger_id: int) -> PayloadFrames:
    flat: list[ReadableBuffer] = []
    for part in parts:
        if isinstance(part, bytes):
            flat.append(part)
        else:
            flat.extend(part)
    return PayloadFrames(flat, ledger_id)


def _fenced(ledger_id: int) -> LedgerFencedError:
    return LedgerFencedError(
        "another has recovered or deleted the ledger", ledger_id=ledger_id, hint="Go on in a new ledger."
    )
