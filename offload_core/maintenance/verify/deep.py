"""Checks of every byte of one data object: blocks, frames and messages, or a MapFile's records, in any process.

Faults become findings. A cursor that reports faults passes over wrong headers, goes by the index, and leaves a block at
its first wrong frame; the check goes on with the next block. The CRC-32C of blocks is compared with the checksums
beside the object, or makes some.

Entries of Pulsar have their CRC-32C, metadata, compression and batches verified by the decoder that reads messages.
An object's first entries decide whether it has entries of Pulsar; of others only the frames are verified. Encrypted
entries and chunks are verified by their checksums only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from offload_core.format.codec.arrays import Bytes, LocatedEntries, Longs
from offload_core.format.codec.block_checksums import BlockChecksums, RunningChecksums, block_lengths_of
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES
from offload_core.format.codec.blocks import Fault
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.format.codec.mapfile.crc_files import ChecksumVerifier
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.format.messages.entry import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC, split_entry
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES, MessageDecoder
from offload_core.maintenance.verify.findings import (
    ENTRY_CODES,
    FRAME_CODES,
    Code,
    Finding,
    Findings,
    code_of,
    of_error,
)
from offload_core.maintenance.verify.pair_checks import Examined, ledger_facts
from offload_core.metadata.records.filter_record import DroppedEntries, indexed_filter
from offload_core.reading.scan.read import checksum_verifier
from offload_core.reading.scan.tasks import DEFAULT_MAX_MESSAGE_BYTES
from offload_core.reading.scan.windows import Window, fetch_windows
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    DecompressionError,
    FormatError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepTask:
    """A data object to be verified.

    Attributes:
        number: its number in the survey.
        data_bytes: size of the data object; perhaps not as the index has it.
        marks: by its user metadata.
        checksum_key: of a MapFile: its `.crc` file, where there is one.
        checksums: of its blocks, which lie beside it; None where there are none.
        by_checksums: compare with these only, where there are some; nothing is decoded or counted.
        makes_checksums: make checksums, if there are no findings, also of the index, which has `index_bytes` bytes and
            the CRC-32C `index_crc`.
    """

    number: int
    key: ObjectKey
    index: ObjectIndex
    data_bytes: int
    marks: ObjectMarks
    checksum_key: str | None
    index_bytes: int = 0
    index_crc: int = 0
    checksums: BlockChecksums | None = None
    by_checksums: bool = False
    makes_checksums: bool = False

    @classmethod
    def of(
        cls, number: int, examined: Examined, *, by_checksums: bool = False, makes_checksums: bool = False
    ) -> Self:
        """The task for a pair that was examined, and whose index can be read."""
        pair, index = examined.pair, examined.index
        assert index is not None
        assert pair.data is not None
        assert pair.index is not None
        return cls(
            number=number,
            key=pair.key,
            index=index,
            index_bytes=pair.index.size_bytes,
            index_crc=examined.index_crc,
            data_bytes=pair.data.size_bytes,
            marks=examined.marks,
            checksum_key=pair.data_checksums.key if pair.data_checksums else None,
            checksums=examined.checksums,
            by_checksums=by_checksums,
            makes_checksums=makes_checksums,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCount:
    """A ledger's entries in an object, counted; `stop_entry_id` is one past the last, None where that is not known."""

    ledger_id: int
    stop_entry_id: int | None
    entries: int
    payload_bytes: int
    unchecked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepResult:
    """Result of a task.

    Attributes:
        number: the task's.
        failure: why it could not be verified to its end; None if it was.
        is_gone: the object has vanished meanwhile.
        made: its checksums, if they were to be made and nothing is wrong.
    """

    number: int
    findings: tuple[Finding, ...] = ()
    counts: tuple[LedgerCount, ...] = ()
    failure: OffloadError | None = None
    is_gone: bool = False
    made: BlockChecksums | None = None


BytesListener = Callable[[memoryview, int], None]
"""Gets bytes of the data object that were read, and their place; each ledger's in order, some of them twice."""

EntriesListener = Callable[[int, LocatedEntries], None]
"""Gets a ledger's id, and entries of it that were read, in order."""


def skip(*_: object) -> None:
    """Listen to nothing."""


def check_task(
    tier: Tier, task: DeepTask, *, on_bytes: BytesListener = skip, on_entries: EntriesListener = skip
) -> DeepResult:
    """Verify one data object; an error of the store, or of a listener, is in the result."""
    found = Findings(task.key.data_key)
    check = _ObjectCheck(tier, task, found, on_bytes, on_entries)
    try:
        if task.by_checksums and task.checksums is not None:
            check.compare()
            checked = []
        else:
            checked = [check.check(ledger) for ledger in task.index.ledgers]
    except ObjectNotFoundError:
        return DeepResult(number=task.number, is_gone=True)
    except StoreError as error:
        return DeepResult(
            number=task.number, findings=tuple(found.found), failure=error.at(key=task.key.data_key)
        )
    return DeepResult(
        number=task.number,
        findings=tuple(found.found),
        counts=tuple(filter(None, checked)),
        made=check.sums.made(task.index_bytes, task.index_crc) if not found.found else None,
    )


