"""From a writer's schema and the reader's layout to the program that the kernel runs.

Fields are matched by name or alias, numbers are promoted, what only the writer has is skipped, what only the reader
has gets its default. Source: the AVRO specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrow_arrays import Bytes
from offload_core.format.schemas.avro_types import AvroColumns, AvroType, Field, Target, make_layout
from offload_core.format.schemas.cells import Cells, Room
from offload_core.format.schemas.kernels import avro as kernels
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.payload_spans import spans_of_one
from offload_hooks.errors import BadLengthError, SchemaError

MOST_INSTRUCTIONS = 200_000
"""Number of steps that may be compiled for a schema, those of branches that are given up counted as well."""

_TIME_BOUNDS = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_NUMBERS = {"int": op.INT, "long": op.LONG, "float": op.FLOAT, "double": op.DOUBLE, "boolean": op.BOOLEAN}
_NAMED = ("record", "enum", "fixed")
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


_MOST_NAMED = 10
_Key = tuple[str, int, str]
"""A type's kind, size and short name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program for the kernel.

    Attributes:
        instructions: int64 (n × 6).
        numbers: int64, ranges that those name.
        pool: uint8, the bytes of constants.
        most_depth: how deep lists nest, those that are skipped as well.
    """

    instructions: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    pool: npt.NDArray[np.uint8]
    most_depth: int


def compile_program(writer: AvroType, reader: AvroType, layout: AvroColumns) -> Program:
    """The program that reads data of `writer` into the layout of `reader`.

    Raises:
        SchemaError: they do not go together, or the program would be too long.
    """
    compiler = _Compiler(layout)
    try:
        compiler.value(writer, reader, layout.root)
    except RecursionError as error:
        raise SchemaError("an AVRO schema is nested too deep") from error
    compiler.add(op.END)
    return Program(
        instructions=np.array(compiler.instructions, dtype=np.int64).reshape(-1, 6),
        numbers=np.array(compiler.numbers or [0], dtype=np.int64),
        pool=np.frombuffer(bytes(compiler.pool) or b"\0", dtype=np.uint8),
        most_depth=compiler.most_depth,
    )


def goes_to(writer: AvroType, reader: AvroType) -> bool:
    """True if a type of the writer may go to one of the reader, by kind and name; neither is a union."""
    if writer.kind in _NAMED or reader.kind in _NAMED:
        return not _keys(writer, with_aliases=False).isdisjoint(_keys(reader))
    return reader.kind in (writer.kind, *_PROMOTIONS.get(writer.kind, ()))


class Branches:
    """Finds the branches of a reader's unions, by kind and name."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[AvroType, dict[_Key, int]]] = {}

    def find(self, writer: AvroType, reader: AvroType) -> int | None:
        """The branch of the reader's union that a type of the writer goes to: the same type first, else any."""
        known = self._places.get(id(reader))
        if known is None:
            places: dict[_Key, int] = {}
            for i, branch in enumerate(reader.branches):
                for key in _keys(branch):
                    places.setdefault(key, i)
            # With the type itself, so that no other one gets its id.
            known = self._places[id(reader)] = (reader, places)
        places = known[1]
        for key in _keys(writer, with_aliases=False):
            if key in places:
                return places[key]
        wider = [places[kind, 0, ""] for kind in _PROMOTIONS.get(writer.kind, ()) if (kind, 0, "") in places]
        return min(wider, default=None)


def writer_fields(record: AvroType, fields: Iterable[Field]) -> dict[str, Field | None]:
    """For each of a reader's fields that of a writer's record which fills it: that of its name, else of an alias."""
    by_name = {each.name: each for each in record.fields}
    return {
        field.name: next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
        for field in fields
    }


def _keys(avro: AvroType, *, with_aliases: bool = True) -> set[_Key]:
    """Keys to find a type by: its kind, and of a named one its size and the last part of each name."""
    if avro.kind not in _NAMED:
        return {(avro.kind, 0, "")}
    names = (avro.name, *avro.aliases) if with_aliases else (avro.name,)
    return {(avro.kind, avro.size, name.rpartition(".")[2]) for name in names}


class _TooLongError(SchemaError):
    """The program is too long: no fault of the branch that is compiled."""


