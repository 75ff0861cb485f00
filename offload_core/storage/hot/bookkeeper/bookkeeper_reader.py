"""The reader of one ledger of BookKeeper: entries by id, from the bookies that its description names.

Where all bookies of an ensemble have every entry, entries are read in batches from one of them; else, and from a bookie
that is too old for batches, one by one, each from a bookie that has it. A bookie that cannot be reached, lacks an entry
or sends a damaged one is passed over for the next of the entry's bookies. If none of them has it, the description is
read again: it changes when entries move, also that of a closed ledger.

While a caller is busy with some entries, those after them are fetched, as far as the range goes that it asked for.

An open ledger is read as far as it is known to be acknowledged. Source: docs/live-clusters.md.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import stamina

from offload_core.format.codec.arrays import Bytes
from offload_core.format.codec.bookkeeper.bookie_frames import BATCH_HEAD_BYTES, BookieCode
from offload_core.format.codec.bookkeeper.digests import EntryDigest
from offload_core.format.codec.bookkeeper.kernels.stored_entries import (
    DAMAGED,
    NOT_ANSWERED,
    check_entries,
    join_payloads,
)
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.ledger_metadata import DigestType, LedgerState
from offload_core.storage.hot.bookkeeper.bookie_connection import NOT_ASKED, BookieConnection, FoundEntries
from offload_core.storage.hot.bookkeeper.bookies import Bookies
from offload_core.storage.hot.bookkeeper.described_ledgers import DescribedLedger, DescribedLedgers
from offload_hooks.errors import (
    AccessDeniedError,
    DataLossError,
    FormatError,
    LedgerClosedError,
    OffloadError,
    RangeError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus

_HEAD_BYTES = 64
"""More than comes with each entry besides its payload."""

_log = logging.getLogger(__name__)

_MISSING = (BookieCode.NO_LEDGER, BookieCode.NO_ENTRY)
_MOST_IN_BATCH = 1 << 16
_MOST_BYTES = 32 << 20
_POLL_S = 5.0
"""How long a bookie is asked to wait at once: then it is looked whether the ledger is sealed."""
_LOOK_S = 0.2

_Turn = TypeVar("_Turn")

LastConfirmed = Callable[[int, DescribedLedger], int | None]
"""Tells the last confirmed entry of an open ledger, as its writer has it; None if it does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """Why a bookie did not give an entry: its code, or an error."""

    bookie_id: str
    why: BookieCode | OffloadError

    @property
    def is_missing(self) -> bool:
        return self.why in _MISSING

    @property
    def may_help(self) -> bool:
        """True if the bookie may give the entry when it is asked again."""
        if isinstance(self.why, BookieCode):
            return self.why is BookieCode.TOO_MANY_REQUESTS
        return self.why.retryable

    def __str__(self) -> str:
        return f"{self.bookie_id}: {self.why.name if isinstance(self.why, BookieCode) else self.why.what}"


