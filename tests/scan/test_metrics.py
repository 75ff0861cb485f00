"""What a task read, as it is reported and logged: rows, ranges, bytes, retries; also where it is broken off."""

import logging
from types import SimpleNamespace

import pytest
from entries import pip17_object
from layered import layer, stack
from tiers import MemoryDriver, Names, lay_out_broker_objects, numbered

from offload_core.reading.scan import TaskMetrics, read_task
from offload_hooks.counts import StoreCounts, count_retry, counting
from offload_hooks.testing import FaultLayer, FaultPlan
from offload_layers.retry import RetryLayer
from pulsar_offload import TierReader, open_tier, scan


def opened(root):
    lay_out_broker_objects(root, topics=["json"])
    return open_tier(root)


def read(tier, most_batches=None):
    """The rows of all tasks, and what each reported."""
    reading = scan(tier, "acme/cold/json", isolation="uncommitted", min_partitions=3)
    reported: list[TaskMetrics] = []
    rows = 0
    for task in reading.tasks:
        batches = read_task(tier.store, task, reading.options, reported.append)
        for number, batch in enumerate(batches, start=1):
            rows += batch.num_rows
            if number == most_batches:
                batches.close()
    return rows, reported


def test_a_task_reports_its_rows_and_all_that_it_read(tmp_path):
    with opened(tmp_path) as tier:
        rows, reported = read(tier)
        planned = scan(tier, "acme/cold/json", isolation="uncommitted", min_partitions=3).data_bytes
    assert len(reported) >= 2
    assert sum(each.rows for each in reported) == rows > 0
    assert sum(each.bytes for each in reported) >= planned
    assert all(each.ranges >= 1 and each.seconds > 0 and each.retries == 0 for each in reported)


@pytest.mark.parametrize("is_index_read", [True, False])
def test_calls_that_threads_make_again_are_counted_as_retries(is_index_read, monkeypatch):
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: None))
    written = pip17_object([b"x" * 424] * 40, ledger_id=7, max_block_bytes=1000)
    driver = MemoryDriver(numbered(written), metadata=Names().as_metadata("data"), range_bytes=1000)
    faults = FaultPlan.parse("fail-before read_range 30%", seed=4)
    tier = stack(driver, layer(RetryLayer, attempts=100, budget_s=0), layer(FaultLayer, plan=faults))
    reading = scan(TierReader(tier), level="entries", min_partitions=1 if is_index_read else 3)
    planned, reported = len(faults.done), []
    before = len(driver.reads)
    for task in reading.tasks:
        assert sum(batch.num_rows for batch in read_task(tier, task, reading.options, reported.append)) > 0
    assert sum(each.retries for each in reported) == len(faults.done) - planned > 0
    assert sum(each.ranges for each in reported) == len(driver.reads) - before
    assert sum(each.bytes for each in reported) == sum(length for _, _, length in driver.reads[before:])


def test_a_task_that_is_broken_off_reports_what_it_did(tmp_path):
    with opened(tmp_path) as tier:
        rows, reported = read(tier, most_batches=1)
    assert len(reported) >= 2
    assert sum(each.rows for each in reported) == rows


def test_what_is_reported_is_logged_with_fields(tmp_path, caplog):
    with opened(tmp_path) as tier, caplog.at_level(logging.INFO, "offload_core.reading.scan.metrics"):
        _, reported = read(tier)
    records = [record for record in caplog.records if record.name == "offload_core.reading.scan.metrics"]
    assert [record.rows for record in records] == [each.rows for each in reported]
    assert [record.bytes for record in records] == [each.bytes for each in reported]
    assert records[0].context["ranges"] == reported[0].ranges
    assert f"{reported[0].rows} rows of {reported[0].bytes} bytes" in records[0].getMessage()


def test_nothing_is_counted_outside_of_a_context():
    counts = StoreCounts()
    counting(counts).run(count_retry)
    count_retry()
    assert counts.retries == 1