class _Compiler:
    def __init__(self, layout: AvroColumns) -> None:
        self.instructions: list[tuple[int, ...]] = []
        self.numbers: list[int] = []
        self.pool = bytearray()
        self.most_depth = 0
        self._depth = 0
        self._added = 0
        self._branches = Branches()
        self._item_cells = Counter(layout.owners)  # of a list's slot: the cells of an item
        # By the ids of types and targets, which live as long as the compiler's arguments do.
        self._levels: dict[int, int] = {}
        self._members: dict[int, dict[int, tuple[Target, int]]] = {}
        self._places: dict[int, dict[str, int]] = {}
        self._symbols: dict[tuple[int, int], int] = {}

    def add(self, operation: int, slot: int = -1, a: int = 0, b: int = 0, c: int = 0) -> int:
        self._added += 1
        if self._added > MOST_INSTRUCTIONS:
            raise _TooLongError("an AVRO schema is too large", expected=f"at most {MOST_INSTRUCTIONS} steps")
        self.instructions.append((operation, slot, a, b, c, 0))
        return len(self.instructions) - 1

    def patch(self, address: int, a: int) -> None:
        operation, slot, _, b, c, d = self.instructions[address]
        self.instructions[address] = (operation, slot, a, b, c, d)

    def value(self, writer: AvroType, reader: AvroType, target: Target) -> None:
        if writer.kind == "union":
            self._union(writer, [(branch, reader, target) for branch in writer.branches])
        elif reader.kind == "union":
            chosen = self._branches.find(writer, reader)
            if chosen is None:
                raise SchemaError(
                    "a type of the writer's schema is not in the reader's union",
                    expected=named(reader.branches),
                    found=writer.name or writer.kind,
                )
            self._into_union(reader.branches[chosen], target, partial(self.value, writer))
        elif not goes_to(writer, reader):
            raise SchemaError(
                "a type of the writer's schema cannot be read as the reader's",
                expected=reader.name or reader.kind,
                found=writer.name or writer.kind,
            )
        else:
            self._one(writer, reader, target)

    def _union(self, writer: AvroType, each: list[tuple[AvroType, AvroType | None, Target | None]]) -> None:
        """Write the program of each branch; a branch that the reader has no place for is a fault of its datum."""
        start = len(self.numbers)
        self.numbers += [0] * len(each)
        self.add(op.UNION, -1, start, len(each))
        jumps = []
        for i, (branch, reader, target) in enumerate(each):
            self.numbers[start + i] = begin = len(self.instructions)
            depth = self._depth
            try:
                if reader is None or target is None:
                    self.skip(branch)
                else:
                    self.value(branch, reader, target)
            except _TooLongError:
                raise
            except SchemaError:
                self._depth = depth
                del self.instructions[begin:]
                self.add(op.FAULT)
            jumps.append(self.add(op.JUMP))
        if len(writer.branches) == len(jumps) and all(
            self.instructions[self.numbers[start + i]][0] == op.FAULT for i in range(len(each))
        ):
            raise SchemaError(
                "no type of the writer's union can be read as the reader's", found=named(writer.branches)
            )
        for jump in jumps:
            self.patch(jump, len(self.instructions))

    def _into_union(self, branch: AvroType, target: Target, put: Callable[[AvroType, Target], None]) -> None:
        """Have a value `put` as this branch of the union that is the target."""
        if branch.kind == "null":
            self.null(target)
        elif target.avro.kind != "union":
            # the one type beside null, or the wider of two numbers
            put(target.avro if target.avro.kind in ("long", "double") else branch, target)
        else:
            self.add(op.VALID, target.slot)
            child, begin = self._member(target, branch)
            self._nulls(target, 1, begin)  # the first is the union's own slot
            put(branch, child)
            self._nulls(target, begin + len(child.level), len(target.level))

    def _member(self, union: Target, branch: AvroType) -> tuple[Target, int]:
        """The place where a branch of a union goes, and where in the union's level its own begins."""
        if id(union) not in self._members:
            members: dict[int, tuple[Target, int]] = {}
            begin = 1
            for each, child in zip(union.avro.branches, union.children, strict=True):
                members[id(each)] = child, begin
                begin += len(child.level)
            self._members[id(union)] = members
        return self._members[id(union)][id(branch)]

    def null(self, target: Target) -> None:
        self._nulls(target, 0, len(target.level))

    def _nulls(self, target: Target, begin: int, end: int) -> None:
        """Add a null to those slots of a target's level."""
        if begin == end:
            return
        if id(target) not in self._levels:
            self._levels[id(target)] = len(self.numbers)
            self.numbers += target.level
        self.add(op.NULLS, -1, self._levels[id(target)] + begin, end - begin)

    def _one(self, writer: AvroType, reader: AvroType, target: Target) -> None:
        slot = target.slot
        if writer.kind == "null":
            return
        if writer.kind == "record":
            self._record(writer, reader, target)
        elif writer.kind in ("array", "map"):
            begin = self._list(slot)
            if writer.kind == "map":
                self.add(op.SPAN, target.children[0].slot, 1)
            self.value(writer.element, reader.element, target.children[-1])
            self._end_list(begin)
        elif writer.kind == "enum":
            self._enum(writer, reader, slot)
        elif reader.logical == "decimal":
            if (writer.precision, writer.scale) != (reader.precision, reader.scale) and writer.logical:
                raise SchemaError(
                    "a decimal has other digits in the writer's schema than in the reader's",
                    expected=f"decimal({reader.precision}, {reader.scale})",
                    found=f"decimal({writer.precision}, {writer.scale})",
                )
            size = writer.size if writer.kind == "fixed" else -1
            high, low = divmod(10**reader.precision, 1 << 64)
            self.add(op.DECIMAL, slot, size, high, low - (1 << 64) if low >> 63 else low)
        elif writer.kind in _NUMBERS:
            self._number(writer, reader, slot)
        else:
            self._bytes(writer, slot, is_text=reader.kind == "string")

    def _number(self, writer: AvroType, reader: AvroType, slot: int) -> None:
        conversion, bound = op.AS_IS, 0
        if reader.kind in ("float", "double"):
            conversion = op.TO_DOUBLE
        elif reader.logical in ("timestamp-millis", "local-timestamp-millis"):
            conversion = op.TO_MICROSECONDS
        elif reader.logical in _TIME_BOUNDS:
            conversion, bound = op.TIME_OF_DAY, _TIME_BOUNDS[reader.logical]
        self.add(_NUMBERS[writer.kind], slot, conversion, bound)

    def _bytes(self, writer: AvroType, slot: int, *, is_text: bool) -> None:
        if writer.kind == "fixed":
            self.add(op.FIXED, slot, writer.size)
        else:
            self.add(op.SPAN, slot, int(is_text))

    def _enum(self, writer: AvroType, reader: AvroType, slot: int) -> None:
        start = self._symbols.get((id(writer), id(reader)))
        if start is None:
            places = self._symbol_places(reader)
            default = places.get(reader.default_symbol or "", -1)
            start = self._symbols[id(writer), id(reader)] = len(self.numbers)
            self.numbers += [places.get(symbol, default) for symbol in writer.symbols]
        self.add(op.ENUM, slot, start, len(writer.symbols))

    def _symbol_places(self, enum: AvroType) -> dict[str, int]:
        if id(enum) not in self._places:
            self._places[id(enum)] = {symbol: i for i, symbol in enumerate(enum.symbols)}
        return self._places[id(enum)]

    def _list(self, slot: int) -> int:
        self._depth += 1
        self.most_depth = max(self.most_depth, self._depth)
        self.add(op.LIST)
        return self.add(op.NEXT, -1, 0, self._item_cells[slot] if slot >= 0 else 0, slot)

    def _end_list(self, begin: int) -> None:
        self._depth -= 1
        self.add(op.JUMP, -1, begin)
        self.patch(begin, len(self.instructions))

    def _record(self, writer: AvroType, reader: AvroType, target: Target) -> None:
        self.add(op.VALID, target.slot)
        fields = {field.name: field for field in reader.fields}
        targets = dict(zip(target.names, target.children, strict=True))
        sources = writer_fields(writer, (fields[name] for name in targets))
        filled: dict[str, str] = {}
        for name, source in sources.items():
            if source is not None and filled.setdefault(source.name, name) != name:
                raise SchemaError(
                    f"two fields of the reader's schema are filled from one, {source.name!r}",
                    found=f"{filled[source.name]}, {name}",
                )
        for field in writer.fields:
            if field.name in filled:
                name = filled[field.name]
                self.value(field.type, fields[name].type, targets[name])
            else:
                self.skip(field.type)
        for name, source in sources.items():
            if source is None:
                if not fields[name].has_default:
                    raise SchemaError(
                        f"the writer's schema has no field {name!r}, and the reader's no default for it"
                    )
                self.constant(fields[name].default, fields[name].type, targets[name])

    def skip(self, writer: AvroType) -> None:
        """Step over a value."""
        if writer.kind == "union":
            self._union(writer, [(branch, None, None) for branch in writer.branches])
        elif writer.kind == "record":
            for field in writer.fields:
                self.skip(field.type)
        elif writer.kind in ("array", "map"):
            begin = self._list(-1)
            if writer.kind == "map":
                self.add(op.SPAN)
            self.skip(writer.element)
            self._end_list(begin)
        elif writer.kind == "enum":
            self.add(op.ENUM, -1, 0, len(writer.symbols))
        elif writer.kind in _NUMBERS:
            self.add(_NUMBERS[writer.kind], -1)
        elif writer.kind != "null" and (writer.kind != "fixed" or writer.size):
            self._bytes(writer, -1, is_text=False)

    def constant(self, value: Any, reader: AvroType, target: Target) -> None:
        """Add a default, which is JSON; bytes are text of code points 0 to 255."""
        if reader.kind == "union":
            fitting = next((branch for branch in reader.branches if self._fits(value, branch)), None)
            if fitting is None:
                raise _no_default(value, reader)
            self._into_union(fitting, target, partial(self.constant, value))
            return
        if not self._fits(value, reader):
            raise _no_default(value, reader)
        slot = target.slot
        if reader.kind == "record":
            self.add(op.VALID, slot)
            for field, child in zip(reader.fields, target.children, strict=True):
                self.constant(value.get(field.name, field.default), field.type, child)
        elif reader.kind == "array":
            self.add(op.ITEMS, slot, len(value), self._item_cells[slot])
            for item in value:
                self.constant(item, reader.element, target.children[0])
        elif reader.kind == "map":
            self.add(op.ITEMS, slot, len(value), self._item_cells[slot])
            for key, item in value.items():
                self._text(key.encode(), target.children[0].slot)
                self.constant(item, reader.element, target.children[1])
        elif reader.kind == "enum":
            self.add(op.CONSTANT, slot, self._symbol_places(reader)[value])
        elif reader.kind in ("string", "bytes", "fixed"):
            self._text(value.encode("utf-8" if reader.kind == "string" else "latin-1"), slot)
        elif reader.kind != "null":
            number = convert(value, reader)
            if number is None:
                self.null(target)
            elif reader.kind in ("float", "double"):
                self.add(op.CONSTANT, slot, struct.unpack("<q", struct.pack("<d", number))[0])
            else:
                self.add(op.CONSTANT, slot, int(number))

    def _fits(self, value: Any, reader: AvroType) -> bool:
        if reader.kind == "enum":  # of many symbols
            return isinstance(value, str) and value in self._symbol_places(reader)
        return is_default(value, reader)

    def _text(self, data: bytes, slot: int) -> None:
        self.add(op.CONSTANT, slot, op.IN_POOL | len(self.pool) << op.SPAN_BITS | len(data))
        self.pool += data