class BookKeeperLedgerReader:
    """Reads one ledger; see `LedgerReader`. Made by the store; threads may share it.

    Args:
        last_confirmed: asked about an open ledger before the bookies are.
        timeout_s: for each call.
        attempts: how often all bookies of an entry are asked, where that may help.
    """

    def __init__(
        self,
        ledger_id: int,
        ledgers: DescribedLedgers,
        bookies: Bookies,
        *,
        last_confirmed: LastConfirmed | None,
        timeout_s: float,
        attempts: int,
    ) -> None:
        self._ledger_id = ledger_id
        self._ledgers = ledgers
        self._bookies = bookies
        self._last_confirmed = last_confirmed
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._lock = threading.Lock()
        self._left_over: EntryBatch | None = None
        self._coming: tuple[int, Future[EntryBatch]] | None = None
        self._entry_bytes = 1024.0
        self._confirmed = 0
        self._closed = False
        self._described = ledgers.get(ledger_id)
        self._checksum = crc32c_address()
        self._digest = EntryDigest.of_ledger(self._described.metadata)
        self._expect(_end_of(self._described) or 0, self._described.metadata.length)

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`. `size_bytes` of an open ledger is known as of the entry that its bookies confirm."""
        self._check_open()
        described = self._described
        if _end_of(described) is None:
            described = self._describe_again()
        end = _end_of(described)
        if end is not None:
            return self._status(end, described.metadata.length, sealed=True)
        return self._open_status(described, time.monotonic() + self._timeout_s)

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`.

        Raises:
            DataLossError: no bookie that should have it has an entry.
        """
        self._check_open()
        end = _end_of(self._described)
        count = self._confirmed if end is None else end
        if end is None and last_entry_id >= count:
            count = self.status().entry_count
        if not 0 <= first_entry_id <= last_entry_id < count or max_bytes < 1:
            raise RangeError(
                "the ledger does not have these entries",
                ledger_id=self._ledger_id,
                expected=f"first ≤ last < {count}, at least 1 byte",
                found=f"{first_entry_id} to {last_entry_id}, {max_bytes} bytes",
            )
        deadline = time.monotonic() + self._timeout_s
        max_bytes = min(max_bytes, _MOST_BYTES)
        with self._lock:
            here, self._left_over = self._left_over, None
        parts: list[EntryBatch] = []
        entry_id, room = first_entry_id, max_bytes
        while entry_id <= last_entry_id and (not parts or room > max_bytes // 2):
            if here is None or not here.first_entry_id <= entry_id < here.stop_entry_id:
                try:
                    here = self._arrived(entry_id, deadline) or self._fetch(
                        entry_id, last_entry_id, room, deadline
                    )
                except OffloadError:
                    if parts:
                        return _together(parts)  # the next call meets the error, if it lasts
                    raise
            part = _cut(here, entry_id, last_entry_id + 1, room, at_least_one=not parts)
            if not len(part):
                break
            parts.append(part)
            entry_id, room = part.stop_entry_id, room - part.offsets[-1]
        assert here is not None
        is_left = entry_id < here.stop_entry_id
        self._read_ahead(here.stop_entry_id if is_left else entry_id, last_entry_id, max_bytes)
        if is_left:
            with self._lock:
                self._left_over = here
        return _together(parts)

    def size_before(self, entry_id: int) -> int:
        """See `SizedLedgerReader`; each entry says how many bytes there are up to it."""
        self._check_open()
        status = self.status()
        if not 0 <= entry_id <= status.entry_count:
            raise RangeError(
                "the ledger does not have this entry",
                ledger_id=self._ledger_id,
                expected=f"0 to {status.entry_count}",
                found=entry_id,
            )
        if entry_id == status.entry_count:
            return status.size_bytes
        if entry_id == 0:
            return 0
        return self._length_up_to(self._described, entry_id - 1, time.monotonic() + self._timeout_s)

    def wait_past(self, entry_count: int, timeout_s: float) -> LedgerStatus:
        """See `FollowedLedgerReader`; a bookie of the last ensemble answers when the next entry is confirmed."""
        until = time.monotonic() + timeout_s
        while True:
            status = self.status()
            left = until - time.monotonic()
            if status.sealed or status.entry_count > entry_count or left <= 0:
                return status
            if not self._poll(entry_count - 1, min(left, _POLL_S)):
                time.sleep(min(left, _LOOK_S))

    def accept(self, entry_count: int) -> None:
        """See `FollowedLedgerReader`: bookies may have been told less than the process that asked the broker."""
        with self._lock:
            self._confirmed = max(self._confirmed, entry_count)

    def _poll(self, last_entry_id: int, timeout_s: float) -> bool:
        """Wait until an entry after this one is confirmed, or some time is over; False if no bookie can wait."""
        last = self._described.metadata.ensembles[-1]
        for bookie_id in self._bookies.in_order(list(dict.fromkeys(last.members))):
            deadline = time.monotonic() + timeout_s + min(self._timeout_s, _POLL_S)
            try:
                self._bookies.wait_for(deadline, requests=1)
                with self._bookies.polling_connection(bookie_id, deadline) as connection:
                    connection.wait_for_entry(
                        self._ledger_id, last_entry_id, timeout_s=timeout_s, deadline=deadline
                    )
                return True
            except OffloadError as error:  # `status` has the error, if no other bookie answers
                _log.debug("%s does not wait for an entry", bookie_id, exc_info=error)
        return False

    def close(self) -> None:
        """See `LedgerReader`."""
        self._closed = True
        with self._lock:
            self._left_over = None
        self._take_coming(None)

    def _read_ahead(self, first: int, last: int, max_bytes: int) -> None:
        """Have the next entries fetched while the caller is busy with these."""
        with self._lock:
            is_coming = self._coming is not None and self._coming[0] == first
        if first > last or is_coming:
            return
        self._take_coming(None)
        deadline = time.monotonic() + self._timeout_s
        future = self._bookies.in_background(partial(self._fetch, first, last, max_bytes, deadline))
        if future is not None:
            with self._lock:
                self._coming = first, future

    def _take_coming(self, entry_id: int | None) -> Future[EntryBatch] | None:
        """What is read ahead, if it begins at an entry; anything else is given up if it has not begun."""
        with self._lock:
            coming, self._coming = self._coming, None
        if coming is None:
            return None
        if coming[0] == entry_id:
            return coming[1]
        coming[1].cancel()
        return None

    def _arrived(self, entry_id: int, deadline: float) -> EntryBatch | None:
        """What was read ahead, if it begins at an entry; None as well if that failed, or has not begun."""
        future = self._take_coming(entry_id)
        if future is None or future.cancel():
            return None
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except (OffloadError, CancelledError, FutureTimeoutError):  # the caller tries itself
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosedError("the ledger's reader was closed", ledger_id=self._ledger_id)

    # --- state ---------------------------------------------------------------------------------

    def _describe_again(self) -> DescribedLedger:
        """The description as it is now; that of a closed ledger is never given up for an older one."""
        described = self._ledgers.get(self._ledger_id)
        with self._lock:
            if _end_of(self._described) is None or _end_of(described) is not None:
                self._described = described
            return self._described

    def _status(self, entry_count: int, size_bytes: int, *, sealed: bool) -> LedgerStatus:
        return LedgerStatus(
            ledger_id=self._ledger_id,
            entry_count=entry_count,
            size_bytes=size_bytes,
            sealed=sealed,
            created_at_ms=self._described.created_at_ms,
            custom_metadata=dict(self._described.metadata.custom),
        )

    def _open_status(self, described: DescribedLedger, deadline: float) -> LedgerStatus:
        """The end of an open ledger: what its writer's broker says, or the bookies of its last ensemble confirm.

        All before the last ensemble is acknowledged, else it would not have begun.
        """
        told = None if self._last_confirmed is None else self._last_confirmed(self._ledger_id, described)
        last = described.metadata.ensembles[-1]
        confirmed = last.first_entry_id - 1 if told is None else told
        lengths: dict[int, int] = {}
        faults: list[_Fault] = []
        members = self._bookies.in_order(list(dict.fromkeys(last.members))) if told is None else []
        for bookie_id, until in _shares(members, deadline):
            try:
                self._bookies.wait_for(until, requests=1)
                with self._bookies.connection(bookie_id, until) as connection:
                    entry = connection.read_last(self._ledger_id, self._digest, until)
            except OffloadError as error:
                faults.append(self._fault(bookie_id, error))
                continue
            if isinstance(entry, BookieCode):
                if entry not in _MISSING:  # it may have the newest entry, and will not say
                    faults.append(_Fault(bookie_id=bookie_id, why=entry))
                continue
            confirmed = max(confirmed, entry.last_add_confirmed)
            lengths[entry.entry_id] = entry.length
        if members and len(faults) == len(members):
            raise self._unreadable(None, faults)
        with self._lock:
            self._confirmed = max(self._confirmed, confirmed + 1)
            count = self._confirmed
        size = lengths.get(count - 1, 0)
        if count and not size:
            size = self._length_up_to(described, count - 1, deadline)
        self._expect(count, size)
        return self._status(count, size, sealed=False)

    def _length_up_to(self, described: DescribedLedger, entry_id: int, deadline: float) -> int:
        """Payload bytes up to and with an entry, which stand in it."""
        faults: list[_Fault] = []
        holders = self._bookies.in_order(_holders(described, entry_id))
        for bookie_id, until in _shares(holders, deadline):
            answer = self._ask({bookie_id: np.array([entry_id])}, until)[bookie_id]
            try:
                if isinstance(answer, OffloadError):
                    raise answer
                if answer.codes[0] == BookieCode.OK:
                    at, length = int(answer.offsets[0]), int(answer.lengths[0])
                    stored = answer.window.data[at : at + length]
                    return self._digest.parse(stored, self._ledger_id, entry_id).length
                faults.append(_Fault(bookie_id=bookie_id, why=BookieCode.of(answer.codes[0])))
            except OffloadError as error:
                faults.append(_Fault(bookie_id=bookie_id, why=error))
        raise self._unreadable(entry_id, faults)

    def _expect(self, entry_count: int, size_bytes: int) -> None:
        """Take the mean size of entries for that of those to be read."""
        if entry_count:
            self._entry_bytes = max(1.0, size_bytes / entry_count)

    # --- fetching ------------------------------------------------------------------------------

    def _fetch(self, first: int, last: int, max_bytes: int, deadline: float) -> EntryBatch:
        """Read entries from bookies, one at least; more than `max_bytes` only if they were sent."""
        for attempt in stamina.retry_context(
            on=_may_help,
            attempts=self._attempts,
            timeout=max(0.001, deadline - time.monotonic()),
            wait_initial=0.05,
            wait_max=2.0,
        ):
            with attempt:
                described = self._described
                try:
                    return self._fetch_once(described, first, last, max_bytes, deadline)
                except (DataLossError, StoreUnavailableError, FormatError) as error:
                    again = self._described_after(error)
                    if again.metadata == described.metadata or time.monotonic() >= deadline:
                        raise
                return self._fetch_once(again, first, last, max_bytes, deadline)
        raise AssertionError("stamina's loop ends by an answer or an error")

    def _described_after(self, error: OffloadError) -> DescribedLedger:
        """The description after bookies failed; their error if ZooKeeper fails too."""
        try:
            return self._describe_again()
        except StoreError:
            raise error from None

    def _fetch_once(
        self, described: DescribedLedger, first: int, last: int, max_bytes: int, deadline: float
    ) -> EntryBatch:
        members, stop = _segment(described, first)
        last = last if stop is None else min(last, stop - 1)
        wanted = max(1, min(last - first + 1, int(max_bytes / self._entry_bytes) + 1))
        if described.metadata.write_quorum_size < len(members) or wanted == 1:
            batch = self._fetch_singles(described, first, wanted, deadline)
        else:
            batch = self._fetch_batch(described, first, min(wanted, _MOST_IN_BATCH), max_bytes, deadline)
        self._expect(len(batch), batch.offsets[-1])
        self._bookies.wait_for(deadline, received=batch.offsets[-1])
        return batch

    def _fetch_batch(
        self, described: DescribedLedger, first: int, count: int, max_bytes: int, deadline: float
    ) -> EntryBatch:
        faults: list[_Fault] = []
        holders = self._bookies.in_order(_holders(described, first))
        for bookie_id, until in _shares(holders, deadline):
            if self._bookies.reads_batches(bookie_id):
                try:
                    found = self._read_batch(bookie_id, first, count, max_bytes, until)
                    if isinstance(found, EntryBatch):
                        return found
                    faults.append(_Fault(bookie_id=bookie_id, why=found))
                    continue
                except OffloadError as error:
                    faults.append(self._fault(bookie_id, error))
                    is_closed = isinstance(error, StoreUnavailableError)
                    if not is_closed or isinstance(error, StoreTimeoutError):
                        continue
                    if not self._answers(bookie_id, first, until):
                        continue
                self._bookies.mark_old(bookie_id)  # it closes connections at what it does not know
            return self._fetch_singles(described, first, count, deadline)
        raise self._unreadable(first, faults)

    def _fault(self, bookie_id: str, error: OffloadError) -> _Fault:
        """An error of a bookie's, which is put last for a while if it did not answer in time."""
        if isinstance(error, StoreTimeoutError):
            self._bookies.avoid(bookie_id)
        return _Fault(bookie_id=bookie_id, why=error)

    def _read_batch(
        self, bookie_id: str, first: int, count: int, max_bytes: int, deadline: float
    ) -> EntryBatch | BookieCode:
        """A batch from one bookie; again if the connection had been used before and turns out to be lost."""
        for is_again in (False, True):
            self._bookies.wait_for(deadline, requests=1)
            with self._bookies.connection(bookie_id, deadline) as connection:
                is_new = connection.is_new
                try:
                    found = connection.read_batch(
                        self._ledger_id,
                        first,
                        max_count=count,
                        max_bytes=max_bytes + (4 + self._digest.payload_offset) * count + BATCH_HEAD_BYTES,
                        deadline=deadline,
                    )
                except StoreUnavailableError:
                    if is_new or is_again or time.monotonic() >= deadline:
                        raise
                    continue
                if isinstance(found, BookieCode):
                    return found
                self._check(found, first)
                return self._joined(found, first)
        raise AssertionError("the second turn answers or raises")

    def _answers(self, bookie_id: str, entry_id: int, deadline: float) -> bool:
        """True if a bookie answers to a single read."""
        answer = self._ask({bookie_id: np.array([entry_id])}, deadline)[bookie_id]
        return not isinstance(answer, OffloadError)

    def _fetch_singles(
        self, described: DescribedLedger, first: int, count: int, deadline: float
    ) -> EntryBatch:
        """Read entries one by one, all at once; those that one bookie does not give, from the next that has them."""
        members, _ = _segment(described, first)
        holders = [self._bookies.in_order(_holders(described, first + i)) for i in range(len(members))]
        """Of every entry whose number here leaves this rest, divided by the size of the ensemble."""
        at_once = self._bookies.limits.requests_at_once * len({order[0] for order in holders})
        count = min(count, at_once, self._bookies.most_requests(deadline))
        codes = np.full(count, NOT_ANSWERED, np.int32)
        offsets, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        windows: list[Bytes] = []
        faults: list[_Fault] = []
        for turn, until in _shares(range(len(holders[0])), deadline):
            missing = np.flatnonzero(codes != BookieCode.OK)
            asked: dict[str, list[npt.NDArray[np.int64]]] = {}
            for rest, order in enumerate(holders):
                ids = first + missing[missing % len(members) == rest]
                if len(ids):
                    asked.setdefault(order[turn], []).append(ids)
            by_bookie = {bookie_id: np.sort(np.concatenate(ids)) for bookie_id, ids in asked.items()}
            for bookie_id, answer in self._ask(by_bookie, until).items():
                ids = by_bookie[bookie_id]
                if isinstance(answer, OffloadError):
                    if first in ids:
                        faults.append(_Fault(bookie_id=bookie_id, why=answer))
                    continue
                try:
                    self._check(answer, int(ids[0]))
                except FormatError as error:
                    if first == ids[0]:
                        faults.append(_Fault(bookie_id=bookie_id, why=error))
                found = np.flatnonzero(answer.codes != NOT_ASKED)
                at = found + (ids[0] - first)
                codes[at] = answer.codes[found]
                offsets[at] = answer.offsets[found] + sum(map(len, windows))
                lengths[at] = answer.lengths[found]
                windows.append(answer.window)
                if first in ids and codes[0] > BookieCode.OK:
                    faults.append(_Fault(bookie_id=bookie_id, why=BookieCode.of(codes[0])))
        if codes[0] != BookieCode.OK:
            raise self._unreadable(first, faults)
        whole = FoundEntries(window=np.concatenate(windows), codes=codes, offsets=offsets, lengths=lengths)
        return self._joined(whole, first)

    def _ask(
        self, by_bookie: Mapping[str, npt.NDArray[np.int64]], deadline: float
    ) -> dict[str, FoundEntries | OffloadError]:
        """Read single entries (ascending) from some bookies at the same time; what each answers, or its error."""
        answers: dict[str, FoundEntries | OffloadError] = {}
        with ExitStack() as lent:
            asked: dict[str, BookieConnection] = {}
            for bookie_id in sorted(by_bookie):
                ids = by_bookie[bookie_id]
                try:
                    self._bookies.wait_for(deadline, requests=len(ids))
                    connection = lent.enter_context(self._bookies.connection(bookie_id, deadline))
                    connection.send_reads(self._ledger_id, ids, deadline)
                    asked[bookie_id] = connection
                except OffloadError as error:
                    self._fault(bookie_id, error)
                    answers[bookie_id] = error
            for bookie_id, connection in asked.items():
                ids = by_bookie[bookie_id]
                size = int((self._entry_bytes + _HEAD_BYTES) * len(ids))
                try:
                    answers[bookie_id] = connection.receive_reads(
                        self._ledger_id, ids, expected_bytes=size, deadline=deadline
                    )
                except OffloadError as error:
                    self._fault(bookie_id, error)
                    answers[bookie_id] = error
        return answers

    def _check(self, found: FoundEntries, first: int) -> None:
        """Mark the entries that are damaged; `FormatError` if the first is."""
        digest = self._digest
        damaged = check_entries(
            found.window,
            found.codes,
            found.offsets,
            found.lengths,
            self._ledger_id,
            first,
            digest.payload_offset,
            digest.kind is DigestType.CRC32C,
            self._checksum,
        )
        first_error: FormatError | None = None
        if damaged or digest.kind not in (DigestType.CRC32C, DigestType.DUMMY):
            for i in range(len(found.codes)):
                if found.codes[i] in (BookieCode.OK, DAMAGED):
                    at, length = int(found.offsets[i]), int(found.lengths[i])
                    try:
                        digest.parse(found.window.data[at : at + length], self._ledger_id, first + i)
                    except FormatError as error:
                        found.codes[i] = DAMAGED
                        first_error = error if i == 0 else first_error
        if first_error is not None:
            raise first_error

    def _joined(self, found: FoundEntries, first: int) -> EntryBatch:
        """The entries up to the first that was not found, whose payloads are copied."""
        missing = np.flatnonzero(found.codes != BookieCode.OK)
        count = int(missing[0]) if len(missing) else len(found.codes)
        begin = self._digest.payload_offset
        lengths = found.lengths[:count]
        values = np.empty(int(lengths.sum()) - begin * count, np.uint8)
        borders = np.empty(count + 1, np.int64)
        join_payloads(found.window, found.offsets[:count], lengths, begin, values, borders)
        return _batch(first, values, borders)

    def _unreadable(self, entry_id: int | None, faults: Sequence[_Fault]) -> OffloadError:
        """The error where no bookie gives an entry (or any, for None): that of one that is damaged before others."""
        found = "; ".join(map(str, faults))
        errors = [fault.why for fault in faults if isinstance(fault.why, OffloadError)]
        may_help = any(fault.may_help for fault in faults)
        for error in errors:
            if isinstance(error, AccessDeniedError) or (isinstance(error, FormatError) and not may_help):
                return error.at(ledger_id=self._ledger_id, entry_id=entry_id)
        kind: type[OffloadError] = StoreUnavailableError
        what = "no bookie of a ledger answers"
        hint = next((error.hint for error in errors if error.hint), None)
        if BookieCode.UNAUTHORIZED in [fault.why for fault in faults]:
            kind, what, hint = AccessDeniedError, "the bookies want a login", "See the options 'sasl_…'."
        elif all(fault.is_missing for fault in faults):
            kind, what = DataLossError, "no bookie has what it should have of a ledger"
        elif any(isinstance(error, StoreTimeoutError) for error in errors):
            kind = StoreTimeoutError
        return kind(
            what,
            key=self._ledgers.place,
            ledger_id=self._ledger_id,
            entry_id=entry_id,
            found=found,
            hint=hint,
        )


