"""From a reader's schema to the columns that its values go to: Arrow types, and slots for the kernel.

The mapping follows Spark's `from_avro`: a union with null is nullable, one of several types a struct of `member0`,
`member1` …, of int and long a long, of float and double a double. An enum is text, a fixed binary.
Source: docs/schemas.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from offload_core.format.schemas.avro.types import AvroType
from offload_core.format.schemas.cells import Column, Symbols
from offload_hooks.errors import SchemaError

MOST_SLOTS = 4096

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Column):
    """Where a reader's type goes.

    Attributes:
        avro: the type, of a nullable union the other branch; a `union` here is one of several types.
        level: the slots that each value of it adds one cell to: its own, and those of a struct's children.
        names: of a struct's children, a list's (one), a map's (key and value).
    """

    avro: AvroType
    level: tuple[int, ...]
    names: tuple[str, ...] = ()
    children: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a reader's schema.

    Attributes:
        root: where a whole value goes.
        owners: for each slot the slot of the list or map that it lies in, −1 if it lies in none.
    """

    root: Target
    owners: tuple[int, ...]


def make_layout(reader: AvroType, fields: Collection[str] | None = None) -> Layout:
    """Give each part of a schema its slot; `fields` are those of a record that are wanted, None for all.

    Raises:
        SchemaError: too many columns.
    """
    owners: list[int] = []
    root = _target(reader, -1, owners, None if fields is None else frozenset(fields))
    return Layout(root=root, owners=tuple(owners))


def simple(reader: AvroType) -> AvroType:
    """A union as what its values go to: the one type beside null, the wider of two, or itself."""
    if reader.kind != "union":
        return reader
    others = [branch for branch in reader.branches if branch.kind != "null"]
    if not others:
        return AvroType(kind="null")
    if len(others) == 1:
        return others[0]
    kinds = {branch.kind for branch in others}
    if not any(branch.logical for branch in others):
        for narrow, wide in (("int", "long"), ("float", "double")):
            if kinds == {narrow, wide}:
                return AvroType(kind=wide)
    return AvroType(kind="union", branches=tuple(others))


def _target(reader: AvroType, owner: int, owners: list[int], fields: Collection[str] | None = None) -> Target:
    avro = simple(reader)
    if avro.kind == "null":
        return Target(avro=avro, data_type=pa.null(), slot=-1, level=())
    slot = len(owners)
    if slot >= MOST_SLOTS:
        raise SchemaError("an AVRO schema has too many columns", expected=f"at most {MOST_SLOTS}")
    owners.append(owner)
    if avro.kind == "record":
        chosen = [field for field in avro.fields if fields is None or field.name in fields]
        names = tuple(field.name for field in chosen)
        children = tuple(_target(field.type, owner, owners) for field in chosen)
    elif avro.kind == "union":
        names = tuple(f"member{i}" for i in range(len(avro.branches)))
        children = tuple(_target(branch, owner, owners) for branch in avro.branches)
    elif avro.kind in ("array", "map"):
        inner = (AvroType(kind="string"),) if avro.kind == "map" else ()
        children = tuple(_target(each, slot, owners) for each in (*inner, avro.element))
        names = ("key", "value") if inner else ("item",)
        types = [child.data_type for child in children]
        data_type = pa.map_(*types) if inner else pa.list_(types[0])
        return Target(
            avro=avro, data_type=data_type, slot=slot, level=(slot,), names=names, children=children
        )
    else:
        symbols = Symbols(texts=avro.symbols) if avro.kind == "enum" else None
        return Target(avro=avro, data_type=_scalar_type(avro), slot=slot, level=(slot,), symbols=symbols)
    return Target(
        avro=avro,
        data_type=pa.struct([(name, child.data_type) for name, child in zip(names, children, strict=True)]),
        slot=slot,
        level=(slot, *(each for child in children for each in child.level)),
        names=names,
        children=children,
    )


def _scalar_type(avro: AvroType) -> pa.DataType:
    if avro.logical == "decimal":
        return pa.decimal128(avro.precision, avro.scale)
    return _LOGICAL[avro.logical] if avro.logical else _PLAIN[avro.kind]
