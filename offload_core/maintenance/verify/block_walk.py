"""One block of a PIP-17 or streaming object, verified byte by byte: its frames, its messages, its CRC-32C.

A reader's cursor refuses a block of which anything is wrong. This walk says all that is wrong with the header, and
goes on by what the index says; of the frames it says the first fault, and ends there. The CRC-32C of blocks is
compared with checksums that there are, or makes some.

Entries that are Pulsar's have their CRC-32C, metadata, compression and batches verified by the decoder that reads
messages. Whether an object has entries of Pulsar's is told by its first ones; of others nothing can be said but that
their frames are right. What is encrypted, and chunks, are verified by their checksums only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.block_checksums import BlockChecksums, RunningChecksums, block_lengths_of
from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    BLOCK_MAGIC,
    FRAME_HEADER_BYTES,
    walk_frames,
)
from offload_core.format.codec.index import IndexedBlock, ObjectIndex
from offload_core.format.codec.kernels import frames as kernels
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.entry import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC, split_entry
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES, MessageDecoder
from offload_core.maintenance.verify.codes import Code
from offload_core.maintenance.verify.findings import (
    ENTRY_CODES,
    FRAME_CODES,
    Finding,
    Findings,
    code_of,
    of_error,
)
from offload_core.reading.scan.tasks import DEFAULT_MAX_MESSAGE_BYTES
from offload_core.reading.scan.windows import Window
from offload_hooks.errors import DecompressionError, FormatError, placed

TOGETHER_BYTES = 1 << 20
"""How much of a window is copied behind an entry that begins in the one before it."""

_ENTRIES_AT_ONCE = 16384
_NO_STOP = np.iinfo(np.int64).max
_NO_BOUND = np.iinfo(np.int64).max
_HEADER = struct.Struct(">Iqqqq")
_HEADER_REST = {ObjectFormat.PIP17: 28, ObjectFormat.STREAMING: 36}

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WalkedEntries:
    """Entries that follow one another: where they lie in `array` (uint8), whose place in the object is `base`.

    `base` is None for what is no bytes of the object, but inflated. `entry_ids`, `offsets` and `lengths` are int64, per
    entry, and used again for the next ones.
    """

    array: Bytes
    base: int | None
    entry_ids: Longs
    offsets: Longs
    lengths: Longs


class BlockWalk:
    """The walk over one block.

    Args:
        gaps: ids may be missing: a filter ran.
        found: takes what is wrong.

    Attributes:
        reached: the place in the object up to which the block is walked.
        next_entry_id: the least id that can come next.
        is_done: whether the walk is over.
        is_right: whether it came to the block's end, and all was right.
    """

    def __init__(
        self,
        object_format: ObjectFormat,
        ledger_id: int,
        block: IndexedBlock,
        *,
        gaps: bool,
        found: Findings,
    ) -> None:
        self._format = object_format
        self._ledger_id = ledger_id
        self._block = block
        self._gaps = gaps
        self._found = found
        self._rest: Bytes = np.empty(0, dtype=np.uint8)
        self._located = np.empty((3, _ENTRIES_AT_ONCE), dtype=np.int64)
        self.reached = block.offset
        self.next_entry_id = block.first_entry_id
        self.is_done = False
        self.is_right = False

    def walk(self, data: memoryview, offset: int) -> Iterator[WalkedEntries]:
        """The entries of the next window, the bytes `data` from the object's byte `offset` on, which is read first."""
        window = read_only(data)
        if self.reached == self._block.offset:
            self._check_header(bytes(window[:BLOCK_HEADER_BYTES]))
            self.reached += BLOCK_HEADER_BYTES
        if offset <= self.reached:
            yield from self._walk(window, offset)
            return
        rest = self._rest
        taken = min(len(window), self._missing_bytes() + TOGETHER_BYTES)
        yield from self._walk(_joined(rest, window[:taken]), offset - len(rest))
        if self.is_done or taken == len(window):
            return
        if self.reached < offset:  # an entry whose length was cut off, and that is long
            yield from self._walk(_joined(rest, window), offset - len(rest))
        else:
            yield from self._walk(window, offset)

    def _missing_bytes(self) -> int:
        """Return how much of the next window belongs to what was cut off: padding may go on to the block's end."""
        if len(self._rest) < FRAME_HEADER_BYTES:
            return FRAME_HEADER_BYTES
        length = int.from_bytes(self._rest[:4].tobytes(), "big", signed=True)
        if length < 0:
            return self._block.length
        return FRAME_HEADER_BYTES + length - len(self._rest)

    def _walk(self, array: Bytes, base: int) -> Iterator[WalkedEntries]:
        end = self._block.offset + self._block.length - base
        position = self.reached - base
        ids, offsets, lengths = self._located
        while not self.is_done:
            status, position, next_id, count = kernels.find_entries(
                array,
                position,
                end,
                self.next_entry_id,
                _NO_STOP,
                self._gaps,
                _NO_BOUND,
                ids,
                offsets,
                lengths,
            )
            self.reached, self.next_entry_id = base + int(position), int(next_id)
            if count:
                yield WalkedEntries(
                    array=array,
                    base=base,
                    entry_ids=ids[:count],
                    offsets=offsets[:count],
                    lengths=lengths[:count],
                )
            if self.next_entry_id == _NO_STOP:
                self._refuse_id()
                return
            if status == kernels.CUT_OFF:
                self._rest = array[int(position) :]
                return
            if status == kernels.BAD_FRAME:
                self._explain(array, base, int(position), int(end))
            elif status == kernels.ALL_READ:
                self._check_end()

    def _check_header(self, header: bytes) -> None:
        magic, length, block_length, first_entry_id, ledger_id = _HEADER.unpack_from(header)
        is_streaming = self._format is ObjectFormat.STREAMING
        facts = [
            (Code.BLOCK_HEADER_LENGTH, 4, BLOCK_HEADER_BYTES, length),
            (Code.BLOCK_WRONG_LENGTH, 12, self._block.length, block_length),
            (Code.BLOCK_WRONG_FIRST_ENTRY, 20, self._block.first_entry_id, first_entry_id),
            *([(Code.BLOCK_WRONG_LEDGER, 28, self._ledger_id, ledger_id)] if is_streaming else []),
        ]
        wanted = BLOCK_MAGIC[self._format]
        if magic != wanted:
            self._add(Code.BLOCK_BAD_MAGIC, 0, f"{wanted:08X}", f"{magic:08X}")
            if length != BLOCK_HEADER_BYTES:
                return  # no header at all
        for code, offset, expected, found in facts:
            if expected != found:
                self._add(code, offset, str(expected), str(found))
        begin = _HEADER_REST[self._format]
        wrong = next((i for i in range(begin, BLOCK_HEADER_BYTES) if header[i]), None)
        if wrong is not None:
            self._add(Code.BLOCK_HEADER_REST, wrong, "00", f"{header[wrong]:02x}")

    def _check_end(self) -> None:
        self.is_done = True
        end = self._block.end_entry_id
        if self._gaps:
            is_right = end is None or self.next_entry_id <= end
        else:
            is_right = (
                self.next_entry_id > self._block.first_entry_id if end is None else self.next_entry_id == end
            )
        self.is_right = is_right
        if not is_right:
            self._add(
                Code.BLOCK_WRONG_END,
                self.reached - self._block.offset,
                "an entry" if end is None else f"entries up to {end - 1}",
                f"the end after entry {self.next_entry_id - 1}",
                entry_id=self.next_entry_id,
            )

    def _refuse_id(self) -> None:
        """Ends the walk: behind such an entry nothing can come, and the kernel would go no farther."""
        self.is_done = True
        self._add(
            Code.ENTRY_WRONG_ID,
            self.reached - self._block.offset,
            f"an entry id less than {_NO_STOP - 1}",
            "one that no entry can have",
            entry_id=_NO_STOP - 1,
        )

    def _explain(self, array: Bytes, base: int, position: int, end: int) -> None:
        self.is_done = True
        try:
            with placed(ledger_id=self._ledger_id, block=self._block.part_number):
                for _ in walk_frames(
                    array.data, position, end, self.next_entry_id, block_offset=base, gaps=self._gaps
                ):
                    break
        except FormatError as error:
            self._found.add(of_error(code_of(error, FRAME_CODES, Code.ENTRY_CUT_OFF), error))
            return
        raise AssertionError("the kernel refuses a frame that its twin accepts")

    def _add(
        self, code: Code, offset: int, expected: str, found: str, *, entry_id: int | None = None
    ) -> None:
        self._found.add(
            Finding(
                code=code,
                what=code.meaning,
                ledger_id=self._ledger_id,
                block=self._block.part_number,
                entry_id=entry_id,
                offset=self._block.offset + offset,
                expected=expected,
                found=found,
            )
        )


