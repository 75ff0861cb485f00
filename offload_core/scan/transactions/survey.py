"""The pass over metadata: parts of ledgers → summaries, by threads; those that are kept are not made again.

All bytes of the blocks are fetched, since each entry's metadata stands before its payload. Kernels and requests run
outside of Python's lock, so that threads do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from offload_core.messages.transactions import NO_TIMES, TransactionFinder, join_ranges
from offload_core.scan.entries import open_window
from offload_core.scan.fetch import fetch_windows
from offload_core.scan.tasks import Run
from offload_core.scan.transactions.summary import LedgerSummary
from offload_core.scan.transactions.summary_store import SummaryStore
from offload_core.tier import Tier
from offload_hooks.errors import placed

MOST_WORKERS = 8
"""At most so many threads look through blocks; there are no more than processors."""

LOADS_AT_ONCE = 32
"""Summaries that are fetched at once."""

JOB_BYTES = 64 << 20
"""About how many bytes of blocks a thread looks through at a time."""

_ENTRIES_AT_ONCE = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Blocks of one ledger in one data object. `is_whole` if they are all that the object has of the ledger."""

    run: Run
    data_bytes: int
    is_whole: bool


def survey(
    tier: Tier, parts: Sequence[Part], *, kept: SummaryStore | None, verify_checksums: bool
) -> list[LedgerSummary]:
    """A summary of each part, in their order; those of whole ones are taken from `kept` and put into it.

    Raises:
        FormatError, StoreError: of the objects themselves, as in a read.
    """
    summaries: list[LedgerSummary | None] = [None] * len(parts)
    if kept is not None and parts:
        with ThreadPoolExecutor(
            min(LOADS_AT_ONCE, len(parts)), thread_name_prefix="offload-summaries"
        ) as pool:
            summaries = list(pool.map(lambda part: _load(kept, part), parts))
    jobs = [
        (i, run) for i, part in enumerate(parts) if summaries[i] is None for run in _jobs(part.run, JOB_BYTES)
    ]
    if jobs:
        made: dict[int, list[LedgerSummary]] = {}
        workers = min(MOST_WORKERS, os.cpu_count() or 1, len(jobs))
        with ThreadPoolExecutor(workers, thread_name_prefix="offload-survey") as pool:
            looked = pool.map(
                lambda job: survey_run(tier, job[1], parts[job[0]].data_bytes, verify_checksums), jobs
            )
            for (i, _), summary in zip(jobs, looked, strict=True):
                made.setdefault(i, []).append(summary)
        for i, of_part in made.items():
            summaries[i] = joined = _join(of_part)
            if kept is not None and parts[i].is_whole:
                kept.save(joined)
    return [summary for summary in summaries if summary is not None]


def survey_run(tier: Tier, run: Run, data_bytes: int, verify_checksums: bool) -> LedgerSummary:
    """The summary of a run's blocks."""
    finder = TransactionFinder(run.ledger_id, verify_checksums=verify_checksums)
    offsets = np.empty(_ENTRIES_AT_ONCE, dtype=np.int64)
    lengths = np.empty(_ENTRIES_AT_ONCE, dtype=np.int64)
    blocks = []
    with placed(key=run.data_key), contextlib.closing(fetch_windows(tier, (run,))) as windows:
        for window in windows:
            if window.begins_block:
                cursor, entries = open_window(run, window), 0
                finder.times[:] = NO_TIMES
            elif not cursor.done:
                cursor.feed(window.data, window.offset)
            while count := 0 if cursor.done or cursor.starved else cursor.locate(offsets, lengths, 1 << 40):
                first = cursor.next_entry_id - count
                finder.add(cursor.array, cursor.offset, first, offsets[:count], lengths[:count])
                entries += count
            window.walked_to(cursor.reached)
            if window.ends_block:
                blocks.append((window.block.offset, entries, *finder.times.tolist()))
    ranges, markers, tombstones = finder.tables()
    return LedgerSummary(
        data_key=run.data_key,
        data_bytes=data_bytes,
        ledger_id=run.ledger_id,
        ranges=ranges,
        markers=markers,
        tombstones=tombstones,
        blocks=np.array(blocks, dtype=np.int64).reshape(-1, 4),
    )


def _load(kept: SummaryStore, part: Part) -> LedgerSummary | None:
    return kept.load(part.run.data_key, part.data_bytes, part.run.ledger_id) if part.is_whole else None


def _jobs(run: Run, job_bytes: int) -> Iterator[Run]:
    """The run in stretches of blocks."""
    begin = used = 0
    for i, block in enumerate(run.blocks):
        if used and used + block.length > job_bytes:
            yield replace(run, blocks=run.blocks[begin:i])
            begin, used = i, 0
        used += block.length
    yield replace(run, blocks=run.blocks[begin:])


def _join(summaries: Sequence[LedgerSummary]) -> LedgerSummary:
    """The summaries of a part's stretches as one."""
    if len(summaries) == 1:
        return summaries[0]
    return replace(
        summaries[0],
        ranges=join_ranges(np.concatenate([each.ranges for each in summaries])),
        markers=np.concatenate([each.markers for each in summaries]),
        tombstones=join_ranges(np.concatenate([each.tombstones for each in summaries])),
        blocks=np.concatenate([each.blocks for each in summaries]),
    )
