"""Rebuild managed ledgers' records from a tier alone, into a metadata store that lacks them.

An index of one object has the ledger's whole BookKeeper record. One of a segment has the ledger's first entry in it,
but not always the last: of a ledger that had ended by then, the last block is read, and of one that is not
known to have ended, all of its blocks.

A record that exists is never changed; one that differs is reported. A record is written whole, and only if there is
none, so that a recovery that was killed can be made again. Before that, a placeholder is written and the objects that
the record will name are looked up: a garbage collection that deletes them takes the placeholder's place, and one that
comes later finds the record. Source: docs/recover.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.metadata.catalogue import Ledger, TopicName, concurrently, recorded_copies
from offload_core.metadata.catalogue.concurrency import in_batches, inspect_batches
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.listing import look_up
from offload_core.metadata.catalogue.survey import FoundLedger, LedgerSurvey
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.records.filter_record import FilterRecord, indexed_filter
from offload_core.metadata.records.offload_context import FILTER_PROPERTY
from offload_core.metadata.records.segments import (
    as_written,
    first_entry_id,
    shares_of,
    with_hot_copy_deleted,
    with_shares,
)
from offload_core.metadata.stores import ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.stores.managed_ledger_records import is_claim, placeholder
from offload_core.metadata.stores.record_paths import record_path, refuse_live_pulsar
from offload_core.storage.clock import system_now_ms
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import FormatError, OffloadError, VersionConflictError, placed


class Unknown(enum.Enum):
    """Missing fact: a stable code, and its meaning in words."""

    OPEN_LEDGER = ("open-ledger", "it was open when it was offloaded last: later entries are not here")
    GAP = "gap", "these entries have no copy here: they were never offloaded, or their object is lost"
    TRIMMED = "trimmed", "its first entries are not here: it was trimmed, or they are lost; it is left out"
    SEVERAL_COPIES = (
        "several-copies",
        "of several complete copies the newest is taken, as readers without records do",
    )
    COPIES_DIFFER = (
        "copies-differ",
        "complete copies differ; the newest is taken, as readers without records do",
    )
    LOST_ENTRIES = (
        "lost-entries",
        "the copy was saved from a damaged one, and lacks entries that its record counts",
    )
    NO_COPY = "no-copy", "no attempt at it is complete: it is left out"
    SIZE = "size", "how many bytes its entries had is not known"
    BROKEN_DATA = "broken-data", "its last block cannot be read: it is left out"
    CLUSTERS = "clusters", "several clusters have offloaded a topic of this name: say which"
    NO_TOPIC = "no-topic", "nothing says which topic it is of"
    FOLDER = "folder", "it lies in a folder, where a record does not find it: open the tier there"

    def __init__(self, code: str, meaning: str) -> None:
        self.code = code
        self.meaning = meaning

    @property
    def leaves_something(self) -> bool:
        """True if entries that may exist are not in the record, or may be lost."""
        return self in (
            Unknown.GAP,
            Unknown.LOST_ENTRIES,
            Unknown.BROKEN_DATA,
            Unknown.CLUSTERS,
            Unknown.NO_TOPIC,
            Unknown.FOLDER,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFact:
    """Fact that a recovered record lacks, or states by a choice.

    Attributes:
        first_entry_id, last_entry_id: the entries concerned; None for a whole ledger or object.
        key: the object's.
        detail: the finding, in words.
    """

    what: Unknown
    ledger_id: int | None = None
    first_entry_id: int | None = None
    last_entry_id: int | None = None
    key: str | None = None
    detail: str | None = None


NEVER_KNOWN = (
    "ledgers that were never offloaded, and what is in BookKeeper only",
    "cursors and subscriptions: where consumers were",
    "the managed ledger's properties, and whether it was terminated",
    "ledgers that were deleted, or offloaded through a filter that left nothing",
    "the topics' schemas and policies, which are not in the objects",
    "when a segment was assigned",
)
"""Of no topic."""

APPROXIMATE = (
    "when a ledger that is one object was closed: the time of its index is taken, which is later",
    "when a copy was complete: the time of its index is taken",
    "whether the hot copy is there: it is taken to be gone",
)
"""Of every topic; what is recorded instead."""

_NO_END = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltLedger:
    """Rebuilt ledger; `record` is None if it is left out."""

    record: LedgerRecord | None
    unknown: tuple[UnknownFact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentShare:
    """A ledger's entries in a segment: from `begin` up to `stop`, and their filter."""

    extent: LedgerExtent
    begin: int
    stop: int
    filtered: FilterRecord | None