def _end_of(described: DescribedLedger) -> int | None:
    """Number of entries of a closed ledger; None of one that is open or in recovery."""
    metadata = described.metadata
    if metadata.state is not LedgerState.CLOSED:
        return None
    return 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1


def _segment(described: DescribedLedger, entry_id: int) -> tuple[Sequence[str], int | None]:
    """The ensemble that has an entry, and where the next one begins; None for the last."""
    ensembles = described.metadata.ensembles
    at = bisect_right(ensembles, entry_id, key=lambda each: each.first_entry_id) - 1
    stop = ensembles[at + 1].first_entry_id if at + 1 < len(ensembles) else None
    return ensembles[at].members, stop


def _holders(described: DescribedLedger, entry_id: int) -> list[str]:
    """The bookies that have an entry, the first at first."""
    members, _ = _segment(described, entry_id)
    quorum = described.metadata.write_quorum_size
    return [members[(entry_id + i) % len(members)] for i in range(quorum)]


def _shares(turns: Sequence[_Turn], deadline: float) -> Iterator[tuple[_Turn, float]]:
    """Each of some turns, one after another, with the time until when it may last: an equal share of what is left."""
    for number, turn in enumerate(turns):
        now = time.monotonic()
        yield turn, now + max(0.0, deadline - now) / (len(turns) - number)


