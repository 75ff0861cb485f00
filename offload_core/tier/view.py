"""A Tier behind which there is another, for those that watch what is asked of it."""

from __future__ import annotations

from offload_core.tier.tier import Tier


class TierView(Tier):
    """A view of a Tier: the same place, connections and threads, which are closed with it and not with the view."""

    def __init__(self, tier: Tier) -> None:
        vars(self).update(vars(tier))  # it is that tier, driver and layers and all

    def close(self) -> None:
        """Does nothing: the tier is closed by who opened it."""
