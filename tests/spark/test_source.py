"""The Spark source over golden broker objects, in one session on this machine."""

import pytest
from golden import TOPICS, assert_columns_are_as_expected, entries_of
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tiers import lay_out_broker_objects

from offload_core.format.messages.message_columns import (
    ENTRY_COLUMNS,
    EXTRA_MESSAGE_COLUMNS,
    MESSAGE_COLUMNS,
    arrow_schema,
)
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, read_offloaded, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(8)]

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


@pytest.mark.sampled(8)
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "chunk"])
def test_every_golden_topic_is_what_a_client_read_in_every_column(spark, tier, topic):
    frame = read(spark, tier, topic=f"acme/cold/{topic}", columns=",".join(EVERYTHING))
    with open_tier(tier) as opened:
        entries = entries_of(opened, topic)
    assert assert_columns_are_as_expected(arrow_rows(frame), topic, entries) == set(EVERYTHING)


def test_the_source_registers_itself(spark, tier):
    assert read(spark, tier).count() == scan(open_tier(tier)).to_table().num_rows


def test_a_tier_by_name_is_looked_up_where_the_query_is_planned_and_not_by_workers(
    spark, tier, tmp_path, monkeypatch
):
    (tmp_path / "pulsar-offload.toml").write_text(f'tiers.prod.url = "{tier}"')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # Spark's own processes do not have it
    frame = read_offloaded(spark, "prod", topic="acme/cold/jstring", storage_options={})
    assert frame.count() == 100
    with pytest.raises(PySparkException, match="no driver or tier of this name"):
        read(spark, "prod").count()


def test_it_can_be_registered_by_hand(spark, tier):
    spark.dataSource.register(PulsarOffloadDataSource)
    assert read(spark, tier, topic="acme/cold/jstring").count() == 100


def test_the_default_schema_is_that_of_the_documents(spark, tier):
    schema = read(spark, tier).schema
    assert schema == spark_schema(arrow_schema("messages"))
    assert schema.fieldNames() == list(MESSAGE_COLUMNS)
    assert all(field.nullable for field in schema)
    assert read(spark, tier, level="entries").schema.fieldNames() == list(ENTRY_COLUMNS)


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
