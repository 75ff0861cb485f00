"""Topics with schemas that a real broker offloaded, all versions in one read, as Pulsar's client read them."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from golden import BROKER, topic_rows
from tiers import lay_out_broker_objects

from pulsar_offload import open_tier, scan


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root, {"avro", "json", "jstring", "jkv-inline"})
    with open_tier(root) as opened:
        yield opened


def schemas_of(topic):
    return BROKER / "topics" / topic / "schemas.json"


def read(tier, topic, **options):
    return scan(tier, f"acme/cold/{topic}", schemas=schemas_of(topic), **options).to_table()


def as_client(value):
    """A value of the client's file."""
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"])
    if isinstance(value, dict):
        return {name: as_client(each) for name, each in value.items()}
    return value


def test_avro_of_two_versions_is_what_the_client_read(tier):
    table = read(tier, "avro")
    assert table.schema.names[:9] == ["id", "name", "price", "ok", "blob", "m", "inner", "note", "qty"]
    rows = table.select(table.schema.names[:9]).to_pylist(maps_as_pydicts="strict")
    expected = [as_client(row["value"]) for row in topic_rows("avro")]
    missing = {"note": "none", "qty": None}
    assert len(rows) == len(expected)
    assert rows == [missing | row if "note" not in row else row for row in expected]
    assert {"note" in row for row in expected} == {True, False}  # both versions are there


def test_json_of_two_versions_is_what_was_sent(tier):
    table = read(tier, "json")
    raw = scan(tier, "acme/cold/json", columns=["value"]).to_table().column("value").to_pylist()
    rows = table.select(table.schema.names[:9]).to_pylist(maps_as_pydicts="strict")
    empty = dict.fromkeys(table.schema.names[:9])
    assert rows == [empty | json.loads(payload) for payload in raw]


def test_text_is_what_the_client_read(tier):
    column = read(tier, "jstring").column("value")
    assert column.type == pa.string()
    assert column.to_pylist() == [row["value"] for row in topic_rows("jstring")]


def test_key_and_value_inline_are_what_the_client_read(tier):
    rows = read(tier, "jkv-inline", columns=["key", "value"]).to_pylist()
    assert rows == [row["value"] for row in topic_rows("jkv-inline")]


def test_columns_of_payload_and_message_are_chosen_in_any_order(tier):
    table = read(tier, "avro", columns=["__entryId", "qty", "__topic", "id"])
    assert table.schema.names == ["__entryId", "qty", "__topic", "id"]
    assert table.column("id").to_pylist() == [row["value"]["id"] for row in topic_rows("avro")]


def test_an_older_version_can_be_the_reader(tier):
    table = read(tier, "avro", reader_schema=0)
    assert "note" not in table.schema.names
    assert table.column("id").to_pylist() == [row["value"]["id"] for row in topic_rows("avro")]


def test_a_definition_can_be_the_reader(tier):
    reader = {"type": "record", "name": "V1", "fields": [{"name": "id", "type": "double"}]}
    table = read(tier, "avro", reader_schema=json.dumps(reader))
    assert table.schema.field("id").type == pa.float64()
    assert table.schema.names[1] == "__key"
