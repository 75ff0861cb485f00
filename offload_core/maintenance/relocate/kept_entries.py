"""Entries of a cold copy as they are: to be written again, and compared with those of the new copy.

An offload reads ids without a gap, and lets a filter take entries out of them. So what was left out is read as an
entry without bytes, and a filter that knows those ids takes it out again; what the old one's record says stays as it
is.

Before a new copy takes the old one's place, every byte of it is verified as by `offload verify --deep`, and what will
read it opens it; of a copy in another format the entries that come out have the ids, lengths and bytes of those that
went in.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Longs
from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.verify import Code, Severity
from offload_core.maintenance.verify.deep import DeepCheck, DeepTask
from offload_core.maintenance.verify.findings import Finding
from offload_core.maintenance.verify.pair_checks import examine
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.listing import Pair, listed_of, look_up, look_up_pair
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterRecord
from offload_core.reading.read_handles import ColdReader, ColdReaders, ReadMemory, SparseEntries
from offload_core.storage.tier import Tier
from offload_core.writing.offload.segment_offloader import SegmentFilter
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import DataLossError
from offload_hooks.filters import Position
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus

READ_BYTES = 4 << 20
_MOST_IDS = 1 << 20
"""How many ids are read at once, where few of them have entries."""


@dataclass(slots=True)
class EntrySums:
    """Checksums of entries: their ids, lengths and bytes, each by a CRC-32; however they were read.

    Attributes:
        entries, payload_bytes: how many, and their bytes.
    """

    entries: int = 0
    payload_bytes: int = 0
    ids_crc: int = 0
    lengths_crc: int = 0
    bytes_crc: int = 0

    def add(self, read: SparseEntries) -> None:
        """Add those that follow."""
        lengths = np.diff(read.offsets)
        data = read.data[read.offsets[0] : read.offsets[-1]] if len(read) else read.data[:0]
        self.entries += len(read)
        self.payload_bytes += len(data)
        self.ids_crc = zlib.crc32(np.ascontiguousarray(read.entry_ids).data, self.ids_crc)
        self.lengths_crc = zlib.crc32(lengths.data, self.lengths_crc)
        self.bytes_crc = zlib.crc32(np.ascontiguousarray(data).data, self.bytes_crc)


def sums_of(reader: ColdReader, entry_count: int) -> EntrySums:
    """Those of all entries of a ledger's cold copy. Errors as `ColdReader.read_sparse`."""
    sums, begin = EntrySums(), 0
    while begin < entry_count:
        read = reader.read_sparse(begin, min(begin + _MOST_IDS, entry_count) - 1, READ_BYTES)
        sums.add(read)
        begin = read.stop_entry_id
    return sums


class KeptLedger:
    """A `LedgerReader` over a cold copy without gaps in its ids; those of the last batch that are stand-ins are known.

    Args:
        entry_count: how many ids the ledger has.
        check: told of the bytes of each batch; if it raises, no more is read.

    Attributes:
        sums: of what was read by now, if that was read once and in order.
    """

    def __init__(self, reader: ColdReader, entry_count: int, check: Callable[[int], None]) -> None:
        self._reader = reader
        self._check = check
        self._entry_count = entry_count
        self._present: Longs = np.empty(0, dtype=np.int64)
        self.sums = EntrySums()

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`; its size is what the record says, which can be wrong."""
        return replace(self._reader.status(), entry_count=self._entry_count, sealed=True)

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`; an id without an entry has an empty one."""
        last = min(last_entry_id, first_entry_id + _MOST_IDS - 1)
        read = self._reader.read_sparse(first_entry_id, last, max_bytes)
        self.sums.add(read)
        self._check(int(read.offsets[-1] - read.offsets[0]))
        self._present = read.entry_ids
        lengths = np.zeros(read.stop_entry_id - read.first_entry_id, dtype=np.int64)
        lengths[read.entry_ids - read.first_entry_id] = np.diff(read.offsets)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        data = read.data[read.offsets[0] : read.offsets[-1]] if len(read) else read.data[:0]
        longs = offsets.data.cast("B").cast("q").toreadonly()
        return EntryBatch(read.first_entry_id, data.data.toreadonly(), longs)

    def are_absent(self, first_entry_id: int, count: int) -> npt.NDArray[np.bool_]:
        """Return which of these ids, of the batch that was read last, have no entry."""
        ids = np.arange(first_entry_id, first_entry_id + count)
        return ~np.isin(ids, self._present, assume_unique=True)

    def close(self) -> None:
        """See `LedgerReader`."""
        self._reader.close()


class _LeftOut:
    """A `TopicFilter` that drops what was left out before."""

    waits_for = ""
    causes: Sequence[str] = ("left out before",)

    stop: Position | None = None

    def __init__(self) -> None:
        self.ledger: KeptLedger | None = None

    def look(self, ledger_id: int, entries: EntryBatch) -> memoryview:
        assert self.ledger is not None
        assert self.ledger.ledger_id == ledger_id
        return self.ledger.are_absent(entries.first_entry_id, len(entries)).astype(np.int32).data


class KeptRun(FilterRun):
    """The run of a filter that ran before: it leaves out what that left out, and its record is that one's."""

    def __init__(self, record: FilterRecord) -> None:
        self._left_out = _LeftOut()
        super().__init__(record.name, record.mode, self._left_out)
        self._record = record
        self.stop = record.stop

    def read_from(self, ledger: KeptLedger) -> None:
        """From now on entries come of this ledger."""
        self._left_out.ledger = ledger

    def takes(self, _: EntryPosition) -> bool:
        """All was decided of before."""
        return True

    def record(self) -> FilterRecord:
        """Return what was said of it before."""
        return self._record


