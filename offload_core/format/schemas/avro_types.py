"""AVRO schemas as values: the JSON of a definition → `AvroType`, with every name resolved.

A record that holds itself is refused: it has no columns. Source: the AVRO specification 1.12, "Schema Declaration".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from offload_core.format.schemas.cells import Column, Symbols
from offload_hooks.errors import SchemaError
from offload_hooks.json_text import read_json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_TYPES = 10_000
"""Number of types that a schema may have, those of a name counted wherever it is used."""
MOST_DEPTH = 64
"""Most levels of nested types; named types count wherever the name is used."""

_NO_DEFAULT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record; `default` is the JSON value, `has_default` whether there is one."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """One type of a schema.

    Attributes:
        kind: `record`, `enum`, `array`, `map`, `union`, `fixed`, or a primitive type's name.
        name: full name of a record, enum or fixed.
        aliases: other full names of it.
        fields: of a record.
        symbols: of an enum; `default_symbol` for what a reader does not know.
        items: of an array, or a map's values.
        branches: of a union.
        size: of a fixed, in bytes.
        logical: the logical type if it is known and fits the type; `precision` and `scale` of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def element(self) -> AvroType:
        """The items of an array, the values of a map."""
        if self.items is None:
            raise AssertionError(f"{self.kind} has no items")
        return self.items


