"""What tasks read is reported: by accumulators, and in Spark's table of the workers' log records."""

import pytest
from tiers import lay_out_broker_objects
from waiting import wait_for

from offload_core.interfaces.engines.spark.metrics import measure_reads
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from pulsar_offload import open_tier, read_offloaded, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(12)]

OPTIONS = {"topic": "acme/cold/json", "isolation": "uncommitted", "minPartitions": "2"}


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root, topics=["json"])
    return root


@pytest.fixture
def metrics(spark):
    yield measure_reads(spark)
    spark.dataSource.register(PulsarOffloadDataSource)


def test_accumulators_have_what_all_tasks_read(spark, tier, metrics):
    frame = spark.read.format("pulsar_offload").options(**OPTIONS).load(str(tier))
    assert (metrics.tasks, metrics.total.rows) == (0, 0)
    rows = frame.count()
    planned = scan(open_tier(tier), "acme/cold/json", isolation="uncommitted", min_partitions=2)
    total = metrics.total
    assert metrics.tasks == len(planned.tasks) == frame.rdd.getNumPartitions()
    assert total.rows == rows > 0
    assert total.bytes >= planned.data_bytes
    assert total.ranges >= metrics.tasks
    assert total.retries == 0
    assert total.seconds > 0


def test_a_frame_tells_a_listener_of_each_task_how_far_the_whole_is(spark, tier):
    heard = []
    measured = measure_reads(spark, heard.append)
    frame = read_offloaded(spark, tier, metrics=measured, **OPTIONS)
    rows = frame.count()
    assert measured.tasks == len(heard) == 2
    assert [each.rows for each in heard] == sorted(each.rows for each in heard)
    last = heard[-1]
    assert (last.rows, last.done_bytes) == (measured.total.rows, measured.total.bytes)
    assert last.rows == rows > heard[0].rows
    assert 0 < last.total_bytes == measured.planned_bytes <= last.done_bytes


def test_a_listener_that_fails_is_named_in_the_log_and_ends_no_query(spark, tier, caplog):
    def fail(progress):
        raise ValueError("no bar")

    measured = measure_reads(spark, fail)
    assert read_offloaded(spark, tier, metrics=measured, **OPTIONS).count() == measured.total.rows > 0
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the listener of reads failed, and is told no more"
    ]


def test_micro_batches_of_a_stream_add_to_them(spark, tier, metrics, tmp_path):
    reader = spark.readStream.format("pulsar_offload").options(**OPTIONS, startingOffsets="earliest")
    stream = reader.load(str(tier))
    query = (
        stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"), format="parquet")
    )
    assert query.awaitTermination(120)
    assert metrics.total.rows == spark.read.parquet(str(tmp_path / "out")).count() > 0


def test_the_workers_log_has_a_record_for_each_task(spark, tier):
    logging = "spark.sql.pyspark.worker.logging.enabled"
    spark.conf.set(logging, "true")
    try:
        rows = spark.read.format("pulsar_offload").options(**OPTIONS).load(str(tier)).count()
        logs = spark.tvf.python_worker_logs().where("logger = 'offload_core.reading.scan.metrics'")
        wait_for(lambda: logs.count() == 2)  # Spark reads a worker's output beside the query
        records = [row["context"] for row in logs.collect()]
    finally:
        spark.conf.unset(logging)
    assert len(records) == 2
    assert sum(int(record["rows"]) for record in records) == rows
    assert all(int(record["bytes"]) > 0 < int(record["ranges"]) for record in records)
    assert [record["retries"] for record in records] == ["0", "0"]
