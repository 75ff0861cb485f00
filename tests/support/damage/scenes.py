"""Sound tiers with their records, as values that can be damaged: the same bytes each time they are made."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import methodcaller
from types import MappingProxyType

import numpy as np
from entries import (
    LedgerPart,
    WrittenObject,
    batch_entry,
    entry,
    ledger_metadata,
    pip17_object,
    pip17_of_blocks,
    streaming_object,
)
from mapfiles import mapfile
from records import CLOSED_AT_MS, closed_ledger, copied, managed_ledger, segment
from tiers import CLUSTER, MANAGED_LEDGER, MODIFIED_AT, TOPIC, uuid_of

from damage.sealed import sealed
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.entry_directory import Anchors, pack_directory
from offload_core.format.codec.index import ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.maintenance.verify import Finding, Verification
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.record_source import FileRecords
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import (
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    pack_managed_ledger_info,
)
from offload_core.metadata.records.filter_record import RECORD_KEY, DroppedEntries, FilterMode, FilterRecord
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver, MemoryTier
from offload_hooks.testing.memory import MemoryObject
from offload_hooks.values import Capabilities, ObjectStat
from offload_proto.messages_pb2 import LZ4, ZLIB, ZSTD

NOW_MS = int((MODIFIED_AT + timedelta(hours=1)).timestamp() * 1000)
LEDGER = 7
VERSION_NAME = "s3managedledgeroffloaderformatversion"


PAYLOADS = [
    batch_entry(
        [b"%04d" % (100 * i + n) * (5 + i) for n in range(4)], compression=(0, LZ4, ZLIB, ZSTD)[i % 4]
    )
    for i in range(16)
]
"""Sixteen entries, batches of four, compressed in turns; with a checksum each."""


@dataclass(slots=True)
class Stored:
    """An object's bytes and user metadata."""

    data: bytes
    metadata: dict[str, str]
    modified_at: datetime = MODIFIED_AT


@dataclass(slots=True)
class Scene:
    """The objects of a tier and the records of topics; both can be changed freely.

    Attributes:
        written: the objects as they were made, in their order, with their keys.
        records: by topic; None for a verification without records.
    """

    objects: dict[str, Stored] = field(default_factory=dict)
    written: list[WrittenObject] = field(default_factory=list)
    records: dict[str, bytes | ManagedLedgerInfo] | None = None

    def add(self, written: WrittenObject, number: int, *, later: int = 0, cluster: str | None = CLUSTER):
        """An object under the uuid of this number, with the user metadata that a broker writes."""
        key = replace(written.key, uuid=uuid_of(number))
        for name, role, data in (
            (key.data_key, "data", written.data),
            (key.index_key, "index", written.index),
        ):
            metadata = {VERSION_NAME: "1", "role": role, "managedledgername": MANAGED_LEDGER}
            if cluster is not None:
                metadata["pulsarclustername"] = cluster
            self.objects[name] = Stored(
                data, {} if key.is_mapfile else metadata, MODIFIED_AT + timedelta(minutes=later)
            )
        self.written.append(replace(written, key=key))
        return key

    def add_checksums(self, key: ObjectKey):
        """A MapFile's `.crc` files."""
        assert key.checksum_keys is not None
        for name, of in zip(key.checksum_keys, (key.data_key, key.index_key), strict=True):
            self.put(name, make_checksums(self.objects[of].data))

    # --- places ------------------------------------------------------------------------------------

    @property
    def has_block_checksums(self) -> bool:
        """Return whether checksum files lie beside its objects."""
        return any(key.endswith("checksums") for key in self.objects)

    def key(self, number: int = 0) -> str:
        """The key of a data object."""
        return self.written[number].key.data_key

    def index_key(self, number: int = 0) -> str:
        """The key of an index."""
        return self.written[number].key.index_key

    def index(self, number: int = 0) -> ObjectIndex:
        """An index as a value."""
        written = self.written[number]
        return parse_index(written.index, written.key)

    def frame(self, entry_id: int, number: int = 0, ledger_id: int = LEDGER) -> int:
        """The offset of an entry's frame in its data object."""
        index = self.index(number)
        ledger = next(each for each in index.ledgers if each.ledger_id == ledger_id)
        block = next(each for each in reversed(ledger.blocks) if each.first_entry_id <= entry_id)
        lengths = {i: len(payload) for of, i, payload in self.written[number].entries if of == ledger_id}
        return block.offset + 128 + sum(12 + lengths[i] for i in range(block.first_entry_id, entry_id))

    # --- changes -----------------------------------------------------------------------------------

    def put(self, key: str, data: bytes):
        """An object without user metadata."""
        self.objects[key] = Stored(data, {})

    def write(self, key: str, offset: int, data: bytes):
        """Bytes over others."""
        old = self.objects[key].data
        self.objects[key].data = old[:offset] + data + old[offset + len(data) :]

    def flip(self, key: str, offset: int, bit: int = 0):
        """One bit."""
        self.write(key, offset, bytes([self.objects[key].data[offset] ^ 1 << bit]))

    def set(self, key: str, form: str, offset: int, value: int):
        """A number, big-endian."""
        self.write(key, offset, struct.pack(f">{form}", value))

    def cut(self, key: str, length: int):
        """Only the first bytes are left; of a negative number, all but the last."""
        self.objects[key].data = self.objects[key].data[:length]

    def with_index(self, data: bytes, number: int = 0):
        """Another index."""
        self.objects[self.index_key(number)].data = data

    def change_record(self, change: Callable[[LedgerRecord], LedgerRecord], ledger_id: int = LEDGER):
        """A ledger's record, changed."""
        info = self.records[TOPIC]
        self.records[TOPIC] = info.with_ledger(change(info.ledger(ledger_id)))

    def change_share(
        self, number: int, change: Callable[[OffloadSegment], OffloadSegment], ledger_id: int = LEDGER
    ):
        """One of a ledger's segments, changed."""

        def changed(record: LedgerRecord) -> LedgerRecord:
            shares = list(record.context.segments)
            shares[number] = change(shares[number])
            context = replace(record.context, uuid=shares[0].uuid, segments=tuple(shares))
            return replace(record, context=context)

        self.change_record(changed, ledger_id)

    # --- the tier ----------------------------------------------------------------------------------

    def tier(self, **capabilities: int) -> Tier:
        """A tier that has it all, which can do this."""
        return in_memory(self.objects, Capabilities(**capabilities))

    def verification(self, *, deep: bool, tier: Tier | None = None, **options: object) -> Verification:
        """A verification of it, with its records."""
        records = None if self.records is None else opened_records(self.records)
        tier = self.tier() if tier is None else tier
        return Verification(tier, deep=deep, records=records, now_ms=lambda: NOW_MS, **options)

    def findings(self, *, deep: bool = True, **capabilities: int) -> list[Finding]:
        """The findings of a verification, in a tier with these capabilities."""
        return list(self.verification(deep=deep, tier=self.tier(**capabilities)))


