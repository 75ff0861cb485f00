"""Runs of offload filters: the entries that are written, the placeholders of the others, and the count of both.

    FilterRun          one filter over the entries of a ledger or a segment, as they are written
    recorded_filters   what records state of filters that ran: over which entries, and up to where all was settled

Filtering has no effects, so entries that found no memory may be filtered again; `note` counts what was written.

A tombstone takes the place of an entry that is dropped, so that Pulsar serves the rest to its consumers. Its form is
that of `pack_tombstone`, the kernel's reference implementation. Markers stay as they are: brokers pass over them as
well, and a reader of the topic needs to know how transactions ended. Source: docs/formats/entry.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, LocatedEntries, read_only
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.kernels.frames import copy_kept
from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.format.messages.entry import pack_tombstone
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels import tombstones as kernels
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherRole,
    other_copies,
)
from offload_core.metadata.records.filter_record import (
    DroppedEntries,
    FilterMode,
    FilterRecord,
    recorded_filter,
)
from offload_hooks.errors import (
    BrokenPluginError,
    EntryOrderError,
    FormatError,
    MetadataError,
    OffloadError,
    placed,
)
from offload_hooks.filters import FilteredTopic, OffloadFilter, TopicFilter
from offload_hooks.ledger_stores import EntryBatch


class OffloadFilterDisable:
    """Keep all entries, and wait for nothing. The default."""

    def open(self, topic: FilteredTopic) -> None:
        """See `OffloadFilter`."""


def joined(records: Sequence[FilterRecord], stop: EntryPosition | None) -> FilterRecord:
    """Join records of the same filter, at least one; it went as far as `stop`."""
    kept, dropped = DroppedEntries(), defaultdict[str, DroppedEntries](DroppedEntries)
    for record in records:
        kept += record.kept
        for cause, each in (record.dropped or {}).items():
            dropped[cause] += each
    return FilterRecord.of(records[0].name, records[0].mode, stop, kept, dict(dropped))


_BEFORE = read_only(b"\x0a\x0fpulsar.filtered\x10\x00\x18")
_AFTER = read_only(b"\xa0\x01\x16")
"""Metadata of a tombstone, before and after the publish time: producer name, sequence id; type of marker."""

MOST_TOMBSTONE_BYTES = 6 + 4 + len(_BEFORE) + 10 + len(_AFTER)
"""No tombstone is longer, but for what a broker put before its entry, which stays."""


def replace_by_tombstones(
    data: Bytes, offsets: npt.NDArray[np.int64], dropped: npt.NDArray[np.bool_], first_entry_id: int
) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The payloads, those that are dropped replaced by tombstones, but for markers; and which were replaced.

    Args:
        data: uint8, the payloads, one after another.
        offsets: int64, where each begins in `data`, and the end of the last.
        dropped: bool, of each.
        first_entry_id: the first one's id, for errors.

    Raises:
        FormatError: one that is dropped is no entry of Pulsar's, or damaged; with its id.
    """
    from offload_core.format.messages.arrow_arrays import new_bytes

    offsets = offsets.view()
    offsets.flags.writeable = False  # one compiled signature, whatever it was
    size = int(offsets[-1] - offsets[0]) + MOST_TOMBSTONE_BYTES * int(dropped.sum())
    _, out = new_bytes(size)
    out_offsets = np.empty_like(offsets)
    replaced = dropped.copy()
    row = np.empty(f.E_FIELDS, dtype=np.int64)
    done = kernels.replace(data, offsets, replaced, crc32c_address(), _BEFORE, _AFTER, row, out, out_offsets)
    if done < len(dropped):
        with placed(entry_id=first_entry_id + done):
            pack_tombstone(data[offsets[done] : offsets[done + 1]].tobytes())
            raise MetadataError("an entry's metadata is not right")
    made = out[: out_offsets[-1]]
    made.flags.writeable = False
    return made, out_offsets, replaced


Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilteredEntries:
    """The entries that are written of the ids from `first_entry_id` to below `stop_entry_id`.

    Attributes:
        entry_ids: int64, ascending, of what is written; by tombstones all, by gaps those that are kept.
        data: uint8, the payloads, one after another.
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
    """A run of a filter; used by one thread at a time.

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
        self._named = 0  # causes that are checked to be text
        self._kept = DroppedEntries()
        self._dropped: defaultdict[str, DroppedEntries] = defaultdict(DroppedEntries)

    def anew(self) -> FilterRun:
        """A run of the same filter that has noted nothing."""
        return FilterRun(self.name, self.mode, self._filter)

    def takes(self, position: EntryPosition) -> bool:
        """True if an entry may be offloaded now: it is decided of."""
        return self.stop is None or position < self.stop

    def apply(self, ledger_id: int, entries: EntryBatch) -> FilteredEntries:
        """Filter entries, all of which are before `stop`.

        Markers are kept, by tombstones all; by gaps all but those that the filter of transactions drops, which knows
        when no reader needs them.

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
                if self.name != FILTERED_TRANSACTIONS:
                    dropped &= ~_are_markers(ids, data, offsets, dropped)
                    causes = np.where(dropped, causes, 0)
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
        """The record of the counts noted by now."""
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
            raise self._broken("has no valid bound", error) from error

    def _look(self, ledger_id: int, entries: EntryBatch) -> npt.NDArray[np.int32]:
        with placed(ledger_id=ledger_id):
            try:
                answer = memoryview(self._filter.look(ledger_id, entries))
                if answer.format not in ("i", "=i", "<i"):
                    raise TypeError(f"its answer has the format {answer.format!r}, not int32 (format 'i')")
                causes = np.frombuffer(answer, dtype=np.int32)
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


def _are_markers(
    ids: Longs, data: Bytes, offsets: Longs, dropped: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """True of each entry that is dropped and is a marker. One that cannot be read is none."""
    lengths = np.diff(offsets)
    finder = TransactionFinder(None, verify_checksums=False)
    try:
        finder.add(LocatedEntries(data, None, ids[dropped], offsets[:-1][dropped], lengths[dropped]))
    except FormatError:  # nothing was found of any: each by itself
        for place in np.flatnonzero(dropped).tolist():
            one = slice(place, place + 1)
            with suppress(FormatError):
                finder.add(LocatedEntries(data, None, ids[one], offsets[one], lengths[one]))
    _, markers, _ = finder.tables()
    return np.isin(ids, markers[:, 0])


def _without(data: Bytes, offsets: Longs, dropped: npt.NDArray[np.bool_]) -> tuple[Bytes, Longs]:
    """The payloads that are kept, one after another."""

    from offload_core.format.messages.arrow_arrays import new_bytes

    offsets = offsets.view()
    offsets.flags.writeable = False  # one compiled signature, whatever it was
    _, out = new_bytes(int(offsets[-1] - offsets[0]))
    out_offsets = np.empty_like(offsets)
    kept = copy_kept(data, offsets, dropped, out, out_offsets)
    made = out[: out_offsets[kept]]
    made.flags.writeable = False
    return made, out_offsets[: kept + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFilter:
    """An offload filter of this name."""

    name: str
    mode: FilterMode
    filter: OffloadFilter

    def open(self, topic: FilteredTopic) -> FilterRun | None:
        """A run of it over what is offloaded next of a topic: for one ledger, or one segment; None filters nothing.

        Raises:
            BrokenPluginError: the filter raised what is no `OffloadError`, or has no bound that makes sense.
            OffloadError: what it raised; see `FilteredTopic.settle`.
        """
        try:
            opened = self.filter.open(topic)
        except OffloadError:
            raise
        except Exception as error:  # a plugin's own code
            raise BrokenPluginError(
                f"the offload filter {self.name!r} failed to open {topic.name}",
                found=f"{type(error).__name__}: {error}",
            ) from error
        return None if opened is None else FilterRun(self.name, self.mode, opened)


NO_FILTER = ChosenFilter(name="disabled", mode=FilterMode.TOMBSTONE, filter=OffloadFilterDisable())
"""The default."""


def recorded_filters(ledger: LedgerRecord) -> tuple[FilterRecord, ...]:
    """The short records of the filters that a ledger's complete copies were written through, as `recorded_filter`."""
    found = (recorded_filter(driver, ledger.ledger_id) for driver, _ in _copies(ledger))
    return tuple(record for record in found if record is not None)


