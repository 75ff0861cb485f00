"""Entries of a managed ledger from any position on, over all its ledgers in order.

A position need not be that of an entry: behind a ledger's last one it stands for the next ledger's first, and so does
one of a ledger that was deleted. Nothing waits: at the end of the topic nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from offload_core.managed_ledger.open_readers import OpenReader, OpenReaders
from offload_core.managed_ledger.tail_cache import TailCache
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, LedgerRecord
from offload_core.policies import ReadPriority
from offload_hooks.errors import OffloadError, OptionError, RangeError, UnknownLedgerError
from offload_hooks.ledger_stores import EntryBatch, LedgerReader


class LedgerEntries(NamedTuple):
    """Entries of one ledger that follow one another."""

    ledger_id: int
    entries: EntryBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesRead:
    """What was read: of each ledger in turn.

    Attributes:
        next_position: where to read on, also if nothing was read.
    """

    batches: tuple[LedgerEntries, ...]
    next_position: EntryPosition

    def __len__(self) -> int:
        return sum(len(batch.entries) for batch in self.batches)

    def __iter__(self) -> Iterator[tuple[EntryPosition, memoryview]]:
        """Position and payload of each entry."""
        for ledger_id, entries in self.batches:
            for entry_id, payload in enumerate(entries, entries.first_entry_id):
                yield EntryPosition(ledger_id, entry_id), payload


class TopicReader:
    """Reads one managed ledger, by many threads at once.

    Args:
        find_record: a ledger's record as it is now; None if the managed ledger does not have it any more.
        open_reader: see `OpenReader`.
    """

    def __init__(
        self,
        name: str,
        find_record: Callable[[int], LedgerRecord | None],
        open_reader: OpenReader,
        cache: TailCache,
    ) -> None:
        self._name = name
        self._find_record = find_record
        self._open_reader = open_reader
        self._cache = cache
        self.readers = OpenReaders()

    def read(
        self,
        view: LedgersView,
        position: EntryPosition,
        max_entries: int,
        max_bytes: int,
        priority: ReadPriority,
    ) -> EntriesRead:
        """See `ManagedLedger.read_entries`; what `view` has."""
        if position.ledger_id < 0 or position.entry_id < 0:
            raise RangeError("a position is not negative", found=position)
        if max_entries < 1 or max_bytes < 1:
            raise OptionError(
                "a read of no entries",
                expected="1 or more",
                found=f"{max_entries} entries, {max_bytes} bytes",
            )
        batches: list[LedgerEntries] = []
        place = view.find(position.ledger_id)
        first = position.entry_id if view.has(position.ledger_id) else 0
        while place < len(view.ledger_ids) and max_entries and max_bytes > 0:
            ledger_id, count = view.ledger_ids[place], view.entry_count(place)
            entries = None
            if first < count:
                last = min(count, first + max_entries) - 1
                try:
                    entries = self._read(ledger_id, first, last, max_bytes, priority)
                except OffloadError:
                    if batches:  # what was read is given; the next read, which begins here, tells
                        break
                    raise
            if entries is None:
                place, first = place + 1, 0
                continue
            size = entries.offsets[-1] - entries.offsets[0]
            if batches and size > max_bytes:
                break
            batches.append(LedgerEntries(ledger_id, entries))
            first = entries.stop_entry_id
            position = EntryPosition(ledger_id, first)
            max_entries -= len(entries)
            max_bytes -= size
        return EntriesRead(batches=tuple(batches), next_position=position)

    def _read(
        self, ledger_id: int, first: int, last: int, max_bytes: int, priority: ReadPriority
    ) -> EntryBatch | None:
        """Entries of a ledger; None if it was deleted."""
        if priority is not ReadPriority.OFFLOADED_ONLY:
            cached = self._cache.get(ledger_id, first, last, max_bytes)
            if cached is not None:
                return cached
        for is_last in (False, True):
            try:
                with self.readers.lease(
                    ledger_id, priority, lambda: self._open(ledger_id, priority)
                ) as reader:
                    return reader.read(first, last, max_bytes)
            except _GoneError:
                return None
            except UnknownLedgerError:  # the copy that is open was deleted: there may be another
                self.readers.forget(ledger_id)
                if is_last:
                    raise
            except OffloadError:
                if self._is_gone(ledger_id):  # it was trimmed meanwhile: copies that go can fail in any way
                    self.readers.forget(ledger_id)
                    return None
                raise
        raise AssertionError("the last turn returns or raises")

    def _is_gone(self, ledger_id: int) -> bool:
        """Whether the managed ledger is known not to have the ledger any more."""
        with suppress(OffloadError):
            return self._find_record(ledger_id) is None
        return False

    def _open(self, ledger_id: int, priority: ReadPriority) -> LedgerReader:
        record = self._find_record(ledger_id)
        if record is None:
            raise _GoneError
        return self._open_reader(record, priority, self._name)


class _GoneError(Exception):
    """The managed ledger does not have the ledger any more."""
