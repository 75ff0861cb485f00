"""From a writer's schema and the reader's layout to the program that the kernel runs.

Fields are matched by name or alias, numbers are promoted, what only the writer has is skipped, what only the reader
has gets its default. Source: the AVRO specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from offload_core.schemas.avro.targets import Layout, Target
from offload_core.schemas.avro.types import AvroType, Field
from offload_core.schemas.kernels import operations as op
from offload_hooks.errors import SchemaError

MOST_INSTRUCTIONS = 200_000

_TIME_BOUNDS = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_NUMBERS = {"int": op.INT, "long": op.LONG, "float": op.FLOAT, "double": op.DOUBLE, "boolean": op.BOOLEAN}
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the kernel runs: int64 instructions (n × 6) and ranges of numbers; `pool` uint8 holds constants."""

    instructions: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    pool: npt.NDArray[np.uint8]


def compile_program(writer: AvroType, reader: AvroType, layout: Layout) -> Program:
    """The program that reads what `writer` wrote into the layout of `reader`.

    Raises:
        SchemaError: they do not go together, or the program would be too long.
    """
    compiler = _Compiler()
    try:
        compiler.value(writer, reader, layout.root)
    except RecursionError as error:
        raise SchemaError("an AVRO schema is nested too deep") from error
    compiler.add(op.END)
    return Program(
        instructions=np.array(compiler.instructions, dtype=np.int64).reshape(-1, 6),
        numbers=np.array(compiler.numbers or [0], dtype=np.int64),
        pool=np.frombuffer(bytes(compiler.pool) or b"\0", dtype=np.uint8),
    )


def goes_to(writer: AvroType, reader: AvroType) -> bool:
    """Whether a type of the writer may go to one of the reader, by kind and name; neither is a union."""
    if writer.kind == reader.kind:
        if writer.kind in ("record", "enum", "fixed"):
            return _same_name(writer, reader) and writer.size == reader.size
        return True
    return reader.kind in _PROMOTIONS.get(writer.kind, ())


def branch_for(writer: AvroType, reader: AvroType) -> int | None:
    """The branch of the reader's union that a type of the writer goes to: the same type first, else any."""
    exact = [
        i
        for i, branch in enumerate(reader.branches)
        if branch.kind == writer.kind and goes_to(writer, branch)
    ]
    wider = [i for i, branch in enumerate(reader.branches) if goes_to(writer, branch)]
    return next(iter(exact + wider), None)


def writer_field(record: AvroType, field: Field) -> Field | None:
    """The field of a writer's record that a reader's field is filled from: that of its name, else of an alias."""
    by_name = {each.name: each for each in record.fields}
    return next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    short = writer.name.rpartition(".")[2]
    names = (reader.name, *reader.aliases)
    return writer.name in names or short in (name.rpartition(".")[2] for name in names)