def _rebuild_ledger(tier: Tier, ledger: Ledger) -> RebuiltLedger:
    """Make a ledger's record. Errors: `StoreError`."""
    ledger_id = ledger.ledger_id
    if not ledger.extents:
        return _left_out(UnknownFact(what=Unknown.NO_COPY, ledger_id=ledger_id, detail=ledger.why_not_read))
    keys = [extent.object_key for extent in ledger.extents]
    in_folder = next((key for key in keys if key.folder and not key.is_mapfile), None)
    if in_folder is not None:
        return _left_out(UnknownFact(what=Unknown.FOLDER, ledger_id=ledger_id, key=in_folder.data_key))
    choice = tuple(_choice(ledger))
    place = tier_record(tier, ledger.extents[0].object_format)
    try:
        if ledger.extents[0].object_format is ObjectFormat.STREAMING:
            rebuilt = _of_segments(tier, ledger, place)
        else:
            rebuilt = RebuiltLedger(record=_of_one_object(ledger, place))
    except FormatError as error:
        fact = UnknownFact(what=Unknown.BROKEN_DATA, ledger_id=ledger_id, key=error.key, detail=str(error))
        return _left_out(*choice, fact)
    return replace(rebuilt, unknown=(*choice, *_lost(ledger), *rebuilt.unknown))


def _left_out(*unknown: UnknownFact) -> RebuiltLedger:
    return RebuiltLedger(record=None, unknown=unknown)


def _completed_ms(ledger: Ledger, extent: LedgerExtent) -> int:
    """Return when the copy was complete, as far as is known: the time of its index, in ms since 1970, UTC."""
    modified_at = ledger.stored(extent).modified_at
    assert modified_at is not None
    return int(modified_at.timestamp() * 1000)


def _choice(ledger: Ledger) -> Iterator[UnknownFact]:
    """Name the complete copies that were not taken."""
    taken = {extent.object_key: extent.ledger for extent in ledger.extents}
    extents = {_extent(each) for each in taken.values()}
    keys = ", ".join(key.data_key for key in taken)
    for stored in ledger.superseded:
        assert stored.index is not None
        other = next(each for each in stored.index.ledgers if each.ledger_id == ledger.ledger_id)
        same = _extent(other) in extents or stored.marks.has_gaps
        yield UnknownFact(
            what=Unknown.SEVERAL_COPIES if same else Unknown.COPIES_DIFFER,
            ledger_id=ledger.ledger_id,
            key=stored.key.data_key,
            detail=f"taken: {keys}",
        )


def _lost(ledger: Ledger) -> tuple[UnknownFact, ...]:
    """Return what the copies that are taken state that they lack of the ledger."""
    return tuple(
        UnknownFact(
            what=Unknown.LOST_ENTRIES,
            ledger_id=ledger.ledger_id,
            key=extent.data_key,
            detail=extent.marks.lost.pack(),
        )
        for extent in ledger.extents
        if extent.marks.lost is not None and extent.marks.lost.touches(ledger.ledger_id, 0, None)
    )


def _extent(indexed: LedgerIndex) -> tuple[object, ...]:
    """Return what two copies with the same entries have in common."""
    metadata = indexed.metadata
    entries = (
        metadata.entries if isinstance(metadata, LedgerInfo) else (metadata.last_entry_id, metadata.length)
    )
    return (indexed.first_entry_id, entries, type(metadata))


def _of_one_object(ledger: Ledger, place: DriverMetadata) -> LedgerRecord:
    extent = ledger.extents[0]
    metadata, at = extent.ledger.metadata, _completed_ms(ledger, extent)
    assert isinstance(metadata, LedgerMetadata)
    entries = 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1
    context = OffloadContext(
        uuid=extent.object_key.uuid,
        complete=True,
        bookkeeper_deleted=True,
        timestamp_ms=at,
        driver=_filtered(place, indexed_filter(extent.ledger)),
    )
    info = LedgerInfo(ledger_id=ledger.ledger_id, entries=entries, size=metadata.length, timestamp_ms=at)
    return LedgerRecord(info=info, context=context)


def _filtered(place: DriverMetadata, record: FilterRecord | None) -> DriverMetadata:
    return place if record is None else place.with_property(FILTER_PROPERTY, record.pack(short=True))


