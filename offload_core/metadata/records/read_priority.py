"""The tiered read priority: which copies of a ledger are read, and in which order."""

from __future__ import annotations

import enum

from offload_hooks.errors import OptionError


class ReadPriority(enum.Enum):
    """The copies of a ledger that are read, and their order."""

    BOOKKEEPER_ONLY = "BOOKKEEPER_ONLY"
    BOOKKEEPER_FIRST = "BOOKKEEPER_FIRST"
    OFFLOADED_ONLY = "OFFLOADED_ONLY"
    OFFLOADED_FIRST = "OFFLOADED_FIRST"

    @property
    def hot_first(self) -> bool:
        """True if the hot tier's copy is tried first."""
        return self in (ReadPriority.BOOKKEEPER_ONLY, ReadPriority.BOOKKEEPER_FIRST)

    @property
    def falls_back(self) -> bool:
        """True if the other copy is tried when the first cannot be read."""
        return self in (ReadPriority.BOOKKEEPER_FIRST, ReadPriority.OFFLOADED_FIRST)

    @property
    def pulsar_name(self) -> str:
        """The name in Pulsar's JSON."""
        return _PULSAR_NAMES.get(self, self.value)

    @property
    def word(self) -> str:
        """The name as Pulsar's commands take it, such as `bookkeeper-first`."""
        return self.pulsar_name.lower().replace("_", "-")

    def check_is_pulsars(self) -> ReadPriority:
        """This priority, if it is one of Pulsar's two; else a `ValueError`."""
        if not self.falls_back:
            raise ValueError(f"Pulsar has no {self.value} here; tieredReadPriority has")
        return self


_PULSAR_NAMES = {ReadPriority.OFFLOADED_FIRST: "TIERED_STORAGE_FIRST"}
_PULSAR = {name: priority for priority, name in _PULSAR_NAMES.items()}


def parse_read_priority(text: str) -> ReadPriority:
    """The priority that a text names: one of the four, or one of Pulsar's two, in any case, `-` like `_`.

    Raises:
        OptionError: there is no such priority.
    """
    name = text.strip().upper().replace("-", "_")
    if name in _PULSAR:
        return _PULSAR[name]
    try:
        return ReadPriority(name)
    except ValueError:
        raise OptionError(
            "there is no such tiered read priority",
            expected=", ".join(
                [*(each.value for each in ReadPriority), "bookkeeper-first", "tiered-storage-first"]
            ),
            found=text,
        ) from None
