"""Topics that a broker offloaded, filtered by their transactions: our readers read what Pulsar's consumers saw."""

from __future__ import annotations

import pytest
from entries import read_object, read_sparse_through
from golden import as_expected, sent_in_transactions, topic_objects, topic_rows
from in_their_place import filter_objects
from scenes.transactions import Model
from tiers import lay_out_broker_objects

from offload_core.format.messages.entry import TransactionId, split_entry
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition, OffloadContext
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.reading.read_handles import ColdReaders
from offload_core.storage.tier import open_store
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

COLUMNS = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]


def filtered(folder, topic, mode):
    """The topic in a tier in `folder`, filtered there."""
    lay_out_broker_objects(folder / "tier", [topic])
    with open_store(folder / "tier") as tier:
        keys = [stored.key for stored in topic_objects(topic)]
        records = filter_objects(tier, keys, folder / "hot", mode=mode)
    assert len(records) == len(keys)
    return list(records.values())


@pytest.mark.parametrize("mode", FilterMode)
@pytest.mark.parametrize("how", [{}, {"task_bytes": 1}], ids=["at once", "many tasks"])
def test_what_is_left_of_transactions_is_what_a_consumer_saw(tmp_path, mode, how):
    records = filtered(tmp_path, "txn", mode)
    sent = sent_in_transactions()
    aborted = {TransactionId(*row["txn_id"]) for row in sent if row["state"] == "aborted" and row["txn_id"]}
    assert {each for record in records for each in record.aborted} == aborted

    with open_tier(tmp_path / "tier") as tier:
        topic = "persistent://acme/cold/txn"
        rows = scan(tier, topic, columns=COLUMNS, **how).to_table().to_pylist()
        uncommitted = scan(tier, topic, columns=["__txnState"], isolation="uncommitted").to_table()
    assert len(rows) == len(topic_rows("txn"))
    for row, expected in zip(rows, topic_rows("txn"), strict=True):
        found = as_expected(row)
        assert {name: found[name] for name in expected if name in found} == {
            name: value for name, value in expected.items() if name in found
        }
    assert set(uncommitted["__txnState"].to_pylist()) <= {None, "committed"}
    assert len(uncommitted) == len(rows)


def test_a_read_handle_gives_exactly_what_was_committed_at_its_right_ids(tmp_path):
    stored = [
        each for golden in topic_objects("txn") for each in read_object(golden.data, golden.index, golden.key)
    ]
    model = Model.of(
        [(EntryPosition(ledger_id, entry_id), payload) for ledger_id, entry_id, payload in stored]
    )
    committed = {
        position: payload
        for (position, payload), transaction in zip(model.entries, model.transactions, strict=True)
        if transaction not in model.aborted and not split_entry(payload).is_marker
    }
    filtered(tmp_path, "txn", FilterMode.GAP)
    found = {}
    with open_store(tmp_path / "tier") as tier:
        readers = ColdReaders(KnownTiers(tier))
        for golden in topic_objects("txn"):
            ledger_id, uuid = golden.key.ledger_id, golden.key.uuid
            reader = readers.read_offloaded(ledger_id, OffloadContext(uuid=uuid, complete=True), None)
            last = reader.status().entry_count - 1
            read = read_sparse_through(reader, 0, last, 2000)
            found |= {EntryPosition(ledger_id, entry_id): payload for entry_id, payload in read}
    assert found == committed
    assert 0 < len(found) < len(stored)


@pytest.mark.parametrize("mode", FilterMode)
def test_a_topic_without_transactions_stays_as_it_was(tmp_path, mode):
    (tmp_path / "unfiltered").mkdir()
    lay_out_broker_objects(tmp_path / "unfiltered", ["comp-lz4"])
    records = filtered(tmp_path, "comp-lz4", mode)
    assert not any(record.total_dropped.entries for record in records)
    tables = []
    for root in (tmp_path / "unfiltered", tmp_path / "tier"):
        with open_tier(root) as tier:
            tables.append(scan(tier, "persistent://acme/cold/comp-lz4", columns=COLUMNS).to_table())
    assert tables[0].equals(tables[1])
