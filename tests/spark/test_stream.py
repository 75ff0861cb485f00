"""`readStream`: a tier is followed, each message comes once, whatever stops the query."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from entries import pip17_object
from golden import COLUMNS, assert_topic_is_as_expected
from pyspark.errors import StreamingQueryException
from streamed import WRITER
from streams import Query
from tiers import Names, lay_out, lay_out_broker_objects

from offload_core.format.messages.message_columns import arrow_schema
from offload_core.interfaces.engines.spark.source_options import parse_options
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from offload_core.interfaces.engines.spark.stream import OffloadStreamReader
from offload_hooks.errors import OptionError, UnknownTopicError
from pulsar_offload import open_tier, scan

PLACE = ("__ledgerId", "__entryId")
ORDERS = "persistent://acme/cold/orders"

pytestmark = [pytest.mark.spark, pytest.mark.sampled(12)]


def put(root, ledger_id, values, topic="orders"):
    names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
    lay_out(root, pip17_object(values, ledger_id=ledger_id), attempt=ledger_id, names=names)


class Followed:
    """A query over the tier at `root` that writes Parquet; each `run` goes on where the last one ended."""

    def __init__(self, spark, root, folder, **options):
        self._spark = spark
        self._root = root
        self._out, self._checkpoint = str(folder / "out"), str(folder / "checkpoint")
        self._options = {"level": "entries", "refreshIntervalMs": 1, "startingOffsets": "earliest"} | options
        self.batches = 0

    def run(self):
        reader = self._spark.readStream.format("pulsar_offload")
        for name, value in self._options.items():
            reader = reader.option(name, str(value))
        stream = reader.load(str(self._root)).writeStream.format("parquet")
        query = (
            stream.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start(self._out)
        )
        try:
            query.awaitTermination(300)
            self.batches = sum(1 for progress in query.recentProgress if progress.numInputRows)
        finally:
            query.stop()

    @property
    def frame(self):
        return self._spark.read.parquet(self._out)

    def values(self):
        rows = self.frame.orderBy("__topic", "__ledgerId", "__entryId").select("value").collect()
        return [bytes(row.value) for row in rows]


@pytest.mark.parametrize("topic", ["json", "txn"])
def test_a_golden_topic_streamed_in_small_batches_is_what_a_client_read(spark, tmp_path, topic):
    lay_out_broker_objects(tmp_path / "tier", [topic])
    with open_tier(tmp_path / "tier") as tier:
        entries = scan(tier, f"acme/cold/{topic}", level="entries").to_table().num_rows
    options = {"level": "messages", "topic": f"acme/cold/{topic}", "columns": ",".join(COLUMNS)}
    followed = Followed(spark, tmp_path / "tier", tmp_path, **options, maxOffsetsPerTrigger=-(-entries // 3))
    followed.run()
    assert followed.batches == 3
    ordered = followed.frame.orderBy("__ledgerId", "__entryId", "__batchIndex")
    assert_topic_is_as_expected(ordered.toArrow().to_pylist(maps_as_pydicts="strict"), topic)


def test_what_is_new_is_read_once_also_of_topics_that_are_new(spark, tmp_path):
    root = tmp_path / "tier"
    root.mkdir()
    followed = Followed(spark, root, tmp_path, topicsPattern="acme/cold/.*", maxBytesPerTrigger=160)
    put(root, 1, [b"a1", b"a2"])
    followed.run()
    assert followed.values() == [b"a1", b"a2"]
    followed.run()
    assert followed.batches == 0
    put(root, 2, [b"a3"])
    put(root, 3, [b"b1", b"b2"], topic="others")
    followed.run()
    assert followed.batches == 2
    assert followed.values() == [b"a1", b"a2", b"a3", b"b1", b"b2"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("earliest", [b"a", b"b", b"c", b"d"]),
        ("latest", [b"d"]),
        ('{"acme/cold/orders": {"-1": "1:1"}}', [b"b", b"c", b"d"]),
        ('{"acme/cold/orders": {"-1": "latest"}}', [b"d"]),
    ],
)
def test_a_query_begins_where_it_is_told(spark, tmp_path, starting, expected):
    root = tmp_path / "tier"
    put(root, 1, [b"a", b"b"])
    put(root, 2, [b"c"])
    followed = Followed(spark, root, tmp_path, startingOffsets=starting)
    followed.run()
    put(root, 3, [b"d"])
    followed.run()
    assert followed.values() == expected


def test_a_query_begins_with_what_comes_and_its_backlog_is_known(tmp_path):
    put(tmp_path, 1, [b"a", b"b"])
    query = Query(tmp_path, columns=PLACE, level="entries", startingOffsets="latest")
    assert not query.trigger()
    put(tmp_path, 2, [b"c", b"d"])
    time.sleep(0.01)  # more than refreshIntervalMs
    assert query.reader.reportLatestOffset() == {ORDERS: {"-1": "3:0:0"}}
    assert query.run() == [(2, 0), (2, 1)]


def test_a_mistyped_topic_is_refused_where_the_query_begins_and_a_pattern_waits(tmp_path):
    put(tmp_path, 1, [b"a"])
    with pytest.raises(UnknownTopicError, match="no topic persistent://acme/cold/ordesr") as caught:
        Query(tmp_path, topics="acme/cold/ordesr,acme/cold/orders").trigger()
    assert "pattern" in caught.value.hint
    waiting = Query(tmp_path, columns=PLACE, level="entries", topicsPattern="acme/cold/late")
    assert not waiting.trigger()
    put(tmp_path, 2, [b"b"], topic="late")
    waiting.restart()
    assert waiting.run() == [(2, 0)]


def test_loss_stops_the_query_with_its_ledger(spark, tmp_path):
    root = tmp_path / "tier"
    put(root, 1, [b"a"])
    followed = Followed(spark, root, tmp_path)
    followed.run()
    lay_out(root, pip17_object([b"x"], ledger_id=2), attempt=2, parts=["data"])
    put(root, 3, [b"c"])
    with pytest.raises(StreamingQueryException, match=r"no complete copy \(ledger 2\)"):
        followed.run()


@pytest.fixture
def writer(tmp_path):
    """The command of a program that streams `tier` to `out` until it is killed, a few entries each time."""
    return [sys.executable, str(WRITER), *(str(tmp_path / name) for name in ("tier", "out", "checkpoint"))]


@pytest.mark.nightly
def test_a_query_that_is_killed_reads_nothing_twice_and_misses_nothing(spark, tmp_path, writer):
    values = [b"%04d" % i for i in range(400)]
    for ledger_id in range(4):
        put(tmp_path / "tier", ledger_id, values[100 * ledger_id : 100 * (ledger_id + 1)])
    log = tmp_path / "log"
    commits = tmp_path / "checkpoint" / "commits"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    for kills in (1, 2):
        with log.open("wb") as output:
            process = subprocess.Popen(
                writer, stdout=output, stderr=output, start_new_session=True, env=environment
            )
            try:
                deadline = time.monotonic() + 300
                while not commits.exists() or len(list(commits.glob("[0-9]*"))) < 3 * kills:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.01)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    followed = Followed(spark, tmp_path / "tier", tmp_path)
    followed.run()
    assert followed.values() == values


def test_a_stream_has_no_end():
    options = parse_options({"path": "/tier", "endingOffsets": '{"acme/cold/orders": {"-1": "1:1"}}'})
    with pytest.raises(OptionError, match="no end"):
        OffloadStreamReader(options, spark_schema(arrow_schema("entries")))


@pytest.mark.parametrize(
    "offset",
    ['{"acme/cold/orders": {"-1": "latest"}}', '{"acme/cold/orders": "1:1"}', '{"x": {"-1": "1:1"}}'],
)
def test_an_offset_of_another_form_is_refused(tmp_path, offset):
    put(tmp_path, 1, [b"a"])
    reader = OffloadStreamReader(
        parse_options({"path": str(tmp_path), "level": "entries"}), spark_schema(arrow_schema("entries"))
    )
    with pytest.raises(OptionError):
        reader.partitions({}, json.loads(offset))
    reader.stop()
