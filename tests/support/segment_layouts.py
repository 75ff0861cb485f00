"""Drawn topics whose first entries lie in streaming segments, borders anywhere, perhaps with gaps; all are hot too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from filtered_topics import block_of
from hypothesis import strategies as st
from records import CLOSED_AT_MS
from tiers import MemoryDriver, Names, uuid_of

from offload_core.catalogue.known_tiers import tier_record
from offload_core.codec.filtered_objects import FILTERED_KEY
from offload_core.codec.index import BlockEntry
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.object_format import ObjectFormat
from offload_core.codec.streaming import pack_streaming_index
from offload_core.metadata import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
)
from offload_core.tier import Tier
from offload_hooks.testing import MemoryLedgerStore
from pulsar_offload import TierReader

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

    def catalogued(self) -> TierReader:
        return TierReader(self.tier)

    def cold_entries(self) -> list[tuple[int, int, bytes]]:
        """What a scan reads: ledger, entry, payload."""
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
    """Ledgers of so many entries, with complete segments that end before these places in the topic.

    `left_out` chooses of each segment's entries those that are filtered.
    """
    hot = MemoryLedgerStore()
    payloads: dict[int, list[bytes]] = {}
    for size in sizes:
        writer = hot.create({})
        payloads[writer.ledger_id] = [b"%d:%d " % (writer.ledger_id, i) * (i % 3 + 1) for i in range(size)]
        writer.append_batch(payloads[writer.ledger_id])
    info = ManagedLedgerInfo(
        ledgers=tuple(
            _ledger(ledger_id, payloads[ledger_id], last_is_open and ledger_id == max(payloads))
            for ledger_id in payloads
        )
    )
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


def _ledger(ledger_id: int, payloads: Sequence[bytes], is_open: bool) -> LedgerRecord:
    if is_open:
        return LedgerRecord(info=LedgerInfo(ledger_id=ledger_id, timestamp_ms=0))
    size = sum(map(len, payloads))
    info = LedgerInfo(ledger_id=ledger_id, entries=len(payloads), size=size, timestamp_ms=CLOSED_AT_MS)
    return LedgerRecord(info=info)


def _ends(entries: Sequence[EntryPosition]) -> dict[int, int]:
    return {at.ledger_id: at.entry_id for at in entries}


def _objects(
    uuid: UUID,
    drawn: DrawnSegment,
    payloads: Mapping[int, Sequence[bytes]],
    info: ManagedLedgerInfo,
    block_entries: int,
) -> dict[str, bytes]:
    data, ledgers, part_number = b"", [], 0
    for ledger_id, last in _ends(drawn.entries).items():
        ids, blocks = drawn.of(ledger_id), []
        parts = [(ids[i], ids[i : i + block_entries]) for i in range(0, len(ids), block_entries)]
        if len(drawn.left_out) == len(drawn.entries) and not ledgers:
            parts = [(drawn.entries[0].entry_id, [])]  # an object has a block
        for first, some in parts:
            part_number += 1
            blocks.append(BlockEntry(first_entry_id=first, part_number=part_number, offset=len(data)))
            entries = {i: payloads[ledger_id][i] for i in some}
            data += block_of(ObjectFormat.STREAMING, ledger_id, (first, entries))
        if not blocks:
            continue
        known = info.ledger(ledger_id)
        assert known is not None
        ledger = known.info if known.info.is_closed else LedgerInfo(ledger_id=ledger_id, entries=last + 1)
        ledgers.append((ledger, blocks))
    return {str(uuid): data, f"{uuid}-index": pack_streaming_index(ledgers, len(data))}
