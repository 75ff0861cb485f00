"""Every byte of one data object: blocks, frames and messages, or a MapFile's records. Picklable: any process can do it.

What is wrong becomes findings, and the object is verified on behind it, block by block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.block_checksums import BlockChecksums
from offload_core.format.codec.cursor import open_cursor
from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable, LedgerIndex, ObjectIndex
from offload_core.format.codec.mapfile.crc_files import ChecksumVerifier
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.messages.message_decoder import BATCH_BYTES
from offload_core.maintenance.verify.block_walk import BlockSums, BlockWalk, MessageCheck, WalkedEntries
from offload_core.maintenance.verify.codes import Code
from offload_core.maintenance.verify.findings import Finding, Findings, of_error
from offload_core.maintenance.verify.pair_checks import Examined, extent_of
from offload_core.metadata.records.filter_record import DroppedEntries, indexed_filter
from offload_core.reading.scan.read import checksum_verifier
from offload_core.reading.scan.windows import Window, fetch_windows
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    FormatError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    UnsupportedVersionError,
    placed,
)

_ENTRIES_AT_ONCE = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepTask:
    """A data object to be verified.

    Attributes:
        number: its number in the survey.
        data_bytes: size of the data object; perhaps not what the index says.
        is_filtered: a filter ran, so that payloads are not all the ledger's.
        has_gaps: it left gaps, so that ids may be missing.
        lost: so many entries the object says that it lacks.
        checksum_key: of a MapFile: its `.crc` file, where there is one.
        checksums: of its blocks, which lie beside it; None where there are none.
        by_checksums: go by these alone, where there are some: nothing is decoded, and nothing counted.
        makes_checksums: they are to be made, if nothing is wrong, also of the index: of `index_bytes` bytes with the
            CRC-32C `index_crc`.
    """

    number: int
    key: ObjectKey
    index: ObjectIndex
    data_bytes: int
    is_filtered: bool
    has_gaps: bool
    checksum_key: str | None
    lost: int = 0
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
            is_filtered=examined.is_filtered,
            has_gaps=examined.has_gaps,
            lost=0 if examined.lost is None else examined.lost.count,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepCheck:
    """Verifies data objects of a tier; it raises nothing that a store may raise."""

    tier: Tier

    def __call__(self, task: DeepTask) -> DeepResult:
        """Verify one object."""
        found = Findings(task.key.data_key)
        check = _ObjectCheck(self.tier, task, found)
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


@dataclass(slots=True)
class _Counted:
    entries: int = 0
    payload_bytes: int = 0
    next_entry_id: int = 0
    is_right: bool = True


class _ObjectCheck:
    def __init__(self, tier: Tier, task: DeepTask, found: Findings) -> None:
        self._tier = tier
        self._task = task
        self._found = found
        self.sums = BlockSums(task.index, task.checksums, makes=task.makes_checksums, found=found)

    def check(self, ledger: LedgerIndex) -> LedgerCount | None:
        """One ledger's blocks, in order of their entries, as far as the object has bytes; None if it has none."""
        task = self._task
        there = ledger.blocks.where(ledger.blocks.offsets + ledger.blocks.lengths <= task.data_bytes)
        if not there or self._found.is_full:
            return None
        run = self._run(ledger, there)
        messages = MessageCheck(ledger.ledger_id, self._found)
        counted = _Counted(next_entry_id=ledger.first_entry_id, is_right=len(there) == len(ledger.blocks))
        is_mapfile = task.index.object_format is ObjectFormat.MAPFILE
        with contextlib.closing(fetch_windows(self._tier, (run,))) as fetched:
            windows = self.sums.passed(fetched)
            walk = (
                self._stretches(run, windows, counted) if is_mapfile else self._blocks(run, windows, counted)
            )
            for located in walk:
                counted.entries += len(located.entry_ids)
                counted.payload_bytes += int(located.lengths.sum())
                messages.check(located)
                if self._found.is_full:
                    counted.is_right = False
                    break
        self._check_counts(ledger, counted)
        return LedgerCount(
            ledger_id=ledger.ledger_id,
            stop_entry_id=counted.next_entry_id if counted.is_right and not task.has_gaps else None,
            entries=counted.entries,
            payload_bytes=counted.payload_bytes,
            unchecked=messages.unchecked,
        )

    def compare(self) -> None:
        """All blocks with the checksums beside them, and nothing else."""
        for ledger in self._task.index.ledgers:
            run = self._run(ledger, ledger.blocks)
            with contextlib.closing(fetch_windows(self._tier, (run,))) as fetched:
                for _ in self.sums.passed(fetched):
                    pass

    def _run(self, ledger: LedgerIndex, blocks: BlockTable) -> LedgerExtent:
        task = self._task
        return LedgerExtent(
            key=task.key,
            ledger=replace(ledger, blocks=blocks),
            sequence_file=task.index.sequence_file,
            checksum_key=task.checksum_key,
        )

    def _blocks(
        self, run: LedgerExtent, windows: Iterator[Window], counted: _Counted
    ) -> Iterator[WalkedEntries]:
        walk: BlockWalk | None = None
        for window in windows:
            if window.begins_block:
                walk = BlockWalk(
                    run.object_format,
                    run.ledger_id,
                    window.block,
                    gaps=self._task.has_gaps,
                    found=self._found,
                )
            assert walk is not None
            if walk.is_done:
                continue
            yield from walk.walk(window.data, window.offset)
            if walk.is_done:
                counted.is_right &= walk.is_right
                counted.next_entry_id = walk.next_entry_id
            else:
                window.walked_to(walk.reached)

    def _stretches(
        self, run: LedgerExtent, windows: Iterator[Window], counted: _Counted
    ) -> Iterator[WalkedEntries]:
        """A MapFile by the reader's cursor; of each stretch the first fault is said."""
        verifier = self._verifier(run)
        cursor = None
        for window in windows:
            if verifier is not None:
                try:
                    verifier.update(window.data, window.offset)
                except FormatError as error:
                    self._found.add(of_error(Code.MAPFILE_CHECKSUM, error, ledger_id=run.ledger_id))
                    verifier = None
            try:
                with placed(ledger_id=run.ledger_id, block=window.block.part_number):
                    if window.begins_block:
                        cursor = open_cursor(
                            window.data,
                            run.object_format,
                            run.ledger_id,
                            window.block,
                            sequence_file=run.sequence_file,
                            more=not window.ends_block,
                        )
                    elif cursor is not None:
                        cursor.feed(window.data, window.offset)
                    while cursor is not None and not cursor.done and not cursor.starved:
                        entry_ids, offsets, lengths = np.empty((3, _ENTRIES_AT_ONCE), dtype=np.int64)
                        count = cursor.locate(entry_ids, offsets, lengths, BATCH_BYTES)
                        if count:
                            self._check_follow(run, window, counted, entry_ids[:count])
                            counted.next_entry_id = cursor.next_entry_id
                            yield WalkedEntries(
                                array=cursor.array,
                                base=cursor.offset,
                                entry_ids=entry_ids[:count],
                                offsets=offsets[:count],
                                lengths=lengths[:count],
                            )
            except FormatError as error:
                self._found.add(of_error(Code.MAPFILE_DAMAGED, error))
                counted.is_right, cursor = False, None
            else:
                if cursor is not None and not cursor.done:
                    window.walked_to(cursor.reached)

    def _verifier(self, run: LedgerExtent) -> ChecksumVerifier | None:
        try:
            return checksum_verifier(self._tier, run)
        except FormatError as error:
            self._found.add(of_error(Code.MAPFILE_CHECKSUM, error, key=run.checksum_key))
            return None

    def _check_follow(
        self, run: LedgerExtent, window: Window, counted: _Counted, entry_ids: npt.NDArray[np.int64]
    ) -> None:
        """A MapFile's ids may have gaps for its readers; if no filter ran, entries are missing."""
        if self._task.has_gaps or not counted.is_right:
            return
        for before, first in _jumps(counted.next_entry_id, entry_ids):
            self._found.add(
                Finding(
                    code=Code.ENTRY_WRONG_ID,
                    what=Code.ENTRY_WRONG_ID.meaning,
                    ledger_id=run.ledger_id,
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
        if self._task.has_gaps:
            self._check_kept(ledger, counted)
            return
        extent, stop, key = extent_of(ledger), counted.next_entry_id, self._task.key
        if extent.entries is None and extent.stop_entry_id not in (None, stop):
            self._found.add(_wrong(Code.WRONG_ENTRIES, key, ledger, extent.stop_entry_id, stop))
        elif extent.entries is not None and extent.entries < stop:
            self._found.add(_wrong(Code.WRONG_ENTRIES, key, ledger, extent.entries, stop))
        is_whole = extent.first_entry_id == 0 and extent.entries == stop and not self._task.is_filtered
        if is_whole and extent.size is not None and extent.size != counted.payload_bytes:
            self._found.add(_wrong(Code.WRONG_SIZE, key, ledger, extent.size, counted.payload_bytes))

    def _check_kept(self, ledger: LedgerIndex, counted: _Counted) -> None:
        """Compare the entries with what the filter counted as kept: where ids may be missing, nothing else tells."""
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
        lost = self._task.lost
        is_right = found == record.kept if not lost else found.entries + lost == record.kept.entries
        if not is_right:
            expected, given = (
                f"{each.entries} entries, {each.payload_bytes} bytes" for each in (record.kept, found)
            )
            self._found.add(
                Finding(
                    code=Code.KEPT,
                    what=Code.KEPT.meaning,
                    ledger_id=ledger.ledger_id,
                    expected=f"{expected} by the index",
                    found=given,
                )
            )


def _jumps(expected: int, entry_ids: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where ids do not follow one another: the one that should come, and the one that does."""
    following = np.concatenate([[expected], entry_ids[:-1] + 1])
    for row in np.flatnonzero(entry_ids != following).tolist():
        yield int(following[row]), int(entry_ids[row])


def _wrong(code: Code, key: ObjectKey, ledger: LedgerIndex, expected: int | None, found: int) -> Finding:
    return Finding(
        code=code,
        what=code.meaning,
        key=key.index_key,
        ledger_id=ledger.ledger_id,
        expected=f"{expected} by the index",
        found=f"{found} in the data object",
    )
