"""Cold copies of single ledgers, of every format, with gaps or an entry directory, and readers of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from entries import LedgerPart, WrittenObject, ledger_metadata, pip17_object, streaming_object
from mapfiles import MANAGED_LEDGER, mapfile
from records import closed, segment
from tiers import MemoryDriver, Names, numbered, uuid_of

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, walk_frames
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.entry_directory import Anchors, first_of_each_stride, pack_directory
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_marks import FILTERED_KEY
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import LedgerRecord, OffloadContext
from offload_core.reading.read_fallbacks import Fallback
from offload_core.reading.read_handles import ColdReader, ColdReaders, ReadMemory, TieredReaders
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.offload import LedgerOffloader
from offload_hooks.ledger_stores import EntryBatch

LEDGER = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdCopy:
    """Objects in memory, the record that names them, and the entries by id that they hold."""

    driver: MemoryDriver
    record: LedgerRecord
    entries: Mapping[int, bytes]
    tier: Tier = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "tier", Tier(self.driver))

    def readers(self, *, memory: ReadMemory | None = None, read_buffer_bytes: int = 1 << 20) -> ColdReaders:
        memory = ReadMemory() if memory is None else memory
        return ColdReaders(KnownTiers(self.tier), memory=memory, read_buffer_bytes=read_buffer_bytes)

    def open(self, **options: Any) -> ColdReader:
        return self.readers(**options).open(self.record, MANAGED_LEDGER)

    def data_reads(self) -> list[tuple[int, int]]:
        """Ranges of data objects that were asked for since the last question."""
        reads = [each[1:] for each in self.driver.reads if not each[0].endswith("index")]
        self.driver.reads.clear()
        return reads


def cold_copy(written, *, entry_count=None, filtered=False):
    """A copy in these objects: one that is whole, or streaming segments in order."""
    keys = [replace(each.key, uuid=uuid_of(attempt)) for attempt, each in enumerate(written)]
    metadata = Names().as_metadata("data") | ({FILTERED_KEY: "transactions"} if filtered else {})
    driver = MemoryDriver(numbered(*written), metadata=metadata)
    entries = {entry_id: payload for each in written for _, entry_id, payload in each.entries}
    where = tier_record(Tier(driver))
    if keys[0].ledger_id is None:
        ends = [max(entry_id for _, entry_id, _ in each.entries) for each in written]
        segments = [segment(key.uuid, end, driver=where) for key, end in zip(keys, ends, strict=True)]
        context = OffloadContext.of_segments(segments, complete=True)
    else:
        name = "filesystem" if keys[0].is_mapfile else where.name
        context = OffloadContext(uuid=keys[0].uuid, complete=True, driver=replace(where, name=name))
    count = max(entries) + 1 if entry_count is None else entry_count
    return ColdCopy(driver=driver, record=closed(LEDGER, count, context), entries=entries)


def pip17_copy(payloads, *, max_block_bytes=1 << 20, stride=None):
    """A PIP-17 object, with an entry directory if a stride is given."""
    written = pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=max_block_bytes)
    return cold_copy([written if stride is None else with_directory(written, stride)])


def streaming_copy(payloads: Sequence[bytes], cuts: Sequence[int]) -> ColdCopy:
    """Streaming segments of blocks of three entries, which end before these entries, and with the last."""
    written = []
    for first, stop in pairwise([0, *sorted(cuts), len(payloads)]):
        blocks = [payloads[i : min(i + 3, stop)] for i in range(first, stop, 3)]
        if blocks:
            written.append(
                streaming_object([LedgerPart(ledger_id=LEDGER, blocks=blocks, first_entry_id=first)])
            )
    return cold_copy(written)


def mapfile_copy(payloads: Sequence[bytes] | Mapping[int, bytes], compression: FileCompression) -> ColdCopy:
    """A MapFile with a small index interval; of a mapping, with gaps."""
    return cold_copy([mapfile(payloads, compression=compression, block_bytes=200, index_interval=3)])


def gapped_copy(entries, entry_count, *, max_block_bytes=600, stride=None):
    """A PIP-17 object of a filtered ledger: of its `entry_count` entries only these; the first block begins with 0."""
    metadata = ledger_metadata(list(entries.values()), last_entry_id=entry_count - 1)
    written = pip17_object(dict(sorted(entries.items())), max_block_bytes=max_block_bytes, metadata=metadata)
    if stride is not None:
        written = with_directory(written, stride)
    return cold_copy([written], entry_count=entry_count, filtered=True)


def with_directory(written: WrittenObject, stride: int) -> WrittenObject:
    """The same object, with an entry directory of that stride."""
    places = []
    for block in parse_index(written.index, written.key).ledgers[0].blocks:
        begin, end = block.offset + BLOCK_HEADER_BYTES, block.offset + block.length
        frames = walk_frames(written.data, begin, end, block.first_entry_id, gaps=True)
        places += [frame.offset - 12 for frame in frames]
    ids = [entry_id for _, entry_id, _ in written.entries]
    arrays = (np.array(each, dtype=np.int64) for each in (ids, places))
    return with_anchors(written, first_of_each_stride(*arrays, stride))


def with_anchors(written: WrittenObject, anchors: Anchors) -> WrittenObject:
    """The same object, with a directory of these anchors, right or wrong."""
    (ledger,) = parse_index(written.index, written.key).ledgers
    packed = pack_directory(anchors)
    index = pack_pip17_index(ledger.metadata, ledger.blocks, len(written.data), packed)
    return replace(written, index=index)


def by_id(batch: EntryBatch) -> dict[int, bytes]:
    """A batch's payloads by entry id."""
    return {batch.first_entry_id + i: bytes(payload) for i, payload in enumerate(batch)}


