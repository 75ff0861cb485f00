"""The pass over metadata: parts of ledgers → summaries, by threads; those that are kept are not made again.

All bytes of the blocks are fetched, since each entry's metadata stands before its payload. Kernels and requests run
outside of Python's lock, so that threads do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offload_core.format.messages.transactions import NO_TIMES, TransactionFinder, join_ranges
from offload_core.reading.scan.entries import EntryLocator, walk_windows
from offload_core.reading.scan.fetch import fetch_windows
from offload_core.reading.scan.tasks import Run
from offload_core.reading.scan.transactions.memory import SummaryMemory
from offload_core.reading.scan.transactions.summary import LedgerSummary
from offload_core.reading.scan.transactions.summary_store import SummaryStore
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import placed

MOST_WORKERS = 8
"""At most so many threads look through blocks; there are no more than processors."""

LOADS_AT_ONCE = 32
"""Summaries that are fetched at once."""

JOB_BYTES = 64 << 20
"""About how many bytes of blocks a thread looks through at a time."""

_ANY_BYTES = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Blocks of one ledger in one data object. `is_whole` if they are all that the object has of the ledger."""

    run: Run
    data_bytes: int
    is_whole: bool


def survey(
    tier: Tier,
    parts: Sequence[Part],
    *,
    kept: SummaryStore | None,
    memory: SummaryMemory | None = None,
    verify_checksums: bool,
) -> list[LedgerSummary]:
    """A summary of each part, in their order; those of whole ones are taken from `kept` and put into it.

    With a `memory` nothing that it holds is fetched again, by whole parts where there is `kept`, else by blocks.

    Raises:
        FormatError, StoreError: of the objects themselves, as in a read.
    """
    summaries: list[LedgerSummary | None] = [None] * len(parts)
    if memory is not None:
        summaries = [memory.get(part.run, part.data_bytes) for part in parts]
    unknown = [i for i, summary in enumerate(summaries) if summary is None]
    if kept is not None and unknown:
        loads = bounded_map(
            lambda i: _load(kept, parts[i]), unknown, at_once=LOADS_AT_ONCE, name="offload-summaries"
        )
        for i, loaded in zip(unknown, loads, strict=True):
            summaries[i] = loaded
            if loaded is not None and memory is not None:
                memory.put(parts[i].run, loaded)
    by_block = memory is not None and kept is None
    runs = {
        i: list(stretches_of(parts[i].run, 0 if by_block else JOB_BYTES))
        for i in unknown
        if summaries[i] is None
    }
    jobs = [(i, run) for i, of_part in runs.items() for run in of_part]
    for i, of_part in _survey_runs(tier, parts, jobs, memory if by_block else None, verify_checksums).items():
        summaries[i] = joined = _join(of_part)
        if kept is not None:
            if parts[i].is_whole:
                kept.save(joined)
            if memory is not None:
                memory.put(parts[i].run, joined)
    return [summary for summary in summaries if summary is not None]


def _survey_runs(
    tier: Tier,
    parts: Sequence[Part],
    jobs: Sequence[tuple[int, Run]],
    memory: SummaryMemory | None,
    verify_checksums: bool,
) -> dict[int, list[LedgerSummary]]:
    """The summaries of some runs of the parts, by the part's number; by threads, but for those in the memory."""
    known = [None if memory is None else memory.get(run, parts[i].data_bytes) for i, run in jobs]
    unknown = [job for job, summary in zip(jobs, known, strict=True) if summary is None]
    surveyed = bounded_map(
        lambda job: survey_run(tier, job[1], parts[job[0]].data_bytes, verify_checksums),
        unknown,
        at_once=min(MOST_WORKERS, os.cpu_count() or 1),
        name="offload-survey",
    )
    with contextlib.closing(surveyed):
        made: dict[int, list[LedgerSummary]] = {}
        for (i, run), summary in zip(jobs, known, strict=True):
            if summary is None:
                summary = next(surveyed)
                if memory is not None:
                    memory.put(run, summary)
            made.setdefault(i, []).append(summary)
        return made


def survey_run(tier: Tier, run: Run, data_bytes: int, verify_checksums: bool) -> LedgerSummary:
    """The summary of a run's blocks."""
    finder = TransactionFinder(run.ledger_id, verify_checksums=verify_checksums)
    locator = EntryLocator(_ANY_BYTES)
    blocks = []
    with placed(key=run.data_key), contextlib.closing(fetch_windows(tier, (run,))) as windows:
        for window, cursor in walk_windows(run, windows):
            if window.begins_block:
                entries = 0
                finder.times[:] = NO_TIMES
            for located in locator.locate(cursor):
                finder.add(*located)
                entries += len(located[-1])
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


def stretches_of(run: Run, job_bytes: int = JOB_BYTES) -> Iterator[Run]:
    """The run in stretches of blocks."""
    begin = used = 0
    for i, length in enumerate(run.blocks.lengths.tolist()):
        if used and used + length > job_bytes:
            yield replace(run, blocks=run.blocks[begin:i])
            begin, used = i, 0
        used += length
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
