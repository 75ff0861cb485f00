"""`OffloadFilterDisable`: nothing is filtered. The default."""

from __future__ import annotations

from offload_hooks.filters import FilteredTopic


class OffloadFilterDisable:
    """Keeps all entries, and waits for nothing."""

    def open(self, topic: FilteredTopic) -> None:
        """See `OffloadFilter`."""
