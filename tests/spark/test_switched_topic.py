"""PIP-76's Tests Plan: a topic with ledger-based, streaming and MapFile copies and a hot tail reads as one, in order.

By its managed ledger, by read handles, by scans and by Spark; from a folder and from S3.
"""

import random
from contextlib import closing

import pytest
from scenes.switched import NAME, TOPIC, Entry, live, switched_topic
from stores import Store, new_store

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.recorded_copies import layout_of
from offload_core.metadata.records import EntryPosition, ReadPriority
from offload_hooks.errors import OffloadError
from pulsar_offload import scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(4)]


@pytest.fixture(scope="module", params=["local", pytest.param("s3", marks=pytest.mark.nightly)])
def switched(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("switched")
    with switched_topic(new_store(request.param, request.getfixturevalue, folder), folder) as made:
        live(made)
        made.topic.delete_hot_copies(0)
        yield made


def read_all(switched, priority):
    found: list[Entry] = []
    position = EntryPosition(0, 0)
    while read := switched.topic.read_entries(position, 7, priority=priority):
        found += [(at, bytes(payload)) for at, payload in read]
        position = read.next_position
    return found


def test_its_copies_are_of_all_kinds(switched):
    parts = layout_of(parse_topic(TOPIC), switched.topic.read_info())
    kinds = [None if part.key is None else part.key.object_format.value for part in parts]
    order = [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]
    assert order == ["pip17", "streaming", "pip17", "mapfile", "streaming", None]
    segments = [part.key for part in parts if part.key is not None and part.key.ledger_id is None]
    assert len(set(segments)) > 4  # several in one ledger
    assert len(segments) > len(set(segments))  # and one over several
    assert [part.is_hot for part in parts[:2]] == [False, False]


@pytest.mark.parametrize("priority", [ReadPriority.OFFLOADED_FIRST, ReadPriority.BOOKKEEPER_FIRST])
def test_its_managed_ledger_reads_it(switched, priority):
    assert read_all(switched, priority) == switched.entries


def test_read_handles_read_any_range_of_it(switched):
    chance = random.Random(76)
    for ledger in switched.ledgers():
        payloads = [payload for at, payload in switched.entries if at.ledger_id == ledger.ledger_id]
        with closing(switched.environment.open_ledger(ledger, ReadPriority.OFFLOADED_FIRST, NAME)) as reader:
            for _ in range(20):
                first, last = sorted(chance.choices(range(len(payloads)), k=2))
                found: list[bytes] = []
                while first + len(found) <= last:
                    found += [bytes(each) for each in reader.read(first + len(found), last, 300)]
                assert found == payloads[first : last + 1]


@pytest.mark.parametrize("task_bytes", [1 << 30, 1])
def test_a_scan_reads_what_is_cold_of_it(switched, task_bytes):
    with switched.store.open_reader() as tier:
        planned = scan(tier, TOPIC, level="entries", records=switched.records, task_bytes=task_bytes)
        rows = planned.to_table().to_pylist()
    read = [(EntryPosition(row["__ledgerId"], row["__entryId"]), row["value"]) for row in rows]
    assert read == switched.cold()
    assert switched.entries[: len(read)] == read


@pytest.mark.sampled(4)
def test_spark_reads_what_is_cold_of_it(spark, switched):
    reader = spark.read.format("pulsar_offload").options(**switched.store.spark_options())
    frame = (
        reader.option("topic", TOPIC).option("records", switched.records).option("level", "entries").load()
    )
    rows = frame.orderBy("__ledgerId", "__entryId").collect()
    read = [(EntryPosition(row["__ledgerId"], row["__entryId"]), bytes(row["value"])) for row in rows]
    assert read == switched.cold()


def test_what_is_hot_only_is_missing_where_only_cold_copies_are_read(switched):
    with pytest.raises(OffloadError):
        read_all(switched, ReadPriority.OFFLOADED_ONLY)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("store_name", ["local", "s3"])
def test_a_stream_sees_a_segment_as_soon_as_it_is_complete(spark, request, tmp_path, store_name):
    store: Store = new_store(store_name, request.getfixturevalue, tmp_path)
    with switched_topic(store, tmp_path) as switched:
        switched.stream(on=True)
        switched.add(3)
        switched.topic.complete_segment(60)
        reader = spark.readStream.format("pulsar_offload").options(**store.spark_options())
        reader = reader.option("topic", TOPIC).option("records", switched.records)
        reader = reader.option("startingOffsets", "earliest")
        frame = reader.option("level", "entries").option("refreshIntervalMs", 1).load()
        query = frame.writeStream.format("memory").queryName(f"segments_{store_name}").start()
        try:
            for _ in range(3):
                query.processAllAvailable()
                rows = spark.sql(
                    f"SELECT * FROM segments_{store_name} ORDER BY __ledgerId, __entryId"
                ).collect()
                assert [bytes(row["value"]) for row in rows] == [payload for _, payload in switched.cold()]
                assert switched.cold() == switched.entries
                switched.add(4)
                switched.topic.roll()
                switched.add(2)
                switched.topic.complete_segment(60)
        finally:
            query.stop()
