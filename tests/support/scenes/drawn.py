"""Drawn topics of which a filter has left out entries, anywhere, in objects of all formats; the same whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal
from uuid import UUID

from entries import (
    PUBLISH_TIME_MS,
    Block,
    WrittenObject,
    batch_entry,
    entry,
    ledger_metadata,
    pip17_of_blocks,
    streaming_of_blocks,
)
from hypothesis import strategies as st
from mapfiles import mapfile
from records import CLOSED_AT_MS, closed, closed_ledger, managed_ledger, segment, still_open
from tiers import TOPIC, MemoryDriver, Names, put, uuid_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.codec.object_marks import FILTERED_KEY, FILTERED_MODE_KEY, GAP_MODE
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
)
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryLedgerStore
from pulsar_offload import TierReader

Layout = Literal["pip17", "streaming", "mapfile"]

MARKED = {FILTERED_KEY: "by-property", FILTERED_MODE_KEY: GAP_MODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredLedger:
    """A ledger's entries, those that were kept, and how they lie in objects.

    Attributes:
        blocks: of each object the first entries of its blocks; the next one's begins an object.
        mark: the filter's mark in the user metadata of its objects; None for `MARKED` where entries are missing.
    """

    ledger_id: int
    layout: Layout
    payloads: Sequence[bytes]
    kept: frozenset[int]
    blocks: Sequence[Sequence[int]]
    mark: Mapping[str, str] | None = None

    def written(self, kept: frozenset[int]) -> list[WrittenObject]:
        """Its objects with these entries, in order."""
        entries = {i: self.payloads[i] for i in sorted(kept)}
        if self.layout == "mapfile":
            sizes = {"block_bytes": 200, "index_interval": 2}
            return [mapfile(entries, ledger_id=self.ledger_id, compression=FileCompression.NONE, **sizes)]
        made = []
        for firsts, following in pairwise([*self.blocks, [len(self.payloads)]]):
            parts: list[Block] = []
            for first, stop in pairwise([*firsts, following[0]]):
                here = {i: payload for i, payload in entries.items() if first <= i < stop}
                if here:
                    parts.append((min(here), here))
            if self.layout == "pip17":
                parts = [(0, parts[0][1]), *parts[1:]] if parts else [(0, {})]
                metadata = ledger_metadata(self.payloads)
                made.append(pip17_of_blocks(parts, metadata, ledger_id=self.ledger_id))
            else:
                info = LedgerInfo(ledger_id=self.ledger_id, entries=following[0], timestamp_ms=0)
                made.append(streaming_of_blocks([(info, parts or [(firsts[0], {})])]))
        return made

    @property
    def stops(self) -> list[int]:
        """The positions at which its objects end."""
        return [*(firsts[0] for firsts in self.blocks[1:]), len(self.payloads)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCopy:
    """An object, its filter's mark in user metadata, and its entries."""

    key: ObjectKey
    data: bytes
    index: bytes
    mark: Mapping[str, str]
    kept: Sequence[tuple[int, int]]

    def put(self, tier: Tier) -> None:
        """Into a tier."""
        for key, data in ((self.key.data_key, self.data), (self.key.index_key, self.index)):
            put(tier, key, data, {**Names().as_metadata("data"), **self.mark})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTopic:
    """A topic with entries left out, and the same topic with all of them in the same blocks."""

    ledgers: Sequence[FilteredLedger]

    @property
    def kept(self) -> list[tuple[int, int]]:
        return [(ledger.ledger_id, i) for ledger in self.ledgers for i in sorted(ledger.kept)]

    @property
    def values(self) -> dict[tuple[int, int], bytes]:
        return {(ledger.ledger_id, i): ledger.payloads[i] for ledger in self.ledgers for i in ledger.kept}

    def objects(self, *, whole: bool = False) -> Iterator[StoredCopy]:
        """The objects in order; with `whole` nothing was left out."""
        number = 0
        for ledger in self.ledgers:
            everything = frozenset(range(len(ledger.payloads)))
            written = ledger.written(everything if whole else ledger.kept)
            for each, first, stop in zip(written, [0, *ledger.stops], ledger.stops, strict=False):
                mark = ledger.mark
                if mark is None:
                    mark = {} if whole or ledger.kept.issuperset(range(first, stop)) else MARKED
                key = replace(each.key, uuid=uuid_of(number))
                kept = [(ledger.ledger_id, i) for i in sorted(ledger.kept) if first <= i < stop]
                yield StoredCopy(key=key, data=each.data, index=each.index, mark=mark, kept=kept)
                number += 1

    def driver(self, *, whole: bool = False, **options: object) -> MemoryDriver:
        """The objects in a tier; `options` are those of `MemoryDriver`."""
        stored: dict[str, bytes] = {}
        more: dict[str, Mapping[str, str]] = {}
        for each in self.objects(whole=whole):
            stored |= {each.key.data_key: each.data, each.key.index_key: each.index}
            more |= {each.key.data_key: each.mark, each.key.index_key: each.mark}
        metadata = Names().as_metadata("data")
        return MemoryDriver(stored, metadata=metadata, more_metadata=more, **options)

    def info(self, objects: int | None = None) -> ManagedLedgerInfo:
        """The topic's record once this number of its objects exists; None for all."""
        records: list[LedgerRecord] = []
        number, where = 0, tier_record(Tier(MemoryDriver({})))
        for ledger in self.ledgers:
            uuids = [uuid_of(number + i) for i in range(len(ledger.blocks))]
            there = uuids if objects is None else uuids[: max(0, objects - number)]
            number += len(uuids)
            context = None
            if there and ledger.layout == "streaming":
                stops = zip(there, ledger.stops, strict=False)
                segments = [segment(uuid, stop - 1, driver=where) for uuid, stop in stops]
                context = OffloadContext.of_segments(segments, complete=there == uuids)
            elif there:
                name = "filesystem" if ledger.layout == "mapfile" else where.name
                context = OffloadContext(uuid=uuids[0], complete=True, driver=replace(where, name=name))
            records.append(closed(ledger.ledger_id, len(ledger.payloads), context))
        return managed_ledger(*records)

    def tier(self, **options: object) -> TierReader:
        return TierReader(Tier(self.driver(**options)))

    def records(self) -> dict[str, ManagedLedgerInfo]:
        return {TOPIC: self.info()}