# --- A ledger with a hot copy in a folder and a cold one in any tier, and readers over both.


PAYLOADS = [b"%04d" % i * 100 for i in range(300)]
WINDOW = 10_000


@dataclass(slots=True, kw_only=True)
class TwoCopies:
    """A sealed ledger of `PAYLOADS` in the folder `hot`, offloaded to `tier`."""

    hot: FileLedgerStore
    tier: Tier
    ledger_id: int
    uuid: UUID
    fallbacks: list[Fallback] = field(default_factory=list)

    @classmethod
    def make(cls, hot: FileLedgerStore, tier: Tier, payloads: Sequence[bytes] = PAYLOADS):
        writer = hot.create({})
        writer.append_batch(payloads)
        writer.close()
        uuid = uuid4()
        block_bytes = max(1 << 16, tier.describe().capabilities.min_block_bytes)
        LedgerOffloader(tier, max_block_bytes=block_bytes).offload(hot.open(writer.ledger_id), uuid, {})
        return cls(hot=hot, tier=tier, ledger_id=writer.ledger_id, uuid=uuid)

    @property
    def hot_file(self) -> Path:
        return Path(self.hot.describe().location, f"{self.ledger_id}.ledger")

    @property
    def data_key(self) -> str:
        return f"{self.uuid}-ledger-{self.ledger_id}"

    def record(self, tier: Tier | None = None, *, bookkeeper_deleted: bool = False) -> LedgerRecord:
        """Its record, as if it had been offloaded to that tier."""
        where = tier_record(self.tier if tier is None else tier)
        context = OffloadContext(
            uuid=self.uuid, complete=True, bookkeeper_deleted=bookkeeper_deleted, driver=where
        )
        return closed(self.ledger_id, len(PAYLOADS), context)

    def readers(self, tier: Tier | None = None) -> TieredReaders:
        """Readers over the hot folder and this tier, by windows that are smaller than the ledger."""
        tiers = KnownTiers(self.tier if tier is None else tier)
        cold = ColdReaders(tiers, memory=ReadMemory(), read_buffer_bytes=WINDOW)
        return TieredReaders(self.hot, cold, listener=self.fallbacks.append)

    def seen(self) -> list[tuple[str, str, int | None]]:
        """The fallbacks since the last question: which copy failed, why, and at which entry."""
        seen = [(each.copy.value, each.reason.value, each.entry_id) for each in self.fallbacks]
        self.fallbacks.clear()
        return seen
