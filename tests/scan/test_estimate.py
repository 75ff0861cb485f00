"""What a scan is told to take, before it is read, against what was counted while it was."""

import random
from dataclasses import replace

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from mapfiles import lay_out_golden, lay_out_mapfile, mapfile
from records import MANAGED_LEDGERS
from tiers import MemoryDriver, Names, in_memory, lay_out, lay_out_broker_objects, numbered

from offload_core.reading.scan import parse_offsets, read_task
from offload_core.storage.tier import MeasuredTier, Requests, Tier
from pulsar_offload import TierReader, explain_scan, open_tier, scan

PAYLOADS = [entry(b"%05d" % i * 100) for i in range(400)]


def estimated_and_counted(tier, **scanned):
    """What was told, and what was counted: planning, and all tasks read as Spark's executors do.

    Of the ends of topics that planning reads for transactions the most is told.
    """
    told = explain_scan(tier, **scanned)
    searched = MeasuredTier(tier.store)
    tasks = scan(TierReader(searched), **scanned).tasks
    measured = MeasuredTier(tier.store)
    planned = scan(TierReader(measured), **scanned)
    most, counted = told.planning + told.transactions, searched.requests
    assert (counted.lists, counted.heads) == (most.lists, most.heads)
    # An entry that a range cuts off is read again by the next one: here they may be no larger than entries.
    assert counted.read_bytes <= 2 * most.read_bytes
    for task in tasks:
        for _ in read_task(measured, task, planned.options):
            pass
    return replace(told, transactions=Requests()), measured.requests


def check(tier, **scanned):
    told, counted = estimated_and_counted(tier, **scanned)
    assert told.total == counted
    return told


@pytest.mark.parametrize("block_bytes", [300_000, 2_000_000, 16_000_000])
@pytest.mark.parametrize("task_bytes", [1 << 30, 2_000_000])
def test_the_first_range_of_a_task_is_smaller_where_ranges_are_fetched_ahead(block_bytes, task_bytes):
    payloads = [entry(b"z" * (127 << 10)) for _ in range(40)]
    written = [pip17_object(payloads, ledger_id=i, max_block_bytes=block_bytes) for i in range(2)]
    for ledgers in (written[:1], written):
        tier = in_memory(*ledgers, ranges_ahead=3)
        check(tier, level="entries", task_bytes=task_bytes)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    return root


@pytest.mark.parametrize("records", [None, MANAGED_LEDGERS], ids=["listing", "records"])
@pytest.mark.parametrize("task_bytes", [1 << 30, 300_000])
@pytest.mark.parametrize("level", ["entries", "messages"])
def test_a_brokers_bucket_takes_what_was_told(broker, level, task_bytes, records):
    with open_tier(broker) as tier:
        told, counted = estimated_and_counted(
            tier, level=level, chunks="raw", task_bytes=task_bytes, records=records, fail_on_data_loss=False
        )
    assert replace(told.total, read_bytes=counted.read_bytes) == counted
    # A folder is read without anything ahead: a window of a large block begins where the last entry was cut off.
    assert told.total.read_bytes <= counted.read_bytes <= told.total.read_bytes * 1.05
    assert (told.total.lists == 0) == (records is not None)
    assert all(topic.startswith("persistent://acme/cold/") for topic in told.by_topic)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
@pytest.mark.parametrize("task_bytes", [1 << 30, 60_000, 7_000])
@pytest.mark.parametrize("range_bytes", [1 << 20, 16_384, 1_024])
def test_blocks_larger_and_smaller_than_ranges(range_bytes, task_bytes, isolation):
    small = [pip17_object(PAYLOADS[:20], ledger_id=ledger_id, max_block_bytes=4_000) for ledger_id in (1, 2)]
    large = pip17_object(PAYLOADS, ledger_id=3, max_block_bytes=50_000)
    cut = streaming_object([LedgerPart(ledger_id=9, blocks=[PAYLOADS[:90], PAYLOADS[90:200]])])
    tier = in_memory(*small, large, cut, range_bytes=range_bytes)
    check(tier, task_bytes=task_bytes, isolation=isolation)
    told = explain_scan(tier, task_bytes=task_bytes, isolation=isolation)
    assert (told.transactions == Requests()) == (isolation == "uncommitted")
    if isolation == "committed" and task_bytes == 1 << 30:
        (topic,) = tier.catalogue().topics
        cut_bytes = topic.ledgers[-1].data_bytes
        whole = sum(len(each.data) for each in (*small, large)) + cut_bytes
        assert 0 < told.transactions.read_bytes - whole < 1_000  # and the indexes