def is_default(value: Any, reader: AvroType) -> bool:
    """True if a JSON value is a default of this type, which is no union."""
    kind = reader.kind
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("int", "long"):
        limit = 1 << (31 if kind == "int" else 63)
        return type(value) is int and -limit <= value < limit
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("string", "enum"):
        return isinstance(value, str) and (kind == "string" or value in reader.symbols)
    if kind in ("bytes", "fixed"):
        if not isinstance(value, str) or any(ord(letter) > 255 for letter in value):
            return False
        fits = kind == "bytes" or len(value) == reader.size
        return fits and (reader.logical != "decimal" or _has_digits(value, reader.precision))
    if kind == "array":
        return isinstance(value, list)
    if kind == "map":
        return isinstance(value, dict)
    return isinstance(value, dict) and all(
        field.name in value or field.has_default for field in reader.fields
    )


def _has_digits(text: str, precision: int) -> bool:
    """True if the bytes of a decimal's default are a number of at most `precision` digits."""
    number = int.from_bytes(text.encode("latin-1"), "big", signed=True)
    limit: int = 10**precision
    return -limit < number < limit


def convert(value: Any, reader: AvroType) -> Any:
    """A number as the reader's column has it; None beyond what a column holds."""
    if reader.kind in ("float", "double") and value is not None:
        number = float(value)
        return _single(number) if reader.kind == "float" else number
    if reader.logical in ("timestamp-millis", "local-timestamp-millis"):
        scaled = value * 1000
        return scaled if -(2**63) < scaled < 2**63 else None
    if reader.logical in _TIME_BOUNDS and not 0 <= value < _TIME_BOUNDS[reader.logical]:
        return None
    return value


