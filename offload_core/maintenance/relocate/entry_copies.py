"""Copies of ledgers by entries, from any format to another, by the writers that offload; and their verification.

Positions and bytes stay. An offload reads ids without a gap, and lets a filter take entries out of them. So an entry
that was left out before is read as one without bytes, and a filter that knows those ids takes it out again; the old
copy's filter record stays as it is. A copy that went through no filter may go through one now.

Before a new copy takes the old one's place, every byte of it is verified as by `offload verify --deep`; its entries
have the ids, lengths and bytes of the old copy's, or what the filter makes of them. And it is opened as readers will.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import LocatedEntries, Longs, read_only
from offload_core.format.codec.crc32c import crc32c, crc32c_address
from offload_core.format.codec.kernels.frames import checksum_entries
from offload_core.format.codec.object_format import (
    FORMAT_VERSION_KEY,
    ROLE_KEY,
    SOFTWARE_VERSION_KEY,
    TOPIC_KEY,
    ObjectFormat,
    ObjectKey,
)
from offload_core.format.codec.object_marks import (
    FILTERED_DROPPED_KEY,
    FILTERED_KEPT_KEY,
    FILTERED_KEY,
    FILTERED_MODE_KEY,
    FILTERED_STOP_KEY,
    LOST_KEY,
    MAPPED_KEY,
    REPAIRED_FROM_KEY,
    ObjectMarks,
)
from offload_core.maintenance.relocate.copy_filters import AbortedEntries
from offload_core.maintenance.verify.attempt_checks import check_objects
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterRecord, indexed_filter
from offload_core.reading.read_handles import ColdReader, ColdReaders, ReadMemory, SparseEntries
from offload_core.reading.read_handles.cold_copy import ColdExtent, open_extents
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload import LedgerOffloader, OfferResult, OffloadHandle, SegmentOffloader
from offload_core.writing.offload.segment_offloader import SegmentFilter
from offload_core.writing.offload_filters import FilterRun, joined
from offload_hooks.errors import DataLossError, OptionError
from offload_hooks.filters import Position
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus

Check = Callable[[int], None]
"""Gets the bytes of each part as it is read; if it raises, the copy is abandoned."""

READ_BYTES = 4 << 20
_MOST_IDS = 1 << 20
"""Ids that are read at once, where few of them have entries."""


@dataclass(slots=True)
class EntrySums:
    """Checksums of entries: their ids, lengths and bytes, each by a CRC-32C, in any batches.

    Attributes:
        entries, payload_bytes: their number, and their bytes.
    """

    entries: int = 0
    payload_bytes: int = 0
    ids_crc: int = 0
    lengths_crc: int = 0
    bytes_crc: int = 0

    def __str__(self) -> str:
        return f"{self.entries} entries, {self.payload_bytes} bytes, CRC-32C {self.bytes_crc:08x}"

    def add(self, located: LocatedEntries) -> None:
        """Add the entries that follow."""
        array, _, entry_ids, offsets, lengths = located
        self.entries += len(entry_ids)
        self.payload_bytes += int(lengths.sum())
        self.ids_crc = _extend(self.ids_crc, entry_ids)
        self.lengths_crc = _extend(self.lengths_crc, lengths)
        seed = np.uint32(self.bytes_crc)
        self.bytes_crc = int(checksum_entries(read_only(array), offsets, lengths, crc32c_address(), seed))


def _extend(crc: int, values: Longs) -> int:
    return crc32c(np.ascontiguousarray(values).view(np.uint8), crc)


class KeptLedger:
    """A `LedgerReader` over a cold copy, without gaps in its ids: an id that has no entry gets an empty one.

    Args:
        entry_count: number of ids of the ledger.
        check: gets the bytes of each batch; if it raises, no more is read.
        run: what the entries go through as they are copied; used for the sums alone.

    Attributes:
        sums: of the entries that the new copy is to have, if they were read once and in order.
    """

    def __init__(
        self, reader: ColdReader, entry_count: int, check: Callable[[int], None], run: FilterRun | None = None
    ) -> None:
        self._reader = reader
        self._run = run
        self._check = check
        self._entry_count = entry_count
        self._present: Longs = np.empty(0, dtype=np.int64)
        self.sums = EntrySums()

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`; its size is the record's, which can be wrong."""
        return replace(self._reader.status(), entry_count=self._entry_count, sealed=True)

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`; an id without an entry has an empty one."""
        last = min(last_entry_id, first_entry_id + _MOST_IDS - 1)
        read = self._reader.read_sparse(first_entry_id, last, max_bytes)
        self._check(int(read.offsets[-1] - read.offsets[0]))
        self._present = read.entry_ids
        lengths = np.zeros(read.stop_entry_id - read.first_entry_id, dtype=np.int64)
        lengths[read.entry_ids - read.first_entry_id] = np.diff(read.offsets)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        data = read.data[read.offsets[0] : read.offsets[-1]] if len(read) else read.data[:0]
        longs = offsets.data.cast("B").cast("q").toreadonly()
        batch = EntryBatch(read.first_entry_id, data.data.toreadonly(), longs)
        summed = read if self._run is None else self._filtered(self._run, read, batch)
        self.sums.add(summed.located())
        return batch

    def _filtered(self, run: FilterRun, read: SparseEntries, batch: EntryBatch) -> SparseEntries:
        if len(read) < len(batch):
            raise DataLossError(
                "entries are missing of a copy that went through no filter",
                ledger_id=self.ledger_id,
                entry_id=batch.first_entry_id
                + int(self.are_absent(batch.first_entry_id, len(batch)).argmax()),
            )
        made = run.apply(self.ledger_id, batch)
        return SparseEntries(
            first_entry_id=made.first_entry_id,
            stop_entry_id=made.stop_entry_id,
            entry_ids=made.entry_ids,
            data=made.data,
            offsets=made.offsets,
        )

    def are_absent(self, first_entry_id: int, count: int) -> npt.NDArray[np.bool_]:
        """Return which of these ids, of the batch that was read last, have no entry."""
        ids = np.arange(first_entry_id, first_entry_id + count)
        return ~np.isin(ids, self._present, assume_unique=True)

    def close(self) -> None:
        """See `LedgerReader`."""
        self._reader.close()


class _LeftOut:
    """A `TopicFilter` that drops the entries that were left out before."""

    waits_for = ""
    causes: Sequence[str] = ("left out before",)

    stop: Position | None = None

    def __init__(self, ledgers: Iterable[KeptLedger]) -> None:
        self._ledgers = {ledger.ledger_id: ledger for ledger in ledgers}

    def look(self, ledger_id: int, entries: EntryBatch) -> memoryview:
        ledger = self._ledgers[ledger_id]
        return ledger.are_absent(entries.first_entry_id, len(entries)).astype(np.int32).data


class KeptRun(FilterRun):
    """The run of a filter that ran before: it leaves out the same entries, and has the same record."""

    def __init__(self, record: FilterRecord, ledgers: Iterable[KeptLedger]) -> None:
        super().__init__(record.name, record.mode, _LeftOut(ledgers))
        self._record = record
        self.stop = record.stop

    def takes(self, _: EntryPosition) -> bool:
        """Return True: all was decided before."""
        return True

    def record(self) -> FilterRecord:
        """Return its record as it was."""
        return self._record


class KeptFilter(SegmentFilter):
    """The filter of a segment whose ledgers went through one before.

    Args:
        run: of all ledgers' records together.
        by_ledger: each ledger's record.
    """

    def __init__(self, run: KeptRun, by_ledger: Mapping[int, FilterRecord]) -> None:
        super().__init__(run, None)
        self._by_ledger = dict(by_ledger)

    def note(self, *_: object) -> None:
        """Do nothing: it was noted before."""

    def records(self) -> Mapping[int, FilterRecord]:
        """Return each ledger's record as it was."""
        return self._by_ledger


def check_opens(tiers: KnownTiers, name: str, info: ManagedLedgerInfo, ledger_ids: Sequence[int]) -> None:
    """Open ledgers by their record as it is to be, as readers will.

    Raises:
        DataLossError, StoreError, FormatError: they cannot be read.
    """
    readers = ColdReaders(tiers, memory=ReadMemory())
    for ledger_id in ledger_ids:
        ledger = info.ledger(ledger_id)
        assert ledger is not None
        readers.open(ledger, name).close()


DEFAULT_BLOCK_BYTES = 64 << 20
_OURS = frozenset(
    (
        FORMAT_VERSION_KEY,
        SOFTWARE_VERSION_KEY,
        ROLE_KEY,
        FILTERED_KEY,
        FILTERED_MODE_KEY,
        FILTERED_STOP_KEY,
        FILTERED_KEPT_KEY,
        FILTERED_DROPPED_KEY,
        MAPPED_KEY,
        REPAIRED_FROM_KEY,
    )
)
"""User metadata that is written anew; all else goes along."""
_LEAST_BUDGET_BYTES = 64 << 20
"""Room for the largest entries, however small blocks are."""
_RETRY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedEntries:
    """A copy by entries, before it is verified.

    Attributes:
        sums: of the entries that each ledger is to have.
        filters: of each ledger that went through a filter, its record.
        size_bytes: the new data object's.
    """

    sums: Mapping[int, EntrySums]
    filters: Mapping[int, FilterRecord] = field(default_factory=dict)
    size_bytes: int

    def verify(self, target: Tier, key: ObjectKey) -> None:
        """Verify every byte of the copy, whose entries must be those that it was made of.

        Raises:
            DataLossError: it is not sound, or its entries are others.
            StoreError: of the tier.
        """
        found: defaultdict[int, EntrySums] = defaultdict(EntrySums)
        check_objects(target, key, on_entries=lambda ledger_id, located: found[ledger_id].add(located))
        for ledger_id in self.sums.keys() | found.keys():
            sums = self.sums.get(ledger_id, EntrySums())
            if found[ledger_id] != sums:
                raise DataLossError(
                    "the entries of a new copy are not those that it was made of",
                    key=key.data_key,
                    ledger_id=ledger_id,
                    expected=str(sums),
                    found=str(found[ledger_id]),
                )


class EntryCopies:
    """Writes cold copies anew; calls may come from many threads.

    Args:
        source: tier of the copies, whatever their records name.
        target: tier of the new copies; neither is closed.
        block_bytes: of the new objects' blocks.
        memory: shared by readers; None for that of the process.
    """

    def __init__(
        self,
        source: KnownTiers,
        target: Tier,
        *,
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        memory: ReadMemory | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._block_bytes = max(block_bytes, target.describe().capabilities.min_block_bytes)
        self._budget_bytes = max(4 * self._block_bytes, _LEAST_BUDGET_BYTES)
        self._memory = memory
        self._readers = ColdReaders(source, memory=memory)

    def copy(
        self,
        name: str,
        ledgers: Sequence[LedgerRecord],
        uuid: UUID,
        format_: ObjectFormat,
        check: Check,
        marks: Mapping[str, str] = MappingProxyType({}),
        left_out: AbortedEntries | None = None,
    ) -> CopiedEntries:
        """Write ledgers into one new copy; one alone, unless it is a streaming object.

        Args:
            marks: user metadata of the new copy, beside that of the old ones.
            left_out: of the only ledger, which went through no filter before: what is left out now.

        Raises:
            DataLossError: entries are missing; nothing is left of the new copy, if its store answers.
            OptionError: a copy was filtered, and how is not known or does not fit the format; or it lost entries.
            StoreError, FormatError: of either side, or the filter.
        """
        with ExitStack() as held:
            about = self._about(name, ledgers[0]) | dict(marks)
            filters = self._filters(name, ledgers)
            if filters and left_out is not None:
                raise OptionError(
                    "the copy went through a filter before, which its record does not state",
                    ledger_id=ledgers[0].ledger_id,
                    hint="It can be moved without --filter.",
                )
            kept: list[KeptLedger] = []
            for ledger in ledgers:
                reader = held.enter_context(closing(self._readers.open(ledger, name)))
                sums_run = None if left_out is None else left_out.run()
                kept.append(KeptLedger(reader, ledger.info.entries or 0, check, sums_run))
            run: FilterRun | None = None
            segment_filter: SegmentFilter | None = None
            if filters:
                run = KeptRun(_together(list(filters.values())), kept)
                segment_filter = KeptFilter(run, filters)
            elif left_out is not None:
                run = left_out.run()
                segment_filter = SegmentFilter(run, None)
            if format_ is ObjectFormat.STREAMING:
                size = self._segment(ledgers, kept, uuid, about, segment_filter)
                ran = {} if segment_filter is None else segment_filter.records()
            else:
                size = self._whole(kept[0], uuid, format_, about, run)
                ran = {} if run is None else {kept[0].ledger_id: run.record()}
            sums = {each.ledger_id: each.sums for each in kept}
        return CopiedEntries(sums=sums, filters=ran, size_bytes=size)

    def _whole(
        self,
        ledger: KeptLedger,
        uuid: UUID,
        format_: ObjectFormat,
        about: Mapping[str, str],
        run: FilterRun | None,
    ) -> int:
        offloader = LedgerOffloader(
            self._target,
            max_block_bytes=self._block_bytes,
            budget=MemoryBudget(self._budget_bytes),
            object_format=format_,
        )
        return offloader.offload(ledger, uuid, about, filter_run=run, exact_size=False).data_bytes

    def _segment(
        self,
        ledgers: Sequence[LedgerRecord],
        kept: Sequence[KeptLedger],
        uuid: UUID,
        about: Mapping[str, str],
        segment_filter: SegmentFilter | None,
    ) -> int:
        with ThreadPoolExecutor(4, thread_name_prefix="offload-relocate") as pool:
            offloader = SegmentOffloader(
                self._target,
                budget=MemoryBudget(self._budget_bytes),
                executor=pool,
                max_block_bytes=self._block_bytes,
            )
            handle = offloader.open_segment(
                uuid, EntryPosition(ledgers[0].ledger_id, 0), about, segment_filter=segment_filter
            )
            try:
                for ledger, record in zip(kept, ledgers, strict=True):
                    _offer_all(handle, ledger, record.info.entries or 0)
                    handle.end_ledger(record.info)
                handle.close()
            except BaseException:
                handle.abort()
                handle.result().exception()
                raise
            return handle.result().result().data_bytes

    def _about(self, name: str, ledger: LedgerRecord) -> dict[str, str]:
        """Return user metadata of the first copy, as far as it stays."""
        extent = self._extents(name, ledger)[0]
        found = extent.tier.stat(extent.data_key).user_metadata
        return {TOPIC_KEY: name} | {key: value for key, value in found.items() if key not in _OURS}

    def _filters(self, name: str, ledgers: Sequence[LedgerRecord]) -> dict[int, FilterRecord]:
        found: dict[int, FilterRecord] = {}
        for ledger in ledgers:
            records = [self._filter(extent) for extent in self._extents(name, ledger)]
            filters = [record for record in records if record is not None]
            if filters and len(filters) < len(records):
                raise OptionError(
                    "a part of the ledger went through a filter, and one object is filtered as a whole",
                    ledger_id=ledger.ledger_id,
                )
            if filters:
                found[ledger.ledger_id] = _together(filters)
        if found and len(found) < len(ledgers):
            raise OptionError("some of the ledgers went through a filter, and others did not")
        return found

    def _filter(self, extent: ColdExtent) -> FilterRecord | None:
        record = indexed_filter(extent.ledger)
        user_metadata = extent.tier.stat(extent.data_key).user_metadata
        if LOST_KEY in user_metadata:
            raise OptionError(
                "a copy lost entries before it was repaired, and would not say so if it were written anew",
                key=extent.data_key,
                hint="It can be moved as it is, in its format.",
            )
        if record is None and ObjectMarks.of(user_metadata).is_filtered:
            raise OptionError(
                "a copy went through a filter of which its index says nothing",
                key=extent.data_key,
                hint="It can be moved as it is, in its format.",
            )
        return record

    def _extents(self, name: str, ledger: LedgerRecord) -> tuple[ColdExtent, ...]:
        memory = self._memory or ReadMemory()
        return open_extents(self._source, ledger, name, memory)


def _together(records: Sequence[FilterRecord]) -> FilterRecord:
    """Join the filter records of several copies, of one name and mode."""
    if len(records) == 1:
        return records[0]
    if len({(each.name, each.mode) for each in records}) > 1:
        raise OptionError("copies that went through different filters do not become one")
    stops = [each.stop for each in records]
    known = [stop for stop in stops if stop is not None]
    return joined(records, max(known) if len(known) == len(stops) else None)


def _offer_all(handle: OffloadHandle, ledger: KeptLedger, entry_count: int) -> None:
    """Offer a ledger's entries, waiting for memory."""
    begin, wait = 0, threading.Event()
    while begin < entry_count:
        batch = ledger.read(begin, entry_count - 1, READ_BYTES)
        begin = batch.stop_entry_id
        while len(batch):
            offered = handle.offer_entries(ledger.ledger_id, batch)
            if offered.result not in (OfferResult.ACCEPTED, OfferResult.BUFFER_FULL):
                failure = handle.failure
                if failure is not None:
                    raise failure
                raise DataLossError(
                    "a segment does not take the entries of a ledger",
                    ledger_id=ledger.ledger_id,
                    entry_id=batch.first_entry_id + offered.accepted,
                    found=offered.result.value,
                )
            batch = EntryBatch(
                batch.first_entry_id + offered.accepted, batch.data, batch.offsets[offered.accepted :]
            )
            if offered.result is OfferResult.BUFFER_FULL:
                wait.wait(_RETRY_S)
