"""A cursor over the entries of one stretch of a MapFile's data file, batch by batch.

It refuses a file that is not the one its index describes. Entry ids may have gaps, but ascend; the last stretch must
end with the last entry of the ledger's metadata, unless a filter left it out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, Longs, read_only
from offload_core.format.codec.blocks import Fault, OnFault
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.mapfile.index_file import METADATA_KEY
from offload_core.format.codec.mapfile.record_batches import Batch, batch_reader
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    CutOffError,
    FileCompression,
    SequenceFile,
    parse_header,
)
from offload_hooks.errors import (
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    TruncatedError,
    placed,
)

MOST_AGAIN_BYTES = 1 << 20


class StretchWindow:
    """Bytes of the stretch that begins at the file's byte `begin` and ends before `stretch_end`.

    `array` (uint8, read only) begins at the file's byte `place`; `position` is how far in it was read.
    """

    def __init__(self, data: bytes | bytearray | memoryview, begin: int, stretch_end: int) -> None:
        self.array = read_only(data)
        self.place = begin
        self.position = 0
        self._stretch_end = stretch_end
        self._needed = 0
        self._waiting: list[Bytes] = []

    @property
    def end(self) -> int:
        """The end of the stretch, counted from the array's begin."""
        return self._stretch_end - self.place

    @property
    def reached(self) -> int:
        """The place in the file up to which it was read."""
        return self.place + self.position

    @property
    def next_begin(self) -> int:
        """The place in the file from which on the next window should have its bytes.

        Fetching a small rest again saves a copy of the window; a large one would be fetched in vain.
        """
        held = len(self.array) - self.position + sum(map(len, self._waiting))
        return self.reached if held < MOST_AGAIN_BYTES else self.reached + held

    def need(self, needed: int) -> None:
        """Reading cannot go on before the array has its byte `needed` − 1."""
        self._needed = needed

    def feed(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """The next bytes, from the file's byte `offset` on: those that follow all before, or from before `reached`."""
        window = read_only(data)
        if offset <= self.reached:
            reached = self.reached
            self.array, self.place, self.position = window, offset, reached - offset
            self._needed, self._waiting = 0, []
        else:
            self._waiting.append(window)

    def join(self) -> bool:
        """Join the windows that have come; False if they are too short."""
        if len(self.array) + sum(map(len, self._waiting)) < self._needed:
            return False
        if not self._waiting:
            return True
        rest = self.array[self.position :]
        self.place, self.position = self.reached, 0
        self.array = read_only(np.concatenate([rest, *self._waiting]).data)
        self._needed, self._waiting = 0, []
        return True


_NO_ENTRIES = Batch(
    array=np.empty(0, dtype=np.uint8),
    keys=np.empty(0, dtype=np.int64),
    offsets=np.empty(0, dtype=np.int64),
    lengths=np.empty(0, dtype=np.int64),
    place=None,
)


class MapFileCursor:
    """An `EntryCursor` over one stretch.

    Args:
        data: the whole stretch, `indexed.length` bytes, or with `more` its beginning.
        sequence_file: header and length of the data file.
        indexed: the stretch as its index describes it.
        stop_entry_id: do not go on to this entry (half-open); None walks to the stretch's end and checks it.
        more: `feed` will bring further bytes.
        gaps: the last entry may be missing as well.
        on_fault: called at damage, with which the stretch ends; without it, damage is raised.

    Raises:
        FormatError: a subclass, with ledger, stretch (`block`) and byte; the caller adds the object's key.
    """

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        sequence_file: SequenceFile,
        ledger_id: int,
        indexed: IndexedBlock,
        *,
        stop_entry_id: int | None = None,
        more: bool = False,
        gaps: bool = False,
        on_fault: OnFault | None = None,
    ) -> None:
        self._gaps = gaps
        self._on_fault = on_fault
        self._file = sequence_file
        self._indexed = indexed
        self._ledger_id = ledger_id
        self._stop = stop_entry_id
        self._window = StretchWindow(data, indexed.offset, indexed.offset + indexed.length)
        self._reader = batch_reader(sequence_file.header)
        self._batch = _NO_ENTRIES
        self._at = 0
        self._last_key = METADATA_KEY - 1 if indexed.offset == 0 else indexed.first_entry_id - 1
        self._is_at_begin = True
        self.next_entry_id = indexed.first_entry_id
        self.payload_bytes = 0
        self.done = False
        self.starved = False
        if len(data) > indexed.length or (len(data) < indexed.length and not more):
            with self._place():
                raise TruncatedError(
                    "a stretch is cut off", expected=f"{indexed.length} bytes", found=len(data)
                )

    @property
    def array(self) -> Bytes:
        """See `EntryCursor`."""
        return self._batch.array

    @property
    def offset(self) -> int | None:
        """See `EntryCursor`."""
        return self._batch.place

    @property
    def reached(self) -> int:
        """See `EntryCursor`."""
        return self._window.next_begin

    @property
    def next_length(self) -> int:
        """See `EntryCursor`."""
        return int(self._batch.lengths[self._at])

    def feed(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """See `EntryCursor`."""
        self._window.feed(data, offset)
        self.starved = False

    def skip_to(self, entry_id: int) -> None:
        """See `EntryCursor`. The batch with that entry is read then."""
        while self._has_entries():
            before = int(np.searchsorted(self._batch.keys[self._at :], entry_id))
            self._pass(before)
            if self._at < len(self._batch.keys):
                self._go_to(int(self._batch.keys[self._at]))
                return

    def locate(self, entry_ids: Longs, offsets: Longs, lengths: Longs, byte_room: int) -> int:
        """See `EntryCursor`."""
        if not self._has_entries():
            return 0
        count = self._below_stop(len(offsets))
        sizes = self._batch.lengths[self._at : self._at + count]
        count = min(count, int(np.searchsorted(np.cumsum(sizes), byte_room)) + 1)
        entry_ids[:count] = self._batch.keys[self._at : self._at + count]
        offsets[:count] = self._batch.offsets[self._at : self._at + count]
        lengths[:count] = sizes[:count]
        self._pass(count)
        return count

    def copy(self, values: Bytes, value_offsets: npt.NDArray[np.int32], entry_ids: Longs) -> int:
        """See `EntryCursor`."""
        if not self._has_entries():
            return 0
        room = self._below_stop(len(entry_ids))
        stop = self._at + room
        count = int(
            kernels.copy_values(
                self._batch.array,
                self._batch.offsets[self._at : stop],
                self._batch.lengths[self._at : stop],
                room,
                values,
                value_offsets,
            )
        )
        entry_ids[:count] = self._batch.keys[self._at : self._at + count]
        self._pass(count)
        return count

    def _has_entries(self) -> bool:
        """Read on until there is an entry to hand out; False at the end of the read or of the window."""
        while not self.done and not self.starved:
            if self._at < len(self._batch.keys):
                self._go_to(int(self._batch.keys[self._at]))
                return not self.done
            try:
                with self._place():
                    self._read()
            except CutOffError as cut:
                self._window.need(cut.needed)
                self.starved = True
            except FormatError as error:
                if self._on_fault is None:
                    raise
                self._on_fault(Fault.ENTRY, error)
                self.done = True
        return False

    def _read(self) -> None:
        window = self._window
        if not window.join():
            self.starved = True
            return
        if self._is_at_begin:
            self._check_begin()
        batch, window.position = self._reader.read(
            window.array, window.position, window.end, self._last_key, window.place
        )
        if batch is None:
            self._check_end()
            return
        first = int(batch.keys[0])
        self._check_last(int(batch.keys[-1]))
        if self._is_at_begin:
            self._check_first(first)
            self._is_at_begin = False
        self._batch, self._at = batch, int(first == METADATA_KEY)
        self._last_key = int(batch.keys[-1])

    def _below_stop(self, room: int) -> int:
        """Number of the next entries, at most `room`, that are below the stop."""
        ahead = self._batch.keys[self._at :]
        return min(room, len(ahead) if self._stop is None else int(np.searchsorted(ahead, self._stop)))

    def _pass(self, count: int) -> None:
        """The next `count` entries are after."""
        if count:
            self.payload_bytes += int(self._batch.lengths[self._at : self._at + count].sum())
            self._at += count
            self._go_to(int(self._batch.keys[self._at - 1]) + 1)

    def _go_to(self, entry_id: int) -> None:
        self.next_entry_id = max(self.next_entry_id, entry_id)
        if self._stop is not None and self.next_entry_id >= self._stop:
            self.next_entry_id, self.done = self._stop, True

    def _place(self) -> AbstractContextManager[None]:
        return placed(ledger_id=self._ledger_id, block=self._indexed.part_number, offset=self._indexed.offset)

    def _check_begin(self) -> None:
        """Check that the first stretch has the file header that the index was read with."""
        window = self._window
        if window.reached:
            return
        header = parse_header(window.array.data, BYTES_WRITABLE, end=window.end)
        if header != self._file.header:
            raise BadMagicError("a data file's header is not the one that it had", offset=0)
        window.position = header.length

    def _check_first(self, key: int) -> None:
        if self._indexed.offset == 0:
            expected = METADATA_KEY
        elif self._file.header.compression is FileCompression.BLOCK:
            return  # the index does not say it
        else:
            expected = self._indexed.first_entry_id
        if key != expected:
            raise IndexMismatchError(
                "a stretch does not begin with the key that the index says",
                offset=self._indexed.offset,
                entry_id=key,
                expected=expected,
                found=key,
            )

    @property
    def _end_entry_id(self) -> int:
        if self._indexed.end_entry_id is None:
            raise AssertionError("the stretches of a MapFile have an end")
        return self._indexed.end_entry_id

    def _check_last(self, key: int) -> None:
        if key >= self._end_entry_id:
            raise EntryOrderError(
                "a stretch goes on behind the entries that its index or the ledger's metadata allow",
                entry_id=key,
                expected=f"entries up to {self._end_entry_id - 1}",
                found=key,
            )

    def _check_end(self) -> None:
        self.done = True
        end_of_stretch = self._indexed.offset + self._indexed.length
        is_end = end_of_stretch == self._file.length
        if is_end and not self._gaps and self._last_key != self._end_entry_id - 1:
            raise EntryOrderError(
                "a MapFile does not end with its ledger's last entry",
                entry_id=self._last_key,
                offset=end_of_stretch,
                expected=f"entries up to {self._end_entry_id - 1}",
                found=f"the end after entry {self._last_key}",
            )
        if is_end or self._file.header.compression is not FileCompression.BLOCK:
            self._go_to(self._end_entry_id)  # a gap before the next stretch is one of the file
