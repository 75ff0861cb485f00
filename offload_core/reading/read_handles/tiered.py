"""Read a ledger from its hot or its cold copy by the read priority, and fall back to the other one on errors.

By `*_FIRST` the other copy is read when the first is missing, damaged, out of reach or denied, at opening and between
two reads, from the entry on that was asked for. By `*_ONLY` the reader gets its error. Every fallback is counted,
logged with its fields, and passed to a listener; damaged bytes are logged as an error, the others as a warning.

A ledger may be cold only up to some entry, by streaming segments: what follows is read hot, which is no fallback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from offload_core.metadata.records import LedgerRecord, ReadPriority
from offload_core.reading.read_fallbacks import (
    Copy,
    Fallback,
    FallbackListener,
    FallbackReason,
    ReadFallbacks,
    reason_of,
)
from offload_core.reading.read_handles.cold_reader import ColdReaders, check_range
from offload_hooks.errors import LedgerClosedError, NoReadableCopyError, OffloadError
from offload_hooks.ledger_stores import (
    DEFAULT_READ_BYTES,
    EntryBatch,
    LedgerReader,
    LedgerStatus,
    LedgerStore,
)

_T = TypeVar("_T")


class TieredReaders:
    """Open ledgers by their records and a read priority. It need not be closed.

    Args:
        hot: where ledgers are before they are offloaded.
        cold: opens their cold copies.
        listener: called with each fallback; it must not raise.
        fallbacks: counts and reports them, for several of these together; then no `listener` is given.
    """

    def __init__(
        self,
        hot: LedgerStore,
        cold: ColdReaders,
        *,
        listener: FallbackListener | None = None,
        fallbacks: ReadFallbacks | None = None,
    ) -> None:
        self._hot = hot
        self._cold = cold
        self._fallbacks = ReadFallbacks(listener) if fallbacks is None else fallbacks

    @property
    def fallback_counts(self) -> Mapping[tuple[Copy, FallbackReason], int]:
        """The number of fallbacks, by the copy that could not be read and the reason."""
        return self._fallbacks.counts

    def open(
        self,
        record: LedgerRecord,
        priority: ReadPriority = ReadPriority.OFFLOADED_FIRST,
        managed_ledger: str | None = None,
    ) -> TieredReader:
        """Open a ledger; `managed_ledger` is its name, by which MapFiles are found.

        A copy that is not recorded is no fallback: what was never offloaded is read hot by either
        `*_FIRST`, what was deleted from the hot tier is read cold.

        Raises:
            NoReadableCopyError: by `*_FIRST`, neither copy can be opened; both errors are in its message.
            OffloadError: the error of the only copy that is asked for, or exists.
        """
        openers: dict[Copy, Callable[[], LedgerReader]] = {
            Copy.HOT: partial(self._hot.open, record.ledger_id),
            Copy.COLD: partial(self._cold.open, record, managed_ledger),
        }
        copies = {copy: openers[copy] for copy in _in_order(record, priority)}
        return TieredReader(record, copies, self._fallbacks)


def _in_order(record: LedgerRecord, priority: ReadPriority) -> tuple[Copy, ...]:
    first, second = (Copy.HOT, Copy.COLD) if priority.hot_first else (Copy.COLD, Copy.HOT)
    if not priority.falls_back:
        return (first,)
    if not record.has_complete_copy:
        return (Copy.HOT,)
    if not record.has_hot_copy:
        return (Copy.COLD, Copy.HOT)  # the hot one may be there still, if its deletion was cut off
    return (first, second)


class TieredReader:
    """Reads one ledger; see `LedgerReader`. Made by `TieredReaders`; threads may share it.

    It stays with the copy that it has turned to, until that one fails.

    Args:
        record: the ledger's.
        copies: what opens each, the one to be read first at first.
    """

    def __init__(
        self,
        record: LedgerRecord,
        copies: Mapping[Copy, Callable[[], LedgerReader]],
        fallbacks: ReadFallbacks,
    ) -> None:
        self._record = record
        self._copies = copies
        self._fallbacks = fallbacks
        self._lock = threading.Lock()
        self._current = next(iter(copies))
        self._opened: dict[Copy, LedgerReader] = {}
        self._closed = False
        self._cold_stop = _cold_stop(record)
        self._try(None, lambda _, reader: reader)

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._record.ledger_id

    @property
    def copy(self) -> Copy:
        """The copy that is read now."""
        return self._current

    def status(self) -> LedgerStatus:
        """See `LedgerReader`. For a ledger that is partly cold, the hot tier's status as long as it answers."""
        return self._ask_status((Copy.HOT, Copy.COLD) if self._cold_stop is not None else None)

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`; of a cold copy with gaps, see `ColdReader.read`.

        Of a ledger that is partly cold and open, the end of a range that begins in the cold part is not checked.

        Raises:
            RangeError: the ledger does not have these entries.
            NoReadableCopyError: by `*_FIRST`, neither copy can be read.
            OffloadError: see `TieredReaders.open`.
        """
        stop, last_cold, only_hot = self._cold_stop, last_entry_id, False
        if stop is not None and first_entry_id < stop:
            last_cold = min(last_entry_id, stop - 1)
        elif stop is not None:
            only_hot = Copy.HOT in self._copies
        if stop is not None and not only_hot and not self._record.info.is_closed:
            check_range(self._status_of(stop), first_entry_id, last_cold, max_bytes)
        else:
            check_range(self._bounds(only_hot=only_hot), first_entry_id, last_entry_id, max_bytes)

        def read(copy: Copy, reader: LedgerReader) -> EntryBatch:
            last = last_cold if copy is Copy.COLD else last_entry_id
            return reader.read(first_entry_id, last, max_bytes)

        return self._try(first_entry_id, read, (Copy.HOT,) if only_hot else None)

    def close(self) -> None:
        """See `LedgerReader`."""
        with self._lock:
            self._closed = True
            readers = list(self._opened.values())
            self._opened.clear()
        for reader in readers:
            reader.close()

    def _bounds(self, *, only_hot: bool) -> LedgerStatus:
        """The end of the ledger: by its record if it is closed, otherwise by the hot tier."""
        info = self._record.info
        if not info.is_closed or info.entries is None:
            return self._ask_status((Copy.HOT,)) if only_hot else self.status()
        return self._status_of(info.entries)

    def _ask_status(self, only: tuple[Copy, ...] | None) -> LedgerStatus:
        return self._try(None, lambda _, reader: reader.status(), only)

    def _status_of(self, entries: int) -> LedgerStatus:
        info = self._record.info
        return LedgerStatus(
            ledger_id=info.ledger_id,
            entry_count=entries,
            size_bytes=info.size or 0,
            sealed=info.is_closed,
            created_at_ms=0,
        )

    def _try(
        self,
        entry_id: int | None,
        call: Callable[[Copy, LedgerReader], _T],
        only: tuple[Copy, ...] | None = None,
    ) -> _T:
        """Ask the copy that is read now; if it cannot answer, the other one; each once. Or those of `only`, in turn."""
        turned = (self._current, *(copy for copy in self._copies if copy is not self._current))
        copies = [copy for copy in only or turned if copy in self._copies]
        failed: dict[Copy, OffloadError] = {}
        for copy in copies:
            try:
                answer = call(copy, self._reader(copy))
            except OffloadError as error:
                reason = reason_of(error)
                if reason is None or len(copies) == 1:
                    raise
                failed[copy] = error
                if len(failed) == len(copies):
                    raise _neither(self.ledger_id, entry_id, failed) from error
                self._fallbacks.report(
                    Fallback(
                        ledger_id=self.ledger_id, copy=copy, reason=reason, entry_id=entry_id, error=error
                    )
                )
            else:
                if only is None:
                    self._current = copy
                return answer
        raise AssertionError("the last copy answers or raises")

    def _reader(self, copy: Copy) -> LedgerReader:
        with self._lock:
            if self._closed:
                raise LedgerClosedError("the ledger's reader was closed", ledger_id=self.ledger_id)
            if copy not in self._opened:
                self._opened[copy] = self._copies[copy]()
            return self._opened[copy]


def _cold_stop(record: LedgerRecord) -> int | None:
    """One past the last cold entry of a ledger that is partly cold; None if it is not, or if that is not known."""
    stop, info = record.offloaded_stop, record.info
    if stop is None or record.context is None or not record.context.segments:
        return None
    return None if info.is_closed and stop >= (info.entries or 0) else stop


def _neither(
    ledger_id: int, entry_id: int | None, failed: Mapping[Copy, OffloadError]
) -> NoReadableCopyError:
    each = "; ".join(f"{copy.value}: {error}" for copy, error in failed.items())
    return NoReadableCopyError(
        f"neither copy of a ledger can be read: {each}", ledger_id=ledger_id, entry_id=entry_id
    )
