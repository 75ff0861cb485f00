"""What is planned about one pair of objects, or one ledger's record, and what was done."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.codec.salvaged_objects import LostEntries
from offload_core.repair.counts import CorrectedCounts
from offload_core.repair.plan import Action, Choice
from offload_core.verify import Finding
from offload_hooks.errors import OffloadError

_DOES = (
    Action.REBUILD_INDEX,
    Action.REWRITE_CHECKSUMS,
    Action.SALVAGE,
    Action.CORRECT_COUNTS,
    Action.OFFLOAD_AGAIN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRepair:
    """What is done about one pair of objects, or what a record says of it.

    Attributes:
        key: the data object's; None where only a record is wrong.
        findings: what verification found.
        entries, lost: entries that can be saved, and those that cannot, where that was counted.
        target: where the entries go, by the data object's key; None also where that is not decided yet.
        other: another copy that has all of it, by the same.
        is_done: that is there already, and verified.
        recorded: the topic whose record names the pair as a copy that may be read.
        hot: its ledgers whose hot copies are there, by their records.
        is_moved: the original goes to the quarantine.
        is_switched: its record goes on to what takes its place.
        is_marked: its record is to say that it is damaged, so that its hot copies are kept.
        failure: why it could not be judged.
        counts: what the record says of a ledger's entries and size, and what it must say.
    """

    key: str | None
    findings: tuple[Finding, ...]
    choice: Choice
    entries: int | None = None
    lost: LostEntries | None = None
    target: str | None = None
    other: str | None = None
    is_done: bool = False
    recorded: str | None = None
    hot: tuple[int, ...] = ()
    is_moved: bool = False
    is_switched: bool = False
    is_marked: bool = False
    failure: OffloadError | None = None
    counts: CorrectedCounts | None = None

    @property
    def changes(self) -> bool:
        """Whether there is something to be done."""
        return (
            (self.choice.action in _DOES and not self.is_done)
            or self.is_moved
            or self.is_switched
            or self.is_marked
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What was done about a pair: objects that were written, and originals that were moved, by where they are now.

    Attributes:
        corrected: its record says the right counts now.
    """

    planned: PlannedRepair
    written: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    corrected: bool = False
