"""Histories of schemas, tiers of messages that name their versions, and what typed reads of them give."""

from __future__ import annotations

import io
import itertools
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from drawn_schemas import version as version
from drawn_schemas import version_of_files
from entries import entry, pip17_object
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from protoc import run_protoc
from tiers import in_memory

from offload_core.format.schemas.avro_program import AvroDecoder
from offload_core.format.schemas.avro_reference import read_datum
from offload_core.format.schemas.avro_types import AvroType, parse_avro
from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payload_spans import spans_of
from offload_hooks.errors import PayloadError
from offload_hooks.schemas import SchemaHistory, SchemaVersion
from pulsar_offload import TierReader

TOPIC = "persistent://acme/cold/orders"


class Known:
    """A schema provider that knows these histories, and what it was asked for."""

    def __init__(self, histories: Mapping[str, SchemaHistory]) -> None:
        self._histories = histories
        self.asked: list[str] = []

    def history(self, topic: str) -> SchemaHistory | None:
        self.asked.append(topic)
        return self._histories.get(topic)

    def close(self) -> None:
        self.asked.append("close")


def unread(topic: str, count: int) -> pa.Array:
    """Stands for messages that nothing asks for."""
    raise AssertionError(f"{count} messages of {topic} are read")


def history(*versions: SchemaVersion) -> SchemaHistory:
    return SchemaHistory(versions=versions)


def record(**fields: Any) -> dict[str, Any]:
    """An AVRO record; a field is its type, or a pair of type and default."""
    return {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": name, "type": of[0], "default": of[1]}
            if isinstance(of, tuple)
            else {"name": name, "type": of}
            for name, of in fields.items()
        ],
    }


def tier_of(
    *messages: tuple[bytes | None, int | None] | tuple[bytes | None, int | None, bytes],
) -> TierReader:
    """A tier of one ledger: payload (None for null), the number of its schema's version, and perhaps its key."""
    made = []
    for payload, number, *key in messages:
        named: dict[str, Any] = {} if number is None else {"schema_version": number.to_bytes(8, "big")}
        if payload is None:
            named["null_value"] = True
        if key:
            named |= {"partition_key": key[0].decode()}
        made.append(entry(payload or b"", **named))
    return in_memory(pip17_object(made))


def decode_all(
    payloads: Sequence[bytes | None], writer: SchemaVersion, reader: SchemaVersion | None = None
) -> tuple[pa.Array, list[bool]]:
    """The values of payloads by the decoder of a version, and which of them are not right."""
    decoder = make_decoder(writer, reader or writer)
    array, faults = decoder.decode(spans_of(pa.array(payloads, type=pa.binary())))
    array.validate(full=True)
    assert array.type == decoder.data_type
    for payload, fault in zip(payloads, np.asarray(faults).tolist(), strict=True):
        if fault:
            assert payload is not None
            assert str(decoder.explain(payload))
    return array, np.asarray(faults).tolist()


# --- AVRO schemas and values to draw, how fastavro writes and reads them, and how our columns show them.


Schema = Any

_NAMES = st.sampled_from("abcdefgh")
_PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_LOGICAL = st.sampled_from(
    [
        {"type": "int", "logicalType": "date"},
        {"type": "int", "logicalType": "time-millis"},
        {"type": "long", "logicalType": "time-micros"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "long", "logicalType": "of another world"},
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 7},
        {"type": "bytes", "logicalType": "decimal", "precision": 5},
    ]
)
_BRANCHES = ["null", "boolean", "long", "double", "string", "bytes"]
"""Groups of types that a value's Python type distinguishes."""


def _new_names() -> Iterator[str]:
    """New names for types, which must differ."""
    return (f"N{number}" for number in itertools.count(1))


def schemas() -> st.SearchStrategy[Schema]:
    """Schemas whose values can be distinguished when they are read back."""
    return st.builds(_new_names).flatmap(lambda names: _schema(names, 3))


def records(depth: int = 2) -> st.SearchStrategy[Schema]:
    return st.builds(_new_names).flatmap(lambda names: _record(names, depth))


def _schema(names: Iterator[str], depth: int) -> st.SearchStrategy[Schema]:
    leaves = [
        _PRIMITIVES,
        _LOGICAL,
        st.integers(0, 20).map(lambda size: {"type": "fixed", "name": next(names), "size": size}),
        st.lists(_NAMES, min_size=1, max_size=4, unique=True).map(
            lambda symbols: {"type": "enum", "name": next(names), "symbols": symbols}
        ),
        st.lists(st.sampled_from(_BRANCHES), min_size=1, max_size=4, unique=True),
    ]
    if depth == 0:
        return st.one_of(leaves)
    inner = st.deferred(lambda: _schema(names, depth - 1))
    return st.one_of(
        *leaves,
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        inner.filter(lambda one: not isinstance(one, list) and one != "null").map(lambda one: ["null", one]),
        _record(names, depth - 1),
    )