def _of_segments(tier: Tier, ledger: Ledger, place: DriverMetadata) -> RebuiltLedger:
    ledger_id, last = ledger.ledger_id, ledger.extents[-1]
    closed = last.ledger.metadata
    assert isinstance(closed, LedgerInfo)
    unknown: list[UnknownFact] = []
    shares: list[_SegmentShare] = []
    stop = 0
    for number, extent in enumerate(ledger.extents):
        filtered = indexed_filter(extent.ledger)
        begin = stop if extent.begin_entry_id is None else extent.begin_entry_id
        if begin > stop:
            if not number and ledger.may_be_trimmed:
                return _left_out(_entries(Unknown.TRIMMED, ledger_id, 0, begin))
            unknown.append(_entries(Unknown.GAP, ledger_id, stop, begin))
        end = _stop_of(tier, extent, begin, filtered)
        following = ledger.extents[number + 1] if number + 1 < len(ledger.extents) else None
        if following is not None and following.begin_entry_id is not None:
            end = min(end, following.begin_entry_id)
        shares.append(_SegmentShare(extent=extent, begin=begin, stop=end, filtered=filtered))
        stop = end
    entries = closed.entries if closed.is_closed and closed.entries is not None else stop
    if stop < entries:
        unknown.append(_entries(Unknown.GAP, ledger_id, stop, entries))
    if closed.is_closed:
        size = closed.size
    else:
        unknown.append(UnknownFact(what=Unknown.OPEN_LEDGER, ledger_id=ledger_id, last_entry_id=stop - 1))
        has_all = all(each.what is not Unknown.GAP for each in unknown) and not _lost(ledger)
        size = _size_of(tier, shares) if has_all else None
    if size is None:
        unknown.append(UnknownFact(what=Unknown.SIZE, ledger_id=ledger_id))
    info = LedgerInfo(
        ledger_id=ledger_id,
        entries=entries,
        size=size,
        timestamp_ms=closed.timestamp_ms if closed.is_closed else _completed_ms(ledger, last),
    )
    base = LedgerRecord(info=info)
    given = [
        OffloadSegment(
            uuid=share.extent.object_key.uuid,
            complete=True,
            offloaded_ms=_completed_ms(ledger, share.extent),
            end_entry_id=share.stop - 1,
            driver=_filtered(place, share.filtered),
        )
        for share in shares
    ]
    record = with_hot_copy_deleted(with_shares(base, given, timestamp_ms=_completed_ms(ledger, last)))
    return RebuiltLedger(record=record, unknown=tuple(unknown))


def _entries(what: Unknown, ledger_id: int, begin: int, stop: int) -> UnknownFact:
    return UnknownFact(what=what, ledger_id=ledger_id, first_entry_id=begin, last_entry_id=stop - 1)


def _stop_of(tier: Tier, extent: LedgerExtent, begin: int, filtered: FilterRecord | None) -> int:
    """Return one past the last of the ledger's entries that the segment stands for."""
    metadata = extent.ledger.metadata
    assert isinstance(metadata, LedgerInfo)
    if not metadata.is_closed and metadata.entries is not None:
        return metadata.entries
    if filtered is not None:
        return begin + filtered.kept.entries + filtered.total_dropped.entries
    if extent.marks.has_gaps:
        return metadata.entries or 0
    stop, _ = _count(tier, extent, extent.ledger.blocks[-1])
    lost = () if extent.marks.lost is None else extent.marks.lost.ranges
    return max([stop, *(end for ledger_id, _, end in lost if ledger_id == extent.ledger.ledger_id)])


def _size_of(tier: Tier, shares: list[_SegmentShare]) -> int:
    """Count the payload bytes of all entries of these shares, before a filter."""
    total = 0
    for share in shares:
        if share.filtered is not None:
            total += share.filtered.kept.payload_bytes + share.filtered.total_dropped.payload_bytes
        else:
            total += sum(_count(tier, share.extent, block)[1] for block in share.extent.ledger.blocks)
    return total


def _count(tier: Tier, extent: LedgerExtent, block: IndexedBlock) -> tuple[int, int]:
    """Return one past the last entry of a block, and the payload bytes of its entries."""
    data = tier.read_range(extent.data_key, block.offset, block.length)
    with placed(key=extent.data_key, ledger_id=extent.ledger_id, block=block.part_number):
        cursor = EntryCursor(replace(extent, begin_entry_id=None, stop_entry_id=None))
        cursor.feed(block, data, block.offset)
        cursor.skip_to(_NO_END)
    return cursor.next_entry_id, cursor.payload_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTopic:
    """A topic's record, as its objects state it.

    Attributes:
        name: the managed ledger's; None for objects that name no topic.
        cluster: whose objects they are; None if they do not name it.
        info: None if there is no record to be made, and `unknown` states why.
    """

    name: str | None
    cluster: str | None = None
    info: ManagedLedgerInfo | None = None
    unknown: tuple[UnknownFact, ...] = ()

    @property
    def topic(self) -> TopicName | None:
        """The topic, if it is known."""
        return None if self.name is None else topic_of_managed_ledger(self.name)


