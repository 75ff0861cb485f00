"""Summaries of ledgers' transactions: made by a pass over metadata, kept in a store, remembered by a process.

A summary of the blocks of one ledger in one object has the ranges of entries of each transaction, the markers, the
tombstones, and the publish times of each block. Its bytes are versioned, checked, and bound to key and length of the
data object, whose blocks never change. Keeping is best effort: a summary that cannot be read or written costs a warning
and another pass. All bytes of the blocks are fetched for a pass, since each entry's metadata stands before its payload.
Source: docs/transactions.md, docs/formats/summary.md.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable
from offload_core.format.messages.transaction_finder import NO_TIMES, TransactionFinder, join_ranges
from offload_core.reading.scan.windows import fetch_windows, walk_windows
from offload_core.storage.tier import Tier
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    EntryOrderError,
    FormatError,
    MetadataError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    TruncatedError,
    UnsupportedVersionError,
    placed,
)
from offload_hooks.json_text import JsonObject

MAGIC = 0x5075_4C53
VERSION = 1
_HEAD = struct.Struct(">IIII")
_COLUMNS = {"ranges": 4, "markers": 4, "tombstones": 2, "blocks": 4}

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LedgerSummary:
    """The entries of one ledger in one data object. All tables are int64, in ascending order, a row for each thing.

    Attributes:
        data_key, data_bytes: the data object and its length.
        ranges: entries of one transaction that follow one another: first, stop, most and least bits of its id.
        markers: markers of transactions: entry, type (20, 21, 22), most and least bits.
        tombstones: markers without a transaction, which stand for entries that a filter left out: first, stop.
        blocks: offset in the object, number of entries, least and greatest publish time (ms).
    """

    data_key: str
    data_bytes: int
    ledger_id: int
    ranges: Table
    markers: Table
    tombstones: Table
    blocks: Table


def pack_summary(summary: LedgerSummary) -> bytes:
    """The bytes of a summary."""
    tables = [getattr(summary, name) for name in _COLUMNS]
    facts = {
        "data_key": summary.data_key,
        "data_bytes": summary.data_bytes,
        "ledger_id": summary.ledger_id,
        **{name: len(table) for name, table in zip(_COLUMNS, tables, strict=True)},
    }
    described = json.dumps(facts).encode()
    body = described + b"".join(table.astype(">i8").tobytes() for table in tables)
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body), len(described)) + body


def parse_summary(data: bytes | memoryview) -> LedgerSummary:
    """The summary in `data`.

    Raises:
        FormatError: bytes that are none; `UnsupportedVersionError` of a newer version.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise TruncatedError("a ledger's summary is cut off", expected=f"{_HEAD.size} bytes", found=len(view))
    magic, version, checksum, described_bytes = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise BadMagicError(
            "this is no ledger's summary", offset=0, expected=f"{MAGIC:08X}", found=f"{magic:08X}"
        )
    if version != VERSION:
        raise UnsupportedVersionError(
            "a ledger's summary has a version that this program does not know",
            offset=4,
            expected=VERSION,
            found=version,
            hint="Upgrade pulsar-offload, or name another folder for summaries.",
        )
    body = view[_HEAD.size :]
    found = zlib.crc32(body)
    if found != checksum:
        raise ChecksumError(
            "a ledger's summary does not match its checksum",
            offset=8,
            expected=f"CRC-32 {checksum:08x}",
            found=f"{found:08x}",
        )
    if described_bytes > len(body):
        raise BadLengthError(
            "a summary's description is longer than the summary",
            offset=12,
            expected=f"at most {len(body)}",
            found=described_bytes,
        )
    facts = JsonObject.read(
        bytes(body[:described_bytes]), "a summary's description", error=MetadataError, offset=_HEAD.size
    )
    return _parse_body(facts, body[described_bytes:])


