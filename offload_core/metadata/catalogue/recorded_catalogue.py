"""The catalogue from managed ledgers' records, which name a topic's ledgers and the place of each copy.

Each copy that a record calls complete is looked up in the tier and judged as in a listing: index read, length checked.
What records do not name is not read. Nothing is listed: three small requests for each copy, many at once. Endpoints and
buckets in a record are not followed. Of a tier that is read together with a hot one, ledgers that are not offloaded
are read hot, or all that are there, by the read priority; the end of a ledger that is open is asked for.
Source: docs/formats/metadata.md, docs/live-clusters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType

from offload_core.format.codec.extent import LedgerExtent, hot_extent
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.catalogue_cache import CachedPair, catalogue_cache
from offload_core.metadata.catalogue.concurrency import concurrently
from offload_core.metadata.catalogue.copy_check import MismatchSeverity, check_copy, find_ledger, with_end
from offload_core.metadata.catalogue.known_tiers import place_text
from offload_core.metadata.catalogue.listing import Pair, describe_pair, look_up_pair, recall, to_cache
from offload_core.metadata.catalogue.model import (
    Catalogue,
    Ledger,
    Problem,
    StoredObject,
    Topic,
    cut_extents,
    extent_of,
)
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy, recorded_copies
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo, ReadPriority
from offload_core.storage.tier import Tier
from offload_hooks.errors import UnknownLedgerError
from offload_hooks.ledger_stores import LedgerReader

NO_PRIORITIES: Mapping[TopicName, ReadPriority] = MappingProxyType({})


def record_catalogue(
    tier: Tier,
    records: Mapping[TopicName, ManagedLedgerInfo],
    *,
    prefix: str = "",
    known: Catalogue | None = None,
    read_indexes: bool = True,
    priorities: Mapping[TopicName, ReadPriority] = NO_PRIORITIES,
    cached: bool = False,
) -> Catalogue:
    """The topics of these records, with the copies that the tier has of their ledgers.

    `prefix` is the folder of the objects in the tier, empty for its root. With `read_indexes=False` only the indexes
    of segments are read; a copy that is one object is `Ledger.unread`. With `known`, an earlier catalogue, only new
    copies are looked up. `priorities` count for a tier with a hot one; a topic without one is read cold first. With
    `cached`, indexes that were read are kept on disk: see `catalogue_cache`.

    Raises:
        StoreError: of the tier, or of the hot one.
    """
    earlier = {} if known is None else known.complete
    folder = f"{prefix.removesuffix('/')}/" if prefix else ""
    copies = _copies_of(records, folder)

    def look_up(copy: RecordedCopy) -> tuple[StoredObject, Pair | None]:
        before = _known(copy, earlier)
        if before is not None and copy.unfinished is None and not before.is_unread:
            return before, None
        return _look_up(tier, copy, kept, read_indexes=read_indexes)

    with catalogue_cache(tier, is_used=cached) as cache:
        kept = {} if cache is None else cache.find(key.data_key for key in copies)
        looked_up = concurrently(look_up, list(copies.values()))
        if cache is not None:
            cache.keep(to_cache((pair for _, pair in looked_up if pair is not None), kept))
    found = {key: stored for key, (stored, _) in zip(copies, looked_up, strict=True)}
    topics = [_build_topic(name, info, folder, found) for name, info in records.items()]
    if tier.hot is not None:
        ends = ends_of_open(
            tier.hot.open,
            (
                info
                for name, info in records.items()
                if priorities.get(name) is not ReadPriority.OFFLOADED_ONLY
            ),
        )
        topics = [
            _with_hot_copies(topic, ends, priorities.get(topic.name, ReadPriority.OFFLOADED_FIRST))
            for topic in topics
            if topic.name is not None
        ]
    return Catalogue(topics=tuple(sorted(topics, key=lambda topic: topic.label)), strays=())


def ends_of_open(
    open_ledger: Callable[[int], LedgerReader], records: Iterable[ManagedLedgerInfo]
) -> dict[int, LedgerInfo]:
    """The ledgers that are open by their records, with the entries and bytes that they have now.

    Args:
        open_ledger: opens a hot ledger, by its id.

    Raises:
        StoreError, FormatError: of the hot tier, but for ledgers that it does not have.
    """
    still_open = [ledger.info for info in records for ledger in info.ledgers if not ledger.info.is_closed]

    def ask(info: LedgerInfo) -> LedgerInfo | None:
        try:
            with closing(open_ledger(info.ledger_id)) as reader:
                status = reader.status()
        except UnknownLedgerError:
            return None
        return replace(info, entries=status.entry_count, size=status.size_bytes)

    return {each.ledger_id: each for each in concurrently(ask, still_open) if each is not None}


def _copies_of(records: Mapping[TopicName, ManagedLedgerInfo], folder: str) -> dict[ObjectKey, RecordedCopy]:
    """The copies that records name, each once."""
    copies: dict[ObjectKey, RecordedCopy] = {}
    for topic, info in records.items():
        for ledger in info.ledgers:
            for copy in recorded_copies(topic, ledger, folder):
                # a ledger that is marked for deletion does not decide whether others read a segment
                if copy.key not in copies or copies[copy.key].unfinished is not None:
                    copies[copy.key] = copy
    return copies


def _known(copy: RecordedCopy, earlier: Mapping[ObjectKey, StoredObject]) -> StoredObject | None:
    """The copy in an earlier catalogue."""
    found = earlier.get(copy.key)
    return earlier.get(copy.mapfile_key) if found is None and copy.mapfile_key is not None else found


def _look_up(
    tier: Tier, copy: RecordedCopy, kept: Mapping[str, CachedPair], *, read_indexes: bool
) -> tuple[StoredObject, Pair | None]:
    """The objects of a copy, judged as in a listing, and their pair; an attempt that did not finish is not read."""
    pair, described = _described(tier, copy.key, kept, read_indexes)
    if described is None and copy.mapfile_key is not None:
        pair, described = _described(tier, copy.mapfile_key, kept, read_indexes)
    if described is None:
        described = _not_there(tier, copy)
    return (described if copy.unfinished is None else _unfinished(described, copy.unfinished)), pair


def _unfinished(stored: StoredObject, detail: str) -> StoredObject:
    return replace(stored, index=None, problem=Problem.UNFINISHED, detail=detail)


def _described(
    tier: Tier, key: ObjectKey, kept: Mapping[str, CachedPair], read_indexes: bool
) -> tuple[Pair, StoredObject | None]:
    pair = look_up_pair(tier, key)
    recall(pair, kept.get(key.data_key))
    is_there = pair.data is not None or pair.index is not None
    return pair, describe_pair(tier, pair, read_indexes=read_indexes) if is_there else None


def _not_there(tier: Tier, copy: RecordedCopy) -> StoredObject:
    where = "a driver that it does not name" if copy.driver is None else place_text(copy.driver)
    nothing = StoredObject(
        key=copy.key,
        cluster=None,
        managed_ledger=None,
        data_bytes=None,
        index_bytes=None,
        modified_at=None,
        index=None,
        problem=Problem.MISSING,
        detail=f"its record says that {where} has it; it is not here",
    )
    if copy.key.is_mapfile:
        return nothing
    other = replace(copy.key, ledger_id=copy.ledger_id if copy.key.ledger_id is None else None)
    pair = look_up_pair(tier, other)
    listed = pair.index or pair.data
    if listed is None:
        return nothing
    return replace(
        nothing,
        key=other,
        data_bytes=pair.data.size_bytes if pair.data else None,
        index_bytes=pair.index.size_bytes if pair.index else None,
        modified_at=listed.modified_at,
        problem=Problem.OTHER_FORMAT,
        detail=f"the formats differ: {copy.key.object_format.value} by its record, "
        f"{other.object_format.value} by its key"
        if copy.mapfile_key is None
        else "it is a streaming object, and its record does not tell of segments; take the one in the metadata store",
    )


def _build_topic(
    name: TopicName, info: ManagedLedgerInfo, folder: str, found: Mapping[ObjectKey, StoredObject]
) -> Topic:
    """A topic's ledgers; its cluster is that of its objects, if they agree."""
    ledgers = tuple(_build_ledger(name, record, folder, found) for record in info.in_order)
    clusters = {
        stored.cluster for ledger in ledgers for stored in ledger.attempts if stored.cluster is not None
    }
    return Topic(cluster=clusters.pop() if len(clusters) == 1 else None, name=name, ledgers=ledgers)


