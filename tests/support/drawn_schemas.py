"""Schemas, choices of columns and payloads to draw at random: AVRO, Protobuf, KEY_VALUE and JSON, many a second.

What is drawn goes to the edges: lists, maps and unions in one another, records without fields, items without bytes,
block counts below zero, fields of oneofs again and again, groups, numbers out of order, bytes that are changed.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2

from offload_core.format.schemas.avro_types import AvroType, parse_avro
from offload_core.format.schemas.kernels import wire
from offload_core.format.schemas.protobuf_types import FieldType, MessageType, parse_protobuf
from offload_hooks.schemas import SchemaVersion

Draw = random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A writer's and a reader's schema, the columns that are asked for (None for all), and payloads."""

    writer: SchemaVersion
    reader: SchemaVersion
    columns: list[str] | None
    payloads: list[bytes | None]


def changed(draw: Draw, payload: bytes) -> bytes:
    """A payload with some of its bytes changed, gone or added; often as it is."""
    kind = draw.random()
    if kind < 0.4:
        return payload
    if kind < 0.5:
        return payload[: draw.randrange(len(payload) + 1)]
    if kind < 0.55:
        return draw.randbytes(draw.choice([0, 1, 3, 20, 80]))
    out = bytearray(payload)
    for _ in range(draw.choice([1, 1, 2, 4])):
        at = draw.randrange(len(out) + 1)
        change = draw.randrange(4)
        if change == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif change == 1 and at < len(out):
            out[at] = draw.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF])
        elif change == 2:
            del out[at : at + draw.choice([1, 2, 9])]
        else:
            out[at:at] = draw.choice([b"\0", b"\x02", b"\x80\x80", b"\xff" * 9 + b"\x01", draw.randbytes(5)])
    return bytes(out)


def _columns(draw: Draw, names: Sequence[str]) -> list[str] | None:
    if draw.random() < 0.4:
        return None
    return [name for name in names if draw.random() < 0.4]


def version(number: int, kind: str, definition: Any = "", **properties: str) -> SchemaVersion:
    """A version of a schema, whose definition is text or becomes JSON."""
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return SchemaVersion(version=number, type=kind, definition=text, properties=properties)


# --- AVRO --------------------------------------------------------------------------------------

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38},
)
_ADDED: tuple[tuple[Any, Any], ...] = (
    (["null", "int"], None),
    ("string", "näh"),
    ({"type": "array", "items": "long"}, [1, -2, 3]),
    ({"type": "array", "items": {"type": "array", "items": ["null", "string"]}}, [[], [None], []]),
    ({"type": "map", "values": {"type": "array", "items": "int"}}, {"k": [1], "l": []}),
    (["double", "null"], 1.5),
    (["string", "int", {"type": "array", "items": "int"}], "a"),
    ({"type": "long", "logicalType": "timestamp-millis"}, 2**60),
    ({"type": "int", "logicalType": "time-millis"}, -1),
    ("float", 1e300),
)


