"""Estimate the requests and bytes of a planned scan by its own tasks, before any of them is read.

The ranges of an extent are those that the reader will fetch. The index of a ledger that is left to its task is read
here, unless the whole ledger fits into one range. Source: docs/cost.md; ADR 0041.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from offload_core.format.codec.mapfile.crc_files import CHECKSUM_BYTES, CHUNK_BYTES, HEAD_BYTES
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.catalogue import Ledger, TierReader, concurrently
from offload_core.reading.scan.extents import extents_of, read_ledger, read_scan_ledger
from offload_core.reading.scan.options import ScanOptions
from offload_core.reading.scan.scanning import Scan, scan
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.transactions.cuts import Cuts
from offload_core.reading.scan.transactions.pieces import FIRST_STEP_BYTES
from offload_core.reading.scan.windows import FIRST_RANGE_BYTES, range_bytes_of, ranges_of
from offload_core.storage.tier import MeasuredTier, Requests, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEstimate:
    """The cost of a scan if all of it is read once.

    Attributes:
        partitions: the tasks that read it.
        planning: the requests of planning itself: listing, lookups, indexes. Counted.
        reading: what its tasks ask for: indexes, blocks, checksums.
        by_topic: the same, by topic.
        transactions: about the most that the process that plans, such as Spark's driver, reads besides: the ends of
            topics, to find transactions that are open. Less where the last minutes of a topic have fewer bytes. A scan
            that is iterated over here asks for it in topics that have transactions only.
        hot_bytes_by_topic: about what is read from a hot tier besides, in bytes, by topic.
        ends_early: reading stops where a range of times ends, so that less may be asked for.
    """

    partitions: int
    planning: Requests
    reading: Requests
    by_topic: Mapping[str, Requests]
    transactions: Requests
    hot_bytes_by_topic: Mapping[str, int]
    ends_early: bool

    @property
    def total(self) -> Requests:
        """The sum, with the search for transactions."""
        return self.planning + self.reading + self.transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """The cost of a planned extent or ledger: its index and its blocks.

    `extents` are what its blocks are, None for one range of a ledger whose index was not read.
    """

    reading: Requests
    extents: tuple[ScanExtent, ...] | None


def explain_scan(
    tier: TierReader, topics: str | Iterable[str] = (), options: ScanOptions | None = None, **more: Any
) -> ScanEstimate:
    """Estimate the cost of a scan before it is read (docs/cost.md); arguments and errors are those of `scan`."""
    measured = MeasuredTier(tier.store)
    planned = scan(
        TierReader(measured, options=tier.options, catalogue_cache=tier.catalogue_cache),
        topics,
        options,
        **more,
    )
    return _estimate(replace(planned, tier=tier.store), measured.requests)


def _estimate(scan: Scan, planning: Requests) -> ScanEstimate:
    planned = [each for task in scan.planned for each in task.extents]
    heads = [head for task in scan.planned for head in _heads(scan, task)]
    expected = concurrently(lambda each: _expected(scan, *each), list(zip(planned, heads, strict=True)))
    by_topic: dict[str, Requests] = {}
    hot_bytes_by_topic: dict[str, int] = {}
    for each, takes in zip(planned, expected, strict=True):
        by_topic[each.label] = by_topic.get(each.label, Requests()) + takes.reading
        if isinstance(each, ScanExtent) and each.hot is not None:
            hot_bytes_by_topic[each.label] = hot_bytes_by_topic.get(each.label, 0) + each.data_bytes
    return ScanEstimate(
        partitions=len(scan.planned),
        planning=planning,
        reading=_sum(by_topic.values()),
        by_topic=by_topic,
        transactions=Requests() if scan.cuts is None else _ends_of_topics(scan.tier, scan.cuts),
        hot_bytes_by_topic=hot_bytes_by_topic,
        ends_early=any(each.ends_by_time for each in planned),
    )


def _heads(scan: Scan, task: ScanTask) -> Iterator[int]:
    """For each of a task's extents the most of its first range; 0 where it is as large as the others."""
    has_heads = scan.tier.describe().capabilities.ranges_ahead > 0
    before: ScanExtent | ScanLedger | None = None
    for each in task.extents:
        is_first = before is None or (scan.options.times is not None and before.topic != each.topic)
        yield FIRST_RANGE_BYTES if has_heads and is_first else 0
        before = each