class KeptFilter(SegmentFilter):
    """The filter of a segment whose ledgers went through one before.

    Args:
        run: of what all ledgers' records say together.
        by_ledger: each ledger's own.
    """

    def __init__(self, run: KeptRun, by_ledger: Mapping[int, FilterRecord]) -> None:
        super().__init__(run, None)
        self._by_ledger = dict(by_ledger)

    def note(self, *_: object) -> None:
        """It was noted before."""

    def records(self) -> Mapping[int, FilterRecord]:
        """Return what was said of each ledger before."""
        return self._by_ledger


def check_objects(tier: Tier, key: ObjectKey) -> None:
    """Verify every byte of an attempt.

    Raises:
        DataLossError: something is wrong with it, as its first finding says.
        StoreError: of the tier.
    """
    examined = examine(tier, attempt_at(tier, key))
    if examined is None or examined.index is None or examined.pair.data is None:
        findings = [] if examined is None else examined.findings
        _refuse(key, findings)
        raise DataLossError("a new copy is not there as a whole", key=key.data_key)
    _refuse(key, examined.findings)
    result = DeepCheck(tier=tier)(DeepTask.of(0, examined))
    if result.failure is not None:
        raise result.failure
    if result.is_gone:
        raise DataLossError("a new copy has gone while it was verified", key=key.data_key)
    _refuse(key, list(result.findings))


def check_entries(
    tiers: KnownTiers,
    name: str,
    info: ManagedLedgerInfo,
    ledger_ids: Sequence[int],
    expected: Mapping[int, EntrySums],
) -> None:
    """Open ledgers as a record says that they are, and compare all their entries.

    Args:
        info: the record as it is to be.
        expected: of a ledger, what its entries were; of others they are not read.

    Raises:
        DataLossError: they are others.
        StoreError, FormatError: they cannot be read.
    """
    readers = ColdReaders(tiers, memory=ReadMemory())
    for ledger_id in ledger_ids:
        ledger, sums = info.ledger(ledger_id), expected.get(ledger_id)
        assert ledger is not None
        with closing(readers.open(ledger, name)) as reader:
            found = sums if sums is None else sums_of(reader, ledger.info.entries or 0)
        if found is not None and sums is not None and found != sums:
            raise DataLossError(
                "the entries of a new copy are not those of the old one",
                ledger_id=ledger_id,
                expected=f"{sums.entries} entries, {sums.payload_bytes} bytes, CRC-32 {sums.bytes_crc:08x}",
                found=f"{found.entries} entries, {found.payload_bytes} bytes, CRC-32 {found.bytes_crc:08x}",
            )


def _refuse(key: ObjectKey, findings: list[Finding]) -> None:
    for finding in findings:
        if finding.code is Code.LOST_ENTRIES:
            continue  # the old copy lacks them as well, and both say so
        if finding.code.severity is Severity.ERROR:
            raise DataLossError(
                f"a new copy is not sound: {finding.code.value}: {finding.what}",
                key=finding.key or key.data_key,
                ledger_id=finding.ledger_id,
                expected=finding.expected,
                found=finding.found,
                hint="The old copy is as it was. If that is damaged, `offload verify --deep` says so.",
            )


def attempt_at(tier: Tier, key: ObjectKey) -> Pair:
    """An attempt as it would be listed."""
    pair = look_up_pair(tier, key)
    pair.block_checksums = listed_of(look_up(tier, key.block_checksums_key))
    return pair