def check_data(
    tier: Tier, examined: Examined, *, on_bytes: BytesListener = skip, on_entries: EntriesListener = skip
) -> DeepResult:
    """Verify the data object of a pair that was examined, and whose index can be read. `StoreError`."""
    result = check_task(tier, DeepTask.of(0, examined), on_bytes=on_bytes, on_entries=on_entries)
    if result.failure is not None:
        raise result.failure
    return result


@dataclass(slots=True)
class _Counted:
    entries: int = 0
    payload_bytes: int = 0
    next_entry_id: int = 0
    is_right: bool = True


class _ObjectCheck:
    def __init__(
        self,
        tier: Tier,
        task: DeepTask,
        found: Findings,
        on_bytes: BytesListener,
        on_entries: EntriesListener,
    ) -> None:
        self._on_bytes = on_bytes
        self._on_entries = on_entries
        self._tier = tier
        self._task = task
        self._found = found
        self._is_mapfile = task.index.object_format is ObjectFormat.MAPFILE
        self.sums = BlockSums(task.index, task.checksums, makes=task.makes_checksums, found=found)

    def check(self, ledger: LedgerIndex) -> LedgerCount | None:
        """Check one ledger's blocks, in order of their entries, as far as the object has bytes; None if it has none."""
        task = self._task
        there = ledger.blocks.where(ledger.blocks.offsets + ledger.blocks.lengths <= task.data_bytes)
        if not there or self._found.is_full:
            return None
        messages = MessageCheck(ledger.ledger_id, self._found)
        counted = _Counted(next_entry_id=ledger.first_entry_id, is_right=len(there) == len(ledger.blocks))
        for located in self._walk(self._extent(ledger).with_blocks(there), counted):
            counted.entries += len(located.entry_ids)
            counted.payload_bytes += int(located.lengths.sum())
            messages.check(located)
            self._on_entries(ledger.ledger_id, located)
            if self._found.is_full:
                counted.is_right = False
                break
        self._check_counts(ledger, counted)
        has_end = counted.is_right and not task.marks.skips_ids
        return LedgerCount(
            ledger_id=ledger.ledger_id,
            stop_entry_id=counted.next_entry_id if has_end else None,
            entries=counted.entries,
            payload_bytes=counted.payload_bytes,
            unchecked=messages.unchecked,
        )

    def compare(self) -> None:
        """Compare all blocks with the checksums beside them."""
        for ledger in self._task.index.ledgers:
            with contextlib.closing(fetch_windows(self._tier, (self._extent(ledger),))) as fetched:
                for _ in self.sums.passed(fetched):
                    pass

    def _extent(self, ledger: LedgerIndex) -> LedgerExtent:
        task = self._task
        return LedgerExtent(
            key=task.key,
            ledger=ledger,
            marks=task.marks,
            sequence_file=task.index.sequence_file,
            checksum_key=task.checksum_key,
        )

    def _walk(self, extent: LedgerExtent, counted: _Counted) -> Iterator[LocatedEntries]:
        """Yield the entries of all blocks, about a batch full at a time; faults become findings."""
        faults = _Faults(extent, self._found)
        cursor = EntryCursor(extent, on_fault=faults.take)
        verifier = self._verifier(extent)
        with contextlib.closing(fetch_windows(self._tier, (extent,))) as fetched:
            for window in self.sums.passed(fetched):
                if verifier is not None:
                    try:
                        verifier.update(window.data, window.offset)
                    except FormatError as error:
                        self._found.add(of_error(Code.MAPFILE_CHECKSUM, error, ledger_id=extent.ledger_id))
                        verifier = None
                if window.begins_block:
                    faults.begin(window.block)
                cursor.feed(window.block, window.data, window.offset)
                if window.begins_block and not self._is_mapfile:
                    faults.check_header_rest(window)
                for located in cursor.located(BATCH_BYTES):
                    if self._is_mapfile and counted.is_right:
                        self._check_follow(window, counted, located.entry_ids)
                    counted.next_entry_id = cursor.next_entry_id
                    counted.is_right &= faults.is_right
                    yield located
                counted.next_entry_id = cursor.next_entry_id
                counted.is_right &= faults.is_right
                self._on_bytes(window.data, window.offset)
                window.walked_to(cursor.reached)

    def _verifier(self, extent: LedgerExtent) -> ChecksumVerifier | None:
        try:
            return checksum_verifier(self._tier, extent)
        except FormatError as error:
            self._found.add(of_error(Code.MAPFILE_CHECKSUM, error, key=extent.checksum_key))
            return None

    def _check_follow(self, window: Window, counted: _Counted, entry_ids: Longs) -> None:
        """Add findings of missing ids, if no filter ran: for readers a MapFile's ids may have gaps."""
        if self._task.marks.skips_ids:
            return
        for before, first in _jumps(counted.next_entry_id, entry_ids):
            self._found.add(
                Finding(
                    code=Code.ENTRY_WRONG_ID,
                    ledger_id=window.extent.ledger_id,
                    block=window.block.part_number,
                    entry_id=before,
                    offset=window.block.offset,
                    expected=f"entry id {before}",
                    found=f"entry id {first}",
                )
            )

    def _check_counts(self, ledger: LedgerIndex, counted: _Counted) -> None:
        """Compare what was counted with the index, where all was right up to here."""
        if not counted.is_right or self._found.is_full:
            return
        if self._task.marks.skips_ids:
            self._check_kept(ledger, counted)
            return
        extent, stop, key = ledger_facts(ledger), counted.next_entry_id, self._task.key
        if extent.entries is None and extent.stop_entry_id not in (None, stop):
            self._found.add(_wrong(Code.WRONG_ENTRIES, key, ledger, extent.stop_entry_id, stop))
        elif extent.entries is not None and extent.entries < stop:
            self._found.add(_wrong(Code.WRONG_ENTRIES, key, ledger, extent.entries, stop))
        is_whole = extent.first_entry_id == 0 and extent.entries == stop and not self._task.marks.is_filtered
        if is_whole and extent.size is not None and extent.size != counted.payload_bytes:
            self._found.add(_wrong(Code.WRONG_SIZE, key, ledger, extent.size, counted.payload_bytes))

    def _check_kept(self, ledger: LedgerIndex, counted: _Counted) -> None:
        """Compare the entries with the filter's count of kept ones: the only check where ids may be missing."""
        key = self._task.key
        try:
            record = indexed_filter(ledger)
        except UnsupportedVersionError:
            return
        except FormatError as error:
            self._found.add(of_error(Code.INDEX_BAD_METADATA, error, key=key.index_key))
            return
        if record is None:
            return
        found = DroppedEntries(entries=counted.entries, payload_bytes=counted.payload_bytes)
        lost = self._task.marks.lost
        is_right = found == record.kept if lost is None else found.entries + lost.count == record.kept.entries
        if not is_right:
            expected, given = (
                f"{each.entries} entries, {each.payload_bytes} bytes" for each in (record.kept, found)
            )
            self._found.add(
                Finding(
                    code=Code.KEPT,
                    ledger_id=ledger.ledger_id,
                    expected=f"{expected} by the index",
                    found=given,
                )
            )


