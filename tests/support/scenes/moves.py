"""A topic whose cold copies are moved: two folders, records of our own, and what its ledgers hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from crash_points import Points, Watch, left_open
from entries import entry as pulsar_entry
from entries import read_sparse_through
from managed_ledgers import NAME, Audit, Clock, offloads_of
from scenes.filters import PlainFilter
from scenes.segments import SegmentedOffloads

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Move, Mover, TopicPlan, Wanted, plan_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.catalogue.topics import parse_topic
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.relocations import MappingFile
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier, open_store
from offload_core.storage.tier.chain import Layer
from offload_core.writing.managed_ledger import HotLedgers
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_core.writing.offload_filters import FilterRun
from offload_drivers.local import LocalDriver
from offload_hooks.testing import MemoryMetadataStore

TOPIC_NAME = parse_topic(NAME)
BLOCK_BYTES = 700

Entries = dict[tuple[int, int], bytes]
"""Payloads by ledger and entry."""


@dataclass
class MovedTopic:
    """A managed ledger whose ledgers are offloaded to `source`, and are to go to `target`."""

    folder: Path
    source: Tier
    target: Tier
    records: ManagedLedgerRecords
    hot: FileLedgerStore
    clock: Clock
    audit: Audit = field(default_factory=Audit)
    entries: Entries = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, url: str | None = None) -> MovedTopic:
        """Without ledgers yet; the records are in memory, or in an SQLite file."""
        for name in ("source", "target"):
            (folder / name).mkdir(parents=True)
        store = MemoryMetadataStore() if url is None else SqliteStore(url, create=True)
        records = ManagedLedgerRecords(store)
        records.write(NAME, ManagedLedgerInfo(), None)
        return cls(
            folder=folder,
            source=open_store(folder / "source"),
            target=open_store(folder / "target"),
            records=records,
            hot=left_open(FileLedgerStore(folder / "hot", sync="never")),
            clock=Clock(),
        )

    def add_ledger(self, count: int, size: int = 60) -> int:
        """Add a ledger of `count` entries, closed and recorded; return its id."""
        with closing(HotLedgers(self.hot).create(NAME)) as writer:
            contents = [bytes([number % 251]) * (size + number % 7) for number in range(count)]
            payloads = [pulsar_entry(each, sequence_id=number) for number, each in enumerate(contents)]
            writer.append_batch(payloads)
            writer.close()
            ledger_id = writer.ledger_id
        info = LedgerInfo(
            ledger_id=ledger_id, entries=count, size=sum(map(len, payloads)), timestamp_ms=self.clock.now_ms
        )
        self.records.update(NAME, lambda known: _with_ledger(known, LedgerRecord(info=info)))
        self.entries |= {(ledger_id, number): payload for number, payload in enumerate(payloads)}
        return ledger_id

    def offload(
        self,
        ledger_id: int,
        *,
        drops: Callable[[bytes], int] | None = None,
        mode: FilterMode = FilterMode.GAP,
    ):
        """Offload a ledger as one object; `drops` some entries by a filter, which leaves gaps by default."""
        tiers = KnownTiers(self.source, [self.target])
        offloads = offloads_of(self.records, self.hot, tiers, block_bytes=BLOCK_BYTES, now_ms=self.clock)
        run = None if drops is None else FilterRun("by-test", mode, PlainFilter(drops))
        offloads.offload(NAME, ledger_id, filter_run=run)
        if drops is not None:
            dropped = {at for at, payload in self.entries.items() if at[0] == ledger_id and drops(payload)}
            self.entries = {at: self.entries[at] for at in self.entries if at not in dropped}

    def stream(self, *ends: tuple[int, int]):
        """Offload by segments that end with these entries; the first begins where its ledger does."""
        segmented = SegmentedOffloads(
            name=NAME,
            records=self.records,
            hot=self.hot,
            tier=self.source,
            now_ms=self.clock,
            max_block_bytes=BLOCK_BYTES,
        )
        for end in ends:
            is_first = all(each.context is None or not each.context.segments for each in self.info.ledgers)
            begin = EntryPosition(end[0], 0) if is_first else None
            segmented.offload(EntryPosition(*end), begin=begin)

    @property
    def info(self) -> ManagedLedgerInfo:
        """The record."""
        return self.records.read(NAME).info

    def wanted(self, format_: ObjectFormat | None = None, merge_bytes: int | None = None, **given: object):
        return Wanted(
            source=tier_record(self.source),
            target=tier_record(self.target),
            format=format_,
            merge_bytes=merge_bytes,
            **given,
        )

    def plan(self, wanted: Wanted | None = None) -> TopicPlan:
        return plan_topic(TOPIC_NAME, self.info, wanted or self.wanted())

    def mover(self, **given: object) -> Mover:
        fields = {
            "registry": RecordRegistry(self.records, self.clock),
            "source": self.source,
            "target": self.target,
            "audit": self.audit,
            "now_ms": self.clock,
            "block_bytes": BLOCK_BYTES,
        }
        return Mover(**fields | given)

    def move_all(self, wanted: Wanted | None = None, **given: object) -> list[Move]:
        """Plan and move; return the moves."""
        moves = self.plan(wanted).moves
        mover = self.mover(**given)
        for move in moves:
            mover.move(move)
        return list(moves)

    def read_all(self, info: ManagedLedgerInfo | None = None, tiers: Sequence[Tier] | None = None) -> Entries:
        """All entries that the cold copies have, as readers read them."""
        chosen = [self.target, self.source] if tiers is None else list(tiers)
        readers = ColdReaders(KnownTiers(chosen[0], chosen[1:]), memory=ReadMemory())
        found: Entries = {}
        for ledger in (info or self.info).in_order:
            if not ledger.has_complete_copy:
                continue
            with closing(readers.open(ledger, NAME)) as reader:
                for at, payload in read_sparse_through(reader, 0, (ledger.offloaded_stop or 0) - 1, 1000):
                    found[ledger.ledger_id, at] = payload
        return found

    def files(self, name: str) -> dict[str, dict[str, Path]]:
        """The files of each folder in `source` or `target`, without what the driver keeps of uploads."""
        found: dict[str, dict[str, Path]] = {}
        for path in (self.folder / name).rglob("*"):
            if path.is_file() and ".offload-uploads" not in path.parts:
                folder = str(path.parent.relative_to(self.folder / name))
                found.setdefault(folder, {})[path.name] = path
        return found

    def keys(self, tier: Tier) -> list[str]:
        """The keys of a tier's objects."""
        return [each.key for each in tier.list_objects()]


