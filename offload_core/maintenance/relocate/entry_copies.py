"""The entries of cold copies, of any format → another copy of another format, by the writers that offload.

Positions and bytes stay. What a filter had left out stays away, with what it said of that: see `kept_entries`.

A MapFile is written as Pulsar's offloader `filesystem` leaves it: data, `.crc` files, then the index. Values are
compressed in blocks, as Pulsar's documentation configures it. A MapFile has no user metadata, so only a ledger of
which nothing is left out goes into one. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from uuid import UUID

from offload_core.format.codec.mapfile.crc_files import CHUNK_BYTES, HEAD_BYTES, make_checksums
from offload_core.format.codec.mapfile.sequence_file import SYNC_BYTES, FileCompression
from offload_core.format.codec.mapfile.writer import MapFileWriter
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
from offload_core.maintenance.relocate.byte_copies import Check
from offload_core.maintenance.relocate.kept_entries import (
    READ_BYTES,
    EntrySums,
    KeptFilter,
    KeptLedger,
    KeptRun,
)
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition, LedgerRecord
from offload_core.metadata.records.filter_record import FilterRecord, indexed_filter
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.reading.read_handles.cold_copy import ColdExtent, open_extents
from offload_core.storage.tier import MemoryBudget, Tier, upload_blocks
from offload_core.writing.offload import LedgerOffloader, OfferResult, OffloadHandle, SegmentOffloader
from offload_core.writing.offload.attempt_objects import ledger_metadata
from offload_core.writing.offload_filters import joined
from offload_hooks.errors import DataLossError, OptionError
from offload_hooks.ledger_stores import EntryBatch

_HELD_CHECKSUMS_BYTES = 16 << 20
"""More checksums than these, of 2 GiB, wait in a temporary file until the data is stored."""


def write_mapfile(
    target: Tier, key: ObjectKey, ledger: KeptLedger, *, block_bytes: int, budget: MemoryBudget
) -> int:
    """Write a ledger of which no entry is left out as a MapFile under `key`; the bytes of its data file.

    Args:
        block_bytes: of a file, what is written at once.
        budget: what that takes.

    Raises:
        OptionError: an entry is too long for the format; nothing is visible.
        StoreError, FormatError: of either side.
    """
    assert key.checksum_keys is not None
    data_checksums_key, index_checksums_key = key.checksum_keys

    def upload(name: str, pieces: Iterable[bytes]) -> int:
        blocks = _cut(pieces, block_bytes)
        return upload_blocks(target, name, blocks, block_bytes=block_bytes, budget=budget).size_bytes

    with SpooledTemporaryFile(_HELD_CHECKSUMS_BYTES) as checksums:
        packed = _Packed(ledger)
        checksums.write(make_checksums(b""))
        size_bytes = upload(key.data_key, _summed(packed, checksums.write))
        checksums.seek(0)
        upload(data_checksums_key, iter(lambda: checksums.read(READ_BYTES), b""))
    target.write_index(index_checksums_key, make_checksums(packed.index))
    target.write_index(key.index_key, packed.index)
    return size_bytes


class _Packed:
    """The data file of a ledger, piece by piece; its index file when all were taken."""

    def __init__(self, ledger: KeptLedger) -> None:
        self._ledger = ledger
        self.index = b""

    def __iter__(self) -> Iterator[bytes]:
        status = self._ledger.status()
        writer = MapFileWriter(
            ledger_metadata(status),
            compression=FileCompression.BLOCK,
            sync=os.urandom(SYNC_BYTES),
            index_sync=os.urandom(SYNC_BYTES),
        )
        begin = 0
        while begin < status.entry_count:
            batch = self._ledger.read(begin, status.entry_count - 1, READ_BYTES)
            for number in range(len(batch)):
                payload = batch.data[batch.offsets[number] : batch.offsets[number + 1]]
                yield writer.append(begin + number, payload)
            begin = batch.stop_entry_id
        rest, self.index = writer.finish()
        yield rest


def _summed(pieces: Iterable[bytes], write: Callable[[bytes], object]) -> Iterator[bytes]:
    """The pieces as they are; the checksums of the file's chunks are written as these are whole."""
    held = b""
    for piece in pieces:
        held += piece
        whole = len(held) - len(held) % CHUNK_BYTES
        if whole:
            write(make_checksums(held[:whole])[HEAD_BYTES:])
            held = held[whole:]
        yield piece
    write(make_checksums(held)[HEAD_BYTES:])


def _cut(pieces: Iterable[bytes], block_bytes: int) -> Iterator[memoryview]:
    """The same bytes as blocks of one length, but for the last."""
    block = bytearray()
    for piece in pieces:
        left = memoryview(piece)
        while left:
            taken = left[: block_bytes - len(block)]
            block += taken
            left = left[len(taken) :]
            if len(block) == block_bytes:
                yield memoryview(block).toreadonly()
                block = bytearray()
    if block:
        yield memoryview(block).toreadonly()


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
    """Result of a copy by entries.

    Attributes:
        sums: of each ledger, those of the entries that were read of the source.
        filters: of each ledger that went through a filter, what that said.
        size_bytes: the new data object's.
    """

    sums: Mapping[int, EntrySums]
    filters: Mapping[int, FilterRecord] = field(default_factory=dict)
    size_bytes: int