def _jumps(expected: int, entry_ids: Longs) -> Iterator[tuple[int, int]]:
    """Yield where ids do not follow one another: the one that should come, and the one that does."""
    following = np.concatenate([[expected], entry_ids[:-1] + 1])
    for row in np.flatnonzero(entry_ids != following).tolist():
        yield int(following[row]), int(entry_ids[row])


def _wrong(code: Code, key: ObjectKey, ledger: LedgerIndex, expected: int | None, found: int) -> Finding:
    return Finding(
        code=code,
        key=key.index_key,
        ledger_id=ledger.ledger_id,
        expected=f"{expected} by the index",
        found=f"{found} in the data object",
    )


_HEADER_CODES = {
    0: Code.BLOCK_BAD_MAGIC,
    4: Code.BLOCK_HEADER_LENGTH,
    12: Code.BLOCK_WRONG_LENGTH,
    20: Code.BLOCK_WRONG_FIRST_ENTRY,
    28: Code.BLOCK_WRONG_LEDGER,
}
"""Codes of wrong fields, by their offset in the header."""

_HEADER_REST = {ObjectFormat.PIP17: 28, ObjectFormat.STREAMING: 36}


class _Faults:
    """The faults of one ledger's blocks, as findings; `is_right` unless one is of entries or of a block's end."""

    def __init__(self, extent: LedgerExtent, found: Findings) -> None:
        self._extent = extent
        self._found = found
        self._block_offset = 0
        self._of_header: set[Code] = set()
        self.is_right = True

    def begin(self, block: IndexedBlock) -> None:
        """Go on with the faults of a block."""
        self._block_offset, self._of_header = block.offset, set()

    def take(self, fault: Fault, error: FormatError) -> None:
        """Add a finding; the walk goes on."""
        if fault is Fault.HEADER:
            assert error.offset is not None
            code = _HEADER_CODES[error.offset - self._block_offset]
            self._of_header.add(code)
            if not self._has_no_header:
                self._found.add(of_error(code, error, what=code.meaning))
            return
        self.is_right = False
        if fault is Fault.END:
            code = Code.BLOCK_WRONG_END
            self._found.add(of_error(code, error, what=code.meaning))
        elif self._extent.object_format is ObjectFormat.MAPFILE:
            self._found.add(of_error(Code.MAPFILE_DAMAGED, error))
        else:
            self._found.add(of_error(code_of(error, FRAME_CODES, Code.ENTRY_CUT_OFF), error))

    def check_header_rest(self, window: Window) -> None:
        """Add a finding if the bytes after the header's fields, which the cursor has checked, are not zero."""
        header, begin = window.data[:BLOCK_HEADER_BYTES], _HEADER_REST[self._extent.object_format]
        wrong = next((place for place in range(begin, BLOCK_HEADER_BYTES) if header[place]), None)
        if wrong is None or self._has_no_header:
            return
        self._found.add(
            Finding(
                code=Code.BLOCK_HEADER_REST,
                ledger_id=self._extent.ledger_id,
                block=window.block.part_number,
                offset=window.block.offset + wrong,
                expected="00",
                found=f"{header[wrong]:02x}",
            )
        )

    @property
    def _has_no_header(self) -> bool:
        return {Code.BLOCK_BAD_MAGIC, Code.BLOCK_HEADER_LENGTH} <= self._of_header


