"""Judge a copy that a ledger's record names: one rule for reading, reporting, repair and deletion.

    check_copy       record, copy, data object, index → the worst mismatch, or None
    check_coverage   record → a mismatch if its segments lack entries
    find_copy        look up a copy's objects, and read its index
    check_found      judge a copy that was found, before another copy is deleted
    check_stored     both

Callers differ only in the severity that they act upon: readers refuse an `UNREADABLE` copy; a copy is deleted only if
the one that stays has no mismatch that is `LACKING` or worse; verification reports all. The data object is not read,
except the end of a MapFile before another copy is deleted: its index does not have the length of its data. Source:
docs/adr/0050-one-judgement-of-a-copy.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES
from offload_core.format.codec.index import NO_BLOCKS, BlockTable, LedgerIndex, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.sequence_file import SequenceFile
from offload_core.format.codec.object_format import FORMAT_VERSION, FORMAT_VERSION_KEY, TOPIC_KEY, ObjectKey
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.metadata.catalogue.index_reading import read_index, read_whole_index
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.records.filter_record import (
    FilterMode,
    FilterRecord,
    indexed_filter,
    recorded_filter,
)
from offload_core.metadata.records.offload_context import DAMAGED_PROPERTY
from offload_core.metadata.records.segments import covered_stop
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, placed
from offload_hooks.values import ObjectStat

if TYPE_CHECKING:
    from typing_extensions import Self

TOPIC_OF_METADATA = "pulsar/managed-ledger"
"""A broker's custom metadata of a ledger: its managed ledger's name."""


class MismatchSeverity(enum.IntEnum):
    """Severity of a mismatch; the higher, the worse."""

    NOTE = 1
    """The copy has all entries of the record; other facts differ."""
    LACKING = 2
    """The copy lacks entries, or nothing shows that it has them. It is read; no other copy is deleted because of it."""
    UNREADABLE = 3
    """The copy is not read."""


class MismatchKind(enum.Enum):
    """Kind of a mismatch, by a stable name; and its severity."""

    UNFINISHED = ("unfinished", MismatchSeverity.UNREADABLE)
    NO_DATA = ("no-data", MismatchSeverity.UNREADABLE)
    NO_INDEX = ("no-index", MismatchSeverity.UNREADABLE)
    WRONG_LENGTH = ("wrong-length", MismatchSeverity.UNREADABLE)
    UNKNOWN_VERSION = ("unknown-version", MismatchSeverity.UNREADABLE)
    OTHER_LEDGER = ("other-ledger", MismatchSeverity.UNREADABLE)
    """No block of the ledger, in an object that leaves no entries out."""
    BEYOND_END = ("beyond-end", MismatchSeverity.UNREADABLE)
    """A block begins after the last entry of the record."""
    LOST = ("lost", MismatchSeverity.LACKING)
    """A copy that was salvaged from a damaged one, and names the entries that it lacks."""
    NO_BLOCK = ("no-block", MismatchSeverity.LACKING)
    """No block of the ledger, in an object that leaves entries out; its writer always makes one."""
    DAMAGED = ("damaged", MismatchSeverity.LACKING)
    """A repair found it damaged, and recorded that."""
    NO_VERSION = ("no-version", MismatchSeverity.LACKING)
    """Pulsar does not read it."""
    OTHER_TOPIC = ("other-topic", MismatchSeverity.LACKING)
    INDEX_OTHER_TOPIC = ("index-other-topic", MismatchSeverity.LACKING)
    """The ledger's own metadata in the index names another topic."""
    NO_END = ("no-end", MismatchSeverity.LACKING)
    """The record does not have the last entry of a segment."""
    FIRST_ENTRY = ("first-entry", MismatchSeverity.LACKING)
    GAP_AT_BEGIN = ("gap-at-begin", MismatchSeverity.LACKING)
    """It leaves entries out, and its first block begins after the first entry of the record, which must be in one."""
    LAST_ENTRY = ("last-entry", MismatchSeverity.LACKING)
    ENTRIES = ("entries", MismatchSeverity.LACKING)
    """Record and index do not have as many entries of the whole ledger."""
    FILTER = ("filter", MismatchSeverity.LACKING)
    """Record, index and user metadata differ about a filter or gaps, or do not account for all entries."""
    COVERAGE = ("coverage", MismatchSeverity.LACKING)
    """The segments of the ledger do not go to its end."""
    MORE_ENTRIES = ("more-entries", MismatchSeverity.NOTE)
    """The segments have entries that the ledger does not: the hot tier lost them."""
    SIZE = ("size", MismatchSeverity.NOTE)
    """Record and index do not have as many bytes; lengths can be wrong in the field."""

    def __init__(self, label: str, severity: MismatchSeverity) -> None:
        self.label = label
        self.severity = severity