def _record(names: Iterator[str], depth: int) -> st.SearchStrategy[Schema]:
    return st.lists(_NAMES, max_size=4, unique=True).flatmap(
        lambda fields: st.tuples(*[_schema(names, depth) for _ in fields]).map(
            lambda types: {
                "type": "record",
                "name": next(names),
                "fields": [{"name": name, "type": of} for name, of in zip(fields, types, strict=True)],
            }
        )
    )


def values(avro: AvroType) -> st.SearchStrategy[Any]:
    """Values that the schema can write; fastavro's own names for branches of unions stand with them."""
    kind = avro.kind
    if kind == "union":
        return st.one_of([values(branch) for branch in avro.branches])
    if kind == "record":
        return st.fixed_dictionaries({field.name: values(field.type) for field in avro.fields})
    if kind == "array":
        no_bytes = _takes_no_bytes(avro.element)
        return st.lists(values(avro.element), max_size=1 if no_bytes else 4)
    if kind == "map":
        return st.dictionaries(_NAMES, values(avro.element), max_size=4)
    if kind == "enum":
        return st.sampled_from(avro.symbols)
    if kind == "fixed":
        return st.binary(min_size=avro.size, max_size=avro.size)
    if avro.logical == "decimal":
        limit = 10**avro.precision - 1
        numbers = st.integers(-limit, limit)
        return numbers.map(lambda n: n.to_bytes(n.bit_length() // 8 + 1, "big", signed=True))
    if avro.logical in ("time-millis", "time-micros"):
        return st.integers(0, 86_399_999)
    if avro.logical == "date":
        return st.integers(-(2**31), 2**31 - 1)
    if avro.logical:
        return st.integers(-(10**15), 10**15)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=20),
        "string": st.text(max_size=10),
    }[kind]


def keeps_branches(schema: Schema) -> bool:
    """Return whether fastavro reads values of unions into the branch that wrote them, where the schemas around differ.

    It takes the first branch that a type can be promoted to; Java, and so do we, one of the same type before.
    """
    if isinstance(schema, list):
        names = [branch for branch in schema if isinstance(branch, str)]
        numbers = [name for name in names if name in ("long", "double")]
        confused = {"string", "bytes"} <= set(names) or numbers == ["double", "long"]
        return not confused and all(map(keeps_branches, schema))
    if not isinstance(schema, dict):
        return True
    fields = [field["type"] for field in schema.get("fields", ())]
    return all(map(keeps_branches, [*fields, schema.get("items"), schema.get("values")]))


def _takes_no_bytes(avro: AvroType) -> bool:
    if avro.kind == "record":
        return all(_takes_no_bytes(field.type) for field in avro.fields)
    return avro.kind == "null" or (avro.kind == "fixed" and avro.size == 0)


def plain_schema(schema: Schema) -> Schema:
    """The schema without logical types: fastavro then gives the numbers and bytes that are stored."""
    if isinstance(schema, list):
        return [plain_schema(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: [each | {"type": plain_schema(each["type"])} for each in value]
        if name == "fields"
        else (plain_schema(value) if name in ("type", "items", "values") else value)
        for name, value in schema.items()
        if name not in ("logicalType", "precision", "scale")
    }


def write(schema: Schema, value: Any) -> bytes:
    """A datum by fastavro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain_schema(schema)), value)
    return out.getvalue()


def read(datum: bytes, writer: Schema, reader: Schema) -> Any:
    """A value by fastavro."""
    written, chosen = (fastavro.parse_schema(plain_schema(schema)) for schema in (writer, reader))
    return fastavro.schemaless_reader(io.BytesIO(datum), written, chosen)


def parsed(schema: Schema) -> AvroType:
    return parse_avro(json.dumps(schema))


def as_column(value: Any, avro: AvroType) -> Any:
    """A value of fastavro's as our column shows it."""
    kind = avro.kind
    if kind == "union":
        others = [branch for branch in avro.branches if branch.kind != "null"]
        if value is None or not others:
            return None
        if len(others) == 1:
            return as_column(value, others[0])
        python = {"boolean": bool, "long": int, "double": float, "string": str, "bytes": bytes}
        return {
            f"member{i}": value if type(value) is python[branch.kind] else None
            for i, branch in enumerate(others)
        }
    if kind == "record":
        return {field.name: as_column(value[field.name], field.type) for field in avro.fields}
    if kind == "array":
        return [as_column(item, avro.element) for item in value]
    if kind == "map":
        return [(key, as_column(item, avro.element)) for key, item in value.items()]
    if avro.logical == "decimal":
        sign, digits, _ = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -avro.scale))
    if avro.logical in ("timestamp-millis", "local-timestamp-millis"):
        return value * 1000
    return value


