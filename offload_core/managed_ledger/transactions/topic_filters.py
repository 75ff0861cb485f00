"""The offload filters of topics: which one policies choose, and its run over what is offloaded next."""

from __future__ import annotations

import threading
from collections.abc import Callable

from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.filters import ChosenFilter, FilterMode, FilterRun
from offload_core.filters.recorded import has_unsettled_copies
from offload_core.managed_ledger.environment import Environment
from offload_core.managed_ledger.transactions.known_waits import KnownWait
from offload_core.managed_ledger.transactions.settlement import look_at_transactions, settle_transactions
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_core.policy_store import ResolvedPolicies
from offload_core.tier.registry import make_filter
from offload_hooks.filters import OffloadFilter, SettledTransactions


class PolicyFilters:
    """The filters that policies choose, each constructed once. Calls may come from many threads at once.

    Args:
        policies_of: what holds for a managed ledger, by its name.
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


def open_filter(
    environment: Environment, name: str, last: EntryPosition, info: ManagedLedgerInfo
) -> FilterRun | None:
    """The run of a managed ledger's filter over what is offloaded next, up to `last`; None if nothing is filtered.

    It may not take `last` (see `FilterRun.takes`): then that may not be offloaded yet.

    Args:
        info: the record as it is now; of many ledgers it takes long to read.

    Raises:
        OffloadError: of the filter, the metadata, and where entries are read to settle transactions.
    """
    return environment.filter_of(name).open(_Topic(environment, name, last, info))


class _Topic:
    """See `FilteredTopic`."""

    def __init__(
        self, environment: Environment, managed_ledger: str, last: EntryPosition, info: ManagedLedgerInfo
    ) -> None:
        self.name = topic_of_managed_ledger(managed_ledger).full
        self._environment = environment
        self._managed_ledger = managed_ledger
        self._last = last
        self._info = info

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        environment, name = self._environment, self._managed_ledger
        snapshot = environment.snapshots.read(name)
        if snapshot is None:
            return None
        waits_for = None
        if snapshot.stop <= self._last:
            sealed = LedgersView.of(self._info, None).last_position()
            waits_for = environment.waits.find(name, KnownWait(snapshot.stable_position, sealed))
            if waits_for is None:
                snapshot = settle_transactions(environment, name, self._last)
                if snapshot is None:
                    return None  # the topic is being deleted
                if snapshot.stop <= self._last:
                    waits_for = self._waits_for()
                    environment.waits.keep(name, KnownWait(snapshot.stable_position, sealed), waits_for)
        if waits_for is None:
            environment.waits.forget(name)
        return SettledTransactions(
            stop=(snapshot.stop.ledger_id, snapshot.stop.entry_id),
            aborted=frozenset(snapshot.aborted),
            waits_for=waits_for or "",
            markers_matter=has_unsettled_copies(self._info),
        )

    def _waits_for(self) -> str:
        status = look_at_transactions(self._environment, self._managed_ledger)
        found = next(iter(status.open_transactions.items()), None)
        return "its transactions" if found is None else f"transaction {found[0]}, open since entry {found[1]}"