def _parse_body(facts: JsonObject, body: memoryview) -> LedgerSummary:
    rows = {name: facts.integer(name) for name in _COLUMNS}
    expected = sum(8 * columns * rows[name] for name, columns in _COLUMNS.items())
    if expected != len(body):
        raise BadLengthError(
            "a summary's tables have another length than it states",
            expected=f"{expected} bytes",
            found=len(body),
        )
    tables = {}
    position = 0
    for name, columns in _COLUMNS.items():
        size = 8 * columns * rows[name]
        table = np.frombuffer(body[position : position + size], dtype=">i8").astype(np.int64)
        tables[name] = table.reshape(-1, columns)
        tables[name].flags.writeable = False
        position += size
    summary = LedgerSummary(
        data_key=facts.text("data_key"),
        data_bytes=facts.integer("data_bytes"),
        ledger_id=facts.integer("ledger_id"),
        **tables,
    )
    _check(summary)
    return summary


def _check(summary: LedgerSummary) -> None:
    for name, table in (("ranges", summary.ranges), ("tombstones", summary.tombstones)):
        right = (table[:, 0] >= 0).all() and (table[:, 0] < table[:, 1]).all()
        if not right or (table[1:, 0] < table[:-1, 1]).any():
            raise EntryOrderError(f"a summary's {name} are not in order")
    for name, table in (("markers", summary.markers), ("blocks", summary.blocks)):
        if (table[:, 0] < 0).any() or (np.diff(table[:, 0]) <= 0).any():
            raise EntryOrderError(f"a summary's {name} are not in order")


MAX_SUMMARY_BYTES = 1 << 30
"""A larger one is neither written nor read."""

_log = logging.getLogger(__name__)


class SummaryStore:
    """The summaries in a store. Threads may share it."""

    def __init__(self, store: Tier) -> None:
        self._store = store
        self._newer: set[str] = set()

    def load(self, data_key: str, data_bytes: int, ledger_id: int) -> LedgerSummary | None:
        """The summary of a ledger in a data object of this length; None if there is none that can be used."""
        key = summary_key(data_key, ledger_id)
        try:
            with placed(key=key):
                summary = self._read(key)
                found = (summary.data_key, summary.data_bytes, summary.ledger_id)
        except ObjectNotFoundError:
            return None
        except UnsupportedVersionError as error:
            self._newer.add(key)  # the version that wrote it can use it
            _log.warning("%s It is not used, and the ledger is read again", error)
            return None
        except FormatError as error:
            _log.warning("%s. It is made anew", error)
            return None
        except StoreError as error:
            _log.warning("a ledger's summary cannot be read, so the ledger is read again: %s", error)
            return None
        if found != (data_key, data_bytes, ledger_id):
            _log.info("the summary %s is of another object, %s. It is made anew", key, found)
            return None
        return summary

    def save(self, summary: LedgerSummary) -> None:
        """Keep a summary, whole or not at all."""
        key = summary_key(summary.data_key, summary.ledger_id)
        data = pack_summary(summary)
        if key in self._newer or len(data) > MAX_SUMMARY_BYTES:
            return
        try:
            self._store.write_index(key, data)
        except OffloadError as error:
            _log.warning("a ledger's summary cannot be stored, so it will be made again: %s", error)

    def _read(self, key: str) -> LedgerSummary:
        size = self._store.stat(key).size_bytes
        if not 0 < size <= MAX_SUMMARY_BYTES:
            raise MetadataError(
                "a ledger's summary has no possible size",
                expected=f"1 to {MAX_SUMMARY_BYTES} bytes",
                found=size,
            )
        return parse_summary(self._store.read_range(key, 0, size))


def summary_key(data_key: str, ledger_id: int) -> str:
    """The key of the summary of a ledger in a data object."""
    return f"{data_key}.ledger-{ledger_id}.summary"


MAX_MEMORY_BYTES = 64 << 20
"""The most that is remembered; beyond it the least recently used is forgotten."""

_NOMINAL_BYTES = 1024
"""About the memory of a summary without a row in its tables."""

Key = tuple[str, int, int, int, int]