@dataclass(frozen=True, slots=True)
class _ToRebuild:
    """A topic, as far as it is known, with one of its ledgers, or none; `number` is the topic's."""

    number: int
    topic: RebuiltTopic
    ledger: Ledger | None


def rebuild_topics(tier: Tier, survey: LedgerSurvey, *, cluster: str | None = None) -> Iterator[RebuiltTopic]:
    """Rebuild the records of all topics of a survey, by name; objects of no known topic come last.

    Args:
        cluster: of a topic that several clusters have offloaded, the one whose objects are taken.

    Raises:
        StoreError: the tier fails.
    """

    def rebuild(each: _ToRebuild) -> RebuiltLedger | OffloadError:
        """Rebuild a ledger; an error is raised at its topic's turn, so that the topics before it are not held up."""
        try:
            return RebuiltLedger(record=None) if each.ledger is None else _rebuild_ledger(tier, each.ledger)
        except OffloadError as error:
            return error

    due = (
        _ToRebuild(number, topic, ledger)
        for number, (topic, ledgers) in enumerate(_topics(survey, cluster))
        for ledger in ledgers or (None,)
    )
    done = (
        pair
        for some, found in inspect_batches(in_batches(due), rebuild)
        for pair in zip(some, found, strict=True)
    )
    for _, of_topic in groupby(done, key=lambda pair: pair[0].number):
        pairs = list(of_topic)
        yield _with_ledgers(pairs[0][0].topic, [rebuilt for _, rebuilt in pairs])


def _topics(survey: LedgerSurvey, cluster: str | None) -> Iterator[tuple[RebuiltTopic, list[Ledger]]]:
    for name, of_topic in groupby(survey.ledgers(), key=lambda each: each.managed_ledger):
        found = list(of_topic)
        if name is None or not _is_record_name(name):
            keys = dict.fromkeys(each.key.data_key for one in found for each in one.ledger.attempts)
            nameless = tuple(UnknownFact(what=Unknown.NO_TOPIC, key=key) for key in keys)
            yield RebuiltTopic(name=None, unknown=nameless), []
        else:
            yield _topic(name, found, cluster)
    strays = tuple(
        UnknownFact(what=Unknown.NO_COPY, key=stored.key.data_key, detail=stored.detail)
        for stored in survey.strays()
    )
    if strays:
        yield RebuiltTopic(name=None, unknown=strays), []


def _is_record_name(managed_ledger: str) -> bool:
    """Return whether a record may have this name: `tenant/namespace/persistent/topic`; Pulsar 1 had a cluster in it."""
    parts = managed_ledger.split("/")
    return len(parts) in (4, 5) and parts[-2] == "persistent"


def _topic(name: str, found: list[FoundLedger], cluster: str | None) -> tuple[RebuiltTopic, list[Ledger]]:
    if cluster in {each.cluster for each in found}:
        found = [each for each in found if each.cluster == cluster]
    clusters = {each.cluster for each in found}
    if len(clusters) > 1:
        named = ", ".join(sorted(each or "(none named)" for each in clusters))
        return RebuiltTopic(name=name, unknown=(UnknownFact(what=Unknown.CLUSTERS, detail=named),)), []
    return RebuiltTopic(name=name, cluster=clusters.pop()), [each.ledger for each in found]


def _with_ledgers(topic: RebuiltTopic, found: Sequence[RebuiltLedger | OffloadError]) -> RebuiltTopic:
    rebuilt: list[RebuiltLedger] = []
    for each in found:
        if isinstance(each, OffloadError):
            raise each
        rebuilt.append(each)
    ledgers = _with_extents([each.record for each in rebuilt if each.record is not None])
    return replace(
        topic,
        info=ManagedLedgerInfo(ledgers=tuple(ledgers)) if ledgers else None,
        unknown=topic.unknown + tuple(fact for each in rebuilt for fact in each.unknown),
    )