def in_memory(objects: Mapping[str, Stored], capabilities: Capabilities | None = None) -> Tier:
    """A tier of these objects, with their times."""
    return Tier(MemoryDriver(in_memory_tier(objects), capabilities or Capabilities()))


def in_memory_tier(objects: Mapping[str, Stored]) -> MemoryTier:
    """The storage that drivers in memory share."""
    tier = MemoryTier()
    for key, stored in objects.items():
        stat = ObjectStat(
            key=key,
            size_bytes=len(stored.data),
            modified_at=stored.modified_at,
            user_metadata=dict(stored.metadata),
        )
        tier.objects[key] = MemoryObject(blocks=(stored.data,), stat=stat)
    return tier


def opened_records(records: Mapping[str, bytes | ManagedLedgerInfo]):
    """Records in files, which are parsed when they are read."""
    packed = {
        topic: record if isinstance(record, bytes) else pack_managed_ledger_info(record)
        for topic, record in records.items()
    }
    names = {managed_ledger_of_topic(parse_topic(topic)): topic for topic in records}
    store = in_memory({name: Stored(packed[topic], {}) for name, topic in names.items()})
    files = {parse_topic(names[listed.key]): listed for listed in store.list_objects()}
    return lambda: nullcontext(FileRecords(store, files))


# --- the sound ones --------------------------------------------------------------------------------


def one_ledger(**options: object) -> WrittenObject:
    """A PIP-17 object of several blocks, all but the last of them with padding."""
    return pip17_object(PAYLOADS, ledger_id=LEDGER, max_block_bytes=1000, **options)


def pip17(*, records: bool = True, gone: bool = False) -> Scene:
    """One ledger in one object."""
    scene = Scene()
    key = scene.add(one_ledger(), 0)
    if records:
        context = copied(key.uuid, bookkeeper_deleted=gone)
        scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, context))}
    return scene


