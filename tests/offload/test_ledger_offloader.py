"""A sealed ledger to a tier and away again: bytes as Pulsar's, what both objects say, and what every failure leaves."""

import struct
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import numpy as np
import pytest
from entries import pip17_object, read_object
from golden import PIP17_MAX_BLOCK_BYTES, load_case
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.entry_directory import parse_directory
from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.codec.pip17 import plan_blocks
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import DriverMetadata, OffloadContext
from offload_core.reading.read_handles import ColdReaders
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.ledger_entries import LedgerEntries
from offload_core.writing.offload.ledger_offloader import LedgerBlocks
from offload_hooks.errors import DataLossError, ObjectNotFoundError, OptionError, UnknownLedgerError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus
from pulsar_offload import open_tier, scan

UUID_1 = UUID("00000000-1111-4222-8333-000000000001")
NAMES = {"ManagedLedgerName": "acme/cold/persistent/orders", "pulsarclustername": "here"}


class InBatches:
    """A ledger that gives its entries a few at a time."""

    ledger_id = 7

    def __init__(self, payloads, sizes):
        self._payloads = payloads
        self._sizes = sizes

    def status(self):
        size = sum(map(len, self._payloads))
        count = len(self._payloads)
        return LedgerStatus(ledger_id=7, entry_count=count, size_bytes=size, sealed=True, created_at_ms=1)

    def read(self, first, last, max_bytes=DEFAULT_READ_BYTES):
        del max_bytes
        count = self._sizes.pop(0) if self._sizes else 100
        return EntryBatch.of(first, self._payloads[first : min(last + 1, first + count)])

    def close(self):
        pass


def new_block(n_bytes):
    return np.full(n_bytes, 0xA5, dtype=np.uint8)


@given(
    payloads=st.lists(st.integers(0, 400).map(bytes), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 5)),
    max_block_bytes=st.integers(140, 700),
)
def test_blocks_are_those_of_the_reference_however_the_ledger_is_read(payloads, sizes, max_block_bytes):
    ledger = InBatches(payloads, sizes)
    blocks = LedgerBlocks(LedgerEntries(ledger, ledger.status()), max_block_bytes, new_block)
    data = b"".join(blocks)
    assert data == pip17_object(payloads, max_block_bytes=max_block_bytes).data
    assert blocks.data_length == len(data)
    plans = list(plan_blocks(np.array([len(each) for each in payloads], dtype=np.int64), max_block_bytes))
    assert [each.first_entry_id for each in blocks.index] == [plan.first for plan in plans]
    assert [each.part_number for each in blocks.index] == list(range(1, len(plans) + 1))


@pytest.mark.parametrize("name", ["multi-block", "single-entry", "zero-length-only", "one-block"])
def test_the_data_object_is_what_pulsars_offloader_wrote(cold, sealed, name):
    case = load_case("pip17", name)
    ledger = sealed([payload for _, _, payload in read_object(case.data, case.index, case.key)])
    LedgerOffloader(cold.store, max_block_bytes=PIP17_MAX_BLOCK_BYTES[name]).offload(ledger, UUID_1, {})
    key = f"{UUID_1}-ledger-{ledger.ledger_id}"
    assert bytes(cold.store.read_range(key, 0, len(case.data))) == case.data
    assert cold.store.stat(key).size_bytes == len(case.data)


def test_what_was_offloaded_is_listed_by_its_topic_and_read(cold, sealed):
    payloads = [b"%d" % i * (i % 50) for i in range(1000)]
    ledger = sealed(payloads)
    seen = []
    done = LedgerOffloader(cold.store, max_block_bytes=4096).offload(
        ledger, UUID_1, NAMES, listener=seen.append
    )
    (topic,) = cold.catalogue().topics
    assert str(topic.name) == "persistent://acme/cold/orders"
    (stored,) = topic.ledgers
    assert (stored.ledger_id, stored.entries, len(stored.extents)) == (ledger.ledger_id, 1000, 1)
    assert scan(cold, level="entries", columns=["value"]).to_table()["value"].to_pylist() == payloads
    assert (done.entries, done.blocks, done.data_bytes) == (1000, len(seen), stored.data_bytes)
    assert [each.blocks for each in seen] == list(range(1, done.blocks + 1))
    assert seen[-1].data_bytes == done.data_bytes
    assert seen[-1].bytes_per_s > 0
    for key, role in ((done.key.data_key, "data"), (done.key.index_key, "index")):
        metadata = cold.store.stat(key).user_metadata
        assert metadata["role"] == role
        assert metadata["managedledgername"] == "acme/cold/persistent/orders"
        assert metadata["pulsarclustername"] == "here"
        assert metadata["s3managedledgeroffloaderformatversion"] == "1"


def test_an_open_and_an_empty_ledger_are_refused_before_anything_is_sent(cold, hot, sealed):
    writer = hot.create({})
    writer.append(b"x")
    offloader = LedgerOffloader(cold.store)
    with pytest.raises(OptionError, match="a ledger that is open"):
        offloader.offload(hot.open(writer.ledger_id), UUID_1, {})
    with pytest.raises(OptionError, match="without entries"):
        offloader.offload(sealed([]), UUID_1, {})
    writer.close()
    with pytest.raises(ObjectNotFoundError):
        list(cold.store.list_objects())


