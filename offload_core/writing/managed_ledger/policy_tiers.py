"""Choices of a topic's policies: the tier that it is offloaded to, its offloader, filter and read priority.

    PolicyTiers     opens each tier once for each set of options, and closes it when it is not used any more
    PolicyReads     opens ledgers for reading by the read priority
    PolicyFilters   the offload filter

A copy is read and deleted in the tier of its record: one that a policy has named since the process began, or one that
is configured beside them. A user of tiers holds a lease; of tiers in no lease the least recently used are closed,
beyond a few. The place of each is kept, in options alone, so that it can be opened again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from offload_core.metadata.catalogue.known_tiers import KnownTiers, is_same_place, tier_record
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import DriverMetadata, LedgerRecord, ReadPriority
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.reading.read_fallbacks import Copy, FallbackListener, FallbackReason, ReadFallbacks
from offload_core.reading.read_handles import ColdReaders, TieredReaders
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import DEFAULT_TIMEOUTS, MemoryBudget, Tier, UploadTimeouts, open_store
from offload_core.storage.tier.memory_budget import DEFAULT_BUDGET_BYTES
from offload_core.storage.tier.registry import load_driver, make_filter
from offload_core.storage.tier.watched_tiers import CountedTier
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.recorded_offload import ReaderOver
from offload_core.writing.offload_filters import ChosenFilter
from offload_core.writing.policy_store import ResolvedPolicies
from offload_hooks.errors import OptionError, StoreUnavailableError
from offload_hooks.filters import OffloadFilter
from offload_hooks.ledger_stores import LedgerReader, LedgerStore

_log = logging.getLogger(__name__)

MOST_IDLE = 16
"""Number of tiers without a lease that stay open."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The key of an open tier: the driver's name, its options as text, and the rate limit."""

    driver: str
    options: tuple[tuple[str, str], ...]
    rate: int | None

    def __repr__(self) -> str:
        return f"<options of {self.driver}>"


@dataclass(slots=True, eq=False)
class _OpenTier:
    tier: Tier
    uses: int = 0