class SummaryMemory:
    """The summaries of extents that this process keeps; pickled, it arrives empty."""

    def __init__(self, max_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._max_bytes = max_bytes
        self._summaries: BoundedCache[Key, LedgerSummary] = BoundedCache(max_bytes, size_of=_size)

    def __reduce__(self) -> tuple[type[SummaryMemory], tuple[int]]:
        return SummaryMemory, (self._max_bytes,)

    def get(self, extent: LedgerExtent, data_bytes: int) -> LedgerSummary | None:
        """The summary of exactly these blocks of an object of this length, if it is remembered."""
        return self._summaries.get(_key(extent, data_bytes))

    def put(self, extent: LedgerExtent, summary: LedgerSummary) -> None:
        """Remember the summary of an extent's blocks."""
        self._summaries.put(_key(extent, summary.data_bytes), summary)


def _key(extent: LedgerExtent, data_bytes: int) -> Key:
    return extent.data_key, data_bytes, extent.ledger_id, extent.blocks[0].offset, extent.blocks[-1].offset


def _size(summary: LedgerSummary) -> int:
    tables = (summary.ranges, summary.markers, summary.tombstones, summary.blocks)
    return _NOMINAL_BYTES + sum(table.nbytes for table in tables)


MOST_WORKERS = 8
"""Most threads that read blocks; no more than processors."""

LOADS_AT_ONCE = 32
"""Summaries that are fetched at once."""

JOB_BYTES = 64 << 20
"""About this many bytes of blocks are one job of a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedExtent:
    """An extent whose transactions are looked up, all of its entries; of these `begin` … `end` − 1 count.

    Attributes:
        object_bytes: the length of the data object.
        is_whole: it has all blocks of the ledger in its object.
    """

    extent: LedgerExtent
    object_bytes: int
    begin: int
    end: int
    is_whole: bool = True

    @property
    def markers_only(self) -> bool:
        """True if a filter has cleaned it: it is worth a pass only while others have transactions that are open."""
        return self.extent.marks.is_settled

    @property
    def first(self) -> tuple[int, int]:
        """Ledger and entry of the first that counts."""
        return self.extent.ledger_id, max(self.begin, self.extent.blocks[0].first_entry_id)

    def with_blocks(self, blocks: BlockTable) -> SurveyedExtent:
        """The same with some of the blocks."""
        return replace(self, extent=self.extent.with_blocks(blocks), is_whole=False)

    def clip(self, summary: LedgerSummary) -> tuple[Table, Table]:
        """Ranges and markers of its summary, without those that do not count."""
        ranges, markers = summary.ranges, summary.markers
        ranges = ranges[(ranges[:, 1] > self.begin) & (ranges[:, 0] < self.end)].copy()
        ranges[:, 0] = np.maximum(ranges[:, 0], self.begin)
        ranges[:, 1] = np.minimum(ranges[:, 1], self.end)
        return ranges, markers[(markers[:, 0] >= self.begin) & (markers[:, 0] < self.end)]


def survey(
    tier: Tier,
    surveyed: Sequence[SurveyedExtent],
    *,
    kept: SummaryStore | None,
    memory: SummaryMemory | None = None,
    verify_checksums: bool,
) -> list[LedgerSummary]:
    """The summaries, in order; those of whole extents are taken from `kept` and put into it.

    With a `memory` nothing that it holds is fetched again, by whole extents where there is `kept`, else by blocks.

    Raises:
        FormatError, StoreError: of the objects themselves, as in a read.
    """
    summaries: list[LedgerSummary | None] = [None] * len(surveyed)
    if memory is not None:
        summaries = [memory.get(one.extent, one.object_bytes) for one in surveyed]
    unknown = [i for i, summary in enumerate(summaries) if summary is None]
    if kept is not None and unknown:
        loads = bounded_map(
            lambda i: _load(kept, surveyed[i]), unknown, at_once=LOADS_AT_ONCE, name="offload-summaries"
        )
        for i, loaded in zip(unknown, loads, strict=True):
            summaries[i] = loaded
            if loaded is not None and memory is not None:
                memory.put(surveyed[i].extent, loaded)
    by_block = memory is not None and kept is None
    extents = {
        i: list(split_extent(surveyed[i].extent, 0 if by_block else JOB_BYTES))
        for i in unknown
        if summaries[i] is None
    }
    jobs = [(i, extent) for i, of_one in extents.items() for extent in of_one]
    for i, of_one in _survey_extents(
        tier, surveyed, jobs, memory if by_block else None, verify_checksums
    ).items():
        summaries[i] = joined = _join(of_one)
        if kept is not None:
            if surveyed[i].is_whole:
                kept.save(joined)
            if memory is not None:
                memory.put(surveyed[i].extent, joined)
    return [summary for summary in summaries if summary is not None]


def _survey_extents(
    tier: Tier,
    surveyed: Sequence[SurveyedExtent],
    jobs: Sequence[tuple[int, LedgerExtent]],
    memory: SummaryMemory | None,
    verify_checksums: bool,
) -> dict[int, list[LedgerSummary]]:
    """Summaries of jobs, by the number of their extent; by threads, but for those in the memory."""
    known = [None if memory is None else memory.get(extent, surveyed[i].object_bytes) for i, extent in jobs]
    unknown = [job for job, summary in zip(jobs, known, strict=True) if summary is None]
    results = bounded_map(
        lambda job: survey_extent(tier, job[1], surveyed[job[0]].object_bytes, verify_checksums),
        unknown,
        at_once=min(MOST_WORKERS, os.cpu_count() or 1),
        name="offload-survey",
    )
    with contextlib.closing(results):
        made: dict[int, list[LedgerSummary]] = {}
        for (i, extent), summary in zip(jobs, known, strict=True):
            if summary is None:
                summary = next(results)
                if memory is not None:
                    memory.put(extent, summary)
            made.setdefault(i, []).append(summary)
        return made


def survey_extent(tier: Tier, extent: LedgerExtent, data_bytes: int, verify_checksums: bool) -> LedgerSummary:
    """The summary of an extent's blocks."""
    finder = TransactionFinder(extent.ledger_id, verify_checksums=verify_checksums)
    blocks = []
    with placed(key=extent.data_key), contextlib.closing(fetch_windows(tier, (extent,))) as windows:
        for window, cursor in walk_windows(extent, windows):
            if window.begins_block:
                entries = 0
                finder.times[:] = NO_TIMES
            for located in cursor.located():
                finder.add(located)
                entries += len(located.entry_ids)
            if window.ends_block:
                blocks.append((window.block.offset, entries, *finder.times.tolist()))
    ranges, markers, tombstones = finder.tables()
    return LedgerSummary(
        data_key=extent.data_key,
        data_bytes=data_bytes,
        ledger_id=extent.ledger_id,
        ranges=ranges,
        markers=markers,
        tombstones=tombstones,
        blocks=np.array(blocks, dtype=np.int64).reshape(-1, 4),
    )


def _load(kept: SummaryStore, one: SurveyedExtent) -> LedgerSummary | None:
    return kept.load(one.extent.data_key, one.object_bytes, one.extent.ledger_id) if one.is_whole else None


def split_extent(extent: LedgerExtent, job_bytes: int = JOB_BYTES) -> Iterator[LedgerExtent]:
    """Split an extent into jobs of about `job_bytes`."""
    begin = used = 0
    for i, length in enumerate(extent.blocks.lengths.tolist()):
        if used and used + length > job_bytes:
            yield extent.with_blocks(extent.blocks[begin:i])
            begin, used = i, 0
        used += length
    yield extent.with_blocks(extent.blocks[begin:])


def _join(summaries: Sequence[LedgerSummary]) -> LedgerSummary:
    """Join the summaries of an extent's jobs."""
    if len(summaries) == 1:
        return summaries[0]
    return replace(
        summaries[0],
        ranges=join_ranges(np.concatenate([each.ranges for each in summaries])),
        markers=np.concatenate([each.markers for each in summaries]),
        tombstones=join_ranges(np.concatenate([each.tombstones for each in summaries])),
        blocks=np.concatenate([each.blocks for each in summaries]),
    )