def moved_by_mapping(folder: Path) -> MovedTopic:
    """A live Pulsar's topic, whose copies were moved to another format in the same tier, by a mapping."""
    world = MovedTopic.make(folder, f"sqlite:{folder}/records.db")
    for count in (12, 9):
        world.offload(world.add_ledger(count))
    world.target = world.source
    with MappingFile(folder / "mapping") as file:
        mover = world.mover(registry=MappingRegistry(file, lambda _: world.info, world.clock))
        for move in world.plan(world.wanted(ObjectFormat.STREAMING)).moves:
            mover.move(move)
    return world


def half_moved(folder: Path) -> tuple[MovedTopic, str]:
    """Two ledgers of one object each, and one in two segments, of which one each is in the target; the records' URL."""
    url = f"sqlite:{folder}/records.db"
    made = MovedTopic.make(folder, url)
    ledgers = [made.add_ledger(count) for count in (20, 10, 15)]
    for ledger_id in ledgers[:2]:
        made.offload(ledger_id)
    made.stream((ledgers[2], 9), (ledgers[2], 14))
    for move in made.plan().moves[1:3]:
        made.mover().move(move)
    return made, url


def watched(world: MovedTopic, name: str, points: Points) -> Tier:
    """One of the two tiers, whose calls are points."""
    return Tier(LocalDriver(world.folder / name), [Layer(name="watch", make=lambda _: Watch(points))])


def _with_ledger(info: ManagedLedgerInfo, ledger: LedgerRecord) -> ManagedLedgerInfo:
    if info.ledger(ledger.ledger_id) is not None:
        return info
    return ManagedLedgerInfo(ledgers=(*info.ledgers, ledger), properties=info.properties)
