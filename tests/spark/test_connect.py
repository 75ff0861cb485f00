"""Spark Connect: rows and errors of each way to read are those of `scan`, and commands have a server do their work."""

import sys

import pytest
from commands import as_a_process
from pyspark.errors import PySparkException
from tiers import lay_out_broker_objects
from waiting import wait_for

from offload_core.interfaces.engines.spark import executor
from offload_core.interfaces.engines.spark.executor import start_session
from offload_hooks.errors import MissingExtraError, OffloadError, OptionError
from pulsar_offload import PulsarOffloadDataSource, measure_reads, open_tier, read_offloaded, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

TOPICS = ["json", "jstring", "comp-lz4", "chunk"]
PLACE = ("__topic", "__ledgerId", "__entryId", "__batchIndex")


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root, topics=TOPICS)
    return root


@pytest.fixture(scope="module")
def scanned(tier):
    with open_tier(tier) as reader:
        return rows_of(scan(reader).to_table())


def rows_of(table):
    rows = table.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: [row[name] for name in PLACE])


def test_a_server_finds_the_source_and_reads_the_same(connected, tier, scanned):
    frame = connected.read.format("pulsar_offload").option("minPartitions", "4").load(str(tier))
    assert rows_of(frame.toArrow()) == scanned


@pytest.mark.nightly
def test_the_source_can_be_registered_by_the_client(connected, tier, scanned):
    connected.dataSource.register(PulsarOffloadDataSource)
    assert connected.read.format("pulsar_offload").load(str(tier)).count() == len(scanned)


def test_read_offloaded_reads_the_same(connected, tier, scanned):
    assert rows_of(read_offloaded(connected, tier, maxPartitionBytes=5_000).toArrow()) == scanned


@pytest.mark.nightly
def test_a_stream_reads_the_same(connected, tier, scanned, tmp_path):
    options = {"maxOffsetsPerTrigger": "300", "startingOffsets": "earliest"}
    reader = connected.readStream.format("pulsar_offload").options(**options)
    writer = reader.load(str(tier)).writeStream.format("memory").queryName("streamed")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert len(query.recentProgress) > 1
    assert rows_of(connected.table("streamed").toArrow()) == scanned


def test_errors_name_what_is_wrong(connected, tier):
    reader = connected.read.format("pulsar_offload")
    with pytest.raises(PySparkException, match="Did you mean 'columns'"):
        reader.option("colums", "value").load(str(tier)).collect()
    with pytest.raises(OptionError, match="Did you mean 'columns'"):
        read_offloaded(connected, tier, colums="value")


@pytest.mark.parametrize("read", ["source", "frame"])
def test_damaged_bytes_fail_the_query_with_their_place(connected, tmp_path, read):
    lay_out_broker_objects(tmp_path, topics=["jstring"])
    (data,) = (path for path in tmp_path.iterdir() if path.name.endswith("-ledger-42"))
    damaged = bytearray(data.read_bytes())
    damaged[300] ^= 1
    data.write_bytes(damaged)
    frame = connected.read.format("pulsar_offload").load(str(tmp_path))
    with pytest.raises(PySparkException, match=r"object .*-ledger-42, ledger 42, .*byte \d+"):
        (frame if read == "source" else read_offloaded(connected, tmp_path)).collect()


def test_accumulators_are_refused(connected):
    with pytest.raises(OptionError, match=r"one of Spark Connect, which has none.*docs/spark\.md"):
        measure_reads(connected)


@pytest.mark.nightly
def test_the_workers_log_has_what_tasks_read(connected, tier):
    logging = "spark.sql.pyspark.worker.logging.enabled"
    connected.conf.set(logging, "true")
    try:
        rows = connected.read.format("pulsar_offload").option("minPartitions", "2").load(str(tier)).count()
        logs = connected.tvf.python_worker_logs().where("logger = 'offload_core.reading.scan.metrics'")
        sums = logs.selectExpr("sum(context['rows']) AS rows", "sum(context['bytes']) AS bytes")
        wait_for(lambda: sums.first()["rows"] == rows)  # Spark reads a worker's output beside the query
        assert sums.first()["bytes"] > 0
    finally:
        connected.conf.unset(logging)


# --- commands ----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_verify_has_a_server_do_its_work(spark_connect, tier):
    arguments = ("verify", tier, "--deep", "--json")
    there = as_a_process(*arguments, "--master", spark_connect.endpoint)
    here = as_a_process(*arguments)
    assert (there.code, there.out) == (here.code, here.out), there.err
    assert '"deep_objects": ' in there.out


@pytest.mark.nightly
def test_export_relocate_and_repair_have_a_server_do_their_work(spark_connect, tier, tmp_path):
    master = ("--master", spark_connect.endpoint)
    exported = as_a_process("export", tier, "--topic", "acme/cold/json", "--to", tmp_path / "out", *master)
    assert exported.code == 0, exported.err
    assert [*(tmp_path / "out").rglob("*.parquet")]
    (tmp_path / "copy").mkdir()
    change = ("--yes", "--audit-log", tmp_path / "audit.jsonl")
    relocated = as_a_process("relocate", tier, "--to", tmp_path / "copy", *change, *master)
    assert relocated.code == 0, relocated.err
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {path.name for path in tier.iterdir()}
    repaired = as_a_process("repair", tmp_path / "copy", *change, *master)
    assert repaired.code == 0, repaired.err


def test_a_server_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(executor, "_ANSWERS_WITHIN_S", 0.2)
    with pytest.raises(OffloadError, match="the Spark Connect server does not answer"):
        start_session("sc://127.0.0.1:1")


def test_a_url_that_is_none_is_refused_and_not_shown():
    with pytest.raises(
        OptionError, match="no URL of a Spark Connect server: expected sc://host:port"
    ) as raised:
        start_session("sc://host:15002/path;token=geheim")
    assert "geheim" not in str(raised.value)


def test_without_a_client_of_spark_connect_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pulsar-offload\[connect\]'"):
        start_session("sc://127.0.0.1:1")