def settled_by_filters(info: ManagedLedgerInfo) -> EntryPosition | None:
    """The last entry up to which all copies went through the filter of transactions; None if there is none.

    So all before it is settled, also where the markers are gone. They stay where a copy went through no filter, or
    another one. Errors as `recorded_filter`.
    """
    last = None
    for ledger in info.in_order:
        for driver, end in _copies(ledger):
            record = recorded_filter(driver, ledger.ledger_id)
            if record is None or record.name != FILTERED_TRANSACTIONS:
                return last
            last = EntryPosition(ledger.ledger_id, end) if record.stop is not None else last
    return last


def has_unsettled_copies(info: ManagedLedgerInfo) -> bool:
    """True if copies are in a tier whose transactions ended at unknown positions. Errors as `recorded_filter`.

    A copy that was replaced counts: a reader may have it open.
    """
    if any(copy.role is OtherRole.REPLACED for copy in other_copies(info)):
        return True
    return any(
        record is None or record.name != FILTERED_TRANSACTIONS
        for ledger in info.ledgers
        for record in (recorded_filter(driver, ledger.ledger_id) for driver, _ in _copies(ledger))
    )


def _copies(ledger: LedgerRecord) -> Iterator[tuple[DriverMetadata | None, int]]:
    """The driver and the last entry of a ledger's copy, or of each of its segments, that is complete."""
    context = ledger.context
    if context is None:
        return
    for share in context.segments:
        if share.complete and share.end_entry_id is not None:
            yield share.driver, share.end_entry_id
    if not context.segments and context.complete:
        yield context.driver, (ledger.info.entries or 0) - 1
