"""What a process that looks through the same topic again and again remembers: its blocks' summaries, to a bound.

Blocks of objects never change, so what was found in one holds as long as the object has its key and length.
"""

from __future__ import annotations

from collections import OrderedDict

from offload_core.reading.scan.tasks import Run
from offload_core.reading.scan.transactions.summary import LedgerSummary

MAX_MEMORY_BYTES = 64 << 20
"""The most that is remembered; beyond it what was not needed for longest is forgotten."""

_NOMINAL_BYTES = 1024
"""What a summary without a row in its tables takes, about."""

Key = tuple[str, int, int, int, int]


class SummaryMemory:
    """The summaries of runs of blocks. Not for several threads at once."""

    def __init__(self, max_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._left = max_bytes
        self._kept: OrderedDict[Key, LedgerSummary] = OrderedDict()

    def get(self, run: Run, data_bytes: int) -> LedgerSummary | None:
        """The summary of exactly these blocks of an object of this length, if it is remembered."""
        key = _key(run, data_bytes)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, run: Run, summary: LedgerSummary) -> None:
        """Remember the summary of a run's blocks."""
        key = _key(run, summary.data_bytes)
        if key not in self._kept:
            self._kept[key] = summary
            self._left -= _size(summary)
        while self._left < 0 and self._kept:
            _, forgotten = self._kept.popitem(last=False)
            self._left += _size(forgotten)


def _key(run: Run, data_bytes: int) -> Key:
    return run.data_key, data_bytes, run.ledger_id, run.blocks[0].offset, run.blocks[-1].offset


def _size(summary: LedgerSummary) -> int:
    tables = (summary.ranges, summary.markers, summary.tombstones, summary.blocks)
    return _NOMINAL_BYTES + sum(table.nbytes for table in tables)
