"""`ChosenFilter`: the offload filter that is chosen for a topic, and what takes the place of what it drops."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.filters.disabled import OffloadFilterDisable
from offload_core.filters.run import FilterRun
from offload_core.metadata.filter_record import FilterMode
from offload_hooks.errors import BrokenPluginError, OffloadError
from offload_hooks.filters import FilteredTopic, OffloadFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFilter:
    """An offload filter of this name."""

    name: str
    mode: FilterMode
    filter: OffloadFilter

    def open(self, topic: FilteredTopic) -> FilterRun | None:
        """A run of it over what is offloaded next of a topic: for one ledger, or one segment; None filters nothing.

        Raises:
            BrokenPluginError: the filter raised what is no `OffloadError`, or has no bound that makes sense.
            OffloadError: what it raised; see `FilteredTopic.settle`.
        """
        try:
            opened = self.filter.open(topic)
        except OffloadError:
            raise
        except Exception as error:  # a plugin's own code
            raise BrokenPluginError(
                f"the offload filter {self.name!r} failed to open {topic.name}",
                found=f"{type(error).__name__}: {error}",
            ) from error
        return None if opened is None else FilterRun(self.name, self.mode, opened)


NO_FILTER = ChosenFilter(name="disabled", mode=FilterMode.TOMBSTONE, filter=OffloadFilterDisable())
"""What is chosen where nobody chooses."""