class _Compiler:
    def __init__(self) -> None:
        self.instructions: list[tuple[int, ...]] = []
        self.numbers: list[int] = []
        self.pool = bytearray()

    def add(self, operation: int, slot: int = -1, a: int = 0, b: int = 0, c: int = 0) -> int:
        if len(self.instructions) >= MOST_INSTRUCTIONS:
            raise SchemaError("an AVRO schema is too large", expected=f"at most {MOST_INSTRUCTIONS} steps")
        self.instructions.append((operation, slot, a, b, c, 0))
        return len(self.instructions) - 1

    def patch(self, address: int, a: int) -> None:
        operation, slot, _, b, c, d = self.instructions[address]
        self.instructions[address] = (operation, slot, a, b, c, d)

    def value(self, writer: AvroType, reader: AvroType, target: Target) -> None:
        if writer.kind == "union":
            self._branches(writer, [(branch, reader, target) for branch in writer.branches])
        elif reader.kind == "union":
            chosen = branch_for(writer, reader)
            if chosen is None:
                raise SchemaError(
                    "a type of the writer's schema is not in the reader's union",
                    expected=", ".join(branch.name or branch.kind for branch in reader.branches),
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

    def _branches(
        self, writer: AvroType, each: list[tuple[AvroType, AvroType | None, Target | None]]
    ) -> None:
        """One piece of program per branch; a branch that the reader has no place for is a fault of its datum."""
        start = len(self.numbers)
        self.numbers += [0] * len(each)
        self.add(op.UNION, -1, start, len(each))
        jumps = []
        for i, (branch, reader, target) in enumerate(each):
            self.numbers[start + i] = begin = len(self.instructions)
            try:
                if reader is None or target is None:
                    self.skip(branch)
                else:
                    self.value(branch, reader, target)
            except SchemaError:
                del self.instructions[begin:]
                self.add(op.FAULT)
            jumps.append(self.add(op.JUMP))
        if len(writer.branches) == len(jumps) and all(
            self.instructions[self.numbers[start + i]][0] == op.FAULT for i in range(len(each))
        ):
            raise SchemaError(
                "no type of the writer's union can be read as the reader's",
                found=", ".join(branch.name or branch.kind for branch in writer.branches),
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
            for member, child in zip(target.avro.branches, target.children, strict=True):
                if member is branch:
                    put(branch, child)
                else:
                    self.null(child)

    def null(self, target: Target) -> None:
        if target.level:
            start = len(self.numbers)
            self.numbers += target.level
            self.add(op.NULLS, -1, start, len(target.level))

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
        start = len(self.numbers)
        places = {symbol: i for i, symbol in enumerate(reader.symbols)}
        default = places.get(reader.default_symbol or "", -1)
        self.numbers += [places.get(symbol, default) for symbol in writer.symbols]
        self.add(op.ENUM, slot, start, len(writer.symbols))

    def _list(self, slot: int) -> int:
        self.add(op.LIST, slot)
        return self.add(op.NEXT, slot)

    def _end_list(self, begin: int) -> None:
        self.add(op.JUMP, -1, begin)
        self.patch(begin, len(self.instructions))

    def _record(self, writer: AvroType, reader: AvroType, target: Target) -> None:
        self.add(op.VALID, target.slot)
        fields = {field.name: field for field in reader.fields}
        wanted = dict(zip(target.names, target.children, strict=True))
        sources = {name: writer_field(writer, fields[name]) for name in wanted}
        for field in writer.fields:
            names = [name for name, source in sources.items() if source is field]
            if len(names) > 1:
                raise SchemaError(
                    f"two fields of the reader's schema are filled from one, {field.name!r}",
                    found=", ".join(names),
                )
            if names:
                self.value(field.type, fields[names[0]].type, wanted[names[0]])
            else:
                self.skip(field.type)
        for name, source in sources.items():
            if source is None:
                if not fields[name].has_default:
                    raise SchemaError(
                        f"the writer's schema has no field {name!r}, and the reader's no default for it"
                    )
                self.constant(fields[name].default, fields[name].type, wanted[name])

    def skip(self, writer: AvroType) -> None:
        """Step over a value."""
        if writer.kind == "union":
            self._branches(writer, [(branch, None, None) for branch in writer.branches])
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
            self._enum(writer, writer, -1)
        elif writer.kind in _NUMBERS:
            self.add(_NUMBERS[writer.kind], -1)
        elif writer.kind != "null":
            self._bytes(writer, -1, is_text=False)

    def constant(self, value: Any, reader: AvroType, target: Target) -> None:
        """Add a default, which is JSON; bytes are text of code points 0 to 255."""
        if reader.kind == "union":
            fitting = next((branch for branch in reader.branches if is_default(value, branch)), None)
            if fitting is None:
                raise _no_default(value, reader)
            self._into_union(fitting, target, partial(self.constant, value))
            return
        if not is_default(value, reader):
            raise _no_default(value, reader)
        slot = target.slot
        if reader.kind == "record":
            self.add(op.VALID, slot)
            for field in reader.fields:
                child = target.children[target.names.index(field.name)]
                self.constant(value.get(field.name, field.default), field.type, child)
        elif reader.kind == "array":
            self.add(op.ITEMS, slot, len(value))
            for item in value:
                self.constant(item, reader.element, target.children[0])
        elif reader.kind == "map":
            self.add(op.ITEMS, slot, len(value))
            for key, item in value.items():
                self._text(key.encode(), target.children[0].slot)
                self.constant(item, reader.element, target.children[1])
        elif reader.kind == "enum":
            self.add(op.CONSTANT, slot, reader.symbols.index(value))
        elif reader.kind in ("string", "bytes", "fixed"):
            self._text(value.encode("utf-8" if reader.kind == "string" else "latin-1"), slot)
        elif reader.kind in ("float", "double"):
            number = float(value)
            if reader.kind == "float":
                (number,) = struct.unpack("<f", struct.pack("<f", number))
            self.add(op.CONSTANT, slot, struct.unpack("<q", struct.pack("<d", number))[0])
        elif reader.kind != "null":
            scale = 1000 if reader.logical in ("timestamp-millis", "local-timestamp-millis") else 1
            self.add(op.CONSTANT, slot, int(value) * scale)

    def _text(self, data: bytes, slot: int) -> None:
        self.add(op.CONSTANT, slot, op.IN_POOL | len(self.pool) << op.SPAN_BITS | len(data))
        self.pool += data


def is_default(value: Any, reader: AvroType) -> bool:
    """Whether a JSON value is a default of this type, which is no union."""
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
        latin = isinstance(value, str) and all(ord(letter) < 256 for letter in value)
        return latin and (kind == "bytes" or len(value) == reader.size)
    if kind == "array":
        return isinstance(value, list)
    if kind == "map":
        return isinstance(value, dict)
    return isinstance(value, dict) and all(
        field.name in value or field.has_default for field in reader.fields
    )


def _no_default(value: object, reader: AvroType) -> SchemaError:
    return SchemaError(
        "a field's default is not of its type",
        expected=", ".join(branch.kind for branch in reader.branches) or reader.kind,
        found=repr(value)[:100],
    )
