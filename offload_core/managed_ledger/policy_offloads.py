"""Offloads to the tiers that policies name: each topic's by what holds for it at that moment.

A copy is read and deleted in the tier of its record: in one that a policy has named since the process began, or one
that is configured beside them. Tiers are opened once for each set of options.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata import LedgerRecord, ManagedLedgerRecords
from offload_core.offload import LedgerOffloader, OffloadProgress
from offload_core.offload.ledger_offloader import ProgressListener
from offload_core.offload.recorded_offload import RecordedOffloads
from offload_core.offloader_stats import OffloaderStats
from offload_core.policies import EffectivePolicies
from offload_core.policy_store import ResolvedPolicies
from offload_core.tier import MemoryBudget, Tier, open_store
from offload_core.tier.registry import load_driver
from offload_hooks.errors import OffloadError, OptionError
from offload_hooks.ledger_stores import LedgerStore

_Options = tuple[str, tuple[tuple[str, str], ...], int | None]


class PolicyOffloads:
    """`Offloads` of topics whose policies are these. It closes the tiers that it opens, and nothing else.

    Args:
        records: the managed ledgers' records.
        hot: where the ledgers are.
        policies_of: what holds for a managed ledger, by its name; asked for each ledger.
        others: tiers that hold copies and that no policy names any more.
        budget: what the blocks of all offloads together may take.
        now_ms: the time, in ms since 1970, UTC.
        stats: counts bytes that were offloaded, offloads that failed, and deletions of cold copies.
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
    ) -> None:
        self._records = records
        self._hot = hot
        self._policies_of = policies_of
        self._others = tuple(others)
        self._budget = MemoryBudget() if budget is None else budget
        self._now_ms = now_ms
        self._stats = stats
        self._lock = threading.Lock()
        self._tiers: dict[_Options, Tier] = {}

    def offload(self, name: str, ledger_id: int, *, listener: ProgressListener | None = None) -> bool:
        """See `RecordedOffloads`; `OptionError` also where the policies name no driver."""
        if self._stats is None:
            return self._of(name).offload(name, ledger_id, listener=listener)
        topic = topic_of_managed_ledger(name).full
        try:
            return self._of(name).offload(name, ledger_id, listener=_counting(self._stats, topic, listener))
        except OffloadError:
            self._stats.count_offload_error(topic)
            raise

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, announce: Callable[[], None] | None = None
    ) -> bool:
        """See `RecordedOffloads`; `OptionError` as `offload`."""
        return self._of(name).delete_hot_copy(name, ledger_id, lag_ms, announce=announce)

    def delete_cold_copy(self, name: str, ledger: LedgerRecord) -> None:
        """See `RecordedOffloads`; `OptionError` also where no tier is known."""
        tiers = self.tiers_of(name)
        if tiers is None:
            raise OptionError(f"no tier is configured in which {name} could be", ledger_id=ledger.ledger_id)
        succeeded = False
        try:
            self._in(tiers).delete_cold_copy(name, ledger)
            succeeded = True
        finally:
            if self._stats is not None:
                self._stats.count_deletion(topic_of_managed_ledger(name).full, succeeded=succeeded)

    def known_tiers(self) -> list[Tier]:
        """All tiers that policies named so far, and the others."""
        with self._lock:
            return [*self._tiers.values(), *self._others]

    def close(self) -> None:
        """Close the tiers that policies named."""
        with self._lock:
            for tier in self._tiers.values():
                tier.close()

    def tiers_of(self, name: str) -> KnownTiers | None:
        """Where copies of a managed ledger's ledgers are: the tier of its policies first; None if none is known."""
        policies = self._policies_of(name).offload
        if policies.driver is not None:
            return self._tiers_with(self._tier(policies))
        tiers = self.known_tiers()
        return KnownTiers(tiers[0], tiers[1:]) if tiers else None

    def _tiers_with(self, current: Tier) -> KnownTiers:
        return KnownTiers(current, [tier for tier in self.known_tiers() if tier is not current])

    def _of(self, name: str) -> RecordedOffloads:
        policies = self._policies_of(name).offload
        return self._in(
            self._tiers_with(self._tier(policies)),
            partial(
                LedgerOffloader,
                max_block_bytes=policies.max_block_bytes,
                budget=self._budget,
                parts_in_flight=policies.max_threads,
            ),
        )

    def _in(
        self, tiers: KnownTiers, offloader_of: Callable[[Tier], LedgerOffloader] = LedgerOffloader
    ) -> RecordedOffloads:
        return RecordedOffloads(
            self._records, self._hot, tiers, offloader_of=offloader_of, now_ms=self._now_ms
        )

    def _tier(self, policies: EffectivePolicies) -> Tier:
        driver, options, rate = policies.driver, policies.driver_options(), policies.rate_limit_bytes_per_s
        assert driver is not None  # else there are no options
        key = (driver, tuple(sorted((name, str(value)) for name, value in options.items())), rate)
        with self._lock:
            if key not in self._tiers:
                layers = list(getattr(load_driver(driver), "default_layers", ()))
                if rate is not None:
                    layers.append(("rate-limit", {"bytes_per_second": rate}))
                given: dict[str, Any] = dict(options)
                self._tiers[key] = open_store(driver, layers=layers, **given)
            return self._tiers[key]


def _counting(stats: OffloaderStats, topic: str, listener: ProgressListener | None) -> ProgressListener:
    """Counts the bytes of each block once, and passes the progress on."""
    counted = 0

    def listen(progress: OffloadProgress) -> None:
        nonlocal counted
        stats.count_offloaded(topic, progress.data_bytes - counted)
        counted = progress.data_bytes
        if listener is not None:
            listener(progress)

    return listen
