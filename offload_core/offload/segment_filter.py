"""`SegmentFilter`: one filter over the entries of a segment, and what it did to those of each ledger.

A filter decides up to a stop, and a segment is longer: a run that goes farther takes the place of the one before it.
What was counted stays. Source: docs/formats/streaming.md, Filtered segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from offload_core.filters import FilteredEntries, FilterRecord, FilterRun, joined
from offload_core.metadata import EntryPosition
from offload_core.offload.object_metadata import filter_counts, filter_metadata
from offload_hooks.ledger_stores import EntryBatch


class SegmentFilter:
    """The filter of one segment; used by one thread at a time.

    Args:
        run: the filter over the entries that come first.
        stop: the first entry that it is not used for, which may be before its own bound; None for none.

    Attributes:
        about: what the user metadata of the data object says.
    """

    def __init__(self, run: FilterRun, stop: EntryPosition | None) -> None:
        self._run = run
        self.stop = stop
        self._noted: defaultdict[int, list[FilterRecord]] = defaultdict(list)
        self.about = filter_metadata(run)

    def is_as(self, run: FilterRun) -> bool:
        """Whether this run may take the place of the one that there is: it is of the same filter."""
        return (run.name, run.mode) == (self._run.name, self._run.mode)

    def go_on(self, run: FilterRun, stop: EntryPosition | None) -> None:
        """Filter what follows by this run, before this stop."""
        self._run, self.stop = run, stop

    def apply(self, ledger_id: int, entries: EntryBatch) -> FilteredEntries:
        """See `FilterRun.apply`."""
        return self._run.apply(ledger_id, entries)

    def note(self, ledger_id: int, entries: FilteredEntries, stop_entry_id: int) -> None:
        """See `FilterRun.note`; of entries that were filtered last."""
        run = self._run.anew()
        run.note(entries, stop_entry_id)
        self._noted[ledger_id].append(run.record())

    def records(self) -> Mapping[int, FilterRecord]:
        """Of each ledger, what was noted by now; with the bound of the run that goes farthest."""
        return {ledger_id: joined(records, self._run.stop) for ledger_id, records in self._noted.items()}

    def about_index(self) -> Mapping[str, str]:
        """What the index object's user metadata says, of all ledgers together; at least one was noted."""
        return {**self.about, **filter_counts(joined(list(self.records().values()), self._run.stop))}