def spans(data: Sequence[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The datums one after another with a byte between them; None has the length −1."""
    joined = np.frombuffer(b"".join(b"\xee" + (datum or b"") for datum in data) + b"\xee", dtype=np.uint8)
    sizes = np.array([len(datum or b"") + 1 for datum in data], dtype=np.int64)
    lengths = np.array([-1 if datum is None else len(datum) for datum in data], dtype=np.int64)
    return joined, np.cumsum(sizes) - sizes + 1, lengths


def by_kernel(
    data: Sequence[bytes | None], writer: AvroType, reader: AvroType
) -> tuple[list[Any], list[bool]]:
    """The values of datums, and which are not right, by program and kernel."""
    array, faults = AvroDecoder(writer, reader).decode(*spans(data))
    array.validate(full=True)
    return rows_of(array), faults.tolist()


def by_reference(
    data: Sequence[bytes | None], writer: AvroType, reader: AvroType
) -> tuple[list[Any], list[bool]]:
    """The same by the reference implementation."""
    read: list[Any] = []
    faults = []
    for datum in data:
        try:
            read.append(None if datum is None else read_datum(datum, writer, reader))
            faults.append(False)
        except PayloadError:
            read.append(None)
            faults.append(True)
    return read, faults


def rows_of(array: pa.Array) -> list[Any]:
    """Values as Python's, but times as integers: Python's own do not reach as far."""
    return [_plain(scalar) for scalar in array]


def _plain(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    data_type = scalar.type
    if pa.types.is_temporal(data_type):
        return scalar.value
    if pa.types.is_struct(data_type):
        return {name: _plain(scalar[name]) for name in scalar}
    if pa.types.is_map(data_type):
        return [(_plain(pair["key"]), _plain(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(data_type):
        return rows_of(scalar.values)
    return scalar.as_py()


# --- Protobuf schemas from the text of a .proto file, and messages as the official library reads them.


_BITS = {
    "INT32": (-(2**31), 2**31 - 1),
    "SINT32": (-(2**31), 2**31 - 1),
    "SFIXED32": (-(2**31), 2**31 - 1),
    "UINT32": (0, 2**32 - 1),
    "FIXED32": (0, 2**32 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "SINT64": (-(2**63), 2**63 - 1),
    "SFIXED64": (-(2**63), 2**63 - 1),
    "UINT64": (0, 2**64 - 1),
    "FIXED64": (0, 2**64 - 1),
}


class Compiled:
    """A .proto file: its descriptors, and the classes of its messages."""

    def __init__(self, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "test.proto").write_text(text)
            run_protoc(f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder}/set", "test.proto")
            self.files = descriptor_pb2.FileDescriptorSet.FromString((Path(folder) / "set").read_bytes())
        self._pool = DescriptorPool()
        for file in self.files.file:
            self._pool.Add(file)

    def schema(self, root: str, number: int = 0) -> SchemaVersion:
        """The schema of a message as Pulsar keeps it."""
        return version_of_files(number, self.files, root, "test.proto")

    def message(self, root: str) -> Any:
        """The class of a message."""
        return GetMessageClass(self._pool.FindMessageTypeByName(root))


def _is_repeated(field: Any) -> bool:
    """By what each protobuf has: 5.29 has only the label, which 7 has no more."""
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def shown(message: Any) -> dict[str, Any]:
    """A message of the official library's as our columns show it."""
    return {field.name: _shown_field(message, field) for field in message.DESCRIPTOR.fields}


def _shown_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_repeated(field):
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return sorted((_one(key, each), _one(item, value[each])) for each in value)
        return [_one(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return shown(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64) else value


def fill(draw: random.Random, message: Any, depth: int = 0) -> Any:
    """Fill some fields of a message with anything."""
    for field in message.DESCRIPTOR.fields:
        if draw.random() < 0.35:
            continue
        if _is_repeated(field):
            count = draw.choice([0, 1, 1, 2, 5])
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
                for _ in range(count):
                    entries = getattr(message, field.name)
                    if item.message_type is not None:
                        fill(draw, entries[_drawn(draw, key)], depth + 1)
                    else:
                        entries[_drawn(draw, key)] = _drawn(draw, item)
            elif field.message_type is not None:
                for _ in range(count):
                    fill(draw, getattr(message, field.name).add(), depth + 1)
            else:
                getattr(message, field.name).extend(_drawn(draw, field) for _ in range(count))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill(draw, inner, depth + 1)
        else:
            setattr(message, field.name, _drawn(draw, field))
    return message


def _drawn(draw: random.Random, field: Any) -> Any:
    kind = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_")
    if kind in _BITS:
        least, most = _BITS[kind]
        return draw.choice([least, most, 0, 1, draw.randint(least, most), draw.randint(0, 300)])
    if kind in ("FLOAT", "DOUBLE"):
        return draw.choice([0.0, -0.5, 1e30, float("inf"), draw.randrange(1000) / 8])
    if kind == "BOOL":
        return draw.random() < 0.5
    if kind == "STRING":
        return "".join(draw.choices("abü冷\0", k=draw.choice([0, 1, 3, 40])))
    if kind == "BYTES":
        return draw.randbytes(draw.choice([0, 1, 200]))
    return draw.choice(field.enum_type.values).number