def with_directory() -> Scene:
    """The same as our own writer makes it, with an entry directory."""
    scene = pip17(records=False)
    (ledger,) = scene.index().ledgers
    ids = np.arange(len(PAYLOADS), dtype=np.int64)
    anchors = Anchors(entry_ids=ids, offsets=np.array([scene.frame(i) for i in ids.tolist()], dtype=np.int64))
    index = pack_pip17_index(
        ledger.metadata, ledger.blocks, scene.index().data_length, pack_directory(anchors)
    )
    scene.with_index(index)
    return scene


FIRST, SECOND = PAYLOADS[:9], PAYLOADS[9:]
FOLLOWING = PAYLOADS[:5]


def first_segment() -> WrittenObject:
    """Entries 0 to 8 of ledger 7, in two blocks; the ledger goes on."""
    return streaming_object(
        [LedgerPart(ledger_id=LEDGER, blocks=[FIRST[:5], FIRST[5:]])], min_block_bytes=2000
    )


def second_segment(first: int = len(FIRST), payloads: Sequence[bytes] = SECOND) -> WrittenObject:
    """The rest of ledger 7, and ledger 8."""
    written = streaming_object(
        [
            LedgerPart(ledger_id=LEDGER, blocks=[payloads], first_entry_id=first),
            LedgerPart(ledger_id=8, blocks=[FOLLOWING[:3], FOLLOWING[3:]]),
        ],
        min_block_bytes=600,
    )
    return closed_in_index(written, {LEDGER: PAYLOADS, 8: FOLLOWING})


def closed_in_index(written, whole, filter_records=MappingProxyType({}), *, is_closed=True):
    """A streaming object whose index has the whole of ledgers that ended, and their filter records."""
    index = parse_index(written.index, written.key)
    ledgers = [
        (
            LedgerInfo(
                ledger_id=ledger.ledger_id,
                entries=len(whole[ledger.ledger_id]),
                size=sum(map(len, whole[ledger.ledger_id])),
                timestamp_ms=CLOSED_AT_MS if is_closed else 0,
                properties=((RECORD_KEY, filter_records[ledger.ledger_id].pack()),) if filter_records else (),
            ),
            ledger.blocks,
        )
        for ledger in index.ledgers
    ]
    return replace(written, index=pack_streaming_index(ledgers, len(written.data)))


def streaming(*, records: bool = True, gone: bool = False) -> Scene:
    """Ledger 7 in two segments, and ledger 8 in the second of them, in two blocks."""
    scene = Scene()
    first, second = scene.add(first_segment(), 0), scene.add(second_segment(), 1)
    if records:
        shares = [segment(first.uuid, len(FIRST) - 1), segment(second.uuid, len(PAYLOADS) - 1)]
        of_segments = OffloadContext.of_segments
        scene.records = {
            TOPIC: managed_ledger(
                closed_ledger(LEDGER, PAYLOADS, of_segments(shares, bookkeeper_deleted=gone)),
                closed_ledger(8, FOLLOWING, of_segments([segment(second.uuid, len(FOLLOWING) - 1)])),
            )
        }
    return scene


def trimmed() -> Scene:
    """A topic after the deletion of ledger 7, of which a segment holds ledger 8 as well."""
    scene = Scene()
    scene.add(second_segment(), 1)
    return scene


def mapfiles(compression=FileCompression.RECORD, *, checksums=True, records=True):
    """One ledger in a MapFile, its index with several positions."""
    scene = Scene()
    written = mapfile(PAYLOADS, compression=compression, ledger_id=LEDGER, block_bytes=1500, index_interval=4)
    key = scene.add(written, 0)
    if checksums:
        scene.add_checksums(key)
    if records:
        context = copied(key.uuid)
        filesystem = replace(context.driver, name="filesystem", properties=()) if context.driver else None
        record = closed_ledger(LEDGER, PAYLOADS, replace(context, driver=filesystem))
        scene.records = {TOPIC: managed_ledger(record)}
    return scene


def record_of(kept: Sequence[bytes], entries: int) -> FilterRecord:
    """The record of a filter that kept these of `entries` entries."""
    return FilterRecord.of(
        "transactions",
        FilterMode.GAP,
        None,
        DroppedEntries(entries=len(kept), payload_bytes=sum(map(len, kept))),
        {"marker": DroppedEntries(entries=entries - len(kept))},
    )


