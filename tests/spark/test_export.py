"""Exports whose work Spark's executors do."""

import pytest
from scenes.exports import ORDERS, add_ledger, messages, rows_of, scanned, target_of, two_partitions

from offload_core.interfaces.engines.spark.executor import SparkExecutor
from offload_hooks.errors import FormatError
from pulsar_offload import export, open_tier

pytestmark = pytest.mark.spark


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_spark_exports_as_threads_do(session, kind, tmp_path):
    tier = two_partitions(tmp_path / "tier")
    with open_tier(tier) as reader:
        target = target_of(kind, tmp_path / "out")
        export(reader, topics=ORDERS, **target, file_bytes=2048, executor=SparkExecutor(session))
    assert rows_of(kind, tmp_path / "out") == scanned(tier)


def test_what_spark_writes_others_read_by_spark(spark, tmp_path):
    tier = two_partitions(tmp_path / "tier")
    with open_tier(tier) as reader:
        export(reader, tmp_path / "out", ORDERS)
    frame = spark.read.parquet(str(tmp_path / "out"))
    counts = {
        (row["topic"], str(row["date"])): row["count"]
        for row in frame.groupBy("topic", "date").count().collect()
    }
    topic = "persistent://acme/cold/orders-partition-"
    assert counts == {(f"{topic}{n}", day): 16 for n in (0, 1) for day in ("2023-12-09", "2023-12-10")}
    assert frame.where("__topic != topic").count() == 0
    assert frame.select("topic").distinct().count() == 2  # the state is in no partition of Spark's


def test_an_error_of_an_executor_is_raised_as_it_is(session, tmp_path):
    bad = messages("ledger 9", 3)
    bad[1] = bad[1][:-1] + b"?"
    add_ledger(tmp_path / "tier", 9, bad)
    with pytest.raises(FormatError) as caught, open_tier(tmp_path / "tier") as reader:
        export(reader, tmp_path / "out", ORDERS, executor=SparkExecutor(session))
    assert (caught.value.ledger_id, caught.value.entry_id) == (9, 1)
