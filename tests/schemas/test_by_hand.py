"""Schemas that a user gives without a broker: a definition in a file or as text, and one inferred from messages."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from golden import BROKER
from scenes.schemas import record, tier_of
from tiers import lay_out_broker_objects

from offload_core.format.schemas.inferred import infer_definition
from offload_hooks.errors import OptionError, SchemaError
from pulsar_offload import open_tier, scan

DEFINITIONS = {
    topic: json.loads((BROKER / "topics" / topic / "schemas.json").read_text())["getSchemaResponses"][-1][
        "data"
    ]
    for topic in ("avro", "json")
}


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root, {"avro", "json"})
    with open_tier(root) as opened:
        yield opened


def read(tier, topic, schemas, **options):
    return scan(tier, f"acme/cold/{topic}", schemas=schemas, **options).to_table()


@pytest.mark.parametrize("name", ["orders.avsc", "orders.json"])
def test_a_file_may_be_a_definition(tier, tmp_path, name):
    path = tmp_path / name
    path.write_text(DEFINITIONS["json"])
    as_text = {"type": "JSON", "definition": DEFINITIONS["json"]}
    expected = read(tier, "json", ("literal", as_text))
    assert "qty" in expected.schema.names
    assert read(tier, "json", f"saved:path={path},type=JSON").equals(expected)
    assert read(tier, "json", ("saved", {"path": path, "type": "json"})).equals(expected)
    assert read(tier, "json", f"literal:definition={DEFINITIONS['json']},type=JSON").equals(expected)


def test_a_definition_without_a_type_is_avro(tmp_path):
    path = tmp_path / "orders.avsc"
    path.write_text(json.dumps(record(id="int")))
    assert scan(tier_of((bytes([2]), None)), schemas=path).to_table().column("id").to_pylist() == [1]


def test_a_file_of_saved_schemas_has_types_of_its_own(tier, tmp_path):
    saved = BROKER / "topics" / "avro" / "schemas.json"
    with pytest.raises(SchemaError, match="types of its own") as caught:
        read(tier, "avro", ("saved", {"path": saved, "type": "JSON"}))
    assert caught.value.key == "schemas.json"


def test_a_schema_is_inferred_from_messages(tier):
    known = read(tier, "json", BROKER / "topics" / "json" / "schemas.json")
    table = read(tier, "json", "infer:messages=2400")
    raw = scan(tier, "acme/cold/json", columns=["value"]).to_table().column("value").to_pylist()
    payloads = [json.loads(payload) for payload in raw]
    names = sorted({name for payload in payloads for name in payload})
    assert sorted(set(table.schema.names) - set(known.schema.names)) == []
    for name in ("id", "name", "price", "ok", "note"):
        assert name in names
        assert table.column(name).to_pylist() == [payload.get(name) for payload in payloads]


def test_what_is_inferred_is_of_all_kinds():
    payloads = [
        {
            "a": 1,
            "b": 1.5,
            "c": "x",
            "d": True,
            "e": None,
            "f": [1, None],
            "g": {"h": [{"i": 2}]},
            "t": "2024-01-01",
        },
        {"b": 2, "new": "later"},
        {},
    ]
    texts = [json.dumps(each, indent=1).encode() for each in payloads]
    tier = tier_of(*((text, None) for text in [*texts, None]))
    rows = scan(tier, schemas="infer", columns=[*"abcdefgt", "new"]).to_table().to_pylist()
    empty = dict.fromkeys([*"abcdefgt", "new"])
    assert rows == [empty | each for each in [*payloads, {}]]


def test_only_so_many_messages_are_looked_at():
    tier = tier_of(*((json.dumps({"a": 1} if i < 5 else {"a": 1, "b": 2}).encode(), None) for i in range(10)))
    assert "b" not in scan(tier, schemas="infer:messages=5").schema.names
    assert "b" in scan(tier, schemas="infer:messages=6").schema.names
    assert "b" in scan(tier, schemas=("infer", {"messages": 6})).schema.names


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([], "no message with a payload"),
        ([None, b""], "no message with a payload"),
        ([b"\x02"], "not JSON objects of one form"),
        ([b"1"], "not JSON objects of one form"),
        ([b'{"a": 1}', b'{"a": "x"}'], "not JSON objects of one form"),
        ([b'{"a": {}}', b'{"a": 1}'], "not JSON objects of one form"),
    ],
)
def test_what_is_not_inferred(payloads, message):
    with pytest.raises(SchemaError, match=message):
        infer_definition(pa.array(payloads, pa.binary()))


@pytest.mark.parametrize("options", ["messages=0", "messages=x", "rows=5"])
def test_wrong_options_of_infer(tier, options):
    with pytest.raises(OptionError, match="infer"):
        read(tier, "json", f"infer:{options}")


def test_the_error_names_the_topic():
    with pytest.raises(SchemaError, match="persistent://acme/cold/orders: no schema can be inferred"):
        scan(tier_of((b"\x02", None)), schemas="infer")
