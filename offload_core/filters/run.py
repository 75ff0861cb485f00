"""`FilterRun`: one filter over the entries of a ledger or a segment, as they are written: filtered, and counted.

Filtering is without effects, so that entries that found no memory may be given again; what was written is noted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.codec.byte_arrays import Bytes, read_only
from offload_core.codec.kernels.kept import copy_kept
from offload_core.filters.tombstones import replace_by_tombstones
from offload_core.metadata import EntryPosition
from offload_core.metadata.filter_record import DroppedEntries, FilterMode, FilterRecord
from offload_hooks.errors import BrokenPluginError, EntryOrderError, OffloadError, placed
from offload_hooks.filters import TopicFilter
from offload_hooks.ledger_stores import EntryBatch

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilteredEntries:
    """What is written of the ids from `first_entry_id` to below `stop_entry_id`.

    Attributes:
        entry_ids: int64, ascending, of what is written; by tombstones all, by gaps those that are kept.
        data: uint8, the payloads behind one another.
        offsets: int64, where each begins in `data`, and the end of the last: one more than ids.
        causes: int32, of each id of the range: 0 if it is kept, n if it is dropped for the n-th cause.
        lengths: int64, of each id of the range: the bytes of its payload before.
    """

    first_entry_id: int
    stop_entry_id: int
    entry_ids: Longs
    data: Bytes
    offsets: Longs
    causes: npt.NDArray[np.int32]
    lengths: Longs


class FilterRun:
    """A filter at work; used by one thread at a time.

    Args:
        name: the filter's, as configured.

    Attributes:
        stop: the first position that is not decided of; None for no bound.
        waits_for: in words, what the entries from there on wait for.

    Raises:
        BrokenPluginError: the filter has no such bound.
    """

    def __init__(self, name: str, mode: FilterMode, topic_filter: TopicFilter) -> None:
        self.name = name
        self.mode = mode
        self._filter = topic_filter
        self.stop, self.waits_for = self._bound()
        self._named = 0  # so many causes are known to be text
        self._kept = DroppedEntries()
        self._dropped: defaultdict[str, DroppedEntries] = defaultdict(DroppedEntries)

    def anew(self) -> FilterRun:
        """A run of the same filter that has noted nothing."""
        return FilterRun(self.name, self.mode, self._filter)

    def takes(self, position: EntryPosition) -> bool:
        """Whether an entry may be offloaded now: it is decided of."""
        return self.stop is None or position < self.stop

    def apply(self, ledger_id: int, entries: EntryBatch) -> FilteredEntries:
        """What takes the place of entries, all of which are before `stop`. By tombstones, markers are kept.

        Raises:
            FormatError: an entry is not as the filter needs it, with its place.
            EntryOrderError: an entry is not before `stop`.
            BrokenPluginError: the filter gave no decision for each, or raised what is no `OffloadError`.
            OffloadError: what the filter raised.
        """
        self._check_settled(ledger_id, entries)
        offsets = np.asarray(entries.offsets, dtype=np.int64).view()
        causes = self._look(ledger_id, entries)
        ids = np.arange(entries.first_entry_id, entries.stop_entry_id)
        data = read_only(entries.data)
        lengths = np.diff(offsets)
        dropped = causes != 0
        if dropped.any():
            if self.mode is FilterMode.TOMBSTONE:
                with placed(ledger_id=ledger_id):
                    data, offsets, replaced = replace_by_tombstones(
                        data, offsets, dropped, entries.first_entry_id
                    )
                causes = np.where(replaced, causes, 0)
            else:
                ids = ids[~dropped]
                data, offsets = _without(data, offsets, dropped)
        offsets.flags.writeable = False  # one compiled signature of what frames them, whatever they were
        return FilteredEntries(
            first_entry_id=entries.first_entry_id,
            stop_entry_id=entries.stop_entry_id,
            entry_ids=ids,
            data=data,
            offsets=offsets,
            causes=causes,
            lengths=lengths,
        )

    def note(self, entries: FilteredEntries, stop_entry_id: int) -> None:
        """The entries below `stop_entry_id` were written, or left out for good."""
        count = stop_entry_id - entries.first_entry_id
        causes, lengths = entries.causes[:count], entries.lengths[:count]
        numbers = np.bincount(causes)
        sizes = np.bincount(causes, weights=lengths)
        for cause in np.flatnonzero(numbers).tolist():
            found = DroppedEntries(entries=int(numbers[cause]), payload_bytes=int(sizes[cause]))
            if cause:
                self._dropped[self._filter.causes[cause - 1]] += found
            else:
                self._kept += found

    def record(self) -> FilterRecord:
        """What was noted by now."""
        return FilterRecord.of(self.name, self.mode, self.stop, self._kept, dict(self._dropped))

    def _check_settled(self, ledger_id: int, entries: EntryBatch) -> None:
        last = EntryPosition(ledger_id, entries.stop_entry_id - 1)
        if len(entries) and not self.takes(last):
            raise EntryOrderError(
                "an entry was to be filtered before it is settled",
                ledger_id=ledger_id,
                entry_id=last.entry_id,
                expected=f"before {self.stop}",
            )

    def _bound(self) -> tuple[EntryPosition | None, str]:
        try:
            stop, waits_for = self._filter.stop, str(self._filter.waits_for)
            return None if stop is None else EntryPosition(*map(int, stop)), waits_for
        except Exception as error:  # a plugin's own code
            raise self._broken("does not say what it decides of", error) from error

    def _look(self, ledger_id: int, entries: EntryBatch) -> npt.NDArray[np.int32]:
        with placed(ledger_id=ledger_id):
            try:
                causes = np.frombuffer(self._filter.look(ledger_id, entries), dtype=np.int32)
                known = len(self._filter.causes)
                for cause in self._filter.causes[self._named : known]:
                    if not isinstance(cause, str):
                        raise TypeError("a cause is text")
                self._named = known
            except OffloadError:
                raise
            except Exception as error:  # a plugin's own code
                raise self._broken("failed", error).at(entry_id=entries.first_entry_id) from error
        if len(causes) != len(entries) or (len(causes) and not 0 <= causes.min() <= causes.max() <= known):
            raise BrokenPluginError(
                f"the offload filter {self.name!r} did not decide of each entry",
                ledger_id=ledger_id,
                entry_id=entries.first_entry_id,
                expected=f"{len(entries)} numbers from 0 to {known}",
                found=f"{len(causes)} numbers",
            )
        return causes

    def _broken(self, what: str, error: Exception) -> OffloadError:
        return BrokenPluginError(
            f"the offload filter {self.name!r} {what}", found=f"{type(error).__name__}: {error}"
        )


def _without(data: Bytes, offsets: Longs, dropped: npt.NDArray[np.bool_]) -> tuple[Bytes, Longs]:
    """The payloads that are kept, behind one another."""
    from offload_core.messages.arrays import new_bytes

    offsets = offsets.view()
    offsets.flags.writeable = False  # one compiled signature, whatever it was
    _, out = new_bytes(int(offsets[-1] - offsets[0]))
    out_offsets = np.empty_like(offsets)
    kept = copy_kept(data, offsets, dropped, out, out_offsets)
    made = out[: out_offsets[kept]]
    made.flags.writeable = False
    return made, out_offsets[: kept + 1]
