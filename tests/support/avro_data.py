"""AVRO schemas and values to draw, how fastavro writes and reads them, and how our columns show them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from offload_core.schemas.avro.decode import AvroDecoder
from offload_core.schemas.avro.plain import read_datum
from offload_core.schemas.avro.types import AvroType, parse_avro
from offload_hooks.errors import PayloadError

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
"""Of types that are told apart by a value's Python type."""


class Names:
    """New names for types, which must differ."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"N{self.count}"


def schemas(depth: int = 3) -> st.SearchStrategy[Schema]:
    """Schemas whose values are told apart when they are read back."""
    return st.builds(Names).flatmap(lambda names: _schema(names, depth))


def records(depth: int = 2) -> st.SearchStrategy[Schema]:
    return st.builds(Names).flatmap(lambda names: _record(names, depth))


def _schema(names: Names, depth: int) -> st.SearchStrategy[Schema]:
    leaves = [
        _PRIMITIVES,
        _LOGICAL,
        st.integers(0, 20).map(lambda size: {"type": "fixed", "name": names.new(), "size": size}),
        st.lists(_NAMES, min_size=1, max_size=4, unique=True).map(
            lambda symbols: {"type": "enum", "name": names.new(), "symbols": symbols}
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


def _record(names: Names, depth: int) -> st.SearchStrategy[Schema]:
    return st.lists(_NAMES, max_size=4, unique=True).flatmap(
        lambda fields: st.tuples(*[_schema(names, depth) for _ in fields]).map(
            lambda types: {
                "type": "record",
                "name": names.new(),
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
    """Whether fastavro reads values of unions into the branch that wrote them, where the schemas around differ.

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
    written, wanted = (fastavro.parse_schema(plain_schema(schema)) for schema in (writer, reader))
    return fastavro.schemaless_reader(io.BytesIO(datum), written, wanted)


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
    """The datums one behind another with a byte between them; None has the length −1."""
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


def by_twin(data: Sequence[bytes | None], writer: AvroType, reader: AvroType) -> tuple[list[Any], list[bool]]:
    """The same by the plain twin."""
    read: list[Any] = []
    faults = []
    for datum in data:
        fault = False
        try:
            read.append(None if datum is None else read_datum(datum, writer, reader))
        except PayloadError:
            read.append(None)
            fault = True
        faults.append(fault)
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