def _joined(rest: Bytes, window: Bytes) -> Bytes:
    return read_only(np.concatenate([rest, window]).data)


class BlockSums:
    """The checksums of one object's blocks.

    Args:
        known: those that lie beside it; None where there are none.
        makes: they are to be made.
        found: takes blocks that are not those that were written.
    """

    def __init__(
        self, index: ObjectIndex, known: BlockChecksums | None, *, makes: bool, found: Findings
    ) -> None:
        self._known = known
        self._makes = makes
        self._found = found
        self._lengths = block_lengths_of(index) if known is None else known.lengths
        self._running = RunningChecksums(self._lengths) if makes or known is not None else None
        self._sums: dict[int, int] = {}

    def passed(self, windows: Iterator[Window]) -> Iterator[Window]:
        """One ledger's windows; of each the bytes are looked at when the next is asked for."""
        if self._running is None:
            yield from windows
            return
        self._running.rewind()
        for window in windows:
            yield window
            for number, crc in self._running.update(window.data, window.offset):
                self._take(number, crc, window)

    def made(self, index_bytes: int, index_crc: int) -> BlockChecksums | None:
        """The checksums of all blocks, if they were to be made and all came by."""
        if not self._makes or len(self._sums) != len(self._lengths):
            return None
        crcs = np.fromiter((self._sums[number] for number in range(len(self._lengths))), np.uint32)
        return BlockChecksums(index_length=index_bytes, index_crc=index_crc, lengths=self._lengths, crcs=crcs)

    def _take(self, number: int, crc: int, window: Window) -> None:
        if self._makes:
            self._sums[number] = crc
        if self._known is None or self._known.crcs[number] == crc:
            return
        assert self._running is not None
        offset, code = self._running.offset(number), Code.CHECKSUMS_BLOCK
        self._found.add(
            Finding(
                code=code,
                what=code.meaning,
                ledger_id=window.extent.ledger_id,
                block=window.block.part_number if window.block.offset == offset else None,
                offset=offset,
                expected=f"{self._known.crcs[number]:08x}",
                found=f"{crc:08x}",
            )
        )


