"""Definitions of schemas from anybody: each makes a decoder, or is a SchemaError that says what is wrong with it."""

from __future__ import annotations

import base64
import copy
import json
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn_schemas import protobuf_version
from google.protobuf import descriptor_pb2
from scenes.schemas import TOPIC, Known, history, record, version

from offload_core.format.schemas.avro_program import compile_program
from offload_core.format.schemas.avro_types import MOST_DEPTH, make_layout, parse_avro
from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payload_spans import spans_of
from offload_core.format.schemas.protobuf_decoder import make_layout as make_message_layout
from offload_core.format.schemas.protobuf_types import parse_protobuf
from offload_core.format.schemas.schema_history import parse_saved
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.schema_providers import LiteralSchema, choose_payloads
from offload_hooks.errors import FormatError, OptionError, SchemaError

FIELD = descriptor_pb2.FieldDescriptorProto
DIGITS = "9" * 5000
PAYLOADS = [b"", b"\0" * 30, b"\x02" * 30, b"\xff" * 30, b"{}", b'{"a": [1]}', bytes(range(60)), None]

AVRO: Any = record(
    id="long",
    note=(["null", "string"], None),
    at=({"type": "long", "logicalType": "timestamp-millis"}, 5),
    rate=("float", 1.5),
    kind=({"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, "B"),
    key=({"type": "fixed", "name": "Key", "size": 2}, "ab"),
    price=({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u0001"),
    inner=({"type": "record", "name": "In", "fields": [{"name": "x", "type": "int", "default": 1}]}, {}),
    again=("In", {"x": 3}),
    many=({"type": "array", "items": {"type": "map", "values": ["int", "In"]}}, [{"k": 1}]),
)


def some_file():
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="t", syntax="proto2")
    file.enum_type.add(name="E").value.add(name="A", number=1)
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="o")
    message.field.add(name="a", number=1, type=FIELD.TYPE_INT32, label=1, default_value="7")
    message.field.add(name="b", number=2, type=FIELD.TYPE_ENUM, type_name=".t.E", label=3)
    message.field.add(name="c", number=3, type=FIELD.TYPE_STRING, label=1, oneof_index=0)
    message.field.add(name="d", number=4, type=FIELD.TYPE_MESSAGE, type_name=".t.N", label=1, oneof_index=0)
    file.message_type.add(name="N").field.add(name="x", number=1, type=FIELD.TYPE_DOUBLE, label=3)
    return file


NATIVE = json.loads(protobuf_version(some_file(), "t.M").definition)
INFO = [{"number": 1, "name": "id", "type": "INT64", "label": "LABEL_OPTIONAL", "definition": None}]
PROPERTIES = {
    "key.schema.type": "STRING",
    "value.schema.type": "AVRO",
    "kv.encoding.type": "INLINE",
    "value.schema.properties": json.dumps({"a": "b"}),
}

STRANGE: list[Any] = [
    None, True, -1, 0, 1, 39, 2**31, 2**63, 2**64, 10**30, 1.5, 1e300, "", "\ud800", "x", "R", "In", "null", "\u0100",
    [], {}, [[]], ["null", "null"], {"type": "array"}, {"type": "R"}, {"type": {"type": {}}}, {"x": [{"k": None}]},
    "INT32", "LABEL_REPEATED", "AVRO", "KEY_VALUE", "@digits@", "@deep@", "@nan@", "@overflow@",
]  # fmt: skip


def changed(draw, document):
    """A document of which some parts are others, gone, or twice there."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice([1, 1, 2, 3])):
        places = list(_places(document))
        if not places:
            break
        holder, at = draw.choice(places)
        change = draw.randrange(5)
        if change == 0 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[at]))
        elif change == 1:
            del holder[at]
        elif change == 2:
            other, place = draw.choice(places)
            holder[at] = copy.deepcopy(other[place] if _has(other, place) else None)
        else:
            holder[at] = copy.deepcopy(draw.choice(STRANGE))
    return document


def _places(document):
    found = list(document.items()) if isinstance(document, dict) else []
    found = list(enumerate(document)) if isinstance(document, list) else found
    for at, inner in found:
        yield document, at
        yield from _places(inner)


def _has(holder, at):
    return at in holder if isinstance(holder, dict) else at < len(holder)


def as_text(document):
    """JSON, with what `json.dumps` cannot write."""
    text = json.dumps(document)
    for mark, written in (
        ("digits", DIGITS), ("deep", "[" * 5000 + "]" * 5000), ("nan", "NaN"), ("overflow", "1e999")
    ):  # fmt: skip
        text = text.replace(f'"@{mark}@"', written)
    return text


def try_out(writer, reader=None):
    """Make a decoder, and if the definition is one, decode with it."""
    try:
        decoder = make_decoder(writer, reader or writer)
    except SchemaError as error:
        str(error).encode()  # it can be shown
        return
    array, faults = decoder.decode(spans_of(pa.array(PAYLOADS, type=pa.binary())))
    array.validate(full=True)
    for payload, fault in zip(PAYLOADS, np.asarray(faults).tolist(), strict=True):
        if fault:
            assert payload is not None
            assert str(decoder.explain(payload))


def try_changed(seed):
    draw = Random(seed)
    kind = seed % 6
    if kind == 0:
        text = as_text(changed(draw, AVRO))
        try_out(version(0, "AVRO", text))
        try_out(version(0, "JSON", text))
        try_out(version(0, "AVRO", record()), version(1, "AVRO", text))
    elif kind == 1:
        try_out(version(0, "PROTOBUF_NATIVE", as_text(changed(draw, NATIVE))))
    elif kind == 2:
        files = bytearray(descriptor_pb2.FileDescriptorSet(file=[some_file()]).SerializeToString())
        for _ in range(draw.choice([1, 2, 4])):
            files[draw.randrange(len(files))] = draw.randrange(256)
        encoded = base64.b64encode(bytes(files)).decode()
        try_out(version(0, "PROTOBUF_NATIVE", NATIVE | {"fileDescriptorSet": encoded}))
    elif kind == 3:
        info = as_text(changed(draw, INFO))
        try_out(version(0, "PROTOBUF", as_text(changed(draw, AVRO)), __PARSING_INFO__=info))
    elif kind == 4:
        properties = {  # as text, of which files and answers have been checked before
            name: value.encode(errors="replace").decode() if isinstance(value, str) else json.dumps(value)
            for name, value in changed(draw, PROPERTIES).items()
        }
        definition = as_text(changed(draw, {"key": "", "value": AVRO}))
        try_out(version(0, "KEY_VALUE", definition, **properties))
    else:
        each = {"version": 0, "type": "AVRO", "timestamp": 1, "properties": {"a": "b"}, "data": "{}"}
        saved = {"version": 1, "topic": "persistent://a/b/c", "schemas": [each, each | {"version": 1}]}
        text = as_text(changed(draw, saved))
        with suppress(FormatError):
            parse_saved(text.encode())
        with suppress(OptionError):
            LiteralSchema(text)


@pytest.mark.parametrize(
    "seeds", [600, pytest.param(50_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_changed_definitions_are_decoders_or_schema_errors(seeds, sample):
    begin = 0 if seeds == 600 else Random().randrange(1 << 40) * 6
    for seed in sample(range(begin, begin + seeds), 23):  # each remainder of 6 comes
        try:
            try_changed(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# --- AVRO --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        DIGITS,
        f'{{"type": "fixed", "name": "F", "size": {DIGITS}}}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": 2147483648}',
        '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000,
        "[" * 100_000,
        '{"type": "enum", "name": "\\ud800", "symbols": ["A"]}',
        '{"type": "enum", "name": "E", "symbols": [["A"]]}',
        '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "R"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", {"type": "array", "items": "R"}]}]}',
    ],
)
def test_an_avro_definition_that_is_none_is_a_schema_error(text):
    with pytest.raises(SchemaError):
        make_decoder(version(0, "AVRO", text), version(0, "AVRO", text))


@pytest.mark.parametrize(
    ("of", "default"),
    [
        ("int", 2**31),
        ("long", 2**63),
        ("long", 1.5),
        ("float", "1"),
        ("boolean", 1),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, "\u0001\u0000"),
        ("bytes", "\u0100"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, [1, "2"]),
        ({"type": "map", "values": "int"}, {"a": None}),
        ({"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}, {}),
        (["int", "string"], None),
    ],
)
def test_a_default_of_another_type_is_a_schema_error(of, default):
    with pytest.raises(SchemaError, match="default"):
        make_decoder(version(0, "AVRO", record()), version(1, "AVRO", record(f=(of, default))))


@pytest.mark.parametrize(
    ("of", "default", "value"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, None),
        ({"type": "int", "logicalType": "time-millis"}, -1, None),
        ("float", 1e300, float("inf")),
        ("double", 2**63, float(2**63)),
    ],
)
def test_a_default_beyond_what_its_column_holds_is_as_a_value_would_be(of, default, value):
    decoder = make_decoder(version(0, "AVRO", record()), version(1, "AVRO", record(f=(of, default))))
    array, faults = decoder.decode(spans_of(pa.array([b""], type=pa.binary())))
    array.validate(full=True)
    assert not faults.any()
    assert array.to_pylist() == [{"f": value}]


def nested_by_name(depth):
    """Records that nest by their names, however flat their JSON is."""
    fields: list[dict[str, Any]] = []
    for i in range(depth):
        inner = [{"name": "x", "type": f"N{i - 1}" if i else "int"}]
        fields.append({"name": f"f{i}", "type": {"type": "record", "name": f"N{i}", "fields": inner}})
    return {"type": "record", "name": "R", "fields": fields}


def test_types_that_nest_too_deep_by_name_are_refused():
    fits = parse_avro(json.dumps(nested_by_name(MOST_DEPTH - 2)))
    compile_program(fits, fits, make_layout(fits))
    with pytest.raises(SchemaError, match="nests too deep"):
        parse_avro(json.dumps(nested_by_name(MOST_DEPTH - 1)))


def test_the_program_of_a_union_grows_with_its_branches_and_not_with_their_square():
    sizes = []
    for count in (500, 1000):
        branches = [
            {"type": "record", "name": f"B{i}", "fields": [{"name": "x", "type": "int"}]}
            for i in range(count)
        ]
        avro = parse_avro(json.dumps(record(u=branches)))
        program = compile_program(avro, avro, make_layout(avro))
        sizes.append(len(program.instructions) + len(program.numbers))
    assert sizes[1] < 2.1 * sizes[0]


def test_branches_that_cannot_be_read_do_not_hide_that_a_schema_is_too_large():
    items = {"type": "array", "items": "int"}
    reader = record(u={"type": "record", "name": "T", "aliases": [f"B{i}" for i in range(40)], "fields": [
        {"name": "a", "type": items, "default": [0] * 10_000}, {"name": "b", "type": "int"},
    ]})  # fmt: skip
    writer = record(u=[{"type": "record", "name": f"B{i}", "fields": []} for i in range(40)])
    with pytest.raises(SchemaError, match="too large"):
        make_decoder(version(0, "AVRO", writer), version(1, "AVRO", reader))


def test_an_enum_that_is_used_again_is_not_written_again():
    symbols = [f"S{i}" for i in range(1000)]
    enum = {"type": "enum", "name": "E", "symbols": symbols}
    avro = parse_avro(json.dumps(record(a=enum, **{f"f{i}": ("E", "S999") for i in range(200)})))
    empty = parse_avro(json.dumps(record(a=enum)))
    for writer in (avro, empty):
        assert len(compile_program(writer, avro, make_layout(avro)).numbers) < 1100


# --- Protobuf ----------------------------------------------------------------------------------


def test_messages_that_nest_too_deep_are_refused():
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="t", syntax="proto3")
    for i in range(3000):
        inner = file.message_type.add(name=f"M{i}").field
        inner.add(name="a", number=1, type=FIELD.TYPE_MESSAGE, label=1, type_name=f".t.M{i + 1}")
    file.message_type.add(name="M3000")
    with pytest.raises(SchemaError, match="nest too deep"):
        parse_protobuf(protobuf_version(file, "t.M0"))
    assert parse_protobuf(protobuf_version(file, "t.M2901")).fields


def test_an_entry_of_a_map_that_is_used_elsewhere_is_a_message_as_any_other():
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="t", syntax="proto2")
    file.enum_type.add(name="E").value.add(name="A", number=1)
    entry = file.message_type.add(name="X")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_ENUM, type_name=".t.E", label=1)
    file.message_type.add(name="M").field.add(
        name="x", number=1, type=FIELD.TYPE_MESSAGE, type_name=".t.X", label=1
    )
    # x { key: 3 value: 9 }: a closed enum's number without a symbol, which drops an entry of a map
    payload = bytes([1 << 3 | 2, 4, 1 << 3, 3, 2 << 3, 9])
    for root in ("t.M", "t.X"):
        found = protobuf_version(file, root)
        try:
            decoder = make_decoder(found, found)
        except SchemaError:  # newer versions of protobuf refuse such a file
            continue
        array, faults = decoder.decode(spans_of(pa.array([payload] * 3, type=pa.binary())))
        array.validate(full=True)
        assert root == "t.X" or not faults.any()


def test_the_tables_of_a_oneof_grow_with_its_members_and_not_with_their_square():
    sizes = []
    for count in (500, 1000):
        file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="t", syntax="proto3")
        message = file.message_type.add(name="M")
        message.oneof_decl.add(name="o")
        for i in range(count):
            message.field.add(name=f"a{i}", number=i + 1, type=FIELD.TYPE_INT32, label=1, oneof_index=0)
        sizes.append(len(make_message_layout(parse_protobuf(protobuf_version(file, "t.M"))).numbers))
    assert sizes[1] < 2.1 * sizes[0]


@pytest.mark.parametrize(
    "info", ["[" * 5000, f"[{DIGITS}]", '[{"number": 1e999}]', '[{"name": []}]', '"\\ud800"']
)
def test_numbers_of_fields_that_are_none_are_a_schema_error(info):
    wrong = version(0, "PROTOBUF", {"fields": [{"name": ["a"]}]}, __PARSING_INFO__=info)
    with pytest.raises(SchemaError):
        make_decoder(wrong, wrong)


def test_a_number_of_a_version_may_have_any_digits():
    known = Known({TOPIC: history(version(0, "STRING"))})
    with pytest.raises(OptionError, match="no version 999"):
        choose_payloads(known, [TopicName(TOPIC)], reader_schema=DIGITS)
