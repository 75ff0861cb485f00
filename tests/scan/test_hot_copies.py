"""Scans of a topic over both tiers: what is offloaded is read cold, the rest hot, by the read priority.

On real servers: `tests/broker/test_live_scans.py`.
"""

import json
import pickle
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from scenes.switched import TOPIC, live, switched_topic
from stores import Store
from tiers import lay_out_broker_objects

from offload_core.format.codec import hot_entries
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.stores import open_metadata_store
from offload_core.reading.scan import explain_scan, read_task, windows
from offload_core.reading.scan.following import BatchLimit, advance
from offload_core.reading.scan.positions import Position
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Requests, Tier
from offload_hooks.errors import MetadataError, ObjectNotFoundError, OptionError, UnknownLedgerError
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long


@pytest.fixture
def switched(tmp_path):
    (tmp_path / "cold").mkdir()
    store = Store(name="local", url=str(tmp_path / "cold"))
    with switched_topic(store, tmp_path) as made:
        live(made)
        yield made


@pytest.fixture
def both(switched, tmp_path):
    """The tier, with its hot one."""
    with open_tier(switched.store.url, hot=("embedded", {"path": str(tmp_path / "hot")})) as tier:
        yield tier


def planned(tier, switched, **options):
    return scan(tier, TOPIC, level="entries", records=switched.records, **options)


def rows_of(made, tasks):
    """The rows of tasks, as another process reads them."""
    tier = pickle.loads(pickle.dumps(made.tier))
    with closing(tier):
        return [
            row
            for task in tasks
            for batch in read_task(tier, pickle.loads(pickle.dumps(task)), made.options)
            for row in batch.to_pylist()
        ]


def entries_of(tier, switched, **options):
    made = planned(tier, switched, **options)
    rows = rows_of(made, made.tasks)
    return [(EntryPosition(row["__ledgerId"], row["__entryId"]), row["value"]) for row in rows]


@pytest.mark.parametrize("task_bytes", [1 << 30, 300, 1])
@pytest.mark.parametrize("priority", ["tiered-storage-first", "bookkeeper-first", "BOOKKEEPER_ONLY"])
def test_all_that_was_acknowledged_is_read_in_order(switched, both, priority, task_bytes):
    read = entries_of(both, switched, tiered_read_priority=priority, task_bytes=task_bytes)
    assert read == switched.entries


def test_only_what_is_offloaded_is_read_where_that_is_asked_for(switched, both):
    assert entries_of(both, switched, tiered_read_priority="OFFLOADED_ONLY") == switched.cold()


def test_any_range_of_positions_is_read(switched, both):
    chance = random.Random(23)
    name = TopicName(TOPIC)
    for _ in range(12):
        first, last = sorted(chance.choices(range(len(switched.entries)), k=2))
        begin, end = (switched.entries[at][0] for at in (first, last))
        read = entries_of(
            both,
            switched,
            start={name: Position(begin.ledger_id, begin.entry_id)},
            stop={name: Position(end.ledger_id, end.entry_id)},
            task_bytes=400,
        )
        assert read == switched.entries[first:last]


def test_a_hot_tier_needs_records(both):
    with pytest.raises(OptionError, match="named by records"):
        scan(both, TOPIC)


def test_an_unknown_priority_is_refused(switched, both):
    with pytest.raises(OptionError, match="priority"):
        scan(both, TOPIC, records=switched.records, tiered_read_priority="hot")


def test_a_ledger_that_is_open_and_empty_is_no_gap(switched, both, caplog):
    switched.topic.roll()
    assert entries_of(both, switched) == switched.entries
    assert "is read up to" not in caplog.text


# --- copies that are gone ------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch):
    """Ledgers of a few hundred bytes are divided into tasks, and read by several ranges."""
    monkeypatch.setattr(hot_entries, "HOT_BLOCK_BYTES", 100)
    monkeypatch.setattr(windows, "range_bytes_of", lambda _: 300)


def delete_hot(tmp_path, ledger_ids):
    with closing(FileLedgerStore(tmp_path / "hot")) as store:
        for ledger_id in ledger_ids:
            assert store.delete(ledger_id)


@pytest.mark.parametrize("task_bytes", [1 << 30, 1])
def test_a_hot_copy_that_goes_after_planning_is_read_cold(
    switched, both, tmp_path, caplog, small_blocks, task_bytes
):
    made = planned(both, switched, tiered_read_priority="bookkeeper-first", task_bytes=task_bytes)
    tasks = made.tasks
    assert len(tasks) == 1 or len(tasks) > 2 * len(switched.ledgers())
    switched.offload_ledgers()
    offloaded = [ledger.ledger_id for ledger in switched.ledgers() if ledger.is_fully_offloaded]
    assert len(offloaded) > 5
    delete_hot(tmp_path, offloaded)
    rows = rows_of(made, tasks)
    assert [row["value"] for row in rows] == [payload for _, payload in switched.entries]
    events = [each for each in caplog.records if getattr(each, "event", None) == "read-fallback"]
    assert {each.ledger_id for each in events} == set(offloaded)
    assert {(each.copy, each.reason) for each in events} == {("hot", "missing")}


