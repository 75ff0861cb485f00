"""Filters and times through Spark: with filters handed down and without, the rows are the same."""

import pytest
from pyspark.sql import functions as f
from tiers import lay_out_broker_objects

from pulsar_offload import open_tier, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(12)]

SETTING = "spark.sql.python.filterPushdown.enabled"
COLUMNS = ["__topic", "__ledgerId", "__entryId", "__batchIndex", "__messageId"]


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root, topics=["big", "nobatch", "comp-lz4", "batch"])
    return root


@pytest.fixture(params=["true", "false"])
def is_on(spark, request):
    spark.conf.set(SETTING, request.param)
    yield request.param == "true"
    spark.conf.unset(SETTING)


def frame_of(spark, tier, **options):
    options = {"minPartitions": 1000, **options}
    return spark.read.format("pulsar_offload").options(**options).load(str(tier))


@pytest.fixture(scope="module")
def whole(spark, tier):
    """All rows, in Spark's own memory: filtered by Spark alone."""
    return frame_of(spark, tier).select(*COLUMNS).cache()


def rows_of(frame):
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("condition", "is_pruned"),
    [
        ("__topic LIKE '%comp-lz4'", True),
        ("__topic IN ('persistent://acme/cold/nobatch', 'x')", True),
        ("__ledgerId = 34 AND __entryId >= 990", True),
        ("NOT __ledgerId > 5", True),
        ("__batchIndex > 3 AND __ledgerId IS NOT NULL", False),
    ],
)
def test_a_filter_gives_the_rows_for_which_it_holds(spark, tier, whole, is_on, condition, is_pruned):
    found = frame_of(spark, tier).filter(condition).select(*COLUMNS)
    assert rows_of(found) == rows_of(whole.filter(condition)) != []
    fewer = found.rdd.getNumPartitions() < whole.rdd.getNumPartitions()
    assert fewer is (is_on and is_pruned)


def test_a_filter_on_a_message_id_reads_its_block(spark, tier, whole, is_on):
    (chosen,) = whole.filter("__ledgerId = 34 AND __entryId = 500").collect()
    found = frame_of(spark, tier).filter(f.col("__messageId") == f.lit(chosen["__messageId"]))
    assert [row["__entryId"] for row in found.collect()] == [500]
    assert (found.rdd.getNumPartitions() == 1) is is_on


def test_a_filter_on_the_publish_time_reads_the_blocks_around_it(spark, tier, whole, is_on):
    with open_tier(tier) as opened:
        times = sorted(scan(opened, columns=["__publishTime"]).to_table()["__publishTime"].to_pylist())
    start, stop = times[len(times) // 3], times[len(times) // 2]
    found = frame_of(spark, tier, timeSlack=0).filter(f.col("__publishTime").between(start, stop))
    assert len(found.collect()) == sum(start <= time <= stop for time in times) > 0
    assert (found.rdd.getNumPartitions() < whole.rdd.getNumPartitions()) is is_on
