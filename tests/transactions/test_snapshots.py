"""Snapshots of transaction buffers: a broker's own bytes, what is refused, and the store that keeps them."""

import io
import json
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.records import EntryPosition
from offload_core.reading import transaction_buffers
from offload_core.reading.transaction_buffers import (
    BufferSnapshot,
    SnapshotStore,
    pack_snapshot,
    parse_snapshot,
)
from offload_hooks.errors import MetadataError
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore

GOLDEN = Path(__file__).parents[1] / "golden" / "metadata"
NAME = "acme/cold/persistent/orders"
TOPIC = "persistent://acme/cold/orders"

longs = st.integers(-(2**63), 2**63 - 1)
positions = st.builds(EntryPosition, longs, longs).filter(lambda each: each != EntryPosition(-1, -1))
snapshots = st.builds(
    BufferSnapshot,
    stable_position=st.none() | positions,
    aborted=st.dictionaries(st.builds(TransactionId, longs, longs), positions, max_size=5),
)


def at(ledger_id, entry_id, *aborted):
    place = EntryPosition(ledger_id, entry_id)
    return BufferSnapshot(
        stable_position=place, aborted={TransactionId(*each): EntryPosition(1, 1) for each in aborted}
    )


# --- bytes -------------------------------------------------------------------------------------


def golden_schema():
    stored = json.loads((GOLDEN / "__transaction_buffer_snapshot.schema.json").read_text())
    return fastavro.parse_schema(json.loads(stored["data"]))


def test_a_brokers_snapshot_is_read_and_made_again_byte_for_byte():
    data = (GOLDEN / "__transaction_buffer_snapshot.last.bin").read_bytes()
    record = fastavro.schemaless_reader(io.BytesIO(data), golden_schema())
    snapshot = parse_snapshot(data, record["topicName"])
    assert snapshot.stable_position == EntryPosition(
        record["maxReadPositionLedgerId"], record["maxReadPositionEntryId"]
    )
    assert [(*each, last.ledger_id, last.entry_id) for each, last in snapshot.aborted.items()] == [
        (each["txnIdMostBits"], each["txnIdLeastBits"], each["ledgerId"], each["entryId"])
        for each in record["aborts"]
    ]
    assert len(snapshot.aborted) == 20
    assert pack_snapshot(snapshot, record["topicName"]) == data


@given(snapshot=snapshots)
def test_any_snapshot_is_read_as_it_was_packed_also_by_another_reader(snapshot):
    data = pack_snapshot(snapshot, TOPIC)
    assert parse_snapshot(data, TOPIC) == snapshot
    record = fastavro.schemaless_reader(io.BytesIO(data), golden_schema())
    out = io.BytesIO()
    fastavro.schemaless_writer(out, golden_schema(), record)
    assert out.getvalue() == data
    assert record["topicName"] == TOPIC


def test_what_a_broker_leaves_out_says_nothing():
    out = io.BytesIO()
    record = {"aborts": None, "maxReadPositionEntryId": 4, "maxReadPositionLedgerId": 3, "topicName": None}
    fastavro.schemaless_writer(out, golden_schema(), record)
    assert parse_snapshot(out.getvalue(), TOPIC) == at(3, 4)


def test_a_damaged_snapshot_is_refused():
    data = pack_snapshot(at(3, 4, (0, 1), (5, 6)), TOPIC)
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0", b"\xff" * 40]:
        with pytest.raises(MetadataError):
            parse_snapshot(wrong, TOPIC)


def test_another_topics_snapshot_is_refused():
    with pytest.raises(MetadataError, match="another topic's: expected persistent://acme/cold/orders"):
        parse_snapshot(pack_snapshot(at(3, 4), TOPIC + "2"), TOPIC)


# --- the store ---------------------------------------------------------------------------------


def test_of_two_snapshots_the_farther_one_stays():
    store = SnapshotStore(MemoryMetadataStore())
    assert store.read(NAME) is None
    nothing = BufferSnapshot(stable_position=None)
    for written, there in (
        (nothing, nothing),
        (at(3, 4), at(3, 4)),
        (nothing, at(3, 4)),
        (at(3, 3), at(3, 4)),
        (at(3, 4, (0, 1)), at(3, 4, (0, 1))),
        (at(4, 0), at(4, 0)),
    ):
        assert store.write(NAME, written) == there
        assert store.read(NAME) == there
    assert store.read(NAME + "2") is None


def test_nothing_is_written_where_nothing_is_new():
    faulty = FaultyMetadataStore(MemoryMetadataStore())
    store = SnapshotStore(faulty)
    for _ in range(3):
        store.write(NAME, at(3, 4, (0, 1)))
    assert [call.method for call in faulty.calls].count("put") == 1


def test_what_was_written_or_read_last_is_not_parsed_again(monkeypatch):
    """Of a hundred thousand aborted transactions that takes a fifth of a second, and an owner persists every few."""
    store = MemoryMetadataStore()
    snapshots, other = SnapshotStore(store), SnapshotStore(store)
    parsed = []
    parse = transaction_buffers.parse_snapshot
    monkeypatch.setattr(
        transaction_buffers,
        "parse_snapshot",
        lambda data, topic: (parsed.append(data), parse(data, topic))[1],
    )
    for entry_id in range(3):
        snapshots.write(NAME, at(1, entry_id, (1, 1)))
    assert (snapshots.read(NAME), parsed) == (at(1, 2, (1, 1)), [])
    other.write(NAME, at(1, 3))
    assert (snapshots.read(NAME), snapshots.read(NAME)) == (at(1, 3), at(1, 3))
    assert len(parsed) == 2  # what the other one found, and what it left
    assert snapshots.read("acme/cold/persistent/others") is None


@pytest.mark.parametrize("fault", ["unknown-before", "unknown-after"])
def test_a_write_whose_answer_is_lost_is_looked_up(fault):
    faulty = FaultyMetadataStore(MemoryMetadataStore(), lambda call: fault if call.number == 2 else None)
    assert SnapshotStore(faulty).write(NAME, at(3, 4)) == at(3, 4)
    assert SnapshotStore(faulty).read(NAME) == at(3, 4)


def test_a_writer_that_is_overtaken_looks_again():
    memory = MemoryMetadataStore()

    def overtake(call):
        if call.method == "put":
            faulty.choose = lambda _: None
            SnapshotStore(memory).write(NAME, at(5, 5))

    faulty = FaultyMetadataStore(memory, overtake)
    assert SnapshotStore(faulty).write(NAME, at(3, 4)) == at(5, 5)
    assert SnapshotStore(memory).read(NAME) == at(5, 5)


def test_a_snapshot_that_cannot_be_read_is_named_and_can_be_reset():
    memory = MemoryMetadataStore()
    memory.put(f"/transaction-buffers/{NAME}", b"\xff", None)
    store = SnapshotStore(memory)
    for call in (lambda: store.read(NAME), lambda: store.write(NAME, at(3, 4))):
        with pytest.raises(MetadataError, match="/transaction-buffers/acme/cold/persistent/orders"):
            call()
    store.reset(NAME)
    assert store.read(NAME) == BufferSnapshot(stable_position=None)
    store.reset(NAME)
    store.delete(NAME)
    store.delete(NAME)
    assert store.read(NAME) is None