_SHOWN_BY_INDEX = frozenset((MismatchKind.NO_INDEX, MismatchKind.OTHER_LEDGER, MismatchKind.BEYOND_END))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A mismatch between a copy and its record.

    Attributes:
        what: a description, without the key.
        entry_id: the first wrong entry, if there is one.
        lacks: for a wrong first entry: entries are missing; else there are more.
    """

    kind: MismatchKind
    what: str
    expected: str | None = None
    found: str | None = None
    entry_id: int | None = None
    lacks: bool = True

    @property
    def severity(self) -> MismatchSeverity:
        """The severity of its kind."""
        return self.kind.severity

    def key(self, copy: RecordedCopy) -> str:
        """The key of the copy's object that shows it."""
        return copy.key.index_key if self.kind in _SHOWN_BY_INDEX else copy.key.data_key

    def __str__(self) -> str:
        details = (
            (name, text) for name in ("expected", "found") if (text := getattr(self, name)) is not None
        )
        facts = ", ".join(f"{name} {text}" for name, text in details)
        return f"{self.what}: {facts}" if facts else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStat:
    """Size and user metadata of a copy's data object.

    Attributes:
        version: of its format; None if it has none.
        managed_ledger: the one that it names; None if it names none.
    """

    size_bytes: int
    version: str | None
    managed_ledger: str | None
    marks: ObjectMarks

    @classmethod
    def of(cls, stat: ObjectStat) -> Self:
        """The values of a data object."""
        metadata = stat.user_metadata
        return cls(
            size_bytes=stat.size_bytes,
            version=metadata.get(FORMAT_VERSION_KEY),
            managed_ledger=metadata.get(TOPIC_KEY),
            marks=ObjectMarks.of(metadata),
        )


def check_copy(
    record: LedgerRecord, copy: RecordedCopy, stat: CopyStat | None, index: ObjectIndex | None
) -> Mismatch | None:
    """Judge one copy, or one segment, of a ledger; return the worst mismatch, None if there is none.

    Args:
        record: the ledger's.
        copy: from `recorded_copies` of that record.
        stat: of its data object; None if that is gone.
        index: None if that is gone.
    """
    return max(find_mismatches(record, copy, stat, index), key=lambda each: each.severity, default=None)


def find_mismatches(
    record: LedgerRecord, copy: RecordedCopy, stat: CopyStat | None, index: ObjectIndex | None
) -> Iterator[Mismatch]:
    """Find all mismatches of a copy, for reports; arguments as `check_copy`."""
    if copy.unfinished is not None:
        yield Mismatch(kind=MismatchKind.UNFINISHED, what=copy.unfinished)
        return
    if stat is None:
        # An index is written after its data, and deleted before it: so this is a loss.
        found = "nothing" if index is None else "an index without data"
        yield Mismatch(kind=MismatchKind.NO_DATA, what="its data object is not there", found=found)
        return
    if index is None:
        yield Mismatch(kind=MismatchKind.NO_INDEX, what="its index is not there")
        return
    if copy.driver is not None and copy.driver.get(DAMAGED_PROPERTY) == str(copy.key.uuid):
        yield Mismatch(
            kind=MismatchKind.DAMAGED, what="its record says that it is damaged, as a repair has found"
        )
    yield from _object_mismatches(copy, stat, index)
    ledger = find_ledger(copy, index, gaps=stat.marks.has_gaps)
    if ledger is None:
        yield Mismatch(
            kind=MismatchKind.OTHER_LEDGER,
            what=f"by its record it holds entries of ledger {copy.ledger_id}, by its index none",
            expected=f"ledger {copy.ledger_id}",
            found=", ".join(f"ledger {each.ledger_id}" for each in index.ledgers[:_MOST_NAMED]) or None,
        )
    elif not ledger.blocks:
        yield Mismatch(
            kind=MismatchKind.NO_BLOCK,
            what="its index has no block of the ledger",
            expected=f"entries from {copy.begin_entry_id} on",
            found="none",
        )
    else:
        yield from _entry_mismatches(record, copy, stat, ledger)
        yield from _filter_mismatches(copy, stat, ledger)


