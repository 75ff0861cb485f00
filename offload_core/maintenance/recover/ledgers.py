"""A ledger's record from its copies: what the indexes say, else what the blocks hold, and what stays unknown.

An index of one object has the whole ledger's record of BookKeeper's. One of a segment says where the ledger's entries
begin in it, and not always where they end: of a ledger that had ended by then, the last block is read, and of one that
is not known to have ended, all of its blocks. Source: docs/recover.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.metadata.catalogue import Ledger
from offload_core.metadata.records import DriverMetadata, LedgerRecord, OffloadContext, OffloadSegment
from offload_core.metadata.records.filter_record import FilterRecord, indexed_filter
from offload_core.metadata.records.offload_context import FILTER_PROPERTY
from offload_core.metadata.records.segment_shares import with_hot_copy_deleted, with_shares
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, placed


class Unknown(enum.Enum):
    """Missing fact, by a stable code; the first word of its value is that code, what follows it in words."""

    OPEN_LEDGER = (
        "open-ledger",
        "it was open when it was offloaded last: what came behind this entry is not here",
    )
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
        """True if entries that may be there are not in the record, or may be lost."""
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
    """Something that a recovered record does not say, or says by a choice.

    Attributes:
        first_entry_id, last_entry_id: the entries that it is about; None where it is about a whole ledger or object.
        key: of an object.
        detail: what was found, in words.
    """

    what: Unknown
    ledger_id: int | None = None
    first_entry_id: int | None = None
    last_entry_id: int | None = None
    key: str | None = None
    detail: str | None = None


NEVER_KNOWN = (
    "ledgers that were never offloaded, and what is in BookKeeper only",
    "cursors and subscriptions: where consumers had come to",
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


MAPFILE_DRIVER = "filesystem"
"""Pulsar's driver that stores MapFiles: by its name readers know where one is."""

