"""Reads the copies of ledgers as policies say: which of them first, and in which windows.

Policies are looked up again only after a while: a read asks for them each time. While their store does not answer,
those that were known hold, so that what is in memory or open can be read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from offload_core.managed_ledger.policy_offloads import PolicyOffloads
from offload_core.managed_ledger.policy_tiers import TierLease
from offload_core.managed_ledger.reader_over import ReaderOver
from offload_core.metadata import LedgerRecord
from offload_core.policies import EffectivePolicies, ReadPriority
from offload_core.policy_store import ResolvedPolicies
from offload_core.read_handles import ColdReaders, Copy, FallbackReason, TieredReaders
from offload_core.read_handles.fallbacks import FallbackListener, ReadFallbacks
from offload_hooks.errors import OptionError, StoreUnavailableError
from offload_hooks.ledger_stores import (
    LedgerReader,
    LedgerStore,
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
        """What holds now; what held before, if the policies' store does not answer."""
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