class EntryCopies:
    """Writes cold copies anew; calls may come from many threads.

    Args:
        source: where the copies are, whatever their records say.
        target: where to; neither is closed.
        block_bytes: of the new objects' blocks.
        memory: what readers share; None for that of the process.
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
    ) -> CopiedEntries:
        """Write ledgers into one new copy; one alone, unless it is a streaming object.

        Args:
            marks: user metadata of the new copy, beside that of the old ones.

        Raises:
            DataLossError: entries are not there; nothing is left of the new copy, if its store answers.
            OptionError: a copy was filtered, and nothing says how, or the format cannot say it; or it lost entries.
            StoreError, FormatError: of either side.
        """
        with ExitStack() as held:
            about = self._about(name, ledgers[0]) | dict(marks)
            filters = self._filters(name, ledgers)
            if format_ is ObjectFormat.MAPFILE and filters:
                raise OptionError(
                    "entries are left out of a copy, which a MapFile cannot say",
                    ledger_id=ledgers[0].ledger_id,
                    hint="It can be moved as it is, or to pip17 or streaming.",
                )
            kept: list[KeptLedger] = []
            for ledger in ledgers:
                reader = held.enter_context(closing(self._readers.open(ledger, name)))
                kept.append(KeptLedger(reader, ledger.info.entries or 0, check))
            if format_ is ObjectFormat.STREAMING:
                size = self._segment(ledgers, kept, uuid, about, filters)
            elif format_ is ObjectFormat.MAPFILE:
                key = ObjectKey(
                    folder=f"{name}/",
                    uuid=uuid,
                    ledger_id=kept[0].ledger_id,
                    is_index=False,
                    is_mapfile=True,
                )
                budget = MemoryBudget(self._budget_bytes)
                size = write_mapfile(self._target, key, kept[0], block_bytes=self._block_bytes, budget=budget)
            else:
                size = self._whole(kept[0], uuid, about, filters)
            sums = {each.ledger_id: each.sums for each in kept}
        return CopiedEntries(sums=sums, filters=filters, size_bytes=size)

    def _whole(
        self,
        ledger: KeptLedger,
        uuid: UUID,
        about: Mapping[str, str],
        filters: Mapping[int, FilterRecord],
    ) -> int:
        run = KeptRun(filters[ledger.ledger_id]) if filters else None
        if run is not None:
            run.read_from(ledger)
        offloader = LedgerOffloader(
            self._target, max_block_bytes=self._block_bytes, budget=MemoryBudget(self._budget_bytes)
        )
        return offloader.offload(ledger, uuid, about, filter_run=run, exact_size=False).data_bytes

    def _segment(
        self,
        ledgers: Sequence[LedgerRecord],
        kept: Sequence[KeptLedger],
        uuid: UUID,
        about: Mapping[str, str],
        filters: Mapping[int, FilterRecord],
    ) -> int:
        run = KeptRun(_together(list(filters.values()))) if filters else None
        with ThreadPoolExecutor(4, thread_name_prefix="offload-relocate") as pool:
            offloader = SegmentOffloader(
                self._target,
                budget=MemoryBudget(self._budget_bytes),
                executor=pool,
                max_block_bytes=self._block_bytes,
            )
            handle = offloader.open_segment(
                uuid,
                EntryPosition(ledgers[0].ledger_id, 0),
                about,
                segment_filter=None if run is None else KeptFilter(run, filters),
            )
            try:
                for ledger, record in zip(kept, ledgers, strict=True):
                    if run is not None:
                        run.read_from(ledger)
                    _offer_all(handle, ledger, record.info.entries or 0)
                    handle.end_ledger(record.info)
                handle.close()
            except BaseException:
                handle.abort()
                handle.result().exception()
                raise
            return handle.result().result().data_bytes

    def _about(self, name: str, ledger: LedgerRecord) -> dict[str, str]:
        """User metadata of the first copy, that stays."""
        piece = self._pieces(name, ledger)[0]
        found = piece.tier.stat(piece.key.data_key).user_metadata
        return {TOPIC_KEY: name} | {key: value for key, value in found.items() if key not in _OURS}

    def _filters(self, name: str, ledgers: Sequence[LedgerRecord]) -> dict[int, FilterRecord]:
        found: dict[int, FilterRecord] = {}
        for ledger in ledgers:
            records = [self._filter(piece) for piece in self._pieces(name, ledger)]
            said = [record for record in records if record is not None]
            if said and len(said) < len(records):
                raise OptionError(
                    "a part of the ledger went through a filter, and one object is filtered as a whole",
                    ledger_id=ledger.ledger_id,
                )
            if said:
                found[ledger.ledger_id] = said[0] if len(said) == 1 else _together(said)
        if found and len(found) < len(ledgers):
            raise OptionError("some of the ledgers went through a filter, and others did not")
        return found

    def _filter(self, piece: ColdExtent) -> FilterRecord | None:
        record = indexed_filter(piece.ledger)
        said = piece.tier.stat(piece.key.data_key).user_metadata
        if LOST_KEY in said:
            raise OptionError(
                "a copy lost entries before it was repaired, and would not say so in another format",
                key=piece.key.data_key,
                hint="It can be moved as it is, in its format.",
            )
        if record is None and ObjectMarks.of(said).is_filtered:
            raise OptionError(
                "a copy went through a filter of which its index says nothing",
                key=piece.key.data_key,
                hint="It can be moved as it is, in its format.",
            )
        return record

    def _pieces(self, name: str, ledger: LedgerRecord) -> tuple[ColdExtent, ...]:
        memory = self._memory or ReadMemory()
        return open_extents(self._source, ledger, name, memory)


def _together(records: Sequence[FilterRecord]) -> FilterRecord:
    """Return what filters of one name and mode say of several copies."""
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
