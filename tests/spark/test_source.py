"""The Spark source over golden broker objects, in one session on this machine."""

import pyarrow as pa
import pytest
from golden import TOPICS, assert_columns_are_as_expected, entries_of
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tiers import lay_out_broker_objects

from offload_core.format.messages.message_columns import (
    ENTRY_COLUMNS,
    EXTRA_MESSAGE_COLUMNS,
    MESSAGE_COLUMNS,
    arrow_schema,
)
from offload_core.interfaces.spark import PulsarOffloadDataSource
from offload_core.interfaces.spark.reader import OffloadReader
from offload_core.interfaces.spark.spark_types import spark_schema
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(4)]

EVERYTHING = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root)
    return root


def read(spark, tier, **options):
    return spark.read.format("pulsar_offload").options(**options).load(str(tier))


def arrow_rows(frame):
    return frame.toArrow().to_pylist(maps_as_pydicts="strict")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "chunk"])
def test_every_golden_topic_is_what_a_client_read_in_every_column(spark, tier, topic):
    frame = read(spark, tier, topic=f"acme/cold/{topic}", columns=",".join(EVERYTHING))
    with open_tier(tier) as opened:
        entries = entries_of(opened, topic)
    assert assert_columns_are_as_expected(arrow_rows(frame), topic, entries) == set(EVERYTHING)


def test_the_source_registers_itself(spark, tier):
    assert read(spark, tier).count() == scan(open_tier(tier)).to_table().num_rows


def test_it_can_be_registered_by_hand(spark, tier):
    spark.dataSource.register(PulsarOffloadDataSource)
    assert read(spark, tier, topic="acme/cold/jstring").count() == 100


def test_the_default_schema_is_that_of_the_documents(spark, tier):
    schema = read(spark, tier).schema
    assert schema == spark_schema(arrow_schema("messages"))
    assert schema.fieldNames() == list(MESSAGE_COLUMNS)
    assert all(field.nullable for field in schema)
    assert read(spark, tier, level="entries").schema.fieldNames() == list(ENTRY_COLUMNS)


def test_entries_are_those_of_the_python_api(spark, tier):
    ours = scan(open_tier(tier), "acme/cold/nobatch", level="entries").to_table()
    frame = read(spark, tier, topic="acme/cold/nobatch", level="entries")
    assert frame.toArrow().to_pylist() == ours.to_pylist()


def test_a_schema_of_ones_own_chooses_columns(spark, tier):
    schema = StructType([StructField("__entryId", LongType()), StructField("value", BinaryType())])
    frame = spark.read.format("pulsar_offload").schema(schema).option("ledger", "42").load(str(tier))
    assert frame.columns == ["__entryId", "value"]
    assert [row["__entryId"] for row in frame.collect()] == list(range(100))


def test_a_schema_with_another_type_is_refused():
    schema = StructType([StructField("__entryId", StringType())])
    source = PulsarOffloadDataSource({"path": "/nowhere"})
    with pytest.raises(OptionError, match="'__entryId' has another type"):
        source.reader(schema)


def test_topics_by_list_and_pattern(spark, tier):
    def topics(**options):
        return sorted(
            row[0].rsplit("/", 1)[1]
            for row in read(spark, tier, **options).select("__topic").distinct().collect()
        )

    assert topics(topics="acme/cold/json,persistent://acme/cold/jmisc") == ["jmisc", "json"]
    assert topics(topicsPattern="acme/cold/comp-.*") == ["comp-lz4", "comp-none", "comp-snappy", "comp-zstd"]


def test_offsets_cut_inside_batches(spark, tier):
    positions = ["__ledgerId", "__entryId", f.greatest("__batchIndex", f.lit(0)).alias("batch")]
    whole = read(spark, tier, topic="acme/cold/comp-lz4").select(*positions).collect()
    part = read(
        spark,
        tier,
        topic="acme/cold/comp-lz4",
        startingOffsets='{"acme/cold/comp-lz4": {"-1": "13:3:20"}}',
        endingOffsets='{"acme/cold/comp-lz4": {"-1": "14:5:7"}}',
    )
    assert part.select(*positions).collect() == [
        row for row in whole if (13, 3, 20) <= tuple(row) < (14, 5, 7)
    ]


def test_one_ledger_is_split_between_its_blocks(spark, tier):
    frame = read(spark, tier, ledger=34, minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == 1000


def test_an_empty_tier_has_no_rows(spark, tmp_path):
    assert read(spark, tmp_path).count() == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"colums": "value"}, "Did you mean 'columns'"),
        ({"columns": "valu"}, "there is no column 'valu'"),
        ({"topic": "acme/cold/nosuch"}, "no topic persistent://acme/cold/nosuch has offloaded data here"),
        (
            {"startingOffsets": '{"acme/cold/json": {"-1": "9:0"}}', "topic": "acme/cold/json"},
            "failOnDataLoss",
        ),
    ],
)
def test_errors_name_what_is_wrong(spark, tier, options, says):
    with pytest.raises(PySparkException, match=says):
        read(spark, tier, **options).collect()


def test_damaged_bytes_fail_the_query_with_their_place(spark, tier, tmp_path):
    lay_out_broker_objects(tmp_path, topics=["jstring"])
    (data,) = (path for path in tmp_path.iterdir() if path.name.endswith("-ledger-42"))
    damaged = bytearray(data.read_bytes())
    damaged[300] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(PySparkException, match=r"object .*-ledger-42, ledger 42, .*byte \d+"):
        read(spark, tmp_path).collect()


def test_a_reader_crosses_to_an_executor_and_reads_there(tier):
    import pickle

    options = {"path": str(tier), "topic": "acme/cold/jkv-inline"}
    source = PulsarOffloadDataSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    assert isinstance(reader, OffloadReader)
    batches = [
        batch
        for partition in reader.partitions()
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))
    ]
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 200