@st.composite
def filtered_topics(
    draw: st.DrawFn, layouts: Sequence[Layout] = ("pip17", "streaming", "mapfile")
) -> DrawnTopic:
    """Up to four ledgers, entries published a ms apart, some of them in batches of two; any of them are left out.

    Of a MapFile the last entry is kept: by that its readers know its end.
    """
    ledgers, clock = [], PUBLISH_TIME_MS
    for number in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 12))
        layout = draw(st.sampled_from(layouts))
        payloads = []
        for i in range(count):
            value = b"%d:%d " % (number, i) * draw(st.sampled_from([1, 30]))
            is_batch = draw(st.booleans())
            made = (
                batch_entry([value, value], publish_time=clock)
                if is_batch
                else entry(value, publish_time=clock)
            )
            payloads.append(made)
            clock += 1
        which = draw(st.sampled_from(["all", "none", "some", "some", "some"]))
        kept = frozenset(range(count) if which == "all" else ())
        if which == "some":
            whole = draw(st.integers(0, count - 1))  # all before are kept, of some ledgers
            kept = draw(st.frozensets(st.integers(whole, count - 1))) | frozenset(range(whole))
        if layout == "mapfile":
            kept |= {count - 1}
        borders = sorted({0, *draw(st.sets(st.integers(0, count - 1), max_size=6))})
        cuts = draw(st.sets(st.sampled_from(borders), max_size=2)) if layout == "streaming" else set()
        blocks: list[list[int]] = []
        for border in borders:
            if not blocks or border in cuts:
                blocks.append([])
            blocks[-1].append(border)
        ledgers.append(
            FilteredLedger(
                ledger_id=3 + 2 * number,
                layout=layout,
                payloads=payloads,
                kept=kept,
                blocks=[[0]] if layout == "mapfile" else blocks,
            )
        )
    return DrawnTopic(ledgers=ledgers)


# --- Drawn topics whose first entries lie in streaming segments, borders anywhere, perhaps with gaps; all are hot too.


Ids = Mapping[int, Sequence[int]]