class _AvroSchemas:
    """Draws the JSON of schemas; types that have names may come again by their names."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._count = 0
        self._known: list[str] = []

    def schema(self, depth: int) -> Any:
        draw = self._draw
        if self._known and draw.random() < 0.08:
            return draw.choice(self._known)
        kind = draw.randrange(13) if depth > 0 else draw.randrange(6)
        if kind < 3:
            return draw.choice(_PRIMITIVES)
        if kind == 3:
            return draw.choice(_LOGICAL)
        if kind == 4:
            return self._named({"type": "fixed", "size": draw.choice([0, 1, 5])})
        if kind == 5:
            symbols = [f"S{i}" for i in range(draw.choice([1, 1, 3, 9]))]
            return self._named({"type": "enum", "symbols": symbols})
        if kind < 8:
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == 8:
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind == 9:
            return self._deep(depth)
        if kind == 10:
            return self._union(depth)
        return self.record(depth - 1)

    def record(self, depth: int) -> Any:
        names = self._draw.sample("abcdefgh", self._draw.choice([0, 1, 2, 3, 5]))
        return self._named(
            {"type": "record", "fields": [{"name": name, "type": self.schema(depth)} for name in names]}
        )

    def _deep(self, depth: int) -> Any:
        inner = self.schema(depth - 2)
        for _ in range(self._draw.choice([2, 3, 5, 12])):
            is_array = self._draw.random() < 0.8
            inner = {"type": "array", "items": inner} if is_array else {"type": "map", "values": inner}
        return inner

    def _union(self, depth: int) -> Any:
        branches: dict[str, Any] = {}
        for _ in range(self._draw.choice([1, 2, 2, 3, 5])):
            branch = self.schema(depth - 1)
            if isinstance(branch, dict):
                branches[branch.get("name", branch["type"])] = branch
            elif isinstance(branch, str):
                branches[branch] = branch
        return list(branches.values()) or ["null"]

    def _named(self, declared: dict[str, Any]) -> Any:
        self._count += 1
        name = f"N{self._count}"
        self._known.append(name)
        return {"name": name} | declared


def _evolved(draw: Draw, schema: Any) -> Any:
    """A schema that reads data of `schema`: fields gone, added and in another order, wider numbers, unions."""
    if isinstance(schema, str):
        if draw.random() < 0.2:
            wider = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}
            return draw.choice(wider.get(schema, [schema]))
        return ["null", schema] if schema in _PRIMITIVES[1:] and draw.random() < 0.2 else schema
    if isinstance(schema, list):
        return schema
    if schema["type"] == "record":
        fields = [
            each | {"type": _evolved(draw, each["type"])} for each in schema["fields"] if draw.random() < 0.8
        ]
        for i, (of, default) in enumerate(draw.sample(_ADDED, draw.choice([0, 0, 1, 3]))):
            fields.append({"name": f"x{i}", "type": of, "default": default})
        draw.shuffle(fields)
        return schema | {"fields": fields}
    if schema["type"] == "enum" and draw.random() < 0.3:
        return schema | {"symbols": ["Z", *schema["symbols"][1:]], "default": "Z"}
    for part in ("items", "values"):
        if part in schema:
            return schema | {part: _evolved(draw, schema[part])}
    return schema


def _long(value: int) -> bytes:
    return _varint(value << 1 ^ value >> 63)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _number(draw: Draw, bits: int) -> int:
    limit = 1 << bits - 1
    return draw.choice([0, 1, -1, limit - 1, -limit, draw.randrange(-limit, limit), draw.randrange(100)])


def avro_datum(draw: Draw, avro: AvroType, room: int = 3) -> bytes:
    """A datum of a type; `room` bounds the items of lists, and so those of lists in them."""
    kind = avro.kind
    if kind == "union":
        branch = draw.randrange(len(avro.branches))
        return _long(branch) + avro_datum(draw, avro.branches[branch], room)
    if kind == "record":
        return b"".join(avro_datum(draw, field.type, room) for field in avro.fields)
    if kind in ("array", "map"):
        out = bytearray()
        for _ in range(draw.choice([0, 1, 1, 2]) if room else 0):
            count = draw.randrange(1, room + 1)
            items = b"".join(
                (_text(draw) if kind == "map" else b"") + avro_datum(draw, avro.element, room // 2)
                for _ in range(count)
            )
            if draw.random() < 0.3:
                out += _long(-count) + _long(draw.choice([len(items), 0, -1])) + items
            else:
                out += _long(count) + items
        return bytes(out) + b"\0"
    if kind == "enum":
        return _long(draw.randrange(len(avro.symbols)))
    if kind == "fixed":
        return draw.randbytes(avro.size)
    if kind in ("int", "long"):
        return _long(_number(draw, 32 if kind == "int" else 64))
    if kind == "boolean":
        return draw.choice([b"\0", b"\x01"])
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", draw.choice([0.0, -1.5, 3.0, float("inf")]))
    if kind == "null":
        return b""
    if avro.logical:
        digits = draw.randbytes(draw.choice([0, 1, 2, 3, 17]))
        return _long(len(digits)) + digits
    return _text(draw)


def _text(draw: Draw) -> bytes:
    text = draw.choice(["", "a", "key", "ü冷\0", "long " * 20]).encode()
    return _long(len(text)) + text


def drawn_avro(draw: Draw, payloads: int) -> Drawn:
    """AVRO: a record or any other type, read by itself or by a newer schema."""
    schemas = _AvroSchemas(draw)
    schema = schemas.record(4) if draw.random() < 0.85 else schemas.schema(4)
    newer = _evolved(draw, schema) if draw.random() < 0.5 else schema
    avro = parse_avro(json.dumps(schema))
    is_record = isinstance(newer, dict) and newer["type"] == "record"
    names = [field["name"] for field in newer["fields"]] if is_record else []
    return Drawn(
        writer=version(0, "AVRO", schema),
        reader=version(1, "AVRO", newer),
        columns=_columns(draw, names),
        payloads=[
            _null_or(draw, changed(draw, avro_datum(draw, avro, draw.choice([3, 3, 12]))))
            for _ in range(payloads)
        ],
    )


def _null_or(draw: Draw, payload: bytes) -> bytes | None:
    return None if draw.random() < 0.03 else payload


# --- Protobuf ----------------------------------------------------------------------------------

_PROTO = descriptor_pb2.FieldDescriptorProto
_SCALARS = [
    number for name, number in _PROTO.Type.items() if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
]
_MAP_KEYS = [_PROTO.TYPE_INT32, _PROTO.TYPE_UINT64, _PROTO.TYPE_STRING, _PROTO.TYPE_BOOL, _PROTO.TYPE_SINT64]


def protobuf_version(file: descriptor_pb2.FileDescriptorProto, root: str) -> SchemaVersion:
    """The schema of a message of one file, as Pulsar keeps it."""
    return version_of_files(0, descriptor_pb2.FileDescriptorSet(file=[file]), root, file.name)


def version_of_files(
    number: int, files: descriptor_pb2.FileDescriptorSet, root: str, name: str
) -> SchemaVersion:
    """The schema of a message of the file of this name, with all files that it needs."""
    definition = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": name,
    }
    return version(number, "PROTOBUF_NATIVE", definition)


def _drawn_file(draw: Draw) -> descriptor_pb2.FileDescriptorProto:
    """Messages of which each may hold those after it; some are entries of maps, and used elsewhere, too."""
    syntax = draw.choice(["proto2", "proto3"])
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="drawn", syntax=syntax)
    enum = file.enum_type.add(name="E")
    for i, number in enumerate([0, *draw.sample([-7, 1, 2, 500, 2**31 - 1], draw.randrange(4))]):
        enum.value.add(name=f"S{i}", number=number)
    count = draw.choice([1, 2, 3, 4])
    for place in range(count):
        message = file.message_type.add(name=f"M{place}")
        inner = [f".drawn.M{other}" for other in range(place + 1, count)]
        for _ in range(draw.choice([0, 0, 1, 2])):
            entry = message.nested_type.add(name=f"Entry{len(message.nested_type)}")
            entry.options.map_entry = True
            _add(draw, entry, "key", 1, [], draw.choice(_MAP_KEYS))
            _add(draw, entry, "value", 2, inner)
        for _ in range(draw.choice([0, 0, 1, 2])):
            message.oneof_decl.add(name=f"o{len(message.oneof_decl)}")
        numbers = draw.sample(
            [1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 1000, 2**29 - 1], draw.choice([1, 3, 6, 9])
        )
        free = list(range(len(message.oneof_decl)))
        for number in numbers:
            field = _add(draw, message, f"f{number}", number, inner)
            if free or (message.oneof_decl and draw.random() < 0.4):
                field.oneof_index = free.pop() if free else draw.randrange(len(message.oneof_decl))
                continue
            if draw.random() < 0.35:
                field.label = _PROTO.LABEL_REPEATED
            if message.nested_type and draw.random() < 0.3:
                field.type = _PROTO.TYPE_MESSAGE
                field.type_name = f".drawn.M{place}.{draw.choice(message.nested_type).name}"
                if draw.random() < 0.9:
                    field.label = _PROTO.LABEL_REPEATED
        while free:  # a oneof needs a member
            field = _add(draw, message, f"g{len(free)}", 2000 + len(free), inner)
            field.oneof_index = free.pop()
    return file


def _add(
    draw: Draw,
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    inner: list[str],
    kind: Any = None,
) -> descriptor_pb2.FieldDescriptorProto:
    field = message.field.add(name=name, number=number, label=_PROTO.LABEL_OPTIONAL)
    chance = draw.random()
    if kind is not None:
        field.type = kind
    elif inner and chance < 0.35:
        field.type, field.type_name = _PROTO.TYPE_MESSAGE, draw.choice(inner)
    elif chance < 0.5:
        field.type, field.type_name = _PROTO.TYPE_ENUM, ".drawn.E"
    else:
        field.type = draw.choice(_SCALARS)
    return field


def protobuf_message(draw: Draw, message: MessageType, room: int = 5) -> bytes:
    """A message with some of its fields, in any order, some again and again, and some that it does not have."""
    out = bytearray()
    for _ in range(draw.randrange(room + 1)):
        if message.fields and draw.random() < 0.9:
            out += _protobuf_field(draw, draw.choice(message.fields), room)
        else:
            out += _unknown(draw)
    return bytes(out)


def _protobuf_field(draw: Draw, field: FieldType, room: int) -> bytes:
    tag = field.number << 3
    if field.message is not None:
        inner = protobuf_message(draw, field.message, room // 2)
        if field.kind == "group":
            return _varint(tag | wire.START_GROUP) + inner + _varint(tag | wire.END_GROUP)
        return _varint(tag | wire.LENGTH) + _varint(len(inner)) + inner
    kind = wire.KINDS[field.kind]
    wire_type = wire.WIRE_TYPES[kind]
    if wire_type == wire.LENGTH:
        text = draw.choice([b"", b"a", "ü冷".encode(), b"x" * 40])
        return _varint(tag | wire.LENGTH) + _varint(len(text)) + text
    if field.is_repeated and draw.random() < 0.6:
        packed = b"".join(_scalar(draw, field, wire_type) for _ in range(draw.choice([0, 1, 4])))
        return _varint(tag | wire.LENGTH) + _varint(len(packed)) + packed
    return _varint(tag | wire_type) + _scalar(draw, field, wire_type)


def _scalar(draw: Draw, field: FieldType, wire_type: int) -> bytes:
    if wire_type == wire.VARINT:
        if field.enum is not None and draw.random() < 0.8:
            return _varint(draw.choice(list(field.enum.symbols)))
        return _varint(_number(draw, 64))
    return draw.choice([b"\0" * 8, draw.randbytes(8)])[: 8 if wire_type == wire.FIXED64 else 4]


def _unknown(draw: Draw) -> bytes:
    number = draw.choice([9, 77, 2**29 - 1])
    wire_type = draw.choice([wire.VARINT, wire.FIXED64, wire.LENGTH, wire.START_GROUP, wire.FIXED32])
    tag = _varint(number << 3 | wire_type)
    if wire_type == wire.START_GROUP:
        inner = _unknown(draw) if draw.random() < 0.5 else b""
        return tag + inner + _varint(number << 3 | wire.END_GROUP)
    values = {
        wire.VARINT: b"\x81\x01",
        wire.FIXED64: b"8" * 8,
        wire.LENGTH: b"\x02ab",
        wire.FIXED32: b"4" * 4,
    }
    return tag + values[wire_type]


def drawn_protobuf(draw: Draw, payloads: int) -> Drawn:
    """Protobuf: a message of drawn descriptors."""
    known = protobuf_version(_drawn_file(draw), "drawn.M0")
    message = parse_protobuf(known)
    return Drawn(
        writer=known,
        reader=known,
        columns=_columns(draw, [field.name for field in message.fields]),
        payloads=[_null_or(draw, changed(draw, protobuf_message(draw, message))) for _ in range(payloads)],
    )


# --- JSON --------------------------------------------------------------------------------------


def json_value(draw: Draw, avro: AvroType, room: int = 3) -> Any:
    """A value as a JSON payload has it; sometimes of another type."""
    if draw.random() < 0.04:
        return draw.choice([None, True, 7, -1.5, "text", [], {}, [1], {"a": 2}, 2**70])
    kind = avro.kind
    if kind == "union":
        return json_value(draw, draw.choice(avro.branches), room)
    if kind == "record":
        return {
            field.name: json_value(draw, field.type, room) for field in avro.fields if draw.random() < 0.9
        }
    if kind == "array":
        return [json_value(draw, avro.element, room // 2) for _ in range(draw.randrange(room + 1))]
    if kind == "map":
        return {f"k{i}": json_value(draw, avro.element, room // 2) for i in range(draw.randrange(room + 1))}
    if kind == "enum":
        return draw.choice(avro.symbols)
    if kind in ("int", "long"):
        return _number(draw, 32 if kind == "int" else 64)
    if avro.logical == "decimal":
        return draw.choice([0, 1, 12, "3"])
    if kind in ("bytes", "fixed"):
        return base64.b64encode(draw.randbytes(draw.randrange(8))).decode() + "=" * (draw.random() < 0.05)
    if kind == "string":
        return draw.choice(
            ["", "a", "ü冷", 'a "quoted" one of more than 16 bytes', "\\\n\t\0/\x7f", "a🧊b" * 5]
        )
    if kind in ("float", "double"):
        bits = draw.randbytes(8)
        return draw.choice(
            [draw.randrange(1000) / 8, draw.random(), struct.unpack("<d", bits)[0], -0.0, 0, 10**18]
        )
    return {"null": None, "boolean": draw.random() < 0.5}[kind]


class _JsonWriter:
    """Writes a value as JSON, in one of the many ways there are."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._spaces = draw.choice([("",), ("", " "), ("", " ", "\n\t", "\r\n  ")])
        self._is_ascii = draw.random() < 0.5
        self._odd = draw.choice([0, 0.02, 0.2])

    def text(self, value: Any) -> str:
        space = self._draw.choice(self._spaces)
        if isinstance(value, dict):
            members = [(json.dumps(name), each) for name, each in value.items()]
            if self._is_odd():
                self._draw.shuffle(members)
            if self._is_odd():
                members.insert(self._draw.randrange(len(members) + 1), self._member(members))
            inner = ",".join(f"{space}{name}{space}:{self.text(each)}" for name, each in members)
            return f"{space}{{{inner}{space}}}"
        if isinstance(value, list):
            return f"{space}[{','.join(map(self.text, value))}{space}]{space}"
        if isinstance(value, str) and self._is_odd():
            return '"' + "".join(map(self._escaped, value)) + '"'
        if isinstance(value, float) and value == value and abs(value) < float("inf"):
            form = self._draw.choice(["{!r}", "{!r}", "{:.3e}", "{:.25g}", "{:E}", "{:f}"])
            return space + form.format(value)
        return space + json.dumps(value, ensure_ascii=self._is_ascii) + space

    def _member(self, members: list[tuple[str, Any]]) -> tuple[str, Any]:
        """A member that no field has, or one that is there already."""
        others: list[Any] = [
            None,
            True,
            -1.5e300,
            "\u00e9\n",
            [],
            {},
            [[{"a": [1, "\\"]}], 0],
            {"b": {"c": [None]}},
        ]
        if members and self._draw.random() < 0.3:
            return self._draw.choice(members)
        return self._draw.choice(['"other"', '"\\u0061"', '""']), self._draw.choice(others)

    def _escaped(self, letter: str) -> str:
        if self._draw.random() < 0.5 or ord(letter) > 0xFFFF:
            return json.dumps(letter)[1:-1]
        return f"\\u{ord(letter):04{self._draw.choice('xX')}}"

    def _is_odd(self) -> bool:
        return self._draw.random() < self._odd


