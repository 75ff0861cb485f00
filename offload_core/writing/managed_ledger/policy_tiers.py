"""The tiers that policies name: opened once for each set of options, and closed again when nobody uses them.

Who uses tiers holds a lease. Of those that are in no lease the least recently used are closed, beyond a few. Where
each was is kept, in options alone, so a copy that lies where no policy names anything any more is found as long as the
process lives: its tier is opened again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offload_core.metadata.catalogue.known_tiers import KnownTiers, is_same_place, tier_record
from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import DriverMetadata
from offload_core.storage.tier import DEFAULT_TIMEOUTS, Tier, UploadTimeouts, open_store
from offload_core.storage.tier.registry import load_driver

MOST_IDLE = 16
"""How many tiers that are in no lease stay open."""

View = Callable[[Tier], Tier]
"""What a tier is seen as by who holds a lease."""


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
        others: tiers that hold copies and that no policy names any more; they are not closed.
        most_idle: how many tiers stay open that are in no lease.
        upload_niceness: see `open_store`, for each tier.
        upload_timeouts: the same.
    """

    def __init__(
        self,
        others: Sequence[Tier] = (),
        *,
        most_idle: int = MOST_IDLE,
        upload_niceness: int | None = None,
        upload_timeouts: UploadTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._others = tuple(others)
        self._most_idle = most_idle
        self._upload_niceness = upload_niceness
        self._upload_timeouts = upload_timeouts
        self._lock = threading.Lock()
        self._opened: OrderedDict[_Options, _OpenTier] = OrderedDict()
        self._places: dict[DriverMetadata, _Options] = {}

    def lease(self, policies: EffectivePolicies, view: View = lambda tier: tier) -> TierLease | None:
        """The tiers of a topic, until the lease is closed: that of its policies first; None if none is known.

        Raises:
            OptionError, PluginError: of the tier that its policies name.
        """
        wanted = _options_of(policies)
        with self._lock:
            if wanted is None and not self._others:
                wanted = next(iter(self._places.values()), None)
        if wanted is None and not self._others:
            return None
        return TierLease(self, wanted, self._others, view)

    @property
    def open_count(self) -> int:
        """The number of tiers that are open now, without the others."""
        with self._lock:
            return len(self._opened)

    def close(self) -> None:
        """Close the tiers that policies named, whoever holds a lease."""
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
        self, pool: PolicyTiers, wanted: _Options | None, others: Sequence[Tier], view: View
    ) -> None:
        self._pool = pool
        self._view = view
        self._lock = threading.Lock()
        self._held: list[_OpenTier] = []
        known = [view(tier) for tier in others]
        current = known[0] if wanted is None else self._hold(wanted)
        self.tiers = KnownTiers(current, known, elsewhere=self._elsewhere)

    def __enter__(self) -> KnownTiers:
        return self.tiers

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the tiers back; idempotent."""
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


def _options_of(policies: EffectivePolicies) -> _Options | None:
    if policies.driver is None:
        return None
    options = {name: str(value) for name, value in policies.driver_options().items()}
    return _Options(policies.driver, tuple(sorted(options.items())), policies.rate_limit_bytes_per_s)


def _open(options: _Options, upload_niceness: int | None, upload_timeouts: UploadTimeouts) -> Tier:
    layers = list(getattr(load_driver(options.driver), "default_layers", ()))
    if options.rate is not None:
        layers.append(("rate-limit", {"bytes_per_second": options.rate}))
    given: dict[str, Any] = dict(options.options)
    return open_store(
        options.driver,
        layers=layers,
        upload_niceness=upload_niceness,
        upload_timeouts=upload_timeouts,
        **given,
    )