_NO_END = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltLedger:
    """A ledger as rebuilt; `record` is None if it is left out."""

    record: LedgerRecord | None
    unknown: tuple[UnknownFact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectShare:
    """A ledger's entries in a segment: from `begin` up to `stop`, with what a filter did to them."""

    extent: LedgerExtent
    begin: int
    stop: int
    filtered: FilterRecord | None


def rebuild_ledger(tier: Tier, ledger: Ledger, place: DriverMetadata) -> RebuiltLedger:
    """A ledger's record.

    Args:
        place: what is recorded of the tier.

    Raises:
        StoreError: the tier fails.
    """
    if not ledger.extents:
        fact = UnknownFact(what=Unknown.NO_COPY, ledger_id=ledger.ledger_id, detail=ledger.why_not_read)
        return RebuiltLedger(record=None, unknown=(fact,))
    choice = _choice(ledger)
    elsewhere = next(
        (each for each in (extent.key for extent in ledger.extents) if _is_in_a_folder(each)), None
    )
    if elsewhere is not None:
        fact = UnknownFact(what=Unknown.FOLDER, ledger_id=ledger.ledger_id, key=elsewhere.data_key)
        return RebuiltLedger(record=None, unknown=(fact,))
    try:
        if ledger.extents[0].object_format is ObjectFormat.STREAMING:
            rebuilt = _of_segments(tier, ledger, place)
        else:
            rebuilt = RebuiltLedger(record=_of_one_object(ledger, place))
    except FormatError as error:
        fact = UnknownFact(
            what=Unknown.BROKEN_DATA, ledger_id=ledger.ledger_id, key=error.key, detail=str(error)
        )
        return RebuiltLedger(record=None, unknown=(*choice, fact))
    return replace(rebuilt, unknown=(*choice, *_lost(ledger), *rebuilt.unknown))


def _completed_ms(ledger: Ledger, extent: LedgerExtent) -> int:
    """Return when the copy was complete, as far as is known: the time of its index, in ms since 1970, UTC."""
    modified_at = ledger.stored(extent).modified_at
    assert modified_at is not None
    return int(modified_at.timestamp() * 1000)


def _is_in_a_folder(key: ObjectKey) -> bool:
    return bool(key.folder) and not key.is_mapfile


def _choice(ledger: Ledger) -> tuple[UnknownFact, ...]:
    """Return which of several complete copies was taken; nothing where there is one."""
    others = ledger.superseded
    if not others:
        return ()
    taken = {extent.key: extent.ledger for extent in ledger.extents}
    extents = {_extent(each) for each in taken.values()}
    facts = []
    for stored in others:
        assert stored.index is not None
        other = next(each for each in stored.index.ledgers if each.ledger_id == ledger.ledger_id)
        same = _extent(other) in extents or stored.marks.has_gaps
        keys = ", ".join(key.data_key for key in taken)
        facts.append(
            UnknownFact(
                what=Unknown.SEVERAL_COPIES if same else Unknown.COPIES_DIFFER,
                ledger_id=ledger.ledger_id,
                key=stored.key.data_key,
                detail=f"taken: {keys}",
            )
        )
    return tuple(facts)


def _lost(ledger: Ledger) -> tuple[UnknownFact, ...]:
    """Return what the copies that are taken say that they lack of the ledger."""
    return tuple(
        UnknownFact(
            what=Unknown.LOST_ENTRIES,
            ledger_id=ledger.ledger_id,
            key=extent.key.data_key,
            detail=extent.marks.lost.pack(),
        )
        for extent in ledger.extents
        if extent.marks.lost is not None and extent.marks.lost.touches(ledger.ledger_id, 0, None)
    )


def _extent(indexed: LedgerIndex) -> tuple[object, ...]:
    """Return what two copies with the same entries say alike."""
    metadata = indexed.metadata
    entries = (
        metadata.entries if isinstance(metadata, LedgerInfo) else (metadata.last_entry_id, metadata.length)
    )
    return (indexed.first_entry_id, entries, type(metadata))


# --- one object --------------------------------------------------------------------------------


def _of_one_object(ledger: Ledger, place: DriverMetadata) -> LedgerRecord:
    extent = ledger.extents[0]
    metadata, at = extent.ledger.metadata, _completed_ms(ledger, extent)
    assert isinstance(metadata, LedgerMetadata)
    entries = 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1
    if extent.key.is_mapfile:
        place = replace(place, name=MAPFILE_DRIVER)
    context = OffloadContext(
        uuid=extent.key.uuid,
        complete=True,
        bookkeeper_deleted=True,
        timestamp_ms=at,
        driver=_filtered(place, indexed_filter(extent.ledger)),
    )
    info = LedgerInfo(ledger_id=ledger.ledger_id, entries=entries, size=metadata.length, timestamp_ms=at)
    return LedgerRecord(info=info, context=context)


def _filtered(place: DriverMetadata, record: FilterRecord | None) -> DriverMetadata:
    return place if record is None else place.with_property(FILTER_PROPERTY, record.pack(short=True))


# --- segments ----------------------------------------------------------------------------------


def _of_segments(tier: Tier, ledger: Ledger, place: DriverMetadata) -> RebuiltLedger:
    ledger_id, last = ledger.ledger_id, ledger.extents[-1]
    closed = last.ledger.metadata
    assert isinstance(closed, LedgerInfo)
    unknown: list[UnknownFact] = []
    shares: list[_ObjectShare] = []
    stop = 0
    for number, extent in enumerate(ledger.extents):
        filtered = indexed_filter(extent.ledger)
        begin = stop if extent.begin_entry_id is None else extent.begin_entry_id
        if begin > stop:
            if not number and ledger.may_be_trimmed:
                unknown.append(_entries(Unknown.TRIMMED, ledger_id, 0, begin))
                return RebuiltLedger(record=None, unknown=tuple(unknown))
            unknown.append(_entries(Unknown.GAP, ledger_id, stop, begin))
        end = _stop_of(tier, extent, begin, filtered)
        following = ledger.extents[number + 1] if number + 1 < len(ledger.extents) else None
        if following is not None and following.begin_entry_id is not None:
            end = min(end, following.begin_entry_id)
        shares.append(_ObjectShare(extent=extent, begin=begin, stop=end, filtered=filtered))
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
            uuid=share.extent.key.uuid,
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
    """One past the last of the ledger's entries that the segment stands for."""
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


def _size_of(tier: Tier, shares: list[_ObjectShare]) -> int:
    """Payload bytes of all entries of these shares, before a filter."""
    total = 0
    for share in shares:
        if share.filtered is not None:
            total += share.filtered.kept.payload_bytes + share.filtered.total_dropped.payload_bytes
        else:
            total += sum(_count(tier, share.extent, block)[1] for block in share.extent.ledger.blocks)
    return total


def _count(tier: Tier, extent: LedgerExtent, block: IndexedBlock) -> tuple[int, int]:
    """One past the last entry of a block, and the payload bytes of its entries."""
    data = tier.read_range(extent.data_key, block.offset, block.length)
    with placed(key=extent.data_key, ledger_id=extent.ledger_id, block=block.part_number):
        cursor = EntryCursor(replace(extent, begin_entry_id=None, stop_entry_id=None))
        cursor.feed(block, data, block.offset)
        cursor.skip_to(_NO_END)
    return cursor.next_entry_id, cursor.payload_bytes
