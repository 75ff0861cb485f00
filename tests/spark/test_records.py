"""The Spark source with the option `records`: topics by their records, which the executors never see."""

import pickle
import shutil
from pathlib import Path

import pytest
from golden import COLUMNS, STREAMING_CASES, as_entries, assert_topic_is_as_expected, topic_rows
from network.admin import AdminRest, golden_answers, reason
from pyspark.errors import PySparkException
from records import MANAGED_LEDGERS, golden_record, streaming_entries, streaming_record
from tiers import lay_out_case, put_broker_objects

from offload_core.format.messages.compression import Compression
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.metadata.records import SegmentLayout, StoredRecord, pack_stored_record
from offload_core.storage.tier import open_store

pytestmark = [pytest.mark.spark, pytest.mark.sampled(4)]


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    """A tier of what a broker offloaded, without the names of the topics."""
    root = tmp_path_factory.mktemp("nameless")
    with open_store(root) as store:
        put_broker_objects(store, ["json", "nobatch", "comp-lz4"], named=False)
    return root


@pytest.mark.sampled(6)
@pytest.mark.parametrize("topic", ["json", "nobatch", "comp-lz4"])
def test_a_topic_is_read_by_its_record_as_a_client_read_it(spark, nameless, topic):
    reader = spark.read.format("pulsar_offload").option("records", str(MANAGED_LEDGERS))
    frame = (
        reader.option("topic", f"acme/cold/{topic}").option("columns", ",".join(COLUMNS)).load(str(nameless))
    )
    assert_topic_is_as_expected(frame.toArrow().to_pylist(maps_as_pydicts="strict"), topic)


def test_pulsars_streaming_objects_are_read_under_their_topics_name(spark, tmp_path):
    for name in STREAMING_CASES:
        lay_out_case(tmp_path / "tier", "streaming", name)
    record = StoredRecord(info=streaming_record(), compression=Compression.LZ4)
    (tmp_path / "record").write_bytes(pack_stored_record(record, segment_layout=SegmentLayout.PIP76))
    reader = spark.read.format("pulsar_offload").option("level", "entries")
    reader = reader.option("records", f"persistent://acme/cold/streamed={tmp_path / 'record'}")
    frame = reader.option("topic", "acme/cold/streamed").load(str(tmp_path / "tier"))
    rows = frame.orderBy("__ledgerId", "__entryId").toArrow().to_pylist()
    assert as_entries(rows) == streaming_entries()
    assert {row["__topic"] for row in rows} == {"persistent://acme/cold/streamed"}


def test_a_topic_is_read_by_a_brokers_admin_rest_as_a_client_read_it(spark, nameless, tmp_path):
    (tmp_path / "token").write_text("geheim")
    reader = spark.read.format("pulsar_offload").option("topic", "acme/cold/json")
    reader = reader.option("columns", ",".join(COLUMNS)).option("records.token_file", str(tmp_path / "token"))
    with AdminRest(golden_answers()) as rest:
        frame = reader.option("records", rest.url).load(str(nameless))
        assert_topic_is_as_expected(frame.toArrow().to_pylist(maps_as_pydicts="strict"), "json")
        assert {request.headers["authorization"] for request in rest.requests} == {"Bearer geheim"}
        rest.answers["/persistent/acme/cold"] = reason(401, "no")
        with pytest.raises(PySparkException, match=r"AccessDeniedError.*a broker refuses a request"):
            reader.option("records", rest.url).load(str(nameless)).collect()


def test_the_records_are_needed_where_the_query_is_planned_only(nameless, tmp_path):
    record = shutil.copy(golden_record("json"), tmp_path / "json.val")
    options = {"path": str(nameless), "records": f"persistent://acme/cold/json={record}"}
    source = PulsarOffloadDataSource(options)
    reader = source.reader(source.schema())
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    Path(record).unlink()
    executor = pickle.loads(pickle.dumps(reader))
    rows = sum(batch.num_rows for partition in partitions for batch in executor.read(partition))
    assert rows == len(topic_rows("json"))
