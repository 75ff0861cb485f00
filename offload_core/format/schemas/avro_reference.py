"""One datum, read plainly: the reference implementation of program and kernel. It explains wrong data.

Values are as Arrow's `to_pylist` gives those of the decoder: a map is a list of pairs, a union of several types a
dict of its members, a time an integer of the column's unit.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from decimal import Context, Decimal
from typing import Any

from offload_core.format.schemas.avro_program import (
    Branches,
    convert,
    goes_to,
    is_default,
    named,
    writer_fields,
)
from offload_core.format.schemas.avro_types import AvroType, Field, simple
from offload_hooks.errors import PayloadError

_EXACT = Context(prec=60)


def read_datum(
    datum: bytes,
    writer: AvroType,
    reader: AvroType,
    fields: Collection[str] | None = None,
    *,
    most_steps: int | None = None,
) -> Any:
    """The value of a whole datum; `fields` are those of a record to read, None for all.

    `most_steps` limits the types and fields that are visited: values that take no bytes can be many.

    Raises:
        PayloadError: bytes that do not match the writer's schema, with the byte; more than `most_steps`.
    """
    source = _Source(datum, most_steps)
    value = source.value(writer, reader, fields)
    if source.position != len(datum):
        raise PayloadError(
            "an AVRO datum goes on behind its end",
            offset=source.position,
            expected=f"{source.position} bytes",
            found=f"{len(datum)} bytes",
        )
    return value


class _Source:
    def __init__(self, datum: bytes, most_steps: int | None = None) -> None:
        self._datum = datum
        self._left = most_steps
        self.position = 0
        self._budget = len(datum)
        self._branches = Branches()
        self._targets: dict[tuple[int, int], dict[str, Field]] = {}  # by the ids of records

    def value(self, writer: AvroType, reader: AvroType, fields: Collection[str] | None = None) -> Any:
        self._count(1 + len(writer.fields) + len(reader.fields))
        if writer.kind == "union":
            return self.value(self._branch(writer), reader, fields)
        if reader.kind == "union":
            chosen = self._branches.find(writer, reader)
            if chosen is None:
                raise self._no_counterpart(writer, reader)
            selected = None if simple(reader).kind == "union" else fields
            value = self.value(writer, self._wider(reader, reader.branches[chosen]), selected)
            return _member(reader, chosen, value)
        if not goes_to(writer, reader):
            raise self._no_counterpart(writer, reader)
        if writer.kind == "record":
            return self._record(writer, reader, fields)
        if writer.kind == "array":
            return [self.value(writer.element, reader.element) for _ in self._items()]
        if writer.kind == "map":
            return [(self._text(), self.value(writer.element, reader.element)) for _ in self._items()]
        if writer.kind == "enum":
            return self._enum(writer, reader)
        return self._scalar(writer, reader)

    def skip(self, writer: AvroType) -> None:
        self._count(1 + len(writer.fields))
        if writer.kind == "union":
            self.skip(self._branch(writer))
        elif writer.kind == "record":
            for field in writer.fields:
                self.skip(field.type)
        elif writer.kind in ("array", "map"):
            for _ in self._items():
                if writer.kind == "map":
                    self._take(self._length())
                self.skip(writer.element)
        elif writer.kind == "enum":
            self._symbol(writer)
        elif writer.kind != "null":
            self._plain(writer)

    def _count(self, steps: int) -> None:
        if self._left is None:
            return
        self._left -= steps
        if self._left < 0:
            raise PayloadError(
                "an AVRO datum is not right, and has too many values to find out where",
                offset=self.position,
                expected=f"what follows {self.position} bytes",
            )

    def _wider(self, reader: AvroType, branch: AvroType) -> AvroType:
        target = simple(reader)
        return target if target.kind in ("long", "double") and branch.kind in ("int", "float") else branch

    def _record(self, writer: AvroType, reader: AvroType, fields: Collection[str] | None) -> dict[str, Any]:
        selected = [field for field in reader.fields if fields is None or field.name in fields]
        targets = self._targets.get((id(writer), id(reader)))
        if targets is None:
            sources = writer_fields(writer, selected)
            targets = {
                source.name: other for other in selected if (source := sources[other.name]) is not None
            }
            self._targets[id(writer), id(reader)] = targets
        read: dict[str, Any] = {}
        for field in writer.fields:
            target = targets.get(field.name)
            if target is None:
                self.skip(field.type)
            else:
                read[target.name] = self.value(field.type, target.type)
        return {
            field.name: read[field.name] if field.name in read else default_value(field.default, field.type)
            for field in selected
        }

    def _enum(self, writer: AvroType, reader: AvroType) -> str:
        symbol = self._symbol(writer)
        if symbol in reader.symbols:
            return symbol
        if reader.default_symbol is None:
            raise self._wrong("an enum's symbol is not the reader's", ", ".join(reader.symbols), symbol)
        return reader.default_symbol

    def _symbol(self, writer: AvroType) -> str:
        place = self._long()
        if not 0 <= place < len(writer.symbols):
            raise self._wrong("an enum has no such symbol", f"0 to {len(writer.symbols) - 1}", place)
        return writer.symbols[place]

    def _branch(self, writer: AvroType) -> AvroType:
        branch = self._long()
        if not 0 <= branch < len(writer.branches):
            raise self._wrong("a union has no such branch", f"0 to {len(writer.branches) - 1}", branch)
        return writer.branches[branch]

    def _scalar(self, writer: AvroType, reader: AvroType) -> Any:
        value = self._plain(writer, is_text=reader.kind == "string")
        if reader.logical == "decimal":
            number = int.from_bytes(value, "big", signed=True)
            if abs(number) >= 10**reader.precision:
                raise self._wrong("a decimal has too many digits", f"at most {reader.precision}", number)
            return Decimal(number).scaleb(-reader.scale, _EXACT)
        return convert(value, reader)

    def _plain(self, writer: AvroType, *, is_text: bool = False) -> Any:
        kind = writer.kind
        if kind == "null":
            return None
        if kind in ("int", "long"):
            number = self._long()
            if kind == "int" and not -(2**31) <= number < 2**31:
                raise self._wrong("an int is too large", "32 bits", number)
            return number
        if kind == "boolean":
            byte = self._take(1)[0]
            if byte > 1:
                raise self._wrong("a boolean is neither true nor false", "0 or 1", byte)
            return bool(byte)
        if kind in ("float", "double"):
            form = "<f" if kind == "float" else "<d"
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if kind == "fixed":
            return self._take(writer.size)
        return self._text() if is_text else self._take(self._length())

    def _text(self) -> str:
        start = self.position
        data = self._take(self._length())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise PayloadError("a text is not UTF-8", offset=start, found=error.reason) from error

    def _length(self) -> int:
        length = self._long()
        if length < 0:
            raise self._wrong("a length is negative", "0 or more", length)
        return length

    def _items(self) -> Any:
        """Steps through the items of an array or map."""
        while count := self._long():
            if count < 0:
                self._long()
                count = -count
            if count > self._budget:
                raise self._wrong(
                    "an array or map has more items than its datum has bytes", self._budget, count
                )
            self._budget -= count
            yield from range(count)

    def _take(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self._datum):
            raise self._wrong("an AVRO datum ends early", f"{end} bytes", f"{len(self._datum)} bytes")
        taken = self._datum[self.position : end]
        self.position = end
        return taken

    def _long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                if value >> 64:
                    break
                return value >> 1 ^ -(value & 1)
        raise self._wrong("a number is too long", "64 bits", "more")

    def _no_counterpart(self, writer: AvroType, reader: AvroType) -> PayloadError:
        expected = named(reader.branches)
        return self._wrong(
            "a value's type is not in the reader's schema",
            expected or reader.name or reader.kind,
            writer.name or writer.kind,
        )

    def _wrong(self, what: str, expected: object, found: object) -> PayloadError:
        return PayloadError(what, offset=self.position, expected=expected, found=found)


def default_value(value: Any, reader: AvroType) -> Any:
    """A field's default, which is JSON, as a value."""
    if reader.kind == "union":
        chosen = next(i for i, branch in enumerate(reader.branches) if is_default(value, branch))
        branch = reader.branches[chosen]
        target = simple(reader)
        wider = target if target.kind in ("long", "double") and branch.kind in ("int", "float") else branch
        return _member(reader, chosen, default_value(value, wider))
    if reader.kind == "record":
        return {
            field.name: default_value(value.get(field.name, field.default), field.type)
            for field in reader.fields
        }
    if reader.kind == "array":
        return [default_value(item, reader.element) for item in value]
    if reader.kind == "map":
        return [(key, default_value(item, reader.element)) for key, item in value.items()]
    if reader.kind in ("bytes", "fixed"):
        data = value.encode("latin-1")
        if reader.logical != "decimal":
            return data
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-reader.scale, _EXACT)
    return value if reader.kind in ("string", "enum", "null", "boolean") else convert(value, reader)


def _member(reader: AvroType, chosen: int, value: Any) -> Any:
    """A value as the column of a union has it."""
    if simple(reader).kind != "union" or reader.branches[chosen].kind == "null":
        return value
    members = [i for i, branch in enumerate(reader.branches) if branch.kind != "null"]
    return {f"member{place}": value if i == chosen else None for place, i in enumerate(members)}
