"""Blocks of PIP-17 and streaming objects in bulk: a cursor over the entries of one, and the writer of one.

The cursor checks that a block is the one its index describes, before it gives an entry; and at the end, that it ends
with the entry that the index names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BlockHeader,
    find_header_faults,
    pack_block_header,
    walk_frames,
)
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import frames as kernels
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import EntryOrderError, FormatError, OptionError, TruncatedError, placed

NO_STOP = 2**63 - 1
"""A stop that no walk comes to: an entry before it would have an id after which there is no position."""

TOGETHER_BYTES = 1 << 20
"""Bytes of a window copied after an entry that begins in the one before it: a full batch, to avoid small ones."""


class Fault(enum.Enum):
    """A kind of damage that a cursor finds."""

    HEADER = "header"
    """A block's header; `offset` of the error is that of the field."""
    ENTRY = "entry"
    """An entry's frame or id, or padding; of a MapFile, any of its records."""
    END = "end"
    """A block does not end with the entry that its index names."""


OnFault = Callable[[Fault, FormatError], None]
"""Takes a report of damage. The block is left after it, but a wrong header is passed over."""


class BlockCursor:
    """Walks the entries of one block once, in order, by the compiled kernels; over the whole block or window by window.

    Args:
        data: the whole block, `indexed.length` bytes, or with `more` its beginning (at least the header).
        indexed: the block as its object's index describes it.
        ledger_id: the ledger whose entries it must hold.
        stop_entry_id: do not go on to this entry (half-open); None walks to the block's end and checks it.
        gaps: any entries may have been left out on purpose, so that ids only ascend.
        more: `feed` will bring further bytes.
        on_fault: called at damage; without it, damage is raised.

    `next_entry_id` is the least id that can come next, `payload_bytes` how many bytes the walk has passed, `done`
    whether it is over, `starved` whether what comes next lies after the window. `array` is the window (uint8),
    `offset` its place in the object.

    Raises:
        FormatError: a subclass, with ledger, block and byte; the caller adds the object's key.
    """

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        object_format: ObjectFormat,
        ledger_id: int,
        indexed: IndexedBlock,
        *,
        stop_entry_id: int | None = None,
        gaps: bool = False,
        more: bool = False,
        on_fault: OnFault | None = None,
    ) -> None:
        self._indexed = indexed
        self._ledger_id = ledger_id
        self._stop = NO_STOP if stop_entry_id is None else stop_entry_id
        self._gaps = gaps
        self.array = read_only(data)
        self.offset = indexed.offset
        self._position = BLOCK_HEADER_BYTES
        self.next_entry_id = indexed.first_entry_id
        self.payload_bytes = 0
        self.done = False
        self.starved = False
        self._cut_off = False
        self._ahead: tuple[Bytes, int, int] | None = None
        self._on_fault = on_fault
        with placed(**self._place):
            if len(self.array) > indexed.length or (len(self.array) < indexed.length and not more):
                raise TruncatedError(
                    "a block is cut off", expected=f"{indexed.length} bytes", found=len(self.array)
                )
            for fault in header_faults(self.array.data, object_format, ledger_id, indexed):
                self._report(Fault.HEADER, fault)

    @property
    def reached(self) -> int:
        """The place in the object up to which the block has been walked: where the next entry begins."""
        return self.offset + self._position

    def feed(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Go on in the next window: the bytes `data` from the object's byte `offset` on.

        It begins where the last one ended, or before that, but not after `reached`: then the entry that was cut off is
        whole in it. Else an entry that lies across the two is copied together, and walked before the rest.
        """
        window = read_only(data)
        self.starved = self._cut_off = False
        if offset <= self.reached:
            self.array, self.offset, self._position = window, offset, self.reached - offset
            self.starved = self._position > len(window)
            return
        rest = self.array[self._position :]
        missing = self._missing_bytes(rest)
        if missing is None or missing + TOGETHER_BYTES >= len(window):
            joined = np.concatenate([rest, window])
        else:
            joined = np.concatenate([rest, window[: missing + TOGETHER_BYTES]])
            self._ahead = (window, offset, len(rest))
        self.array, self.offset, self._position = read_only(joined.data), self.offset + self._position, 0

    def _missing_bytes(self, rest: Bytes) -> int | None:
        """Bytes of the frame at the start of `rest` that come after it; None if that is not known."""
        if len(rest) < FRAME_HEADER_BYTES:
            return None
        length = int.from_bytes(rest[:4].tobytes(), "big", signed=True)
        return None if length < 0 else FRAME_HEADER_BYTES + length - len(rest)

    def _go_ahead(self) -> None:
        """Turn from the copied bytes to the window whose beginning they hold, at the place of the walk."""
        if self._ahead is not None and self._cut_off:
            window, offset, before = self._ahead
            self.array, self.offset, self._position = window, offset, self._position - before
            self._ahead = None

    def locate(
        self,
        entry_ids: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        byte_room: int,
    ) -> int:
        """See `EntryCursor`."""
        return self._find(entry_ids, offsets, lengths, byte_room, self._stop)

    def copy(
        self, values: Bytes, value_offsets: npt.NDArray[np.int32], entry_ids: npt.NDArray[np.int64]
    ) -> int:
        """See `EntryCursor`."""
        while True:
            self._go_ahead()
            status, position, next_entry_id, count = kernels.copy_entries(
                self.array,
                self._position,
                self._block_end,
                self.next_entry_id,
                self._stop,
                self._gaps,
                values,
                value_offsets,
                entry_ids,
            )
            self.payload_bytes += int(value_offsets[count])
            if self._advance(status, position, next_entry_id, count):
                return int(count)

    def skip_to(self, entry_id: int) -> None:
        """See `EntryCursor`."""
        if self.next_entry_id >= entry_id:
            return
        entry_ids, offsets, lengths = (np.empty(4096, dtype=np.int64) for _ in range(3))
        stop = min(entry_id, self._stop)
        while not self.done and not self.starved and self.next_entry_id < stop:
            self._find(entry_ids, offsets, lengths, self._indexed.length, stop)

    def _find(
        self,
        entry_ids: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        byte_room: int,
        stop: int,
    ) -> int:
        """`locate` of entries below `stop`."""
        while True:
            self._go_ahead()
            status, position, next_entry_id, count = kernels.find_entries(
                self.array,
                self._position,
                self._block_end,
                self.next_entry_id,
                stop,
                self._gaps,
                byte_room,
                entry_ids,
                offsets,
                lengths,
            )
            self.payload_bytes += int(lengths[:count].sum())
            if self._advance(status, position, next_entry_id, count):
                return int(count)

    @property
    def next_length(self) -> int:
        """Payload bytes of the next entry (only where there is one)."""
        position = self._position
        return int.from_bytes(self.array[position : position + 4].tobytes(), "big")

    @property
    def _block_end(self) -> int:
        """The place where the block ends, counted from the window's start."""
        return self._indexed.offset + self._indexed.length - self.offset

    def _advance(self, status: int, position: int, next_entry_id: int, count: int) -> bool:
        """Take over the answer of a kernel; False if it should be called again, on the window that waits."""
        self._position = position
        self.next_entry_id = int(next_entry_id)
        if count and self._on_fault is not None and status in (kernels.BAD_FRAME, kernels.ALL_READ):
            return True  # the entries before damage come before its report
        if status == kernels.BAD_FRAME:
            self._report(Fault.ENTRY, self._frame_fault())
            self.done = True
            return True
        if status == kernels.ALL_READ:
            self._check_end()
        self._cut_off = status == kernels.CUT_OFF
        self.starved = self._cut_off and self._ahead is None
        self.done = status == kernels.ALL_READ or self.next_entry_id >= self._stop
        if self.done and self.next_entry_id == NO_STOP:
            self._report(Fault.ENTRY, self._id_fault())
        return count > 0 or self.done or self.starved or not self._cut_off

    @property
    def _place(self) -> dict[str, int]:
        """The place of the block, for errors."""
        return {
            "ledger_id": self._ledger_id,
            "block": self._indexed.part_number,
            "offset": self._indexed.offset,
        }

    def _report(self, fault: Fault, error: FormatError) -> None:
        error.at(**self._place)
        if self._on_fault is None:
            raise error
        self._on_fault(fault, error)

    def _check_end(self) -> None:
        """Check at the block's end that the last entry is the one that the index names; with gaps, none after it."""
        end, reached = self._indexed.end_entry_id, self.next_entry_id
        if self._gaps and (end is None or reached <= end):
            self.next_entry_id = min(self._stop, reached if end is None else end)
            return
        if reached == end or (end is None and reached > self._indexed.first_entry_id):
            return
        self._report(
            Fault.END,
            EntryOrderError(
                "a block does not end with the entry that its index says",
                entry_id=reached,
                offset=self.offset + self._position,
                expected="an entry" if end is None else f"entries up to {end - 1}",
                found=f"the end after entry {reached - 1}",
            ),
        )

    def _id_fault(self) -> FormatError:
        return EntryOrderError(
            "an entry has an id that no entry can have",
            entry_id=self.next_entry_id - 1,
            offset=self.offset + self._position,
            expected=f"less than {NO_STOP - 1}",
        )

    def _frame_fault(self) -> FormatError:
        """The error for the place where the kernel has stopped."""
        try:
            next(
                walk_frames(
                    self.array.data,
                    self._position,
                    self._block_end,
                    self.next_entry_id,
                    block_offset=self.offset,
                    gaps=self._gaps,
                ),
                None,
            )
        except FormatError as error:
            return error
        raise AssertionError("the kernel refuses a frame that its reference implementation accepts")


def header_faults(
    data: memoryview, object_format: ObjectFormat, ledger_id: int, indexed: IndexedBlock
) -> Iterator[FormatError]:
    """Yield the signs that the block that begins with `data` (at least its header) is not the one of its index."""
    is_streaming = object_format is ObjectFormat.STREAMING
    return find_header_faults(
        data,
        object_format,
        offset=indexed.offset,
        indexed=BlockHeader(
            object_format=object_format,
            block_length=indexed.length,
            first_entry_id=indexed.first_entry_id,
            ledger_id=ledger_id if is_streaming else None,
        ),
    )


def write_block(
    out: Bytes,
    header: BlockHeader,
    values: Bytes,
    value_offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """Write a whole block into `out`: header, the entries `first` … `last` − 1, padding.

    `values` holds the payloads one after another, `value_offsets` their borders; the entries' ids are consecutive
    from the header's first. `out` is `header.block_length` bytes long.

    Raises:
        OptionError: the entries do not fit the block.
    """
    content = int(value_offsets[last] - value_offsets[first]) + (last - first) * FRAME_HEADER_BYTES
    if len(out) != header.block_length or BLOCK_HEADER_BYTES + content > len(out):
        raise OptionError(
            "entries do not fit their block",
            ledger_id=header.ledger_id,
            entry_id=header.first_entry_id,
            expected=f"at most {header.block_length - BLOCK_HEADER_BYTES} bytes of frames, and as much room",
            found=f"{content} bytes of frames in {len(out)} bytes",
        )
    out[:BLOCK_HEADER_BYTES] = np.frombuffer(pack_block_header(header), dtype=np.uint8)
    entry_ids = np.arange(header.first_entry_id - first, header.first_entry_id - first + last)
    end = kernels.frame_entries(values, value_offsets, entry_ids, first, last, out, BLOCK_HEADER_BYTES)
    kernels.fill_padding(out, end, len(out))
