"""Entries of a managed ledger from any position on, over all its ledgers in order.

    TailCache      the newest entries in memory, so that reading along with the producers needs no disk
    OpenReaders    a few open readers of ledgers, each opened where its record states its copies
    LedgersView    the ledgers at one moment, with how many entries each has by now
    TopicReader    reads over all of them

A position need not be that of an entry: after a ledger's last one it stands for the next ledger's first, and so does
one of a ledger that was deleted. Nothing waits: at the end of the topic nothing is read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo, ReadPriority
from offload_hooks.errors import OffloadError, OptionError, RangeError, UnknownLedgerError
from offload_hooks.ledger_stores import EntryBatch, LedgerReader, LedgerWriter
from offload_hooks.values import ReadableBuffer

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_CACHE_BYTES = 8 << 20
"""Bytes of its newest entries that a managed ledger keeps by default."""

ENTRY_OVERHEAD_BYTES = 200
"""Approximate memory of an entry without its payload."""


class TailCache:
    """Acknowledged entries up to a budget; the oldest go first. Producers may put theirs in any order."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.used_bytes = 0

    def put(self, ledger_id: int, first_entry_id: int, payloads: Sequence[ReadableBuffer]) -> None:
        """Keep entries that follow one another."""
        with self._lock:
            if not self._budget_bytes:
                return
            for entry_id, payload in enumerate(payloads, first_entry_id):
                kept = bytes(payload)  # which copies no bytes
                self._entries[ledger_id, entry_id] = kept
                self.used_bytes += len(kept) + ENTRY_OVERHEAD_BYTES
            while self.used_bytes > self._budget_bytes:
                _, oldest = self._entries.popitem(last=False)
                self.used_bytes -= len(oldest) + ENTRY_OVERHEAD_BYTES

    def close(self) -> None:
        """Forget all, and keep nothing any more."""
        with self._lock:
            self._budget_bytes = self.used_bytes = 0
            self._entries.clear()

    def get(
        self, ledger_id: int, first_entry_id: int, last_entry_id: int, max_bytes: int
    ) -> EntryBatch | None:
        """Entries as `LedgerReader.read` gives them, perhaps fewer; None if the first is not here."""
        found: list[bytes] = []
        size = 0
        with self._lock:
            for entry_id in range(first_entry_id, last_entry_id + 1):
                payload = self._entries.get((ledger_id, entry_id))
                if payload is None or (found and size + len(payload) > max_bytes):
                    break
                found.append(payload)
                size += len(payload)
        return EntryBatch.of(first_entry_id, found) if found else None


OpenReader = Callable[[LedgerRecord, ReadPriority, str], LedgerReader]
"""Opens a ledger of the managed ledger of this name for reading, by the priority; such as `TieredReaders.open`."""

MAX_OPEN_READERS = 8


@dataclass(slots=True, eq=False)
class _Held:
    reader: LedgerReader
    users: int = 0
    is_kept: bool = True


class OpenReaders:
    """Readers by ledger and priority; the one that was not used for longest is closed where another is needed."""

    def __init__(self, limit: int = MAX_OPEN_READERS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, ReadPriority], _Held] = OrderedDict()
        self._closed = False

    @contextmanager
    def lease(
        self, ledger_id: int, priority: ReadPriority, open_one: Callable[[], LedgerReader]
    ) -> Iterator[LedgerReader]:
        """A reader, for the time of the block. Errors as of `open_one`."""
        key = ledger_id, priority
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.users += 1
                self._held.move_to_end(key)
        if held is None:
            held = self._add(key, open_one())
        try:
            yield held.reader
        finally:
            with self._lock:
                held.users -= 1
                is_over = not held.is_kept and not held.users
            if is_over:
                held.reader.close()

    def forget(self, ledger_id: int) -> None:
        """Open this ledger anew the next time: its copies are not where they were."""
        with self._lock:
            keys = [key for key in self._held if key[0] == ledger_id]
            idle = [held for key in keys for held in self._leave(key)]
        for held in idle:
            held.reader.close()

    def close(self) -> None:
        """Close all, those in use as soon as they are not; readers that are opened from now on are not kept."""
        with self._lock:
            self._closed = True
            idle = [held for key in list(self._held) for held in self._leave(key)]
        for held in idle:
            held.reader.close()

    def _add(self, key: tuple[int, ReadPriority], reader: LedgerReader) -> _Held:
        held = _Held(reader, users=1)
        with self._lock:
            if self._closed:
                held.is_kept = False
                return held
            idle = self._leave(key)  # opened by another thread at the same time
            self._held[key] = held
            while len(self._held) > self._limit:
                idle += self._leave(next(iter(self._held)))
        for each in idle:
            each.reader.close()
        return held

    def _leave(self, key: tuple[int, ReadPriority]) -> list[_Held]:
        held = self._held.pop(key, None)
        if held is None:
            return []
        held.is_kept = False
        return [] if held.users else [held]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgersView:
    """Ledgers in the order of their entries.

    Attributes:
        ledger_ids: ascending.
        entry_counts: of each; of the one that is written it grows, see `entry_count`.
        writer: of the ledger that entries are appended to; None if there is none just now.
    """

    ledger_ids: tuple[int, ...]
    entry_counts: tuple[int, ...]
    writer: LedgerWriter | None

    @classmethod
    def of(cls, info: ManagedLedgerInfo, writer: LedgerWriter | None) -> Self:
        """The view of a record, with the writer of the last ledger."""
        ledgers = [ledger for ledger in info.in_order if not ledger.is_marked_for_deletion]
        return cls(
            ledger_ids=tuple(ledger.ledger_id for ledger in ledgers),
            entry_counts=tuple(ledger.info.entries or 0 for ledger in ledgers),
            writer=writer,
        )

    def up_to(self, last: EntryPosition) -> LedgersView:
        """The same up to a position, as it is now."""
        stop = bisect_right(self.ledger_ids, last.ledger_id)
        counts = [self.entry_count(place) for place in range(stop)]
        if self.has(last.ledger_id):
            counts[-1] = min(counts[-1], last.entry_id + 1)
        return LedgersView(ledger_ids=self.ledger_ids[:stop], entry_counts=tuple(counts), writer=None)

    def entry_count(self, place: int) -> int:
        """The number of entries that the ledger at this place has by now."""
        if self.writer is not None and self.writer.ledger_id == self.ledger_ids[place]:
            return self.writer.status.entry_count
        return self.entry_counts[place]

    def find(self, ledger_id: int) -> int:
        """The place of a ledger, or of the next one."""
        return bisect_left(self.ledger_ids, ledger_id)

    def has(self, ledger_id: int) -> bool:
        """True if this ledger is one of them."""
        place = self.find(ledger_id)
        return place < len(self.ledger_ids) and self.ledger_ids[place] == ledger_id

    def last_position(self, before: EntryPosition | None = None) -> EntryPosition | None:
        """The last entry, or the last one before a position; None if there is none."""
        stop = len(self.ledger_ids) if before is None else bisect_right(self.ledger_ids, before.ledger_id)
        for place in reversed(range(stop)):
            ledger_id, count = self.ledger_ids[place], self.entry_count(place)
            if before is not None and before.ledger_id == ledger_id:
                count = min(count, before.entry_id)
            if count:
                return EntryPosition(ledger_id, count - 1)
        return None


class LedgerEntries(NamedTuple):
    """Entries of one ledger that follow one another."""

    ledger_id: int
    entries: EntryBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesRead:
    """Entries that were read, of each ledger in turn.

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
                    if batches:  # what was read is given; the next read, which begins here, raises
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
        """True if the managed ledger is known not to have the ledger any more."""
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