_LOOKED_AT = 64
"""So many of an object's first entries tell whether they are Pulsar's."""

_BROKER_HEAD_BYTES = 6


class MessageCheck:
    """The check of one ledger's entries in one object.

    Attributes:
        unchecked: entries that have no checksum.
    """

    def __init__(self, ledger_id: int, found: Findings) -> None:
        self._found = found
        self._is_pulsars: bool | None = None
        self._decoder = MessageDecoder(
            topic=None,
            partition=-1,
            ledger_id=ledger_id,
            schema=arrow_schema("messages", ["__entryId"]),
            verify_checksums=True,
            max_message_bytes=DEFAULT_MAX_MESSAGE_BYTES,
        )
        self.unchecked = 0

    def check(self, located: WalkedEntries) -> None:
        """Check entries; what is wrong is added to the findings."""
        if self._is_pulsars is None:
            self._is_pulsars = _are_pulsars(located)
        self.unchecked += len(located.entry_ids) - _with_checksum(located)
        if self._is_pulsars:
            for first, last in _batches(located):
                self._check_run(located, first, last)

    def _check_run(self, located: WalkedEntries, first: int, last: int) -> None:
        """Entries of one batch; behind a wrong one it goes on with the next."""
        while first < last and not self._found.is_full:
            entry_ids = located.entry_ids[first:last]
            offsets, lengths = located.offsets[first:last], located.lengths[first:last]
            try:
                for _ in self._decoder.decode(located.array, located.base, entry_ids, offsets, lengths):
                    pass
                return
            except FormatError as error:
                behind = 0 if error.entry_id is None else int(np.searchsorted(entry_ids, error.entry_id))
                wrong = first + behind
                self._found.add(of_error(_judge(located, wrong, error), error))
                first = wrong + 1


def _judge(located: WalkedEntries, row: int, error: FormatError) -> Code:
    """Return what is wrong with an entry: something that it is framed by, or its payload."""
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    try:
        split_entry(entry)
    except FormatError as wrong:
        return code_of(wrong, ENTRY_CODES, Code.MESSAGE_BAD_METADATA)
    return Code.MESSAGE_DECOMPRESSION if isinstance(error, DecompressionError) else Code.MESSAGE_BAD_BATCH


def _batches(located: WalkedEntries) -> Iterator[tuple[int, int]]:
    """Entries, about a batch full of bytes at a time."""
    ends = np.cumsum(located.lengths)
    first, stop = 0, len(located.entry_ids)
    while first < stop:
        before = int(ends[first - 1]) if first else 0
        last = min(stop, int(np.searchsorted(ends, before + BATCH_BYTES)) + 1)
        yield first, last
        first = last


def _are_pulsars(located: WalkedEntries) -> bool:
    return any(_is_pulsars(located, row) for row in range(min(_LOOKED_AT, len(located.entry_ids))))


def _is_pulsars(located: WalkedEntries, row: int) -> bool:
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    if int.from_bytes(entry[:2], "big") in (BROKER_METADATA_MAGIC, CHECKSUM_MAGIC):
        return True
    try:
        split_entry(entry, verify_checksum=False)
    except FormatError:
        return False
    return True


def _with_checksum(located: WalkedEntries) -> int:
    """Return how many of the entries begin with a checksum, behind a broker's metadata perhaps."""
    array, ends = located.array, located.offsets + located.lengths
    starts = located.offsets[located.lengths >= _BROKER_HEAD_BYTES]
    ends = ends[located.lengths >= _BROKER_HEAD_BYTES]
    if not len(starts):
        return 0
    magics = _u16(array, starts)
    has_broker = magics == BROKER_METADATA_MAGIC
    count = int((magics == CHECKSUM_MAGIC).sum())
    if has_broker.any():
        starts, ends = starts[has_broker], ends[has_broker]
        sizes = (_u16(array, starts + 2) << 16) | _u16(array, starts + 4)
        behind = starts + _BROKER_HEAD_BYTES + sizes
        behind = behind[behind + _BROKER_HEAD_BYTES <= ends]
        count += int((_u16(array, behind) == CHECKSUM_MAGIC).sum())
    return count


def _u16(array: Bytes, places: Longs) -> Longs:
    numbers: Longs = (array[places].astype(np.int64) << 8) | array[places + 1]
    return numbers
