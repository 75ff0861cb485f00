"""Offloads and reads by policies: each topic's by what holds for it at that moment.

`PolicyOffloads` offloads to the tier that policies name. A copy is read and deleted in the tier of its record: in one
that a policy has named since the process began, or one that is configured beside them, see `policy_tiers`.

`PolicyReads` reads ledgers by the read priority of the policies. They are looked up again only after a while: a read
asks for them each time. While their store does not answer, those that were known hold, so that what is in memory or
open can be read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.policies import EffectivePolicies, ReadPriority
from offload_core.metadata.records import DriverMetadata, LedgerRecord, OtherCopy
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, Copy, FallbackReason, TieredReaders
from offload_core.reading.read_handles.tiered import FallbackListener, ReadFallbacks
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import DEFAULT_TIMEOUTS, MemoryBudget, Tier, UploadTimeouts
from offload_core.storage.tier.memory_budget import DEFAULT_BUDGET_BYTES, PartOfBudget
from offload_core.storage.tier.watched_tiers import CountedTier
from offload_core.writing.filters import FilterRun
from offload_core.writing.managed_ledger.policy_tiers import MOST_IDLE, PolicyTiers, TierLease, View
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.ledger_offloader import ProgressListener
from offload_core.writing.offload.offloads import Announce, AnnounceHot, to_nobody
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.settings import ResolvedPolicies
from offload_hooks.errors import (
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    StoreUnavailableError,
)
from offload_hooks.ledger_stores import (
    DEFAULT_READ_BYTES,
    EntryBatch,
    LedgerReader,
    LedgerStatus,
    LedgerStore,
)


class ReaderOver:
    """Passes all calls on to `reader`; see `LedgerReader`."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`."""
        return self._reader.status()

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        return self._reader.read(first_entry_id, last_entry_id, max_bytes)

    def close(self) -> None:
        """See `LedgerReader`."""
        self._reader.close()


class TimedReader(ReaderOver):
    """A `LedgerReader` of one topic, for an offload."""

    def __init__(self, reader: LedgerReader, stats: OffloaderStats, topic: str) -> None:
        super().__init__(reader)
        self._stats = stats
        self._topic = topic

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        began = time.perf_counter()
        batch = super().read(first_entry_id, last_entry_id, max_bytes)
        self._stats.time_ledger_read(self._topic, time.perf_counter() - began)
        return batch


