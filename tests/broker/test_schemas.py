"""Every type of schema by Pulsar's Java client: what it sends is offloaded, and our columns are what it reads."""

from __future__ import annotations

import base64
import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from live.broker import produce
from live.sent import Order, orders
from pulsar.schema import AvroSchema, JsonSchema
from scenes.schemas import Compiled, fill

from offload_core.reading.admin_schemas import AdminSchemas
from offload_core.reading.schema_providers import SavedSchemas, saved_in
from offload_hooks.errors import SchemaError, StoreUnavailableError
from pulsar_offload import open_tier, scan

KINDS = (
    *("BYTES", "STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE"),
    *("DATE", "TIME", "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"),
    *("JSON", "AVRO", "KEY_VALUE INLINE", "KEY_VALUE SEPARATED", "KEY_VALUE PROTOBUF_NATIVE"),
    *("PROTOBUF", "PROTOBUF_NATIVE", "PROTOBUF_NATIVE proto3"),
)


@pytest.fixture(scope="module")
def place(live, tmp_path_factory):
    """A namespace, and the directory that it offloads to."""
    root = tmp_path_factory.mktemp("typed")
    return live.new_namespace(live.broker.filesystem_policies(root)), root


def sent(oracle, broker, admin, place, kind, **more):
    """A topic of values of a kind, offloaded, and what the client read from it."""
    topic = f"persistent://{place[0]}/{kind.replace(' ', '-').lower()}"
    asked = oracle.ask("send_typed", service_url=broker.service_url, topic=topic, kind=kind, **more)
    admin.offload_all(topic)
    return topic, asked["read"]


def read(place, topic, schemas, **options):
    """The values of our scan, in the form of `oracle.Values`."""
    with open_tier(place[1]) as tier:
        table = scan(tier, topic, schemas=schemas, **options).to_table()
    fields = [field for field in table.schema if not field.name.startswith("__")]
    if [field.name for field in fields] == ["value"]:
        return [shown(value) for value in plain(table.column("value").combine_chunks()).to_pylist()]
    rows = table.select([field.name for field in fields]).to_pylist(maps_as_pydicts="strict")
    return [shown(row) for row in rows]


def plain(array):
    """Times as numbers."""
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def shown(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else json.dumps(shown(name)): shown(value[name]) for name in value
        }
    if isinstance(value, list):
        return [shown(item) for item in value]
    if value == float("inf"):
        return "Infinity"
    return int(value) if isinstance(value, Decimal) else value


@pytest.mark.sampled(16)
@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_what_the_client_reads(oracle, broker, admin, place, kind):
    """To a broker BYTES is no schema."""
    topic, expected = sent(oracle, broker, admin, place, kind)
    assert expected
    assert read(place, topic, None if kind == "BYTES" else broker.endpoint) == expected


PROTO = """syntax = "proto3"; package test;
enum Kind { NONE = 0; SOME = 5; }
message Inner { sint64 number = 1; repeated string texts = 2; optional bool flag = 3; }
message Outer {
  uint64 id = 1; fixed32 code = 2; bytes data = 3; Kind kind = 4; repeated Inner inners = 5; repeated sint32 packed = 6;
  map<string, Inner> by_name = 7; map<uint64, Kind> by_number = 8; map<bool, double> by_flag = 9;
  oneof choice { string text = 10; Inner inner = 11; float number = 12; }
}
"""


@pytest.mark.nightly
def test_a_message_of_a_generic_native_schema_is_what_the_client_reads(oracle, broker, admin, place):
    """Maps, oneofs and open enums; what the client takes bytes for that are written in pieces."""
    compiled, draw = Compiled(PROTO), random.Random(15)
    outer = compiled.message("test.Outer")
    payloads = [fill(draw, outer()).SerializeToString() for _ in range(30)]
    payloads += [a + b for a, b in zip(payloads[::2], payloads[1::2], strict=True)] + [b"", b"\x20\x07"]
    definition = compiled.schema("test.Outer").definition
    texts = [base64.b64encode(payload).decode() for payload in payloads]
    topic, expected = sent(oracle, broker, admin, place, "DYNAMIC", definition=definition, payloads=texts)
    assert len(expected) == len(payloads)
    assert read(place, topic, broker.endpoint) == expected
    assert read(place, topic, broker.endpoint, reader_schema=definition) == expected


def test_messages_of_the_older_type_are_whole_with_their_descriptors(oracle, broker, admin, place):
    topic, expected = sent(oracle, broker, admin, place, "PROTOBUF_NATIVE")
    definition = admin.schema(topic)["data"]
    older, _ = sent(oracle, broker, admin, place, "PROTOBUF")
    for how in ({"schemas": definition}, {"schemas": broker.endpoint, "reader_schema": definition}):
        assert read(place, older, **how)[-2:] == expected[-2:]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_columns_are_what_the_python_client_sends(client, broker, admin, place, schema):
    topic = f"persistent://{place[0]}/python-{schema.__name__.lower()}"
    produce(client, topic, [{"content": Order(**each)} for each in orders()], schema=schema(Order))
    admin.offload_all(topic)
    assert read(place, topic, broker.endpoint) == orders()


# --- the provider ------------------------------------------------------------------------------


def test_a_history_that_is_pulled_is_what_the_broker_says(oracle, broker, admin, place, tmp_path):
    topic, expected = sent(oracle, broker, admin, place, "AVRO")
    history = AdminSchemas(broker.endpoint).history(topic)
    assert [version.version for version in history.versions] == [0, 1]
    for version in history.versions:
        told = admin.schema(topic, version.version)
        assert (version.type, version.definition) == (told["type"], told["data"])
        assert (version.properties, version.timestamp_ms) == (told["properties"], told["timestamp"])
    assert history.newest.definition == admin.schema(topic)["data"]
    SavedSchemas(tmp_path).save(topic, history)
    assert SavedSchemas(tmp_path).history(topic) == history
    assert read(place, topic, tmp_path) == read(place, topic, broker.endpoint)
    assert read(place, topic, tmp_path)[-len(expected) :] == expected


def test_a_topic_without_a_schema_is_an_error_that_says_how_to_read_it(client, broker, admin, place):
    topic = f"persistent://{place[0]}/untyped"
    produce(client, topic, [{"content": b"1"}])
    admin.offload_all(topic)
    assert AdminSchemas(broker.endpoint).history(topic) is None
    assert AdminSchemas(broker.endpoint).history("persistent://nobody/nowhere/nothing") is None
    with pytest.raises(SchemaError, match="are not known"):
        read(place, topic, broker.endpoint)


def test_a_broker_that_is_gone_is_needed_no_more_once_its_schemas_are_pulled(oracle, broker, admin, place):
    topic, expected = sent(oracle, broker, admin, place, "STRING")
    with open_tier(place[1]) as tier:
        saved_in(tier.store).save(topic, AdminSchemas(broker.endpoint).history(topic))
    gone = "http://127.0.0.1:1"
    with pytest.raises(StoreUnavailableError, match="schemas"):
        read(place, topic, ("admin", {"url": gone, "attempts": 1}))
    assert read(place, topic, str(place[1] / "schemas"))[-len(expected) :] == expected