def _with_extents(ledgers: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """Return the ledgers, each share with the first and last entry of its whole segment."""
    extents: dict[UUID, tuple[EntryPosition, EntryPosition]] = {}
    for ledger in ledgers:
        for share in shares_of(ledger):
            assert share.end_entry_id is not None
            begin = EntryPosition(ledger.ledger_id, first_entry_id(ledger, share.uuid))
            end = EntryPosition(ledger.ledger_id, share.end_entry_id)
            extents[share.uuid] = (extents.get(share.uuid, (begin, end))[0], end)

    def with_extent(ledger: LedgerRecord) -> LedgerRecord:
        shares = shares_of(ledger)
        if ledger.context is None or not shares:
            return ledger
        segments = tuple(share.with_extent(*extents[share.uuid]) for share in shares)
        return replace(ledger, context=replace(ledger.context, segments=segments))

    return list(map(with_extent, ledgers))


class RecoveryOutcome(enum.Enum):
    """Result for a topic's record."""

    NEW = "new"
    """The store has none: it is written, or would be."""
    SAME = "same"
    """The store has this record already."""
    OTHER = "other"
    """The store has another record, which stays as it is."""
    NONE = "none"
    """No record can be made of the objects."""
    GONE = "gone"
    """Objects that it would name were deleted meanwhile: it is not written; recover it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A topic, and the outcome of its record."""

    rebuilt: RebuiltTopic
    outcome: RecoveryOutcome


def recover_records(
    tier: Tier,
    records: ManagedLedgerRecords | None,
    audit: AuditLog | None,
    *,
    wanted: Callable[[TopicName | None], bool] | None = None,
    cluster: str | None = None,
    listener: Callable[[int], None] = lambda _: None,
) -> Iterator[Recovered]:
    """Rebuild the records of a tier's topics, and write those that are missing; one topic after another.

    Args:
        records: where they are written; None to see only what they would be.
        audit: the log in which each record is stated before it is written; None writes nothing.
        wanted: return True to rebuild a topic's record; None for all. It gets None for objects that name no topic.
        cluster: see `rebuild_topics`.
        listener: gets the number of pairs of objects that were inspected.

    Raises:
        OptionError: the metadata store is a live Pulsar's, also if nothing is to be written.
        StoreError, FormatError: of the tier or the metadata; written records stay, and it can be called again.
    """
    if records is not None:
        refuse_live_pulsar(records.store)
    with LedgerSurvey() as survey:
        survey.fill(tier, takes=wanted, listener=listener)
        for rebuilt in rebuild_topics(tier, survey, cluster=cluster):
            yield Recovered(rebuilt=rebuilt, outcome=_write(records, rebuilt, tier, audit))


def _write(
    records: ManagedLedgerRecords | None, rebuilt: RebuiltTopic, tier: Tier, audit: AuditLog | None
) -> RecoveryOutcome:
    name, info = rebuilt.name, rebuilt.info
    if name is None or info is None:
        return RecoveryOutcome.NONE
    if records is None:
        return RecoveryOutcome.NEW
    there = _compared(records, name, info)
    if there is not RecoveryOutcome.NEW or audit is None:
        return there
    audit.record(
        Change(
            action=ChangeAction.RECORD,
            why=f"its record is rebuilt from the objects in {tier.describe().location}",
            managed_ledger=name,
            key=record_path(name),
            after=f"{len(info.ledgers)} ledgers, {sum(each.info.entries or 0 for each in info.ledgers)} entries",
        )
    )
    try:
        claim = records.write(name, placeholder(system_now_ms()), _known_claim(records, name))
        if not _are_there(tier, rebuilt):
            records.delete(name, claim)
            return RecoveryOutcome.GONE
        records.write(name, info, claim)
    except VersionConflictError:  # another process made one since, or objects are deleted
        there = _compared(records, name, info)
        return RecoveryOutcome.GONE if there is RecoveryOutcome.NEW else there
    return RecoveryOutcome.NEW


def _compared(records: ManagedLedgerRecords, name: str, info: ManagedLedgerInfo) -> RecoveryOutcome:
    known = records.read(name)
    if known is None or is_claim(known.info):
        return RecoveryOutcome.NEW
    return RecoveryOutcome.SAME if as_written(known.info) == as_written(info) else RecoveryOutcome.OTHER


def _known_claim(records: ManagedLedgerRecords, name: str) -> VersionedInfo | None:
    """Return a deletion's placeholder, to be replaced; the deletion finds that out."""
    known = records.read(name)
    return known if known is not None and is_claim(known.info) else None


def _are_there(tier: Tier, rebuilt: RebuiltTopic) -> bool:
    """Return True if both objects of all copies that a record will name exist."""
    topic = rebuilt.topic
    assert topic is not None
    assert rebuilt.info is not None
    keys = list(
        dict.fromkeys(copy.key for ledger in rebuilt.info.ledgers for copy in recorded_copies(topic, ledger))
    )

    def is_there(key: ObjectKey) -> bool:
        return all(look_up(tier, each) is not None for each in (key.index_key, key.data_key))

    return all(concurrently(is_there, keys))