def filtered(without: int | None = None) -> Scene:
    """A ledger whose filter took entries out, in the middle, at blocks' borders and at the end; blocks are as before.

    `without` is an entry that it kept, and that is not there.
    """
    kept = {i: payload for i, payload in enumerate(PAYLOADS) if i % 3 != 1 and i != 15}
    record = record_of(list(kept.values()), len(PAYLOADS))
    there = {i: payload for i, payload in kept.items() if i != without}
    metadata = replace(ledger_metadata(PAYLOADS), custom=((RECORD_KEY, record.pack().encode()),))
    whole = one_ledger(metadata=metadata)
    blocks = parse_index(whole.index, whole.key).ledgers[0].blocks
    parts = [
        (
            block.first_entry_id,
            {i: there[i] for i in range(block.first_entry_id, block.end_entry_id) if i in there},
        )
        for block in blocks
    ]
    lengths = [block.length for block in blocks]
    scene = Scene()
    key = scene.add(pip17_of_blocks(parts, metadata, ledger_id=LEDGER, block_lengths=lengths), 0)
    for stored in scene.objects.values():
        stored.metadata["pulsaroffloadfiltered"] = "transactions"
    context = copied(key.uuid)
    context = replace(context, driver=context.driver.with_property(RECORD_KEY, record.pack(short=True)))
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, context))}
    return scene


def filtered_segments(*, records: bool = True) -> Scene:
    """Ledger 7 in two segments whose filter took out entries 7 to 10, where the one ends and the other begins."""
    scene = streaming(records=records)
    written = scene.written
    scene.written = []
    parts = [LedgerPart(ledger_id=LEDGER, blocks=[PAYLOADS[:7]])]
    filter_records = [
        {LEDGER: record_of(PAYLOADS[:7], len(FIRST))},
        {LEDGER: record_of(PAYLOADS[11:], len(SECOND)), 8: record_of(FOLLOWING, len(FOLLOWING))},
    ]
    first = streaming_object(parts, min_block_bytes=2000)
    scene.add(
        closed_in_index(first, {LEDGER: FIRST}, filter_records[0], is_closed=False) if records else first, 0
    )
    second = second_segment(11, PAYLOADS[11:])
    scene.add(closed_in_index(second, {LEDGER: PAYLOADS, 8: FOLLOWING}, filter_records[1]), 1)
    assert [each.key for each in scene.written] == [each.key for each in written]
    if records:
        for ledger_id, number, share_of in ((LEDGER, 0, 0), (LEDGER, 1, 1), (8, 1, 0)):
            packed = filter_records[number][ledger_id].pack(short=True)
            scene.change_share(share_of, methodcaller("with_filter_record", packed), ledger_id)
    for stored in scene.objects.values():
        stored.metadata["pulsaroffloadfiltered"] = "transactions"
    return scene


def plain_entries() -> Scene:
    """Entries that are not Pulsar's, and empty ones."""
    scene = Scene()
    scene.add(pip17_object([b"", b"plain", b"x" * 700, b""], ledger_id=LEDGER, max_block_bytes=1000), 0)
    return scene


def without_checksums() -> Scene:
    """Pulsar's entries without a checksum; one encrypted, as far as a verifier can see, and a marker."""
    scene = Scene()
    payloads = [entry(b"one", checksum=False), entry(b"two" * 100, checksum=False, compression=LZ4)]
    scene.add(pip17_object(payloads, ledger_id=LEDGER), 0)
    return scene


# --- all of them by their names --------------------------------------------------------------------


SCENES: dict[str, Callable[[], Scene]] = {
    "empty": Scene,
    "pip17": pip17,
    "pip17-without-records": lambda: pip17(records=False),
    "pip17-hot-copy-gone": lambda: pip17(gone=True),
    "directory": with_directory,
    "streaming": streaming,
    "streaming-without-records": lambda: streaming(records=False),
    "streaming-hot-copy-gone": lambda: streaming(gone=True),
    "streaming-trimmed-without-records": trimmed,
    "mapfile-record": mapfiles,
    "mapfile-block": lambda: mapfiles(FileCompression.BLOCK),
    "mapfile-plain": lambda: mapfiles(FileCompression.NONE),
    "mapfile-without-checksums": lambda: mapfiles(checksums=False, records=False),
    "filtered": filtered,
    "filtered-segments": filtered_segments,
    "filtered-segments-without-records": lambda: filtered_segments(records=False),
    "plain-entries": plain_entries,
    "no-checksums": without_checksums,
    "pip17-sealed": lambda: sealed(pip17()),
    "directory-sealed": lambda: sealed(with_directory()),
    "streaming-sealed": lambda: sealed(streaming()),
    "mapfile-sealed": lambda: sealed(mapfiles()),
    "mapfile-block-sealed": lambda: sealed(mapfiles(FileCompression.BLOCK, checksums=False)),
    "filtered-sealed": lambda: sealed(filtered()),
    "filtered-segments-sealed": lambda: sealed(filtered_segments()),
}
"""Sound scenes by name: in these a verifier finds nothing."""