def _single(number: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    return rounded


def named(types: Sequence[AvroType]) -> str:
    """The names of the first of some types, for an error."""
    shown = ", ".join(each.name or each.kind for each in types[:_MOST_NAMED])
    return shown if len(types) <= _MOST_NAMED else f"{shown} and {len(types) - _MOST_NAMED} more"


def _no_default(value: object, reader: AvroType) -> SchemaError:
    return SchemaError(
        "a field's default is not of its type",
        expected=named(reader.branches) or reader.kind,
        found=repr(value)[:100],
    )


_NO_BYTES = np.zeros(1, dtype=np.uint8)


class AvroDecoder:
    """Reads data of the schema `writer` as `reader` has it; `fields` are those of a record to read, None for all.

    Raises:
        SchemaError: the two schemas do not go together.
    """

    def __init__(self, writer: AvroType, reader: AvroType, fields: Collection[str] | None = None) -> None:
        self.layout: AvroColumns = make_layout(reader, fields)
        self.data_type: pa.DataType = self.layout.root.data_type
        self._program = compile_program(writer, reader, self.layout)
        owners = np.array(self.layout.owners, dtype=np.int64)
        self._top_level = np.flatnonzero(owners < 0)
        self._nested = np.flatnonzero(owners >= 0)
        self._room = Room(owners)

    def decode(
        self, data: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """One value per datum, and which datums are not right; theirs, and those of length −1, are null.

        `data` uint8; `offsets`, `lengths` int64, per datum.

        Raises:
            BadLengthError: the data, or what is made of it, does not fit an Arrow array.
            TooManyCells: the datums have to be decoded in two parts.
        """
        if len(data) > op.LONGEST:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST} bytes")
        cells, faults = self._read(data, offsets, lengths, check_text=False)
        array = cells.array_of_rows(self.layout.root, faults)
        if not _is_text(array):
            cells, faults = self._read(data, offsets, lengths, check_text=True)
            array = cells.array_of_rows(self.layout.root, faults)
        return array, faults != 0

    def has_too_many_cells(self, datum: bytes) -> bool:
        """True if a datum is not right because it has more values in lists than one may have."""
        one = spans_of_one(datum)
        cells, faults = self._read(one.data, one.offsets, one.lengths, check_text=False)
        cells.array_of_rows(self.layout.root, faults)
        return bool(faults[0] == op.TOO_MANY_CELLS)

    def _read(
        self, data: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *, check_text: bool
    ) -> tuple[Cells, npt.NDArray[np.uint8]]:
        program = self._program
        return self._room.fill(
            lambda base, most_cells, counts, items, need, cells, there, faults: kernels.read_datums(
                data if len(data) else _NO_BYTES,
                offsets,
                lengths,
                program.instructions,
                program.numbers,
                program.most_depth,
                self._top_level,
                self._nested,
                check_text,
                base,
                most_cells,
                counts,
                items,
                need,
                cells,
                cells.view(np.float64),
                there,
                faults,
            ),
            lengths,
            data=data,
            pool=program.pool,
        )


def _is_text(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