def test_positions_leave_out_what_they_leave_out():
    large = pip17_object(PAYLOADS, ledger_id=3, max_block_bytes=20_000)
    tier = in_memory(large, range_bytes=8_192)
    whole = check(tier, isolation="uncommitted")
    some = check(
        tier,
        isolation="uncommitted",
        start=parse_offsets('{"acme/cold/orders": {"-1": "3:100"}}', "start"),
        stop=parse_offsets('{"acme/cold/orders": {"-1": "3:140"}}', "stop"),
    )
    assert 0 < some.reading.gets < whole.reading.gets / 2


def test_mapfiles_have_two_files_of_checksums(tmp_path):
    lay_out_golden(tmp_path)
    with open_tier(tmp_path) as tier:
        verified = check(tier, isolation="uncommitted")
        unverified = check(tier, isolation="uncommitted", verify_checksums=False)
        check(tier)
        assert verified.reading.gets > unverified.reading.gets


@pytest.mark.long
def test_a_mapfile_that_is_cut_into_tasks(tmp_path):
    lay_out_mapfile(
        tmp_path, mapfile([entry(random.Random(i).randbytes(20_000)) for i in range(200)], ledger_id=5)
    )
    with open_tier(tmp_path) as tier:
        for isolation in ("committed", "uncommitted"):
            told, counted = estimated_and_counted(tier, isolation=isolation, task_bytes=1_500_000)
            assert told.partitions > 1
            assert (told.total.gets, told.total.heads) == (counted.gets, counted.heads)


def test_a_range_of_times_may_end_early():
    written = pip17_object(
        [entry(b"x" * 300, publish_time=1_000_000 + i) for i in range(300)], max_block_bytes=9_000
    )
    tier = in_memory(written, range_bytes=4_096)
    told, counted = estimated_and_counted(
        tier, start_time=1_000_050, stop_time=1_000_100, time_slack_ms=0, isolation="uncommitted"
    )
    assert told.ends_early
    assert counted.gets <= told.total.gets
    assert told.planning.gets > 1  # the search by time


def test_explaining_reads_no_small_ledger_and_no_block():
    small = pip17_object(PAYLOADS[:20], ledger_id=1)
    driver = MemoryDriver(
        numbered(small, pip17_object(PAYLOADS[:20], ledger_id=2)), metadata=Names().as_metadata("data")
    )
    told = explain_scan(TierReader(Tier(driver)), level="entries")
    assert (told.reading.gets, driver.reads) == (4, [])


def test_listings_are_counted_by_pages():
    many = [pip17_object(PAYLOADS[:1], ledger_id=i) for i in range(501)]
    told = explain_scan(in_memory(*many), level="entries")
    assert (told.planning.lists, told.planning.heads) == (2, 501)
    assert told.reading.gets == 2 * 501


def test_objects_without_a_topic_have_a_place_of_their_own(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS[:20], ledger_id=1), names=Names(managed_ledger=None))
    with open_tier(tmp_path) as tier:
        told = explain_scan(tier, ledger=1, level="entries")
    assert told.total.gets == 2
    assert len(told.by_topic) == 1


@pytest.mark.parametrize("mode", ["gap", "tombstone"])
def test_what_a_filter_has_settled_is_not_looked_through(mode):
    objects = numbered(
        pip17_object(PAYLOADS[:20], ledger_id=1), pip17_object(PAYLOADS, ledger_id=2, max_block_bytes=20_000)
    )
    filtered = {"pulsaroffloadfiltered": "transactions", "pulsaroffloadfilteredmode": mode}
    driver = MemoryDriver(objects, metadata=Names().as_metadata("data") | filtered, range_bytes=16_384)
    tier = TierReader(Tier(driver))
    check(tier, task_bytes=100_000)
    assert explain_scan(tier, task_bytes=100_000).transactions == Requests()