def parse_avro(definition: str) -> AvroType:
    """Parse the JSON of an AVRO schema.

    Raises:
        SchemaError: no JSON, no AVRO schema, one that holds itself, nests deeper than `MOST_DEPTH`, or has more than
            `MOST_TYPES` types.
    """
    return _Parser().parse(read_json(definition, "an AVRO schema", error=SchemaError), "")


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._sizes: dict[str, tuple[int, int]] = {}  # of a name: its types, and how deep they nest
        self._count = 0
        self._depth = 0
        self._deepest = 0

    def parse(self, declared: Any, namespace: str) -> AvroType:
        """One type, with those in it."""
        self._depth += 1
        self._reach(self._depth)
        parsed = self._parse(declared, namespace)
        self._depth -= 1
        return parsed

    def _reach(self, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise SchemaError(
                "an AVRO schema nests too deep", expected=f"at most {MOST_DEPTH} types in one another"
            )
        self._deepest = max(self._deepest, depth)

    def _parse(self, declared: Any, namespace: str) -> AvroType:
        self._count += 1
        if self._count > MOST_TYPES:
            raise SchemaError("an AVRO schema is too large", expected=f"at most {MOST_TYPES} types")
        if isinstance(declared, str):
            return AvroType(kind=declared) if declared in PRIMITIVES else self._known(declared, namespace)
        if isinstance(declared, list):
            return self._union(declared, namespace)
        if not isinstance(declared, dict) or "type" not in declared:
            raise _not_avro("a type", declared)
        kind = declared["type"]
        if not isinstance(kind, str):
            return self.parse(kind, namespace)  # {"type": {"type": …}}
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind=kind), declared)
        if kind in ("array", "map"):
            items = declared.get("items" if kind == "array" else "values", _NO_DEFAULT)
            if items is _NO_DEFAULT:
                raise _not_avro(f"the items of the {kind}", declared)
            return AvroType(kind=kind, items=self.parse(items, namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._declare("record" if kind == "error" else kind, declared, namespace)
        return self._known(kind, namespace)

    def _known(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise _not_avro("a type that is declared before", name)
        known = self._named[full]
        if known is None:
            raise SchemaError(
                f"the AVRO record {full} holds itself: it has no columns",
                hint="Read without schemas, and decode `value` in the program.",
            )
        count, depth = self._sizes[full]
        self._count += count
        self._reach(self._depth + depth)
        return known

    def _union(self, declared: list[Any], namespace: str) -> AvroType:
        branches = tuple(self.parse(branch, namespace) for branch in declared)
        names = [branch.name or branch.kind for branch in branches]
        if not branches or "union" in names or len(set(names)) < len(names):
            raise _not_avro("a union of different types", declared)
        return AvroType(kind="union", branches=branches)

    def _declare(self, kind: str, declared: Mapping[str, Any], namespace: str) -> AvroType:
        name = declared.get("name")
        if not isinstance(name, str) or not name:
            raise _not_avro(f"the name of a {kind}", declared)
        space, dot, _ = name.rpartition(".")
        given = declared.get("namespace")
        space = space if dot else (given if isinstance(given, str) else namespace)
        full = name if dot or not space else f"{space}.{name}"
        if full in self._named:
            raise _not_avro("names that are declared once", full)
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in _texts(declared.get("aliases", []), "aliases")
        )
        self._named[full] = None
        before, above, self._deepest = self._count, self._deepest, self._depth
        if kind == "record":
            made = AvroType(kind=kind, name=full, aliases=aliases, fields=self._fields(declared, space))
        elif kind == "enum":
            symbols = _texts(declared.get("symbols"), "symbols")
            default = declared.get("default")
            if len(set(symbols)) < len(symbols) or (default is not None and default not in symbols):
                raise _not_avro("different symbols of an enum, its default among them", declared)
            made = AvroType(kind=kind, name=full, aliases=aliases, symbols=symbols, default_symbol=default)
        else:
            size = declared.get("size")
            if type(size) is not int or size < 0 or size >= 2**31:
                raise _not_avro("the size of a fixed", declared)
            made = _with_logical(AvroType(kind=kind, name=full, aliases=aliases, size=size), declared)
        self._named[full] = made
        self._sizes[full] = self._count - before, self._deepest - self._depth
        self._deepest = max(self._deepest, above)
        return made

    def _fields(self, declared: Mapping[str, Any], namespace: str) -> tuple[Field, ...]:
        listed = declared.get("fields")
        if not isinstance(listed, list):
            raise _not_avro("the fields of a record", declared)
        fields = []
        for each in listed:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise _not_avro("a field with name and type", each)
            fields.append(
                Field(
                    name=each["name"],
                    type=self.parse(_with_own_logical(each), namespace),
                    aliases=_texts(each.get("aliases", []), "aliases"),
                    has_default="default" in each,
                    default=each.get("default"),
                )
            )
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise _not_avro("fields of different names", names)
        return tuple(fields)


def _with_own_logical(field: Mapping[str, Any]) -> Any:
    """A field's type; Pulsar's Python client writes the logical type beside it instead of into it."""
    if "logicalType" in field and isinstance(field["type"], str) and field["type"] in PRIMITIVES:
        return {"type": field["type"], "logicalType": field["logicalType"]}
    return field["type"]


def _texts(listed: Any, what: str) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise _not_avro(f"{what} as a list of texts", listed)
    return tuple(listed)


_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
}


def _with_logical(plain: AvroType, declared: Mapping[str, Any]) -> AvroType:
    """The type with its logical type; one that is not known or does not fit is ignored, as AVRO demands."""
    logical = declared.get("logicalType")
    if plain.kind not in _LOGICAL.get(logical if isinstance(logical, str) else "", ()):
        return plain
    precision, scale = 0, 0
    if logical == "decimal":
        digits, decimals = declared.get("precision"), declared.get("scale", 0)
        if type(digits) is not int or type(decimals) is not int or not 0 <= decimals <= digits:
            return plain
        if not 1 <= digits <= 38:
            return plain  # more digits than that fit no column of Spark
        precision, scale = digits, decimals
    return AvroType(
        kind=plain.kind,
        name=plain.name,
        aliases=plain.aliases,
        size=plain.size,
        logical=str(logical),
        precision=precision,
        scale=scale,
    )


def _not_avro(expected: str, found: object) -> SchemaError:
    text = found if isinstance(found, str) else json.dumps(found)
    return SchemaError("this is not an AVRO schema", expected=expected, found=text[:200])


MOST_SLOTS = 4096

_PLAIN_TYPES: dict[str, pa.DataType] = {
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
_LOGICAL_TYPES: dict[str, pa.DataType] = {
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
    """The place where a reader's type goes.

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
class AvroColumns:
    """The columns of a reader's schema.

    Attributes:
        root: where a whole value goes.
        owners: for each slot the slot of the list or map that it lies in, −1 if it lies in none.
    """

    root: Target
    owners: tuple[int, ...]


def make_layout(reader: AvroType, fields: Collection[str] | None = None) -> AvroColumns:
    """Give each part of a schema its slot; `fields` are those of a record to read, None for all.

    Raises:
        SchemaError: too many columns.
    """
    owners: list[int] = []
    root = _target(reader, -1, owners, None if fields is None else frozenset(fields))
    return AvroColumns(root=root, owners=tuple(owners))


def simple(reader: AvroType) -> AvroType:
    """The type that a union's values become: the one type beside null, the wider of two, or the union."""
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
    return _LOGICAL_TYPES[avro.logical] if avro.logical else _PLAIN_TYPES[avro.kind]
