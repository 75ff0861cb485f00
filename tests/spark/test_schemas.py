"""Typed topics through Spark: nested fields, versions in one read, what cannot be decoded under each mode."""

import json
from decimal import Decimal

import pytest
from entries import entry, pip17_object
from golden import BROKER, topic_rows
from scenes.schemas import Compiled, record, write
from tiers import lay_out, lay_out_broker_objects

pytestmark = [pytest.mark.spark, pytest.mark.sampled(6)]

KINDS = record(
    at={"type": "int", "logicalType": "time-millis"},
    day={"type": "int", "logicalType": "date"},
    local={"type": "long", "logicalType": "local-timestamp-micros"},
    cost={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    times={"type": "map", "values": {"type": "long", "logicalType": "time-micros"}},
    either=["null", "long", "string"],
    nothing="null",
    small="float",
)
VALUE = {
    "at": 1000, "day": 1, "local": 1_000_000, "cost": b"\x04\xd2", "times": {"k": 5}, "either": "s", "nothing": None,
    "small": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("typed")
    lay_out_broker_objects(root, {"avro", "json", "jkv-inline"})
    payloads = [write(KINDS, VALUE), b"\xff\xff", write(KINDS, VALUE)]
    lay_out(root, pip17_object([entry(payload, schema_version=bytes(8)) for payload in payloads]))
    return root


def read(spark, tier, topic, **options):
    schemas = BROKER / "topics" / topic / "schemas.json"
    options = {"topic": f"acme/cold/{topic}", "schemas": schemas, **options}
    return spark.read.format("pulsar_offload").options(**options).load(str(tier))


@pytest.mark.parametrize("topic", ["avro", "json"])
def test_nested_fields_of_both_versions_are_selected(spark, tier, topic):
    read(spark, tier, topic).createOrReplaceTempView("typed")
    rows = spark.sql(
        "SELECT __ledgerId, __entryId, __batchIndex, inner.x, get(inner.tags, 0) AS tag, m['a'] AS a, note FROM typed"
    ).collect()
    expected = topic_rows(topic)
    assert len(rows) == len(expected)
    by_place = {tuple(row)[:3]: row for row in rows}
    for sent in expected:
        row, value = by_place[sent["ledger"], sent["entry"], sent["batch_index"]], sent["value"]
        inner = value["inner"] or {}
        default = "none" if topic == "avro" else None
        assert (row["x"], row["a"]) == (inner.get("x"), (value["m"] or {}).get("a"))
        assert row["note"] == value.get("note", default)
        assert (row["tag"] is None) == (not inner or value["id"] % 4 == 0)


def test_key_and_value_are_columns(spark, tier):
    rows = read(spark, tier, "jkv-inline", columns="key,value").collect()
    assert [row.asDict(recursive=True) for row in rows] == [row["value"] for row in topic_rows("jkv-inline")]


def test_a_schema_of_ones_own_chooses_fields(spark, tier):
    reader = spark.read.format("pulsar_offload").schema("__entryId bigint, note string")
    reader = reader.option("schemas", str(BROKER / "topics" / "avro" / "schemas.json"))
    frame = reader.option("topic", "acme/cold/avro").load(str(tier))
    assert frame.columns == ["__entryId", "note"]
    assert frame.where("note = 'none'").count() == sum(
        "note" not in row["value"] for row in topic_rows("avro")
    )


def kinds(spark, tier, **options):
    return read(spark, tier, "orders", schemas=json.dumps(KINDS), **options)


def test_every_kind_of_field_has_a_type_of_spark(spark, tier):
    frame = kinds(spark, tier, mode="DROPMALFORMED")
    assert [field.dataType.simpleString() for field in frame.schema][:8] == [
        "int", "date", "timestamp_ntz", "decimal(9,2)", "map<string,bigint>", "struct<member0:bigint,member1:string>",
        "void", "float",
    ]  # fmt: skip
    rows = frame.select(*frame.columns[:8], "__entryId").collect()
    assert [row["__entryId"] for row in rows] == [0, 2]
    row = rows[0].asDict(recursive=True)
    assert (row["at"], row["times"], row["cost"]) == (1000, {"k": 5}, Decimal("12.34"))
    assert (str(row["day"]), str(row["local"])) == ("1970-01-02", "1970-01-01 00:00:01")
    assert (row["either"], row["nothing"]) == ({"member0": None, "member1": "s"}, None)


def test_what_cannot_be_decoded_is_passed_on(spark, tier):
    frame = kinds(spark, tier, mode="permissive", columnNameOfCorruptRecord="raw")
    rows = frame.select("at", "raw").collect()
    assert [(row["at"], row["raw"]) for row in rows] == [(1000, None), (None, b"\xff\xff"), (1000, None)]


def test_protobuf_messages_have_types_of_spark(spark, tmp_path):
    compiled = Compiled("""
    syntax = "proto3"; enum Kind { NONE = 0; SOME = 2; } message Inner { repeated fixed32 codes = 1; }
    message Order { uint64 id = 1; Inner inner = 2; map<uint64, Inner> by_number = 3; repeated Kind kinds = 4; }
    """)
    message = compiled.message("Order")
    most = 2**64 - 1
    sent = message(id=most, inner={"codes": [2**32 - 1]}, kinds=[0, 2])
    sent.by_number[most].codes.append(1)
    lay_out(tmp_path, pip17_object([entry(each.SerializeToString()) for each in (sent, message())]))
    frame = read(spark, tmp_path, "orders", schemas=compiled.schema("Order").definition)
    inner = "struct<codes:array<bigint>>"
    types = ["decimal(20,0)", inner, f"map<decimal(20,0),{inner}>", "array<string>"]
    assert [field.dataType.simpleString() for field in frame.schema][:4] == types
    rows = [row.asDict(recursive=True) for row in frame.select(*frame.columns[:4]).collect()]
    assert rows == [
        {
            "id": Decimal(most),
            "inner": {"codes": [2**32 - 1]},
            "by_number": {Decimal(most): {"codes": [1]}},
            "kinds": ["NONE", "SOME"],
        },
        {"id": Decimal(0), "inner": None, "by_number": {}, "kinds": []},
    ]