def _may_help(error: Exception) -> bool:
    return isinstance(error, OffloadError) and error.retryable


def _batch(first: int, values: npt.NDArray[np.uint8], borders: npt.NDArray[np.int64]) -> EntryBatch:
    return EntryBatch(first, values.data.toreadonly(), borders.data.cast("B").cast("q").toreadonly())


def _cut(batch: EntryBatch, begin: int, stop: int, max_bytes: int, *, at_least_one: bool) -> EntryBatch:
    """The entries of a batch from `begin` up to `stop`, as far as `max_bytes` go."""
    borders = np.frombuffer(batch.offsets, np.int64)
    first = begin - batch.first_entry_id
    end = int(np.searchsorted(borders, borders[first] + max_bytes, side="right")) - 1
    end = min(max(end, first + at_least_one), stop - batch.first_entry_id, len(batch))
    if first == 0 and end == len(batch):
        return batch
    cut = borders[first : end + 1]
    return EntryBatch(
        begin, batch.data[cut[0] : cut[-1]], (cut - cut[0]).data.cast("B").cast("q").toreadonly()
    )


def _together(parts: Sequence[EntryBatch]) -> EntryBatch:
    """Batches that follow one another, as one."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([np.frombuffer(part.data, np.uint8) for part in parts])
    borders, used = [np.zeros(1, np.int64)], 0
    for part in parts:
        borders.append(np.frombuffer(part.offsets, np.int64)[1:] + used)
        used += part.offsets[-1]
    return _batch(parts[0].first_entry_id, values, np.concatenate(borders))