WHERE = tier_record(Tier(MemoryDriver({})))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedTopic:
    """A topic's record, objects and hot ledgers.

    Attributes:
        payloads: of each ledger, all of its entries.
        cold: of each ledger, the ids of entries that complete segments have.
        cold_stops: of each ledger, one past the last entry that lies in a complete segment.
    """

    info: ManagedLedgerInfo
    driver: MemoryDriver
    hot: MemoryLedgerStore
    payloads: Mapping[int, Sequence[bytes]]
    cold: Ids
    cold_stops: Mapping[int, int]

    @property
    def positions(self) -> list[EntryPosition]:
        """Of all entries, in order."""
        return [EntryPosition(ledger, i) for ledger, each in self.payloads.items() for i in range(len(each))]

    @property
    def tier(self) -> Tier:
        return Tier(self.driver)

    def cold_entries(self) -> list[tuple[int, int, bytes]]:
        """The entries of a scan: ledger, entry, payload."""
        return [(ledger, i, self.payloads[ledger][i]) for ledger, ids in self.cold.items() for i in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSegment:
    """A segment's first and last position, by place in the topic, and what was left out."""

    entries: Sequence[EntryPosition]
    left_out: frozenset[EntryPosition]

    def of(self, ledger_id: int) -> list[int]:
        return [at.entry_id for at in self.entries if at.ledger_id == ledger_id and at not in self.left_out]


@st.composite
def segmented_topics(draw: st.DrawFn, *, gaps: bool = True) -> SegmentedTopic:
    """Up to four ledgers; the last may be open, and a last segment may be unfinished."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    stop = draw(st.integers(0, sum(sizes)))
    cuts = draw(st.sets(st.integers(1, sum(sizes)), max_size=5))
    filtered = gaps and draw(st.booleans())

    def left_out(entries: Sequence[EntryPosition]) -> frozenset[EntryPosition]:
        """Any entries, or all of some ledgers."""
        drawn = draw(st.sets(st.sampled_from(entries)))
        gone = draw(st.sets(st.sampled_from(sorted(_ends(entries))))) if draw(st.booleans()) else set()
        return frozenset(drawn | {at for at in entries if at.ledger_id in gone})

    topic = segmented(
        sizes,
        [cut for cut in sorted({*cuts, stop}) if 0 < cut <= stop],
        last_is_open=draw(st.booleans()),
        block_entries=draw(st.integers(1, 4)),
        left_out=left_out if filtered else None,
    )
    positions = topic.positions
    if stop < len(positions) and draw(st.booleans()):
        entries = positions[stop : draw(st.integers(stop + 1, len(positions)))]
        info = assign_and_extend(topic.info, uuid_of(99), entries, WHERE)
        if draw(st.booleans()):
            info = abandon_segment(info, uuid_of(99), entries[-1])
        topic = replace(topic, info=info)
    return topic


def segmented(
    sizes: Sequence[int],
    segments: Sequence[int],
    *,
    last_is_open: bool = False,
    block_entries: int = 2,
    left_out: Callable[[Sequence[EntryPosition]], frozenset[EntryPosition]] | None = None,
) -> SegmentedTopic:
    """Ledgers of these numbers of entries, with complete segments that end before these places in the topic.

    `left_out` chooses of each segment's entries those that are filtered.
    """
    hot = MemoryLedgerStore()
    payloads: dict[int, list[bytes]] = {}
    for size in sizes:
        writer = hot.create({})
        payloads[writer.ledger_id] = [b"%d:%d " % (writer.ledger_id, i) * (i % 3 + 1) for i in range(size)]
        writer.append_batch(payloads[writer.ledger_id])
    ledgers = [closed_ledger(ledger_id, payloads[ledger_id]) for ledger_id in payloads]
    if last_is_open:
        ledgers[-1] = still_open(ledgers[-1].ledger_id)
    info = managed_ledger(*ledgers)
    positions = [EntryPosition(ledger, i) for ledger, each in payloads.items() for i in range(len(each))]
    objects: dict[str, bytes] = {}
    cold: dict[int, list[int]] = {}
    stops: dict[int, int] = {}
    for number, (begin, end) in enumerate(pairwise([0, *segments])):
        entries = positions[begin:end]
        drawn = DrawnSegment(entries=entries, left_out=left_out(entries) if left_out else frozenset())
        info = assign_and_extend(info, uuid_of(number), entries, WHERE)
        info = complete_segment(info, uuid_of(number), entries[-1], _ends(entries), CLOSED_AT_MS)
        objects |= _objects(uuid_of(number), drawn, payloads, info, block_entries)
        for ledger_id, last in _ends(entries).items():
            cold.setdefault(ledger_id, []).extend(drawn.of(ledger_id))
            stops[ledger_id] = last + 1
    metadata = Names().as_metadata("data") | ({FILTERED_KEY: "transactions"} if left_out else {})
    return SegmentedTopic(
        info=info,
        driver=MemoryDriver(objects, metadata=metadata),
        hot=hot,
        payloads=payloads,
        cold=cold,
        cold_stops=stops,
    )


def assign_and_extend(
    info: ManagedLedgerInfo, uuid: UUID, entries: Sequence[EntryPosition], driver: DriverMetadata
) -> ManagedLedgerInfo:
    """A segment of these entries, as an owner records it as it goes on."""
    info = assign_segment(info, uuid, entries[0], driver, CLOSED_AT_MS)
    for ledger_id in sorted({at.ledger_id for at in entries} - {entries[0].ledger_id}):
        info = extend_segment(info, uuid, ledger_id)
    return info


def _ends(entries: Sequence[EntryPosition]) -> dict[int, int]:
    return {at.ledger_id: at.entry_id for at in entries}


def _objects(
    uuid: UUID,
    drawn: DrawnSegment,
    payloads: Mapping[int, Sequence[bytes]],
    info: ManagedLedgerInfo,
    block_entries: int,
) -> dict[str, bytes]:
    ledgers = []
    for ledger_id, last in _ends(drawn.entries).items():
        ids = drawn.of(ledger_id)
        parts = [ids[i : i + block_entries] for i in range(0, len(ids), block_entries)]
        blocks = [(part[0], {i: payloads[ledger_id][i] for i in part}) for part in parts]
        if len(drawn.left_out) == len(drawn.entries) and not ledgers:
            blocks = [(drawn.entries[0].entry_id, {})]  # an object has a block
        if blocks:
            described = info.ledger(ledger_id).info
            if not described.is_closed:
                described = LedgerInfo(ledger_id=ledger_id, entries=last + 1)
            ledgers.append((described, blocks))
    written = streaming_of_blocks(ledgers)
    return {str(uuid): written.data, f"{uuid}-index": written.index}
