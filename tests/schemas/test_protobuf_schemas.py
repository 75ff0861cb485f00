"""Schemas of Protobuf messages: both of Pulsar's types, what is refused, odd payloads, and whole reads."""

from __future__ import annotations

import base64
import json
import re

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2
from scenes.schemas import TOPIC, Compiled, Known, decode_all, history, record, tier_of, version

from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payloads import PayloadDecoder, Payloads
from offload_hooks.errors import PayloadError, SchemaError
from pulsar_offload import scan

INFO = [
    {"number": 1, "name": "id", "type": "SINT64", "label": "LABEL_OPTIONAL", "definition": None},
    {"number": 2, "name": "name", "type": "STRING", "label": "LABEL_OPTIONAL"},
    {"number": 3, "name": "place", "type": "MESSAGE", "label": "LABEL_OPTIONAL"},
    {"number": 4, "name": "kind", "type": "ENUM", "label": "LABEL_OPTIONAL"},
    {"number": 5, "name": "most", "type": "UINT64", "label": "LABEL_REPEATED"},
    {"number": 6, "name": "needed", "type": "FIXED32", "label": "LABEL_REQUIRED"},
]
AVRO = record(
    id=("long", 7), name=("string", "x"), place=(["null", "bytes"], None), kind=("int", 1), most=("int", []),
    needed="int",
)  # fmt: skip
ORDERS = Compiled("""
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { sint64 id = 1; string name = 2; google.protobuf.Timestamp at = 3; repeated Order.Item items = 4;
  message Item { uint32 count = 1; } }
""")
NEWER = Compiled("""
syntax = "proto3";
message Order { sint64 id = 1; string title = 2; optional int32 added = 9; }
""")


def described(info=INFO):
    return version(0, "PROTOBUF", AVRO, __PARSING_INFO__=json.dumps(info))


def native(of, file, **other):
    files = descriptor_pb2.FileDescriptorSet()
    file.CopyToProto(files.file.add())
    declared = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": of.DESCRIPTOR.full_name,
        "rootFileDescriptorName": file.name,
    }
    return version(0, "PROTOBUF_NATIVE", declared | other)


def test_of_the_older_type_only_the_messages_own_fields_have_types():
    payload = bytes.fromhex("08031a02080120032a040102ff01")
    array, faults = decode_all([payload, b"", b"\x08"], described())
    assert faults == [False, False, True]
    assert array.type == pa.struct(
        [
            ("id", pa.int64()), ("name", pa.string()), ("place", pa.binary()), ("kind", pa.int32()),
            ("most", pa.list_(pa.decimal128(20, 0))), ("needed", pa.int64()),
        ]
    )  # fmt: skip
    assert array.to_pylist() == [
        {"id": -2, "name": "x", "place": b"\x08\x01", "kind": 3, "most": [1, 2, 255], "needed": None},
        {"id": 7, "name": "x", "place": None, "kind": None, "most": [], "needed": None},
        None,
    ]


@pytest.mark.parametrize(
    "refused",
    [
        version(0, "PROTOBUF_NATIVE", "no"),
        version(0, "PROTOBUF_NATIVE", []),
        version(0, "PROTOBUF_NATIVE", {}),
        native(timestamp_pb2.Timestamp, timestamp_pb2.DESCRIPTOR, fileDescriptorSet="?"),
        native(timestamp_pb2.Timestamp, timestamp_pb2.DESCRIPTOR, fileDescriptorSet="AAAA"),
        native(timestamp_pb2.Timestamp, timestamp_pb2.DESCRIPTOR, rootMessageTypeName="no.Such"),
        native(timestamp_pb2.Timestamp, timestamp_pb2.DESCRIPTOR, rootFileDescriptorName="no.proto"),
        version(0, "PROTOBUF", AVRO),
        described("no"),
        described([1]),
        described([{"number": 0, "name": "id", "type": "INT32"}]),
        described([{"number": 1, "name": "id", "type": "GROUP"}]),
        described([INFO[0], INFO[0]]),
        version(0, "PROTOBUF", AVRO, __PARSING_INFO__="{"),
        version(0, "PROTOBUF", "[" * 100_000),
    ],
)
def test_a_schema_that_is_none_is_refused(refused):
    with pytest.raises(SchemaError):
        make_decoder(refused, refused)


def test_files_that_import_one_another_are_refused():
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="a", dependency=["b"])
    files.file.add(name="b", dependency=["a"])
    data = base64.b64encode(files.SerializeToString()).decode()
    declared = {"fileDescriptorSet": data, "rootMessageTypeName": "A", "rootFileDescriptorName": "a"}
    with pytest.raises(SchemaError, match="import one another"):
        make_decoder(version(0, "PROTOBUF_NATIVE", declared), version(0, "PROTOBUF_NATIVE", declared))


def test_a_message_that_holds_itself_has_no_columns():
    with pytest.raises(SchemaError, match=r"google.protobuf.Struct holds itself"):
        decode_all([], native(struct_pb2.Struct, struct_pb2.DESCRIPTOR))


def test_a_message_of_too_many_columns_is_refused():
    levels = "".join(
        f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; M{i + 1} c = 3; M{i + 1} d = 4; }}\n"
        for i in range(9)
    )
    with pytest.raises(SchemaError, match="too many"):
        decode_all([], Compiled(f'syntax = "proto3"; {levels} message M9 {{ int32 a = 1; }}').schema("M0"))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("08", "ends early"),
        ("08ffffffffffffffffffff01", "too long"),
        ("0f", "wire type"),
        ("00", "right number"),
        ("ffffffff7f00", "right number"),
        ("0c", "has not begun"),
        ("1205616263", "longer than its message"),
        ("1201ff", "not UTF-8"),
        ("1a020a05", "longer than its message"),
        ("130800", "before a group|ends early"),
        ("13" * 101, "wire type"),
    ],
)
def test_what_is_wrong_with_a_payload_is_said(payload, words):
    schema = ORDERS.schema("Order")
    _, faults = decode_all([bytes.fromhex(payload)], schema)
    assert faults == [True]
    error = make_decoder(schema, schema).explain(bytes.fromhex(payload))
    assert isinstance(error, PayloadError)
    assert error.offset is not None
    assert re.search(words, str(error))