def _build_ledger(
    topic: TopicName, record: LedgerRecord, folder: str, found: Mapping[ObjectKey, StoredObject]
) -> Ledger:
    attempts = []
    readable: dict[int, LedgerExtent] = {}
    for copy in recorded_copies(topic, record, folder):
        stored = found[copy.key]
        if copy.unfinished is not None:
            stored = _unfinished(stored, copy.unfinished)
        if stored.is_complete and stored.index is not None:
            ledger = find_ledger(copy, stored.index, gaps=stored.marks.has_gaps)
            mismatch = check_copy(record, copy, stored.stat, stored.index)
            is_unreadable = mismatch is not None and mismatch.severity is MismatchSeverity.UNREADABLE
            if ledger is None or is_unreadable:
                detail = None if mismatch is None else mismatch.what
                stored = replace(stored, index=None, problem=Problem.RECORD_MISMATCH, detail=detail)
            else:
                ledger = with_end(ledger, copy.stop_entry_id)
                extent = extent_of(stored, ledger, recorded_begin=copy.begin_entry_id)
                readable[extent.first_entry_id] = extent
        attempts.append(stored)
    return Ledger(
        ledger_id=record.ledger_id,
        extents=cut_extents([readable[first] for first in sorted(readable)]),
        attempts=tuple(attempts),
        record=record,
    )