def _expected(scan: Scan, planned: ScanExtent | ScanLedger, head_bytes: int) -> _Expected:
    range_bytes = range_bytes_of(scan.tier)
    index, extents = Requests(), tuple[ScanExtent, ...]()
    if isinstance(planned, ScanExtent):
        extents = (planned,)
    elif _is_one_range(planned, range_bytes):
        gets = 2 if 0 < head_bytes < planned.data_bytes else 1
        blocks = Requests(gets=gets, read_bytes=planned.data_bytes)
        return _Expected(reading=_index_of(scan.tier, planned.ledger) + blocks, extents=None)
    else:
        measured = MeasuredTier(scan.tier)
        extents = tuple(extents_of(read_scan_ledger(measured, planned), scan.options.fail_on_data_loss))
        index = measured.requests
    return _Expected(
        reading=index
        + _sum(
            _of_extent(extent, range_bytes, scan.options, head_bytes if i == 0 else 0)
            for i, extent in enumerate(extents)
        ),
        extents=extents,
    )


def _is_one_range(scan_ledger: ScanLedger, range_bytes: int) -> bool:
    """True if one range fetches all blocks of a ledger, whatever its index contains."""
    stored = scan_ledger.ledger.unread
    return (
        stored is not None
        and stored.key.object_format is ObjectFormat.PIP17
        and not stored.marks.has_gaps  # of which nothing may be left
        and 0 < scan_ledger.data_bytes <= range_bytes
    )


def _index_of(tier: Tier, ledger: Ledger) -> Requests:
    """The cost of reading a ledger's index, if it is not read yet."""
    stored = ledger.unread
    if stored is None or stored.index_contents is not None:
        return Requests()
    if not stored.key.is_mapfile:
        return Requests(gets=1, read_bytes=stored.index_bytes or 0)
    measured = MeasuredTier(tier)
    read_ledger(measured, ledger)
    return measured.requests


def _of_extent(extent: ScanExtent, range_bytes: int, options: ReadOptions, head_bytes: int) -> Requests:
    """The blocks of an extent, and the checksums that verify them. A hot copy asks for nothing of the store."""
    if extent.hot is not None:
        return Requests()
    lengths = [each.length for each in ranges_of(extent, range_bytes, head_bytes)]
    blocks = Requests(gets=len(lengths), read_bytes=sum(lengths))
    if not options.verify_checksums or extent.checksum_key is None or extent.sequence_file is None:
        return blocks
    begin, end = extent.blocks[0].offset, extent.blocks[-1].offset + extent.blocks[-1].length
    covered = -(-end // CHUNK_BYTES) - begin // CHUNK_BYTES
    return blocks + Requests(gets=2, read_bytes=HEAD_BYTES + covered * CHECKSUM_BYTES)


def _ends_of_topics(tier: Tier, cuts: Cuts) -> Requests:
    """About the most that the search for open transactions takes: the ends of topics as far as they are searched."""
    total = Requests()
    for topic, start in cuts.searched():
        left, step = cuts.search_bytes, FIRST_STEP_BYTES
        for ledger in reversed(topic.ledgers):
            if ledger.ledger_id < start[0] or left <= 0:
                break
            hot_bytes = sum(extent.data_bytes for extent in ledger.extents if extent.hot is not None)
            left -= hot_bytes
            size = ledger.data_bytes - hot_bytes
            if size:
                total += _index_of(tier, ledger)
            while size > 0 and left > 0:
                total += Requests(gets=1, read_bytes=min(step, size))
                size, left = size - step, left - step
                step = min(2 * step, range_bytes_of(tier))
    return total


def _sum(requests: Iterable[Requests]) -> Requests:
    return sum(requests, start=Requests())