class PolicyOffloads:
    """`Offloads` of topics whose policies are these. It closes the tiers that it opens, and nothing else.

    Args:
        records: the managed ledgers' records.
        hot: where the ledgers are.
        policies_of: what holds for a managed ledger, by its name; asked for each ledger.
        others: tiers that hold copies and that no policy names any more.
        budget: what the blocks of all offloads together may take; None: those of a tenant together have
            `DEFAULT_BUDGET_BYTES`, and those of all half as much again, so that no tenant's take all.
        now_ms: the time, in ms since 1970, UTC.
        stats: counts what is done, and what fails, of each topic.
        most_idle: how many tiers stay open that nobody uses.
        upload_niceness: blocks are written by a process of its own for each tier, see `open_store`.
        upload_timeouts: when such a process is given up.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        hot: LedgerStore,
        policies_of: Callable[[str], ResolvedPolicies],
        *,
        others: Sequence[Tier] = (),
        budget: MemoryBudget | None = None,
        now_ms: Callable[[], int],
        stats: OffloaderStats | None = None,
        most_idle: int = MOST_IDLE,
        upload_niceness: int | None = None,
        upload_timeouts: UploadTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._records = records
        self._hot = hot
        self._policies_of = policies_of
        self._budget = MemoryBudget(DEFAULT_BUDGET_BYTES * 3 // 2) if budget is None else budget
        self._has_parts = budget is None
        self._parts: dict[str, MemoryBudget] = {}
        self._now_ms = now_ms
        self._stats = stats
        self._tiers = PolicyTiers(
            others, most_idle=most_idle, upload_niceness=upload_niceness, upload_timeouts=upload_timeouts
        )

    def offload(
        self,
        name: str,
        ledger_id: int,
        *,
        filter_run: FilterRun | None = None,
        listener: ProgressListener | None = None,
        announce: Announce = to_nobody,
    ) -> bool:
        """See `RecordedOffloads`; `OptionError` also where the policies name no driver."""
        try:
            policies = self._policies_of(name).offload
            with self._lease(name, policies) as tiers:
                offloads = self._in(tiers, self._offloader_of(name, policies), self._opener(name))
                return offloads.offload(
                    name, ledger_id, filter_run=filter_run, listener=listener, announce=announce
                )
        except (LiveAttemptError, OffloadStoppedError):
            raise
        except OffloadError:
            if self._stats is not None:
                self._stats.count_offload_error(topic_of_managed_ledger(name).full)
            raise

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, announce: AnnounceHot | None = None
    ) -> bool:
        """See `RecordedOffloads`; `OptionError` as `offload`."""
        with self._lease(name, self._policies_of(name).offload) as tiers:
            return self._in(tiers).delete_hot_copy(name, ledger_id, lag_ms, announce=announce)

    def delete_cold_copy(self, name: str, ledger: LedgerRecord) -> None:
        """See `RecordedOffloads`; `OptionError` also where no tier is known."""
        with self._deleting(name) as offloads:
            offloads.delete_cold_copy(name, ledger)

    def delete_segment(self, name: str, uuid: UUID, driver: DriverMetadata | None) -> None:
        """See `RecordedOffloads`; `OptionError` as `delete_cold_copy`."""
        with self._deleting(name) as offloads:
            offloads.delete_segment(name, uuid, driver)

    def delete_other_copy(self, name: str, copy: OtherCopy) -> None:
        """See `RecordedOffloads`; `OptionError` as `delete_cold_copy`."""
        with self._deleting(name) as offloads:
            offloads.delete_other_copy(name, copy)

    @contextmanager
    def _deleting(self, name: str) -> Iterator[RecordedOffloads]:
        lease = self.lease(name)
        if lease is None:
            raise OptionError(f"no tier is configured in which {name} could be")
        succeeded = False
        try:
            with lease as tiers:
                yield self._in(tiers)
            succeeded = True
        finally:
            if self._stats is not None:
                self._stats.count_deletion(topic_of_managed_ledger(name).full, succeeded=succeeded)

    def lease_to_write(self, name: str) -> TierLease:
        """The tiers of a managed ledger's topic, that of its policies first, until it is closed.

        Raises:
            OptionError: its policies name no driver.
        """
        return self._lease(name, self._policies_of(name).offload)

    def lease(self, name: str) -> TierLease | None:
        """The tiers in which copies of a managed ledger's ledgers are, until it is closed; None if none is known."""
        return self._tiers.lease(self._policies_of(name).offload, self._view(name))

    @property
    def open_tiers(self) -> int:
        """The number of tiers that policies named and that are open now."""
        return self._tiers.open_count

    def close(self) -> None:
        """Close the tiers that policies named."""
        self._tiers.close()

    def _lease(self, name: str, policies: EffectivePolicies) -> TierLease:
        policies.driver_options()  # refuses policies without a driver
        lease = self._tiers.lease(policies, self._view(name))
        assert lease is not None
        return lease

    def _view(self, name: str) -> View:
        """The tiers as this managed ledger's topic uses them."""
        stats = self._stats
        if stats is None:
            return lambda tier: tier
        topic = topic_of_managed_ledger(name).full
        return lambda tier: CountedTier(tier, stats, topic)

    def _budget_of(self, name: str) -> MemoryBudget:
        if not self._has_parts:
            return self._budget
        tenant = name.partition("/")[0]
        part = self._parts.get(tenant)
        return part or self._parts.setdefault(tenant, PartOfBudget(DEFAULT_BUDGET_BYTES, self._budget))

    def _offloader_of(self, name: str, policies: EffectivePolicies) -> Callable[[Tier], LedgerOffloader]:
        return partial(
            LedgerOffloader,
            max_block_bytes=policies.max_block_bytes,
            budget=self._budget_of(name),
            parts_in_flight=policies.max_threads,
            checksums=policies.writes_checksums,
        )

    def _opener(self, name: str) -> Callable[[int], LedgerReader] | None:
        """Opens hot ledgers such that their reads are timed; None if nothing is counted."""
        stats = self._stats
        if stats is None:
            return None
        topic = topic_of_managed_ledger(name).full
        return lambda ledger_id: TimedReader(self._hot.open(ledger_id), stats, topic)

    def _in(
        self,
        tiers: KnownTiers,
        offloader_of: Callable[[Tier], LedgerOffloader] = LedgerOffloader,
        open_hot: Callable[[int], LedgerReader] | None = None,
    ) -> RecordedOffloads:
        return RecordedOffloads(
            self._records,
            self._hot,
            tiers,
            offloader_of=offloader_of,
            open_hot=open_hot,
            now_ms=self._now_ms,
        )


