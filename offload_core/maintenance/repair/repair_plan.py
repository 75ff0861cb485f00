"""Plan of a repair: its actions and results, and the attempts that managed ledgers' records name.

Records name an object's topic, state which entries it must hold, and whether it is read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import UUID

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_marks import LostEntries
from offload_core.maintenance.repair.damaged_contents import Expected
from offload_core.maintenance.verify import Code, Finding
from offload_core.metadata.catalogue import Records, TopicName, read_each
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    replaced_of,
)
from offload_core.metadata.records.ledger_changes import LedgerCounts
from offload_core.metadata.records.offload_context import DAMAGED_PROPERTY
from offload_hooks.errors import FormatError, MetadataError, OffloadError


class Action(enum.Enum):
    """Action of a repair."""

    REBUILD_INDEX = "rebuild-index"
    """The data object is right: make its index anew, under the same key."""
    REWRITE_CHECKSUMS = "rewrite-checksums"
    """A MapFile's data is right: make its `.crc` file anew."""
    SALVAGE = "salvage"
    """Write the entries that the data object still holds to a new pair of objects."""
    OTHER_COPY = "other-copy"
    """Another copy has all of it, and is right: read that, and put this one aside."""
    OFFLOAD_AGAIN = "offload-again"
    """The hot copy has all of it: write it to a new pair of objects."""
    KEEP_HOT = "keep-hot"
    """Entries of it are lost, and the hot copy has them: record that, and keep the hot copy."""
    CORRECT_COUNTS = "correct-counts"
    """A record has wrong counts of its ledger's entries or bytes, and its copy has the right ones."""
    NOT_SAVABLE = "not-savable"
    """Nothing can be saved."""
    LEAVE = "leave"
    """Do nothing: a repair does not help."""


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
"""Findings that repairing an object does not help against, and why."""

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
"""A wrong index may have each of these findings, also of the blocks that it points to."""

OF_INDEX_METADATA = frozenset({Code.NO_VERSION, Code.WRONG_ROLE, Code.UNREADABLE_METADATA})
"""Findings about the user metadata of an index object."""

OF_BLOCKS = frozenset(code for code in OF_INDEX if code.value.startswith(("block.", "entry.", "object.")))
"""Findings about blocks, frames and pairs."""

OF_MESSAGES = frozenset(code for code in Code if code.value.startswith("message."))
"""Findings about entries."""

OF_DATA = OF_INDEX | {
    Code.BLOCK_HEADER_REST,
    Code.MAPFILE_DAMAGED,
    Code.MAPFILE_CHECKSUM,
    Code.MESSAGE_CHECKSUM,
    Code.KEPT,
    Code.MORE,
}
"""Findings about a data object of which the sound entries can be saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Action for a pair, and its reason in words."""

    action: Action
    why: str


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
    """Planned repair of one pair of objects, or of its record.

    Attributes:
        key: the data object's; None where only a record is wrong.
        findings: those of the verification.
        entries, lost: entries that can be saved, and those that cannot, if they were counted.
        target: the data object's key that the entries go to; None also if that is not decided yet.
        other: another copy that has all of it, by the same.
        is_done: the target exists, and is verified.
        recorded: the topic whose record names the pair as a copy that may be read.
        hot: its ledgers with hot copies, by their records.
        is_moved: the original goes to the quarantine.
        is_switched: its record is switched to the replacement.
        is_marked: it is to be recorded as damaged, so that its hot copies are kept.
        failure: why it could not be judged.
        counts: recorded and correct entries and size of a ledger.
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
        corrected: its record has the right counts now.
    """

    planned: PlannedRepair
    written: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    corrected: bool = False


@dataclass(slots=True, kw_only=True)
class RecordedAttempt:
    """An attempt by its records.

    Attributes:
        is_complete: by a record it may be read.
        was_replaced: by a record another copy took its place.
        expected, infos: of each ledger that has a share of it.
        hot: its ledgers that have hot copies, by their records.
        is_marked: all records that name it mark it as damaged.
        driver: which driver wrote it, and where.
    """

    managed_ledger: str
    topic: str
    is_complete: bool = False
    was_replaced: bool = False
    expected: dict[int, Expected] = field(default_factory=dict)
    infos: dict[int, LedgerInfo] = field(default_factory=dict)
    hot: list[int] = field(default_factory=list)
    is_marked: bool = True
    driver: DriverMetadata | None = None

    @property
    def is_replaced(self) -> bool:
        """True if another copy took its place, and no record reads it."""
        return self.was_replaced and not self.is_complete


def known_of(records: Records, uuids: Collection[UUID]) -> dict[UUID, RecordedAttempt]:
    """Return these attempts as records have them; a record that cannot be read is skipped.

    Raises:
        StoreError: the records cannot be read.
    """
    found: dict[UUID, RecordedAttempt] = {}
    for topic, info in readable(records, records.topics()):
        for ledger in info.ledgers:
            _take(found, uuids, topic, ledger)
    return found


def readable(records: Records, topics: Iterable[TopicName]) -> Iterator[tuple[TopicName, ManagedLedgerInfo]]:
    """Yield the records of these topics that can be read. `StoreError`."""
    for topic, info in read_each(records, topics):
        if not isinstance(info, FormatError):
            yield topic, info


def _take(
    found: dict[UUID, RecordedAttempt], uuids: Collection[UUID], topic: TopicName, ledger: LedgerRecord
) -> None:
    info = ledger.info

    def known_as(uuid: UUID) -> RecordedAttempt:
        return found.setdefault(
            uuid, RecordedAttempt(managed_ledger=managed_ledger_of_topic(topic), topic=str(topic))
        )

    for replaced in _replaced(ledger):
        if replaced.uuid in uuids:
            known_as(replaced.uuid).was_replaced = True
    for copy in ledger.copies:
        if copy.uuid not in uuids:
            continue
        stop = copy.stop_entry_id
        if copy.segment is None and info.is_closed:
            stop = info.entries
        known = known_as(copy.uuid)
        known.is_complete |= copy.complete
        known.expected[info.ledger_id] = Expected(first=copy.begin_entry_id, stop=stop)
        known.infos[info.ledger_id] = info
        known.driver = copy.driver
        known.is_marked &= copy.driver is not None and copy.driver.get(DAMAGED_PROPERTY) == str(copy.uuid)
        if ledger.has_hot_copy:
            known.hot.append(info.ledger_id)


def _replaced(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """Return the copies that were replaced, by a ledger's record; none if that cannot be read."""
    try:
        return replaced_of(ledger)
    except MetadataError:
        return ()


OpenRecords = Callable[[], AbstractContextManager[Records]]
