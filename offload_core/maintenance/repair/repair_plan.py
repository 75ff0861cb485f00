"""Plan of a repair, pure: the evidence about a pair, the choice, the planned repair, the result."""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass

from offload_core.format.codec.object_marks import LostEntries
from offload_core.maintenance.verify import Code, Finding
from offload_core.metadata.records.record_corrections import LedgerCounts
from offload_hooks.errors import OffloadError


class Action(enum.Enum):
    """Action of a repair."""

    REBUILD_INDEX = "rebuild-index"
    """The data object is right: its index is made anew, under the same key."""
    REWRITE_CHECKSUMS = "rewrite-checksums"
    """A MapFile's data is right: its `.crc` file is made anew."""
    SALVAGE = "salvage"
    """What the data object still holds goes to a new pair of objects."""
    OTHER_COPY = "other-copy"
    """Another copy has all of it, and is right: that is to be read, and this one to be put aside."""
    OFFLOAD_AGAIN = "offload-again"
    """The hot copy has all of it: it goes to a new pair of objects."""
    KEEP_HOT = "keep-hot"
    """Entries of it are lost, and the hot copy has them: the record is to say so, and the hot copy stays."""
    CORRECT_COUNTS = "correct-counts"
    """A record does not say how many entries its ledger has, or how many bytes; its copy does."""
    NOT_SAVABLE = "not-savable"
    """Nothing can be saved here."""
    LEAVE = "leave"
    """Nothing is to be done here, or not by repairing."""


ELSEWHERE: dict[Code, str] = {
    Code.ORPHAN: "no record names it",
    Code.STALE_UPLOAD: "it is an upload",
    Code.SUPERSEDED: "a newer copy is read in its place",
    Code.UNFINISHED: "its attempt is not complete by its record",
    Code.FAILED: "its attempt failed by its record",
    Code.CONDEMNED: "it is being deleted by its record",
    Code.UNKNOWN_VERSION: "its version is not known",
    Code.CONTRADICTION: "nothing tells which of the two is right",
    Code.INDEX_OTHER_TOPIC: "nothing tells whose it is",
    Code.COPIES_DIFFER: "nothing here tells which copy is right",
    Code.LOST_ENTRIES: "what could be saved of it was saved",
}
"""What repairing an object does not help against, and why."""

OF_INDEX = frozenset(
    {
        Code.NO_INDEX,
        Code.WRONG_LENGTH,
        Code.INDEX_BAD_MAGIC,
        Code.INDEX_OTHER_FORMAT,
        Code.INDEX_TRUNCATED,
        Code.INDEX_BAD_LENGTH,
        Code.INDEX_BLOCK_ORDER,
        Code.INDEX_BAD_METADATA,
        Code.INDEX_MISMATCH,
        Code.INDEX_CHECKSUM,
        Code.INDEX_DIRECTORY,
        Code.WRONG_ENTRIES,
        Code.WRONG_SIZE,
        Code.BLOCK_WRONG_LENGTH,
        Code.BLOCK_WRONG_FIRST_ENTRY,
        Code.BLOCK_WRONG_LEDGER,
        Code.BLOCK_BAD_MAGIC,
        Code.BLOCK_HEADER_LENGTH,
        Code.BLOCK_WRONG_END,
        Code.ENTRY_WRONG_ID,
        Code.ENTRY_CUT_OFF,
        Code.ENTRY_BAD_LENGTH,
        Code.BLOCK_BAD_PADDING,
    }
)
"""An index that lies may have each of these findings, also such of the blocks that it points to."""

OF_INDEX_METADATA = frozenset({Code.NO_VERSION, Code.WRONG_ROLE, Code.UNREADABLE_METADATA})
"""The same of the user metadata of an index object."""

OF_BLOCKS = frozenset(code for code in OF_INDEX if code.value.startswith(("block.", "entry.", "object.")))
"""Those of blocks and frames, and of pairs."""

OF_MESSAGES = frozenset(code for code in Code if code.value.startswith("message."))
"""Of what is in entries."""

OF_DATA = OF_INDEX | {
    Code.BLOCK_HEADER_REST,
    Code.MAPFILE_DAMAGED,
    Code.MAPFILE_CHECKSUM,
    Code.MESSAGE_CHECKSUM,
    Code.KEPT,
    Code.MORE,
}
"""Damage of a data object, of which what is sound can be saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Facts of a pair by which a repair is chosen.

    Attributes:
        codes: of its findings; `index_codes` those that are about the index object.
        is_right: every byte of the data object is, and it holds all that is expected of it.
        index_fits: an index that was made anew was verified over the data object.
        entries: that can be saved.
        checksums_only: of a MapFile whose data is right, only the `.crc` file of the data is not.
        is_young: it was written a moment ago, and no record names it.
    """

    codes: Set[Code]
    index_codes: Set[Code]
    has_data: bool
    is_right: bool = False
    index_fits: bool = False
    entries: int = 0
    lost: LostEntries | None = None
    checksums_only: bool = False
    is_young: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Action for a pair, and its reason in words."""

    action: Action
    why: str


def choose(seen: Evidence) -> Choice:
    """Return what to do about a pair."""
    known = seen.codes - {Code.LOST_ENTRIES} or seen.codes
    left = [why for code, why in ELSEWHERE.items() if code in known]
    if left:
        return Choice(action=Action.LEAVE, why=left[0])
    if seen.is_young:
        return Choice(action=Action.LEAVE, why="it is new: an offload of it may be under way")
    if not seen.has_data:
        return Choice(action=Action.NOT_SAVABLE, why="its data object is gone")
    if seen.checksums_only:
        return Choice(action=Action.REWRITE_CHECKSUMS, why="its data is right, and not as its .crc file says")
    wrong_index = bool(seen.codes & OF_INDEX or seen.index_codes & OF_INDEX_METADATA)
    if wrong_index and seen.is_right and seen.index_fits:
        return Choice(action=Action.REBUILD_INDEX, why="its data object is right, its index is not")
    if not seen.codes & (OF_DATA | OF_MESSAGES):
        return Choice(action=Action.LEAVE, why=f"it is not damaged itself: {min(seen.codes, key=str).helps}")
    if not seen.codes & OF_DATA or (seen.is_right and not seen.codes & OF_BLOCKS):
        return Choice(
            action=Action.LEAVE, why="its entries are as they were written, or nothing tells otherwise"
        )
    if not seen.entries:
        return Choice(action=Action.NOT_SAVABLE, why="no entry of it can be told apart")
    if seen.lost is None or not seen.lost.count:
        return Choice(action=Action.SALVAGE, why="its data object is damaged; all its entries can be saved")
    lost = f"{seen.lost.count} are lost"
    return Choice(
        action=Action.SALVAGE, why=f"its data object is damaged; {seen.entries} entries can be saved, {lost}"
    )


_DOES = (
    Action.REBUILD_INDEX,
    Action.REWRITE_CHECKSUMS,
    Action.SALVAGE,
    Action.CORRECT_COUNTS,
    Action.OFFLOAD_AGAIN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCounts:
    """Counts in a ledger's record, and the right ones."""

    ledger_id: int
    before: LedgerCounts
    after: LedgerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRepair:
    """Planned repair of one pair of objects, or of what a record says of it.

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
        """True if there is something to be done."""
        return (
            (self.choice.action in _DOES and not self.is_done)
            or self.is_moved
            or self.is_switched
            or self.is_marked
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """Result for a pair: objects that were written, and originals that were moved, by where they are now.

    Attributes:
        corrected: its record says the right counts now.
    """

    planned: PlannedRepair
    written: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    corrected: bool = False