DEFAULT_KEPT_S = 10.0

_MOST_KNOWN = 10_000
"""Of how many managed ledgers policies are remembered."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    policies: EffectivePolicies
    until: float


class PolicyReads:
    """`open_reader` and `priority_of` of an `Environment`, for topics whose policies are these.

    Args:
        hot: where ledgers are before they are offloaded.
        offloads: what knows the tiers.
        policies_of: what holds for a managed ledger, by its name.
        kept_s: how long that is taken to hold.
        listener: told of each read that turned to the other copy; it must not raise.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        hot: LedgerStore,
        offloads: PolicyOffloads,
        policies_of: Callable[[str], ResolvedPolicies],
        *,
        kept_s: float = DEFAULT_KEPT_S,
        listener: FallbackListener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hot = hot
        self._offloads = offloads
        self._policies_of = policies_of
        self._kept_s = kept_s
        self._fallbacks = ReadFallbacks(listener)
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    @property
    def fallback_counts(self) -> Mapping[tuple[Copy, FallbackReason], int]:
        """See `TieredReaders`; of all ledgers that were opened here."""
        return self._fallbacks.counts

    def priority_of(self, name: str) -> ReadPriority:
        """Which copy of a managed ledger's ledgers is read. Errors are those of the policies' store."""
        return self._policies(name).read_priority

    def open_reader(self, record: LedgerRecord, priority: ReadPriority, name: str) -> LedgerReader:
        """Open a ledger; errors as `TieredReaders.open`.

        Where no tier is configured, it is its hot copy, or by `OFFLOADED_ONLY` an `OptionError`.
        """
        lease = self._offloads.lease(name)
        if lease is None:
            if priority is ReadPriority.OFFLOADED_ONLY:
                raise OptionError(
                    f"no tier is configured from which {name} could be read", ledger_id=record.ledger_id
                )
            return self._hot.open(record.ledger_id)
        with ExitStack() as stack:
            stack.enter_context(lease)
            cold = ColdReaders(lease.tiers, read_buffer_bytes=self._policies(name).read_buffer_bytes)
            reader = TieredReaders(self._hot, cold, fallbacks=self._fallbacks).open(record, priority, name)
            stack.pop_all()
        return _LeasedReader(reader, lease)

    def _policies(self, name: str) -> EffectivePolicies:
        now = self._clock()
        with self._lock:
            known = self._known.get(name)
        if known is None or known.until <= now:
            policies = self._ask(name, known)
            known = _Known(policies, now + self._kept_s)
            with self._lock:
                self._known.pop(name, None)
                self._known[name] = known
                if len(self._known) > _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
        return known.policies

    def _ask(self, name: str, known: _Known | None) -> EffectivePolicies:
        """The policies in force now; those from before, if their store does not answer."""
        try:
            return self._policies_of(name).offload
        except StoreUnavailableError as error:
            if known is None:
                raise
            _log.warning("%s is read by the policies that it had: %s", name, error)
            return known.policies


class _LeasedReader(ReaderOver):
    """A `LedgerReader` that gives its tiers back when it is closed."""

    def __init__(self, reader: LedgerReader, lease: TierLease) -> None:
        super().__init__(reader)
        self._lease = lease

    def close(self) -> None:
        super().close()
        self._lease.close()