def drawn_json(draw: Draw, payloads: int) -> Drawn:
    """JSON: a record, with and without types that only the slow reader has."""
    schema = _AvroSchemas(draw).record(3)
    avro = parse_avro(json.dumps(schema))
    known = version(0, "JSON", schema)
    made = []
    for _ in range(payloads):
        text = _JsonWriter(draw).text(json_value(draw, avro)).encode()
        made.append(_null_or(draw, changed(draw, text) if draw.random() < 0.3 else text))
    return Drawn(
        writer=known,
        reader=known,
        columns=_columns(draw, [each["name"] for each in schema["fields"]]),
        payloads=made,
    )


# --- KEY_VALUE ---------------------------------------------------------------------------------


def drawn_key_value(draw: Draw, payloads: int) -> Drawn:
    """A key and a value, each of a drawn schema, inline."""
    parts = [_drawn_part(draw, payloads) for _ in range(2)]
    properties = {"key.schema.type": parts[0][0].type, "value.schema.type": parts[1][0].type}
    definition = {"key": parts[0][0].definition, "value": parts[1][0].definition}
    known = version(0, "KEY_VALUE", definition, **properties)
    made = []
    for pair in zip(parts[0][1], parts[1][1], strict=True):
        joined = b"".join(
            struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in pair
        )
        made.append(_null_or(draw, changed(draw, joined) if draw.random() < 0.5 else joined))
    return Drawn(writer=known, reader=known, columns=None, payloads=made)


def _drawn_part(draw: Draw, payloads: int) -> tuple[SchemaVersion, list[bytes | None]]:
    kind = draw.randrange(4)
    if kind == 3:
        known = version(0, draw.choice(["STRING", "BYTES", "INT32", "DOUBLE", "DATE", "INSTANT"]))
        return known, [draw.randbytes(draw.choice([0, 4, 8, 12])) for _ in range(payloads)]
    drawn = (drawn_avro, drawn_protobuf, drawn_json)[kind](draw, payloads)
    return drawn.writer, drawn.payloads