def test_many_items_and_entries_need_no_more_than_their_bytes():
    """Lists grow batch by batch; keys of one map that come again and again are there once."""
    many = Compiled('syntax = "proto3"; message M { repeated int32 a = 1; map<int32, int32> b = 2; }')
    message = many.message("M")
    payloads = [message(a=range(5000)).SerializeToString()] * 3
    payloads.append(b"".join(message(b={1: i}).SerializeToString() for i in range(50_000)))
    array, faults = decode_all(payloads, many.schema("M"))
    assert not any(faults)
    rows = array.to_pylist()
    assert rows[2]["a"] == list(range(5000))
    assert rows[3]["b"] == [(1, 49_999)]


def test_a_member_of_a_oneof_takes_all_of_the_other_back():
    compiled = Compiled("""
    syntax = "proto3"; message P { repeated int32 a = 1; repeated P2 b = 2; message P2 { repeated int32 c = 1; } }
    message M { oneof one { P p = 1; P q = 2; } repeated P after = 3; }
    """)
    inner = compiled.message("P")(a=[1, 2], b=[{"c": [3]}, {"c": [4, 5]}])
    other = compiled.message("P")(a=[6])
    message = compiled.message("M")
    pieces = [message(p=inner), message(q=other), message(p=other), message(after=[inner])]
    payload = b"".join(piece.SerializeToString() for piece in pieces)
    array, _ = decode_all([payload, payload], compiled.schema("M"))
    plain = {"a": [6], "b": []}
    whole = {"a": [1, 2], "b": [{"c": [3]}, {"c": [4, 5]}]}
    assert array.to_pylist() == [{"p": plain, "q": None, "after": [whole]}] * 2


def test_an_entry_of_a_closed_enum_that_is_not_known_is_not_there():
    compiled = Compiled('syntax = "proto2"; enum E { NONE = 0; A = 1; } message M { map<string, E> m = 1; }')
    known, unknown = bytes.fromhex("0a050a01611001"), bytes.fromhex("0a050a01621007")
    array, _ = decode_all([known + unknown, unknown + known, unknown], compiled.schema("M"))
    assert array.to_pylist() == [{"m": [("a", "A")]}, {"m": [("a", "A")]}, {"m": []}]


# --- whole reads -------------------------------------------------------------------------------

PAYLOADS = [
    (ORDERS.message("Order")(id=-5, name="a", items=[{"count": 1}]).SerializeToString(), 0),
    (NEWER.message("Order")(id=6, title="b", added=0).SerializeToString(), 1),
    (None, 1),
]
HISTORY = history(ORDERS.schema("Order"), NEWER.schema("Order", 1))


def test_versions_are_resolved_by_the_numbers_of_fields():
    tier = tier_of(*PAYLOADS)
    known = Known({TOPIC: HISTORY})
    rows = scan(tier, TOPIC, schemas=known, columns=["id", "title", "added"]).to_table().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(-5, "a", None), (6, "b", 0), (None, None, None)]
    oldest = scan(tier, TOPIC, schemas=known, reader_schema=0, columns=["name", "items", "at"])
    assert [tuple(row.values()) for row in oldest.to_table().to_pylist()] == [
        ("a", [{"count": 1}], None),
        ("b", [], None),
        (None, None, None),
    ]


def test_descriptors_stand_for_a_schema_of_the_older_type():
    definition = NEWER.schema("Order").definition
    older = history(described(INFO[:2]))
    tier = tier_of((PAYLOADS[1][0], 0))
    for how in ({"schemas": definition}, {"schemas": Known({TOPIC: older}), "reader_schema": definition}):
        rows = scan(tier, TOPIC, columns=["id", "title", "added"], **how).to_table().to_pylist()
        assert rows == [{"id": 6, "title": "b", "added": 0}]


def test_a_key_and_value_may_be_messages():
    parts = {"key": json.loads(NEWER.schema("Order").definition), "value": AVRO}
    both = version(
        0, "KEY_VALUE", parts,
        **{
            "key.schema.type": "PROTOBUF_NATIVE", "value.schema.type": "PROTOBUF",
            "value.schema.properties": json.dumps({"__PARSING_INFO__": json.dumps(INFO[:1])}),
        },
    )  # fmt: skip
    payload = bytes.fromhex("000000020804000000020803")
    array, _ = decode_all([payload], both)
    assert array.to_pylist() == [{"key": {"id": 2, "title": "", "added": None}, "value": {"id": -2}}]
    for text in ("{", "[]", '{"a": 1}'):
        wrong = version(0, "KEY_VALUE", parts, **dict(both.properties) | {"value.schema.properties": text})
        with pytest.raises(SchemaError, match="properties"):
            make_decoder(wrong, wrong)


def test_a_topic_that_came_later_is_an_error_that_says_so():
    payloads = Payloads(histories={TOPIC: HISTORY})
    with pytest.raises(SchemaError, match=r"persistent://acme/cold/new are not known.*begin again"):
        PayloadDecoder(payloads, "persistent://acme/cold/new", payloads.schema(None))