class BlockSums:
    """The checksums of one object's blocks.

    Args:
        known: the checksums beside it; None if there are none.
        makes: checksums are to be made.
        found: gets findings of blocks that differ from the checksums.
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
        """Yield one ledger's windows, and take the bytes of each when the next is asked for."""
        if self._running is None:
            yield from windows
            return
        self._running.rewind()
        for window in windows:
            yield window
            for number, crc in self._running.update(window.data, window.offset):
                self._take(number, crc, window)

    def made(self, index_bytes: int, index_crc: int) -> BlockChecksums | None:
        """Return the checksums of all blocks, if they were to be made and all windows have passed."""
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
                ledger_id=window.extent.ledger_id,
                block=window.block.part_number if window.block.offset == offset else None,
                offset=offset,
                expected=f"{self._known.crcs[number]:08x}",
                found=f"{crc:08x}",
            )
        )


_LOOKED_AT = 64
"""Entries at an object's beginning by which it is decided whether they are Pulsar's."""

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

    def check(self, located: LocatedEntries) -> None:
        """Check entries, about a batch full of bytes; after a wrong one, go on with the next."""
        if self._is_pulsars is None:
            self._is_pulsars = _are_pulsars(located)
        self.unchecked += len(located.entry_ids) - _with_checksum(located)
        first = 0
        while self._is_pulsars and first < len(located.entry_ids) and not self._found.is_full:
            entry_ids = located.entry_ids[first:]
            offsets, lengths = located.offsets[first:], located.lengths[first:]
            try:
                for _ in self._decoder.decode(located.array, located.base, entry_ids, offsets, lengths):
                    pass
                return
            except FormatError as error:
                after = 0 if error.entry_id is None else int(np.searchsorted(entry_ids, error.entry_id))
                wrong = first + after
                self._found.add(of_error(_judge(located, wrong, error), error))
                first = wrong + 1


def _judge(located: LocatedEntries, row: int, error: FormatError) -> Code:
    """Return the code of an entry's fault: in its metadata and checksum, or in its payload."""
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    try:
        split_entry(entry)
    except FormatError as wrong:
        return code_of(wrong, ENTRY_CODES, Code.MESSAGE_BAD_METADATA)
    return Code.MESSAGE_DECOMPRESSION if isinstance(error, DecompressionError) else Code.MESSAGE_BAD_BATCH


def _are_pulsars(located: LocatedEntries) -> bool:
    return any(_is_pulsars(located, row) for row in range(min(_LOOKED_AT, len(located.entry_ids))))


def _is_pulsars(located: LocatedEntries, row: int) -> bool:
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    if int.from_bytes(entry[:2], "big") in (BROKER_METADATA_MAGIC, CHECKSUM_MAGIC):
        return True
    try:
        split_entry(entry, verify_checksum=False)
    except FormatError:
        return False
    return True


def _with_checksum(located: LocatedEntries) -> int:
    """Count the entries that begin with a checksum, perhaps after a broker's metadata."""
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
        after = starts + _BROKER_HEAD_BYTES + sizes
        after = after[after + _BROKER_HEAD_BYTES <= ends]
        count += int((_u16(array, after) == CHECKSUM_MAGIC).sum())
    return count


def _u16(array: Bytes, places: Longs) -> Longs:
    numbers: Longs = (array[places].astype(np.int64) << 8) | array[places + 1]
    return numbers