def test_a_hot_copy_that_goes_is_an_error_where_only_that_is_asked_for(switched, both, tmp_path):
    made = planned(both, switched, tiered_read_priority="BOOKKEEPER_ONLY")
    tasks = made.tasks
    gone = switched.ledgers()[0].ledger_id
    delete_hot(tmp_path, [gone])
    with pytest.raises(UnknownLedgerError, match=str(gone)):
        rows_of(made, tasks)


def test_a_hot_copy_that_has_no_other_is_an_error(switched, both, tmp_path):
    switched.topic.roll()
    only_hot = next(
        ledger.ledger_id
        for ledger in switched.ledgers()
        if not ledger.has_complete_copy and ledger.info.is_closed
    )
    made = planned(both, switched)
    tasks = made.tasks
    delete_hot(tmp_path, [only_hot])
    with pytest.raises(UnknownLedgerError, match=str(only_hot)):
        rows_of(made, tasks)


def test_a_cold_copy_that_is_gone_is_read_hot(switched, both, tmp_path, caplog):
    made = planned(both, switched, task_bytes=1)
    tasks = made.tasks
    for path in (tmp_path / "cold").iterdir():
        if path.is_file() and not path.name.endswith(("-index", ".json")):
            path.unlink()
    rows = rows_of(made, tasks)
    assert [row["value"] for row in rows] == [payload for _, payload in switched.entries]
    reasons = {
        (each.copy, each.reason) for each in caplog.records if getattr(each, "event", None) == "read-fallback"
    }
    assert reasons == {("cold", "missing")}


@pytest.mark.parametrize("ahead", [0, 4])
def test_a_cold_copy_that_goes_while_it_is_read_is_read_on_hot(
    switched, both, monkeypatch, small_blocks, ahead
):
    made = planned(both, switched)
    capabilities = replace(both.store.describe().capabilities, ranges_ahead=ahead)
    description = replace(both.store.describe(), capabilities=capabilities)
    monkeypatch.setattr(Tier, "describe", lambda _: description)
    calls: Counter[str] = Counter()
    read_range = Tier.read_range

    def read(tier, key, offset, length):
        calls[key] += 1
        if offset > 500 and not key.endswith("index"):
            raise ObjectNotFoundError("it is gone", key=key)
        return read_range(tier, key, offset, length)

    monkeypatch.setattr(Tier, "read_range", read)
    rows = rows_of(made, made.tasks)
    assert [row["value"] for row in rows] == [payload for _, payload in switched.entries]
    assert max(calls.values()) > 2


def test_a_cold_copy_that_is_missing_when_it_is_planned_is_read_hot(switched, both, tmp_path):
    for path in (tmp_path / "cold").iterdir():
        if path.is_file():
            path.unlink()
    assert entries_of(both, switched) == switched.entries


def test_a_cold_copy_whose_index_is_broken_is_read_hot(switched, both, tmp_path, caplog):
    for path in (tmp_path / "cold").glob("*-ledger-*-index"):
        path.write_bytes(path.read_bytes()[:-1] + b"?" if path.stat().st_size % 2 else b"")
    assert entries_of(both, switched) == switched.entries
    assert "The hot copy is read" in caplog.text


# --- following -----------------------------------------------------------------------------------


def test_a_topic_is_followed_into_the_ledger_that_is_written(switched, both):
    reached = {}
    read = []
    for count in (0, 3, 1, 0, 5):
        if count:
            switched.add(count)
        catalogue = both.catalogue(records=switched.records)
        end = advance(catalogue.topics, reached, BatchLimit(), fail_on_data_loss=True)
        if end == reached:
            assert count == 0
            continue
        bounds = {"start": reached or "earliest", "stop": end}
        read += entries_of(both, switched, **bounds)
        assert read == switched.entries
        reached = end
        if count == 1:
            switched.topic.roll()
            switched.offload_ledgers()


# --- messages ------------------------------------------------------------------------------------