def _with_hot_copies(topic: Topic, ends: Mapping[int, LedgerInfo], priority: ReadPriority) -> Topic:
    """The topic with the hot copies of its ledgers; `ends` are those of ledgers that are open."""
    if priority is ReadPriority.OFFLOADED_ONLY or topic.name is None:
        return topic
    name = managed_ledger_of_topic(topic.name)

    def hot_copy(record: LedgerRecord) -> LedgerExtent | None:
        info = record.info if record.info.is_closed else ends.get(record.ledger_id)
        is_there = record.has_hot_copy and not record.is_marked_for_deletion
        return hot_extent(info, name) if is_there and info is not None else None

    ledgers = (
        ledger if ledger.record is None else _with_hot(ledger, hot_copy(ledger.record), priority)
        for ledger in topic.ledgers
    )
    return replace(topic, ledgers=tuple(ledgers))


def _with_hot(ledger: Ledger, hot: LedgerExtent | None, priority: ReadPriority) -> Ledger:
    """The ledger with its hot copy, and the extents that the priority asks for."""
    if priority is ReadPriority.BOOKKEEPER_ONLY:
        return replace(ledger, hot=hot, extents=() if hot is None else (hot,), attempts=())
    if hot is None:
        return ledger
    if priority.hot_first:
        return replace(ledger, hot=hot, extents=(hot,))
    if ledger.unread is not None:
        return replace(ledger, hot=hot)
    return replace(ledger, hot=hot, extents=cut_extents(list(_filled(ledger.extents, hot))))


def _filled(cold: Sequence[LedgerExtent], hot: LedgerExtent) -> Iterator[LedgerExtent]:
    """Cold extents, and of the hot copy what they lack."""
    reached: int | None = 0
    for extent in cold:
        between = None if reached is None else hot.between(reached, extent.first_entry_id)
        if between is not None:
            yield between
        yield extent
        reached = extent.ledger.end_entry_id
    if not cold:
        yield hot
    elif reached is not None and (rest := hot.between(reached, None)) is not None:
        yield rest
