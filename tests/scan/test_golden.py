"""Tiers of what Pulsar itself wrote, read through `open_tier`."""

import hashlib

import pyarrow as pa
import pytest
from entries import WrittenObject
from golden import COLUMNS, PIP17_CASES, STREAMING_CASES, as_entries, assert_topic_is_as_expected, load_case
from tiers import in_memory, lay_out_broker_objects, lay_out_case

from offload_core.metadata.catalogue import Problem
from offload_hooks.errors import DataLossError, FormatError
from pulsar_offload import open_tier, scan

CASES = [("pip17", case) for case in PIP17_CASES] + [("streaming", case) for case in STREAMING_CASES]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    with open_tier(root) as tier:
        yield tier


def entries_of(tier, ledger_id, *, fail_on_data_loss=True):
    planned = scan(tier, ledger=ledger_id, level="entries", fail_on_data_loss=fail_on_data_loss)
    return as_entries(row for batch in planned for row in batch.to_pylist())


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_every_entry_of_a_ledger_is_read_as_pulsar_reads_it(tmp_path, folder, name):
    lay_out_case(tmp_path, folder, name)
    case = load_case(folder, name)
    with open_tier(tmp_path) as tier:
        for ledger_id in {entry.ledger_id for entry in case.entries}:
            expected = [entry for entry in case.entries if entry.ledger_id == ledger_id]
            assert entries_of(tier, ledger_id, fail_on_data_loss=name != "seg2-of-2") == expected


def test_objects_that_pulsar_damaged_are_reported_and_not_read(tmp_path):
    for name in ("st-drift", "v1-oversized-entry"):
        lay_out_case(tmp_path, "java-damaged", name)
    with open_tier(tmp_path) as tier:
        problems = {stored.key.data_key: stored for stored in tier.catalogue().problems}
        assert scan(tier, fail_on_data_loss=False).to_table().num_rows == 0
        for ledger in (50, 1012):
            with pytest.raises(DataLossError, match=f"ledger {ledger}"):
                scan(tier, ledger=ledger).to_table()
    drift = problems[load_case("java-damaged", "st-drift").key.data_key]
    assert drift.problem is Problem.WRONG_LENGTH
    assert drift.detail == "the data object has 10584076 bytes, its index says 10524076"
    lost = problems[load_case("java-damaged", "v1-oversized-entry").key.data_key]
    assert lost.problem is Problem.BROKEN_INDEX
    assert f"object {lost.key.index_key}, ledger 1012, byte " in lost.detail


def test_a_damaged_object_that_gets_past_the_catalogue_never_yields_wrong_entries():
    """The drifting object, cut to the length that its index says."""
    case = load_case("java-damaged", "st-drift")
    cut = WrittenObject(key=case.key, data=case.data[:10524076], index=case.index, entries=())
    tier = in_memory(cut)
    offered = {(entry.entry_id, entry.sha256) for entry in case.entries}
    batches: list[pa.RecordBatch] = []
    with pytest.raises(FormatError) as caught:
        batches.extend(scan(tier, ledger=50, level="entries"))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {(row["__entryId"], hashlib.sha256(row["value"]).hexdigest()) for row in rows} <= offered
    error = caught.value
    assert error.key == tier.catalogue().topics[0].ledgers[0].extents[0].key.data_key
    assert (error.ledger_id, error.block) == (50, 1)
    assert error.offset is not None


def test_a_topic_is_read_alike_by_many_small_tasks(broker):
    planned = scan(broker, "acme/cold/big", columns=COLUMNS, task_bytes=1, min_partitions=7)
    assert len(planned.tasks) == 4
    assert_topic_is_as_expected(planned.to_table().to_pylist(), "big")
