"""What topics' transactions were found to wait for, kept until there is more to know of them.

Who looks reads all behind the stable position, and upkeep looks every few seconds. Where no snapshot was persisted that
is settled farther, and no ledger sealed since, the answer is the same, whatever ended behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.metadata import EntryPosition


@dataclass(frozen=True, slots=True)
class KnownWait:
    """What there was to know: the stable position that was persisted then, and the last entry of the sealed ledgers."""

    stable_position: EntryPosition | None
    sealed: EntryPosition | None


class KnownWaits:
    """By the names of managed ledgers. Calls may come from many threads at once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[KnownWait, str]] = {}

    def find(self, name: str, known: KnownWait) -> str | None:
        """In words, what the topic waits for; None if there is more to know than there was."""
        found = self._found.get(name)
        return found[1] if found is not None and found[0] == known else None

    def keep(self, name: str, known: KnownWait, waits_for: str) -> None:
        """That is what it waits for."""
        self._found[name] = known, waits_for

    def forget(self, name: str) -> None:
        """It waits for nothing."""
        self._found.pop(name, None)