class PolicyTiers:
    """Opens tiers by policies. Calls may come from many threads; nothing is opened or closed while others wait.

    Args:
        policies_of: the policies in force for a managed ledger, by its name; asked for each lease.
        others: tiers that hold copies and that no policy names any more; they are not closed.
        budget: what the blocks of all offloads together may take; None: those of a tenant together have
            `DEFAULT_BUDGET_BYTES`, and those of all half as much again, so that no tenant's take all.
        stats: counts requests to tiers, for each topic.
        most_idle: how many tiers stay open that are in no lease.
        upload_niceness: see `open_store`, for each tier.
        upload_timeouts: the same.
    """

    def __init__(
        self,
        policies_of: Callable[[str], ResolvedPolicies],
        others: Sequence[Tier] = (),
        *,
        budget: MemoryBudget | None = None,
        stats: OffloaderStats | None = None,
        most_idle: int = MOST_IDLE,
        upload_niceness: int | None = None,
        upload_timeouts: UploadTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.policies_of = policies_of
        self._others = tuple(others)
        self._budget = MemoryBudget(DEFAULT_BUDGET_BYTES * 3 // 2) if budget is None else budget
        self._has_shares = budget is None
        self._stats = stats
        self._most_idle = most_idle
        self._upload_niceness = upload_niceness
        self._upload_timeouts = upload_timeouts
        self._lock = threading.Lock()
        self._opened: OrderedDict[_Options, _OpenTier] = OrderedDict()
        self._places: dict[DriverMetadata, _Options] = {}

    def find_lease(self, name: str, *, to_write: bool = False) -> TierLease | None:
        """The tiers of a managed ledger, that of its policies first, until the lease is closed; None if none is known.

        Raises:
            OptionError, PluginError: of the tier that its policies name; `to_write`, also where they name none.
        """
        policies = self.policies_of(name).offload
        if to_write or policies.driver is not None:
            options: _Options | None = _options_of(policies)
        else:
            with self._lock:
                options = None if self._others else next(iter(self._places.values()), None)
            if options is None and not self._others:
                return None
        return TierLease(self, options, self._others, self._view(name))

    def lease(self, name: str, *, to_write: bool = False) -> TierLease:
        """Do the same as `find_lease`; `OptionError` if no tier is known."""
        lease = self.find_lease(name, to_write=to_write)
        if lease is None:
            raise OptionError(f"no tier is configured in which {name} could be")
        return lease

    def offloader(self, tier: Tier, name: str) -> LedgerOffloader:
        """The offloader of a managed ledger to a tier, with the blocks and threads of its policies."""
        policies = self.policies_of(name).offload
        return LedgerOffloader(
            tier,
            max_block_bytes=policies.max_block_bytes,
            budget=self._budget_of(name),
            parts_in_flight=policies.max_threads,
            checksums=policies.writes_checksums,
        )

    def _budget_of(self, name: str) -> MemoryBudget:
        if not self._has_shares:
            return self._budget
        return self._budget.share(name.partition("/")[0], DEFAULT_BUDGET_BYTES)

    def _view(self, name: str) -> Callable[[Tier], Tier]:
        """The tiers as this managed ledger's topic uses them."""
        stats = self._stats
        if stats is None:
            return lambda tier: tier
        topic = topic_of_managed_ledger(name).full
        return lambda tier: CountedTier(tier, stats, topic)

    @property
    def open_count(self) -> int:
        """The number of tiers that are open now, without the others."""
        with self._lock:
            return len(self._opened)

    def close(self) -> None:
        """Close the tiers that policies named, also those in leases."""
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
        for each in opened:
            each.tier.close()

    def use(self, options: _Options) -> _OpenTier:
        """A tier, open until it was given back as often as it was used; for leases."""
        with self._lock:
            found = self._used(options)
        if found is not None:
            return found
        tier = _open(options, self._upload_niceness, self._upload_timeouts)
        with self._lock:
            found = self._used(options)
            if found is None:
                found = self._opened[options] = _OpenTier(tier, uses=1)
                self._places[tier_record(tier)] = options
        if found.tier is not tier:
            tier.close()
        self._close_idle()
        return found

    def give_back(self, opened: Sequence[_OpenTier]) -> None:
        """The tiers are not used any more; for leases."""
        with self._lock:
            for each in opened:
                each.uses -= 1
        self._close_idle()

    def place_of(self, recorded: DriverMetadata) -> _Options | None:
        """By which options the tier was opened that a record means; for leases."""
        with self._lock:
            places = list(self._places.items())
        return next((options for place, options in places if is_same_place(place, recorded)), None)

    def _used(self, options: _Options) -> _OpenTier | None:
        """The tier, used once more, if it is open; the lock is held."""
        found = self._opened.get(options)
        if found is not None:
            found.uses += 1
            self._opened.move_to_end(options)
        return found

    def _close_idle(self) -> None:
        with self._lock:
            idle = [options for options, each in self._opened.items() if not each.uses]
            leaving = [self._opened.pop(options) for options in idle[: max(len(idle) - self._most_idle, 0)]]
        for each in leaving:
            each.tier.close()


class TierLease:
    """Tiers that stay open until it is closed; `tiers` finds the one of a record. Made by `PolicyTiers`."""

    def __init__(
        self,
        pool: PolicyTiers,
        options: _Options | None,
        others: Sequence[Tier],
        view: Callable[[Tier], Tier],
    ) -> None:
        self._pool = pool
        self._view = view
        self._lock = threading.Lock()
        self._held: list[_OpenTier] = []
        known = [view(tier) for tier in others]
        current = known[0] if options is None else self._hold(options)
        self.tiers = KnownTiers(current, known, elsewhere=self._elsewhere)

    def __enter__(self) -> KnownTiers:
        return self.tiers

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the tiers; idempotent."""
        with self._lock:
            held, self._held = self._held, []
        self._pool.give_back(held)

    def _hold(self, options: _Options) -> Tier:
        opened = self._pool.use(options)
        with self._lock:
            self._held.append(opened)
        return self._view(opened.tier)

    def _elsewhere(self, recorded: DriverMetadata) -> Tier | None:
        options = self._pool.place_of(recorded)
        return None if options is None else self._hold(options)


def _options_of(policies: EffectivePolicies) -> _Options:
    options = {name: str(value) for name, value in policies.driver_options().items()}
    assert policies.driver is not None
    return _Options(policies.driver, tuple(sorted(options.items())), policies.rate_limit_bytes_per_s)


def _open(options: _Options, upload_niceness: int | None, upload_timeouts: UploadTimeouts) -> Tier:
    layers = list(getattr(load_driver(options.driver), "default_layers", ()))
    if options.rate is not None:
        layers.append(("rate-limit", {"bytes_per_second": options.rate}))
    given: dict[str, Any] = dict(options.options)
    return open_store(
        options.driver,
        driver=options.driver,  # and never a tier of this name
        layers=layers,
        upload_niceness=upload_niceness,
        upload_timeouts=upload_timeouts,
        **given,
    )


DEFAULT_KEPT_S = 10.0

_MOST_KNOWN = 10_000
"""Most managed ledgers whose policies are remembered."""


@dataclass(frozen=True, slots=True)
class _Known:
    policies: EffectivePolicies
    until: float


class PolicyReads:
    """`open_reader` and `priority_of` of an `Environment`, for topics whose policies are these.

    Args:
        hot: where ledgers are before they are offloaded.
        tiers: where they are after that.
        kept_s: how long policies are taken to hold.
        listener: called with each read that turned to the other copy; it must not raise.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        hot: LedgerStore,
        tiers: PolicyTiers,
        *,
        kept_s: float = DEFAULT_KEPT_S,
        listener: FallbackListener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hot = hot
        self._tiers = tiers
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
        """The copy of a managed ledger's ledgers that is read. Errors are those of the policies' store."""
        return self._policies(name).read_priority

    def open_reader(self, record: LedgerRecord, priority: ReadPriority, name: str) -> LedgerReader:
        """Open a ledger; errors as `TieredReaders.open`.

        Where no tier is configured, it is its hot copy, or by `OFFLOADED_ONLY` an `OptionError`.
        """
        lease = self._tiers.find_lease(name)
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
            return self._tiers.policies_of(name).offload
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


class PolicyFilters:
    """The filters that policies choose, each constructed once. Calls may come from many threads at once.

    Args:
        policies_of: the policies in force for a managed ledger, by its name.
    """

    def __init__(self, policies_of: Callable[[str], ResolvedPolicies]) -> None:
        self._policies_of = policies_of
        self._lock = threading.Lock()
        self._made: dict[tuple[str, tuple[tuple[str, str], ...]], OffloadFilter] = {}

    def choose(self, name: str) -> ChosenFilter:
        """The filter of a managed ledger now.

        Raises:
            UnknownPluginError, BrokenPluginError, OptionError: there is none of that name, or not with those options.
        """
        policies = self._policies_of(name).offload
        options = policies.filter_options
        key = policies.filter_name, tuple(sorted(options.items()))
        with self._lock:
            made = self._made.get(key)
        if made is None:
            made = make_filter(policies.filter_name, options)
            with self._lock:
                made = self._made.setdefault(key, made)
        return ChosenFilter(name=policies.filter_name, mode=FilterMode(policies.filter_mode), filter=made)
