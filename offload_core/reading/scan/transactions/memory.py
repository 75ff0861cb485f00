"""What a process that looks through the same topic again and again remembers: its blocks' summaries, to a bound.

Blocks of objects never change, so what was found in one holds as long as the object has its key and length.
"""

from __future__ import annotations

from offload_core.reading.scan.tasks import Run
from offload_core.reading.scan.transactions.summary import LedgerSummary
from offload_hooks.bounded_cache import BoundedCache

MAX_MEMORY_BYTES = 64 << 20
"""The most that is remembered; beyond it what was not needed for longest is forgotten."""

_NOMINAL_BYTES = 1024
"""What a summary without a row in its tables takes, about."""

Key = tuple[str, int, int, int, int]


class SummaryMemory:
    """The summaries of runs of blocks. Not for several threads at once."""

    def __init__(self, max_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._summaries: BoundedCache[Key, LedgerSummary] = BoundedCache(max_bytes, size_of=_size)

    def get(self, run: Run, data_bytes: int) -> LedgerSummary | None:
        """The summary of exactly these blocks of an object of this length, if it is remembered."""
        return self._summaries.get(_key(run, data_bytes))

    def put(self, run: Run, summary: LedgerSummary) -> None:
        """Remember the summary of a run's blocks."""
        self._summaries.put(_key(run, summary.data_bytes), summary)


def _key(run: Run, data_bytes: int) -> Key:
    return run.data_key, data_bytes, run.ledger_id, run.blocks[0].offset, run.blocks[-1].offset


def _size(summary: LedgerSummary) -> int:
    tables = (summary.ranges, summary.markers, summary.tombstones, summary.blocks)
    return _NOMINAL_BYTES + sum(table.nbytes for table in tables)