class Wrong(InBatches):
    """Says that it has more than it gives."""

    def __init__(self, how):
        super().__init__([b"a", b"b", b"c"], [])
        self._how = how

    def read(self, first, last, max_bytes=DEFAULT_READ_BYTES):
        del last, max_bytes
        wrong = {
            "others": (first + 1, [b"b"]),
            "none": (first, []),
            "more": (first, [b"a", b"b", b"c", b"d"]),
            "longer": (first, [b"a", b"b", b"cc"]),
        }
        return EntryBatch.of(*wrong[self._how])


@pytest.mark.parametrize("how", ["others", "none", "more", "longer"])
def test_a_hot_tier_that_gives_other_entries_than_it_should_is_not_believed(cold, how):
    with pytest.raises(DataLossError, match="hot tier gave") as caught:
        LedgerOffloader(cold.store).offload(Wrong(how), UUID_1, {})
    assert caught.value.ledger_id == 7
    assert list(cold.store.list_objects()) == []
    assert list(cold.store.list_uploads()) == []


def test_deleting_where_nothing_was_ever_written_is_done_at_once(tmp_path):
    with open_tier(tmp_path / "nowhere") as tier:
        LedgerOffloader(tier.store).delete_offloaded(7, UUID_1)
    assert not (tmp_path / "nowhere").exists()


def test_deleting_takes_objects_and_uploads_and_can_be_repeated(cold, sealed):
    offloader = LedgerOffloader(cold.store)
    done = offloader.offload(sealed([b"a"]), UUID_1, NAMES)
    other = offloader.offload(sealed([b"b"]), UUID(int=5), NAMES)
    cold.store.begin_data(done.key.data_key)
    kept = cold.store.begin_data(other.key.data_key)
    for _ in range(2):
        offloader.delete_offloaded(done.ledger_id, UUID_1)
        assert sorted(each.key for each in cold.store.list_objects()) == [
            other.key.data_key,
            other.key.index_key,
        ]
        assert [each.upload for each in cold.store.list_uploads()] == [kept]
    cold.store.abort_data(kept)


def test_offloads_at_once_keep_to_one_budget(cold, sealed):
    budget = MemoryBudget(3 << 20)
    offloader = LedgerOffloader(cold.store, max_block_bytes=1 << 20, max_entry_bytes=1000, budget=budget)
    ledgers = [sealed([bytes(1000)] * 4000) for _ in range(4)]
    most = 0

    def watch(_):
        nonlocal most
        most = max(most, budget.taken_bytes)

    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda each: offloader.offload(each, UUID(int=each.ledger_id), NAMES, listener=watch), ledgers
            )
        )
    assert 0 < most <= 3 << 20
    assert budget.taken_bytes == 0
    assert scan(cold, level="entries", columns=["__entryId"]).to_table().num_rows == 16000


def test_what_was_offloaded_is_read_by_its_context_and_its_index_has_a_directory(cold, sealed):
    payloads = [b"%d" % i * 2000 for i in range(900)]
    ledger = sealed(payloads)
    offloader = LedgerOffloader(cold.store, max_block_bytes=1 << 20)
    done = offloader.offload(ledger, UUID_1, NAMES)
    context = OffloadContext(uuid=UUID_1, complete=True, driver=tier_record(cold.store))
    readers = ColdReaders(KnownTiers(cold.store))
    reader = readers.read_offloaded(ledger.ledger_id, context, None)
    assert reader.status() == ledger.status()
    for entry_id in (0, 1, 450, 899):
        assert bytes(reader.read(entry_id, entry_id)[0]) == payloads[entry_id]
    stored = cold.store.stat(done.key.index_key)
    index = read_index(
        cold.store,
        ObjectKey(folder="", uuid=UUID_1, ledger_id=ledger.ledger_id, is_index=False),
        index_bytes=stored.size_bytes,
        data_bytes=done.data_bytes,
    )
    place = index.directory
    anchors = parse_directory(
        cold.store.read_range(done.key.index_key, place.offset, place.length), done.data_bytes
    )
    assert (anchors.offsets >> 20).tolist() == list(range(-(-done.data_bytes // (1 << 20))))
    data = cold.store.read_range(done.key.data_key, 0, done.data_bytes)
    for entry_id, offset in zip(anchors.entry_ids.tolist(), anchors.offsets.tolist(), strict=True):
        head = struct.pack(">iq", len(payloads[entry_id]), entry_id)
        assert data[offset : offset + len(head)] == head
    with pytest.raises(UnknownLedgerError):
        readers.read_offloaded(ledger.ledger_id, OffloadContext(uuid=UUID_1), None)
    elsewhere = DriverMetadata(name="aws-s3", properties=(("bucket", "other"),))
    with pytest.raises(OptionError, match="not configured"):
        readers.read_offloaded(ledger.ledger_id, context, elsewhere)