def check_coverage(record: LedgerRecord) -> Mismatch | None:
    """Judge the segments of a ledger together; None if they reach its end, or it has none."""
    context, entries = record.context, record.info.entries or 0
    if context is None or not context.segments:
        return None
    covered = covered_stop(record)
    if covered >= entries:
        return None
    return Mismatch(
        kind=MismatchKind.COVERAGE,
        what="the complete segments of the ledger do not go to its end",
        expected=f"entries {covered} to {entries - 1} in complete segments",
        found="none",
        entry_id=covered,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCopy:
    """A copy as it is in its tier.

    Attributes:
        copy: with the key under which it is: a MapFile's, if its record names no driver and the other key has nothing.
        data: its data object; None if that is gone, as `index`.
    """

    copy: RecordedCopy
    data: ObjectStat | None
    index: ObjectIndex | None

    @property
    def stat(self) -> CopyStat | None:
        """The stat of its data object, for `check_copy`."""
        return None if self.data is None else CopyStat.of(self.data)


def find_copy(tier: Tier, copy: RecordedCopy) -> FoundCopy:
    """Look up a recorded copy in its tier.

    Raises:
        FormatError: its index cannot be decoded; with the key.
        StoreError: the tier fails.
    """
    found = _find(tier, copy)
    if found.data is None and found.index is None and copy.mapfile_key is not None:
        other = _find(tier, replace(copy, key=copy.mapfile_key, mapfile_key=None))
        if other.data is not None or other.index is not None:
            return other
    return found


def check_stored(tier: Tier, record: LedgerRecord, copy: RecordedCopy) -> Mismatch | None:
    """Judge a copy as it is in its tier now, before another copy of the ledger is deleted.

    An index that cannot be decoded is a mismatch as well. Errors: `StoreError`.
    """
    try:
        found = find_copy(tier, copy)
    except FormatError as error:
        return Mismatch(kind=MismatchKind.NO_INDEX, what="its index cannot be read", found=str(error))
    return check_found(tier, record, found)


def check_found(tier: Tier, record: LedgerRecord, found: FoundCopy) -> Mismatch | None:
    """Judge a copy that was found, before another one is deleted: as `check_copy`, and read the end of a MapFile.

    Errors: `StoreError`.
    """
    mismatch = check_copy(record, found.copy, found.stat, found.index)
    if found.index is None or found.index.sequence_file is None or not is_deletable_for(mismatch):
        return mismatch
    gaps = found.stat is not None and found.stat.marks.skips_ids
    try:
        _walk_to_end(tier, found.copy.key, found.index, found.index.sequence_file, gaps=gaps)
    except (FormatError, ObjectNotFoundError) as error:
        return Mismatch(
            kind=MismatchKind.LAST_ENTRY,
            what="its data file does not end with the last entry of its record",
            expected=f"entry {(record.info.entries or 0) - 1} as the last",
            found=str(error),
            entry_id=error.entry_id,
        )
    return mismatch


def is_deletable_for(mismatch: Mismatch | None) -> bool:
    """Return whether another copy may be deleted because of one with this mismatch: it has all entries."""
    return mismatch is None or mismatch.severity < MismatchSeverity.LACKING


def find_ledger(copy: RecordedCopy, index: ObjectIndex, *, gaps: bool) -> LedgerIndex | None:
    """A recorded copy's ledger in an index, None if it has none; with `gaps` a ledger without blocks instead."""
    found = next((each for each in index.ledgers if each.ledger_id == copy.ledger_id), None)
    if found is not None or not gaps or copy.key.ledger_id is not None:
        return found
    info = LedgerInfo(ledger_id=copy.ledger_id, entries=copy.stop_entry_id)
    return LedgerIndex(ledger_id=copy.ledger_id, metadata=info, blocks=NO_BLOCKS)


def with_end(ledger: LedgerIndex, stop_entry_id: int | None) -> LedgerIndex:
    """The ledger, with the end of its last block: the record knows it, a streaming index does not."""
    if not ledger.blocks or stop_entry_id is None:
        return ledger
    if ledger.blocks[-1].end_entry_id is not None:
        return ledger
    return replace(ledger, blocks=ledger.blocks.with_end(stop_entry_id))


def abridged(index: ObjectIndex) -> ObjectIndex:
    """An index with at most three blocks a ledger, which `check_copy` judges alike: those between are joined."""
    return replace(
        index,
        ledgers=tuple(replace(each, blocks=_abridged(each.blocks)) for each in index.ledgers),
        directory=None,
        sequence_file=None,
    )


_MOST_NAMED = 5
_WINDOW_BYTES = 4 << 20


def _abridged(blocks: BlockTable) -> BlockTable:
    return blocks if len(blocks) < 4 else BlockTable.of((blocks[0], *blocks[1:-1].condensed(), blocks[-1]))


def _object_mismatches(copy: RecordedCopy, stat: CopyStat, index: ObjectIndex) -> Iterator[Mismatch]:
    """Compare the two objects, whatever they hold."""
    if index.data_length != stat.size_bytes:
        yield Mismatch(
            kind=MismatchKind.WRONG_LENGTH,
            what="its data object is not as long as its index says",
            expected=f"{index.data_length} bytes",
            found=f"{stat.size_bytes} bytes",
        )
    if stat.version != FORMAT_VERSION and not copy.key.is_mapfile:  # Pulsar's filesystem offloader keeps none
        kind = MismatchKind.NO_VERSION if stat.version is None else MismatchKind.UNKNOWN_VERSION
        yield Mismatch(
            kind=kind,
            what="its format version is not one that is known",
            expected=FORMAT_VERSION,
            found=stat.version or "none",
        )
    if stat.marks.lost is not None:
        yield Mismatch(
            kind=MismatchKind.LOST,
            what="it was salvaged from a damaged copy, and lacks entries",
            expected="all entries",
            found=f"all but {stat.marks.lost.pack()}",
            entry_id=next((first for at, first, _ in stat.marks.lost.ranges if at == copy.ledger_id), None),
        )
    if stat.managed_ledger is not None and topic_of_managed_ledger(stat.managed_ledger) != copy.topic:
        yield _other_topic(MismatchKind.OTHER_TOPIC, copy, stat.managed_ledger)


def _other_topic(kind: MismatchKind, copy: RecordedCopy, managed_ledger: str) -> Mismatch:
    return Mismatch(
        kind=kind,
        what="it says that it is of another topic",
        expected=str(copy.topic),
        found=str(topic_of_managed_ledger(managed_ledger)),
    )


def _entry_mismatches(
    record: LedgerRecord, copy: RecordedCopy, stat: CopyStat, ledger: LedgerIndex
) -> Iterator[Mismatch]:
    """Compare the ledger's entries in record and index."""
    metadata = ledger.metadata
    if isinstance(metadata, LedgerMetadata):
        custom = dict(metadata.custom).get(TOPIC_OF_METADATA)
        named = None if custom is None else custom.decode(errors="backslashreplace")
        if named is not None and topic_of_managed_ledger(named) != copy.topic:
            yield _other_topic(MismatchKind.INDEX_OTHER_TOPIC, copy, named)
    begin, first, last_block = copy.begin_entry_id, ledger.first_entry_id, ledger.blocks[-1].first_entry_id
    if first != begin and not (first > begin and stat.marks.lost is not None):  # recorded loss
        yield Mismatch(
            kind=MismatchKind.GAP_AT_BEGIN
            if first > begin and stat.marks.has_gaps
            else MismatchKind.FIRST_ENTRY,
            what="it does not begin with the entry that its record says",
            expected=f"entries from {begin} on by the record",
            found=f"entries from {first} on in the object",
            entry_id=min(begin, first),
            lacks=first > begin,
        )
    if copy.key.ledger_id is None:
        yield from _segment_end(copy, ledger, last_block, stat)
    yield from _whole_ledger(record, copy, ledger)


def _segment_end(
    copy: RecordedCopy, ledger: LedgerIndex, last_block: int, stat: CopyStat
) -> Iterator[Mismatch]:
    """Compare where a segment ends in the ledger; a streaming index has the begin of its last block only."""
    stop = copy.stop_entry_id
    if stop is None:
        yield Mismatch(kind=MismatchKind.NO_END, what="its record does not say where it ends")
        return
    info = ledger.metadata
    known = ledger.end_entry_id
    counted = known
    if counted is None and isinstance(info, LedgerInfo) and not info.is_closed:
        counted = info.entries
    skips_ids = stat.marks.skips_ids
    most = info.entries if isinstance(info, LedgerInfo) else None
    if stop <= last_block:
        yield Mismatch(
            kind=MismatchKind.BEYOND_END,
            what=f"by its record it ends with entry {stop - 1} of ledger {copy.ledger_id}, "
            f"by its index a block begins with entry {last_block}",
            expected=f"entry {stop - 1} as the last by the record",
            found=f"a block from entry {last_block} on" if counted is None else f"entry {counted - 1}",
            entry_id=stop - 1,
        )
    elif (counted is not None and counted != stop and not skips_ids) or stop > (most or 0):
        yield Mismatch(
            kind=MismatchKind.LAST_ENTRY,
            what="it does not end with the entry that its record says",
            expected=f"entry {stop - 1} as the last by the record",
            found=f"entry {(most or 0) - 1 if counted is None else counted - 1}",
            entry_id=stop - 1,
        )


def _whole_ledger(record: LedgerRecord, copy: RecordedCopy, ledger: LedgerIndex) -> Iterator[Mismatch]:
    """Compare the facts of the whole ledger in record and index."""
    info, metadata = record.info, ledger.metadata
    entries: int | None
    if isinstance(metadata, LedgerMetadata):
        entries = None if metadata.last_entry_id is None else metadata.last_entry_id + 1
    else:
        entries = metadata.entries if metadata.is_closed else None
    is_segment = copy.key.ledger_id is None
    end = ledger.end_entry_id
    if not is_segment and entries is None:
        entries = end
    wrong = entries if entries != info.entries else end
    if is_segment:
        if info.is_closed and None not in (info.entries, entries) and entries != info.entries:
            kind = MismatchKind.MORE_ENTRIES if (entries or 0) > (info.entries or 0) else MismatchKind.ENTRIES
            yield _entries(kind, info.entries, entries)
    elif wrong != info.entries:
        yield _entries(MismatchKind.ENTRIES, info.entries, wrong)
    size = ledger.payload_bytes
    is_known = isinstance(metadata, LedgerMetadata) or metadata.is_closed
    if info.is_closed and is_known and None not in (info.size, size) and size != info.size:
        yield Mismatch(
            kind=MismatchKind.SIZE,
            what="record and index do not have as many bytes of the ledger",
            expected=f"{info.size} bytes by the record",
            found=f"{size} bytes by the index",
        )


def _entries(kind: MismatchKind, expected: int | None, found: int | None) -> Mismatch:
    return Mismatch(
        kind=kind,
        what="record and index do not have as many entries of the ledger",
        expected=f"{expected} entries by the record",
        found=f"{found} entries by the index",
    )


def _filter_mismatches(copy: RecordedCopy, stat: CopyStat, ledger: LedgerIndex) -> Iterator[Mismatch]:
    """Compare record, index and user metadata about a filter, and its counts with the entries."""
    try:
        recorded, found = recorded_filter(copy.driver, copy.ledger_id), indexed_filter(ledger)
    except FormatError as error:
        yield Mismatch(
            kind=MismatchKind.FILTER, what="what is told of a filter cannot be read", found=str(error)
        )
        return
    if recorded is None and found is None:
        if stat.marks.is_filtered:
            yield Mismatch(
                kind=MismatchKind.FILTER,
                what="a filter took entries out of it, and neither record nor index tells of that",
                expected="a filter record",
                found="none",
            )
        return
    if recorded is None or found is None or _brief(recorded) != _brief(found):
        yield Mismatch(
            kind=MismatchKind.FILTER,
            what="an index does not say of a filter what the offload context says",
            expected=_brief(recorded),
            found=_brief(found),
        )
        return
    marked = (stat.marks.is_filtered, stat.marks.has_gaps)
    if marked != (True, found.mode is FilterMode.GAP):
        yield Mismatch(
            kind=MismatchKind.FILTER,
            what="user metadata does not say of a filter what the index says",
            expected=found.mode.value,
            found="no filter" if not stat.marks.is_filtered else "gaps" if stat.marks.has_gaps else "no gaps",
        )
    stop = ledger.end_entry_id if copy.stop_entry_id is None else copy.stop_entry_id
    entries = (stop or 0) - copy.begin_entry_id
    counted = found.kept.entries + sum(each.entries for each in (found.dropped or {}).values())
    if counted != entries or found.kept.entries + found.total_dropped.entries != entries:
        yield Mismatch(
            kind=MismatchKind.FILTER,
            what="what a filter kept and dropped is not all that was to be offloaded",
            expected=f"{entries} entries",
            found=f"{found.kept.entries} kept, {found.total_dropped.entries} dropped",
        )
    length, least = ledger.blocks.data_bytes, _least_bytes(ledger, found)
    if length < least and not copy.key.is_mapfile:  # which is compressed
        yield Mismatch(
            kind=MismatchKind.FILTER,
            what="the blocks of a ledger are smaller than what a filter kept of it",
            expected=f"{least} bytes or more",
            found=str(length),
        )


def _least_bytes(ledger: LedgerIndex, record: FilterRecord) -> int:
    """The bytes of the remaining entries, without padding."""
    frames = record.kept.entries * FRAME_HEADER_BYTES + record.kept.payload_bytes
    return len(ledger.blocks) * BLOCK_HEADER_BYTES + frames


def _brief(record: FilterRecord | None) -> str:
    return "no filter" if record is None else record.pack(short=True)


def _walk_to_end(tier: Tier, key: ObjectKey, index: ObjectIndex, file: SequenceFile, *, gaps: bool) -> None:
    """Read the end of a MapFile; `FormatError` if it does not end with the ledger's last entry."""
    (ledger,) = index.ledgers
    last = ledger.blocks[-1]
    at, stop = last.offset, last.offset + last.length
    cursor: MapFileCursor | None = None
    with placed(key=key.data_key):
        while cursor is None or cursor.starved:
            length = min(_WINDOW_BYTES, stop - at)
            window = tier.read_range(key.data_key, at, length)
            if cursor is None:
                more = length < last.length
                cursor = MapFileCursor(window, file, ledger.ledger_id, last, more=more, gaps=gaps)
            else:
                cursor.feed(window, at)
            at += length
            cursor.skip_to(last.end_entry_id or 0)


def _find(tier: Tier, copy: RecordedCopy) -> FoundCopy:
    key = copy.key
    data, whole = _stat(tier, key.data_key), None
    with suppress(ObjectNotFoundError):
        whole = read_whole_index(tier, key)
    index = _stat(tier, key.index_key) if whole is None else whole.stat
    read = None
    # a MapFile's data file begins with the ledger's metadata
    if index is not None and not (data is None and key.is_mapfile):
        with suppress(ObjectNotFoundError):  # it was deleted meanwhile
            read = read_index(
                tier,
                key,
                index_bytes=index.size_bytes,
                data_bytes=None if data is None else data.size_bytes,
                contents=None if whole is None else bytes(whole.data),
            )
    return FoundCopy(copy=copy, data=data, index=read)


def _stat(tier: Tier, key: str) -> ObjectStat | None:
    try:
        return tier.stat(key)
    except ObjectNotFoundError:
        return None