UNLIKE = {"__ledgerId", "__messageId", "__offloadedAt"}
"""Columns by which a topic differs whose entries were written anew."""


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """A tier of topics of a broker; and the same entries in a hot one, with the topics' records."""
    folder = tmp_path_factory.mktemp("golden")
    lay_out_broker_objects(folder / "cold")
    records = {}
    with open_tier(folder / "cold") as tier, closing(FileLedgerStore(folder / "hot", sync="never")) as store:
        for topic in tier.catalogue().topics:
            ledgers = []
            for ledger in topic.ledgers:
                entries = scan(tier, topic.full_name, ledger=ledger.ledger_id, level="entries").to_table()
                writer = store.create({})
                writer.append_batch(entries["value"].to_pylist())
                status = writer.close()
                info = LedgerInfo(
                    ledger_id=status.ledger_id,
                    entries=status.entry_count,
                    size=status.size_bytes,
                    timestamp_ms=1,
                )
                ledgers.append(LedgerRecord(info=info))
            records[topic.full_name] = ManagedLedgerInfo(ledgers=tuple(ledgers))
    (folder / "empty").mkdir()
    hot = ("embedded", {"path": str(folder / "hot")})
    with open_tier(folder / "cold") as cold, open_tier(folder / "empty", hot=hot) as both:
        yield cold, both, records


def alike(table):
    kept = [name for name in table.schema.names if name not in UNLIKE]
    return table.select(kept).to_pylist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task_bytes", [1 << 30, 50_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolation": "uncommitted"},
        {"chunks": "raw"},
        {"columns": ("__topic", "value", "__txnState", "__key", "__publishTime")},
    ],
    ids=["default", "uncommitted", "raw chunks", "states"],
)
def test_messages_are_those_of_the_cold_copies(golden, options, task_bytes):
    cold, both, records = golden
    for topic in records:
        expected = scan(cold, topic, **options).to_table()
        hot = scan(both, topic, records=records, task_bytes=task_bytes, **options)
        assert alike(hot.to_table()) == alike(expected), topic
        assert len(expected) > 0
        by_tasks = scan(both, topic, records=records, task_bytes=task_bytes, **options)
        batches = [
            batch for task in by_tasks.tasks for batch in read_task(both.store, task, by_tasks.options)
        ]
        assert alike(pa.Table.from_batches(batches, by_tasks.schema)) == alike(expected), topic


def test_ranges_of_times_are_those_of_the_cold_copies(golden):
    cold, both, records = golden
    for topic in records:
        times = sorted(scan(cold, topic, columns=("__publishTime",)).to_table()["__publishTime"].to_pylist())
        start, stop = times[len(times) // 3], times[2 * len(times) // 3]
        within = {"start_time": start, "stop_time": stop, "time_slack_ms": 0}
        expected = scan(cold, topic, **within).to_table()
        assert alike(scan(both, topic, records=records, **within).to_table()) == alike(expected)


def test_a_scan_costs_no_requests_of_the_store_for_what_is_hot(golden):
    _, both, records = golden
    estimate = explain_scan(both, (), records=records)
    assert estimate.total == Requests()


# --- the priority of policies --------------------------------------------------------------------


@pytest.fixture
def only_hot(switched, tmp_path):
    """Deletes the bucket's objects: what is read cold fails."""

    def delete():
        for path in (tmp_path / "cold").iterdir():
            if path.is_file():
                path.unlink()

    return delete


@pytest.mark.parametrize(
    ("path", "record"),
    [
        (
            "/admin/policies/acme/cold",
            {"offload_policies": {"managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST"}},
        ),
        (
            "/admin/topic-policies/acme/cold/persistent/switched",
            {"offloadPolicies": {"tieredReadPriority": "BOOKKEEPER_ONLY"}},
        ),
    ],
    ids=["namespace", "topic"],
)
def test_the_priority_of_policies_counts_beside_the_records(switched, both, caplog, only_hot, path, record):
    with closing(open_metadata_store(switched.records)) as store:
        found = store.get(path)
        store.put(path, json.dumps(record).encode(), None if found is None else found[1])
    only_hot()
    assert entries_of(both, switched) == switched.entries
    assert not caplog.text


def test_the_priority_of_the_call_counts_before_that_of_policies(switched, both):
    with closing(open_metadata_store(switched.records)) as store:
        record = {"offload_policies": {"tieredReadPriority": "BOOKKEEPER_ONLY"}}
        store.put("/admin/policies/acme/cold", json.dumps(record).encode(), None)
    assert entries_of(both, switched, tiered_read_priority="OFFLOADED_ONLY") == switched.cold()


def test_no_other_copy_is_read_where_policies_want_one_only(switched, both, tmp_path):
    with closing(open_metadata_store(switched.records)) as store:
        record = {"offload_policies": {"tieredReadPriority": "BOOKKEEPER_ONLY"}}
        store.put("/admin/policies/acme/cold", json.dumps(record).encode(), None)
    made = planned(both, switched)
    tasks = made.tasks
    delete_hot(tmp_path, [switched.ledgers()[0].ledger_id])
    with pytest.raises(UnknownLedgerError):
        rows_of(made, tasks)


def test_policies_that_make_no_sense_are_named(switched, both):
    with closing(open_metadata_store(switched.records)) as store:
        store.put("/admin/policies/acme/cold", b"[]", None)
    with pytest.raises(MetadataError, match="/admin/policies/acme/cold"):
        planned(both, switched)
