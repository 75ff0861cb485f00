"""The examples that use Spark do what their first lines say."""

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from entries import entry, pip17_object
from pyspark.sql import functions as f
from tiers import TOPIC, lay_out, lay_out_broker_objects

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.sampled(6)]


@pytest.fixture(autouse=True)
def _path():
    """Examples are imported as a program in their folder imports them."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root, ["json", "jstring"])
    return root


def test_the_busiest_minutes_count_every_message(spark, tier):
    import batch_sql

    everything = batch_sql.messages(spark, str(tier))
    rows = batch_sql.busiest_minutes(spark, str(tier)).collect()
    counts = [row.messages for row in rows]
    assert counts == sorted(counts, reverse=True)
    if len(rows) < 10:
        assert sum(counts) == everything.count()
    largest = everything.groupBy("__topic", f.date_trunc("minute", "__publishTime")).count()
    assert counts[0] == largest.agg(f.max("count")).first()[0]


def test_a_stream_into_delta_has_each_message_once_also_when_a_batch_is_repeated(spark, tmp_path):
    import stream_to_delta

    root, table, checkpoint = tmp_path / "tier", tmp_path / "table", tmp_path / "checkpoint"

    def put(ledger_id, payloads):
        lay_out(
            root, pip17_object([entry(each) for each in payloads], ledger_id=ledger_id), attempt=ledger_id
        )

    def run():
        query = stream_to_delta.follow(
            spark, str(root), str(table), str(checkpoint), topic=TOPIC, refreshIntervalMs=1
        )
        query.awaitTermination(300)
        return sorted(DeltaTable(table).to_pyarrow_table()["value"].to_pylist())

    put(1, [b"a", b"b"])
    assert run() == [b"a", b"b"]
    put(2, [b"c"])
    assert run() == [b"a", b"b", b"c"]
    (checkpoint / "commits" / "1").unlink()  # as if killed between the write and Spark's commit
    (checkpoint / "commits" / ".1.crc").unlink()
    assert run() == [b"a", b"b", b"c"]


def test_cold_and_live_messages_are_there_once(spark, tier):
    import batch_sql
    import union_with_live

    cold = batch_sql.messages(spark, str(tier), topic="acme/cold/jstring")
    live = (
        cold.orderBy("__ledgerId", "__entryId", ascending=False)
        .limit(10)
        .select(*union_with_live.LIVE_COLUMNS)
    )
    newer = live.limit(1).withColumn("__messageId", f.lit(b"another id"))
    both = union_with_live.union_with_live(cold, live.unionByName(newer))
    assert both.columns == list(union_with_live.LIVE_COLUMNS)
    assert both.count() == cold.count() + 1


def test_a_topic_is_read_from_cold_storage_once_its_hot_copies_are_gone(spark, tmp_path):
    import life_of_a_topic

    shown = []
    read = life_of_a_topic.run(spark, tmp_path / "life", lambda _, places: shown.append(places))
    produced, offloaded, deleted = shown
    assert [(place.is_sealed, place.entries) for place in produced] == [(True, 100)] * 3 + [(False, 50)]
    assert [place.cold_bytes for place in produced] == [None] * 4
    assert [place.hot_bytes for place in offloaded] == [place.hot_bytes for place in produced]
    assert [place.cold_bytes is None for place in offloaded] == [False] * 3 + [True]
    assert [place.hot_bytes is None for place in deleted] == [True] * 3 + [False]
    assert [place.cold_bytes for place in deleted] == [place.cold_bytes for place in offloaded]
    rows = life_of_a_topic.orders_by_customer(read).collect()
    assert {row.customer: (row.orders, row.last) for row in rows} == {
        customer: (7500, 30_000 - 4 + i) for i, customer in enumerate(life_of_a_topic.CUSTOMERS)
    }
    values = [f'{{"order": {i}}}'.encode() for i in range(30_000)]
    ordered = read.orderBy("__ledgerId", "__entryId", "__batchIndex").select("value").toArrow()
    assert ordered["value"].to_pylist() == values


def test_a_topic_that_changes_how_it_is_offloaded_is_read_as_one(spark, tmp_path):
    import switched_topic

    said = []
    read = switched_topic.run(spark, tmp_path / "switched", said.append)
    assert len(said) == 3
    assert switched_topic.count(read) == (80_000, 80_000)
    values = [f'{{"order": {i}}}'.encode() for i in range(80_000)]
    ordered = read.orderBy("__ledgerId", "__entryId", "__batchIndex").select("value").toArrow()
    assert ordered["value"].to_pylist() == values


def test_payments_are_the_same_whatever_a_filter_left_out(spark, tmp_path):
    import filtered_topic

    committed, copies = filtered_topic.run(spark, tmp_path)
    assert 0 < committed < filtered_topic.TRANSACTIONS * 500
    assert {(copy.messages, copy.digest) for copy in copies} == {(committed, copies[0].digest)}
    whole, tombstones, gaps = (copy.data_bytes for copy in copies)
    assert 0.8 * whole > tombstones > gaps
