"""One message, read plainly: the reference implementation of tables and kernel. It explains wrong payloads.

Values are as Arrow's `to_pylist` gives those of the decoder: a map is a list of pairs, an enum its symbol.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from decimal import Decimal
from typing import Any

from offload_core.format.schemas.kernels import wire
from offload_core.format.schemas.protobuf_types import FieldType, MessageType
from offload_hooks.errors import PayloadError

_FIXED = {"fixed32": "<I", "sfixed32": "<i", "float": "<f", "fixed64": "<Q", "sfixed64": "<q", "double": "<d"}
_DROPPED = object()


def read_message(payload: bytes, message: MessageType, fields: Collection[str] | None = None) -> Any:
    """The value of a whole payload; `fields` are those of the message to read, None for all.

    Raises:
        PayloadError: bytes that are no such message, with the byte.
    """
    source = _WireSource(payload)
    value = source.message(message, {}, len(payload), 0, fields)
    assert source.position == len(payload)
    return _shown(message, value, fields)


class _WireSource:
    """Reads values into dicts by the fields' names; a field that is missing has its default."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.position = 0
        self._by_number: dict[int, dict[int, FieldType]] = {}  # by the ids of message types

    def message(
        self,
        message: MessageType,
        found: dict[str, Any],
        end: int,
        group: int,
        chosen: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Read fields into `found` up to `end`, or to the end of the group of this number."""
        by_number = self._by_number.get(id(message))
        if by_number is None:
            by_number = self._by_number[id(message)] = {field.number: field for field in message.fields}
        while self.position < end:
            number, wire_type = self._tag(end)
            if wire_type == wire.END_GROUP:
                if number != group:
                    raise self._wrong("a group ends that has not begun", group or "none", number)
                return found
            field = by_number.get(number)
            kind = -1 if field is None else _kind(field)
            fits = field is not None and wire.WIRE_TYPES[kind] == wire_type
            if field is None or (chosen is not None and field.name not in chosen):
                self._skip(end, wire_type, number)
                if field is not None and fits:
                    self._take_back_others(field, found)
            elif fits:
                self._field(message, field, found, end)
            elif field.is_repeated and wire_type == wire.LENGTH and kind < wire.STRING:
                last = self._length(end)
                while self.position < last:
                    self._field(message, field, found, last)
            else:
                self._skip(end, wire_type, number)
        if group:
            raise self._wrong("a message ends before a group in it", f"the end of group {group}", "none")
        return found

    def _field(self, message: MessageType, field: FieldType, found: dict[str, Any], end: int) -> None:
        if field.message is not None:
            self._take_back_others(field, found)
            inner_end, group = (end, field.number) if field.kind == "group" else (self._length(end), 0)
            known = {} if field.is_repeated else found.get(field.name, {})
            value = self.message(field.message, known, inner_end, group)
            if field.message.is_entry:
                if _DROPPED in value.values():
                    return
                entries = found.setdefault(field.name, {})
                key = value.get("key", field.message.fields[0].default)
                entries.pop(key, None)
                entries[key] = value
                return
        else:
            value = self._scalar(field, end)
            if field.enum is not None and field.enum.is_closed and value not in field.enum.symbols:
                if message.is_entry:
                    found[field.name] = _DROPPED
                return
            self._take_back_others(field, found)
        if field.is_repeated:
            found.setdefault(field.name, []).append(value)
        else:
            found[field.name] = value

    def _take_back_others(self, field: FieldType, found: dict[Any, Any]) -> None:
        """Take back the member of a oneof that was there before; `found` has its name by the oneof's number."""
        if field.oneof >= 0:
            other = found.get(field.oneof)
            if other != field.name:
                found.pop(other, None)
            found[field.oneof] = field.name

    def _scalar(self, field: FieldType, end: int) -> Any:
        kind = field.kind
        if kind in _FIXED:
            form = _FIXED[kind]
            return struct.unpack(form, self._take(struct.calcsize(form), end))[0]
        if kind in ("string", "bytes", "message"):
            start = self.position
            data = self._take(self._length(end) - self.position, end)
            try:
                return data.decode() if kind == "string" else data
            except UnicodeDecodeError as error:
                raise PayloadError("a text is not UTF-8", offset=start, found=error.reason) from error
        number = self._varint(end)
        if kind == "bool":
            return number != 0
        if kind in ("sint64", "sint32"):
            number &= (1 << int(kind[-2:])) - 1
            return number >> 1 ^ -(number & 1)
        bits = 64 if kind.endswith("64") else 32
        number &= (1 << bits) - 1
        return number - (1 << bits) if kind[0] != "u" and number >> bits - 1 else number

    def _skip(self, end: int, wire_type: int, number: int) -> None:
        groups: list[int] = []
        while True:
            if wire_type == wire.VARINT:
                self._varint(end)
            elif wire_type in (wire.FIXED32, wire.FIXED64):
                self._take(4 if wire_type == wire.FIXED32 else 8, end)
            elif wire_type == wire.LENGTH:
                self.position = self._length(end)
            elif wire_type == wire.START_GROUP and len(groups) < wire.MOST_GROUPS:
                groups.append(number)
            elif wire_type == wire.END_GROUP and groups and groups[-1] == number:
                groups.pop()
            else:
                raise self._wrong("a field has no right wire type here", "0 to 5", wire_type)
            if not groups:
                return
            number, wire_type = self._tag(end)

    def _tag(self, end: int) -> tuple[int, int]:
        tag = self._varint(end)
        if not 8 <= tag < 1 << 32:
            raise self._wrong("a field has no right number", "1 to 2^29 - 1", tag >> 3)
        return tag >> 3, tag & 7

    def _length(self, end: int) -> int:
        """The place where the value ends whose length stands here."""
        length = self._varint(end)
        if length > end - self.position:
            raise self._wrong("a field is longer than its message", f"at most {end - self.position}", length)
        return self.position + length

    def _take(self, size: int, end: int) -> bytes:
        if size > end - self.position:
            raise self._wrong("a message ends early", f"{size} bytes", f"{end - self.position} bytes")
        self.position += size
        return self._payload[self.position - size : self.position]

    def _varint(self, end: int) -> int:
        value = 0
        for shift in range(0, 70, 7):
            (byte,) = self._take(1, end)
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (1 << 64) - 1
        raise self._wrong("a number is too long", "10 bytes", "more")

    def _wrong(self, what: str, expected: object, found: object) -> PayloadError:
        return PayloadError(what, offset=self.position, expected=expected, found=found)


def _kind(field: FieldType) -> int:
    is_bytes = field.kind in ("message", "group") and field.message is None
    return wire.KINDS["bytes" if is_bytes else field.kind]


def _shown(
    message: MessageType, found: dict[str, Any] | None, chosen: Collection[str] | None = None
) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        field.name: _shown_field(field, found, is_part=message.is_entry)
        for field in message.fields
        if chosen is None or field.name in chosen
    }


def _shown_field(field: FieldType, found: dict[str, Any], *, is_part: bool) -> Any:
    value = found.get(field.name)
    if not field.is_repeated:
        value = field.default if value is None else value
        return _value(field, {} if value is None and is_part else value)
    if field.message is not None and field.message.is_entry:
        entries = [_shown(field.message, each) or {} for each in (value or {}).values()]
        return [(entry["key"], entry["value"]) for entry in entries]
    return [_value(field, item) for item in value or ()]


def _value(field: FieldType, value: Any) -> Any:
    if value is None:
        return None
    if field.message is not None:
        return _shown(field.message, value)
    if field.enum is not None:
        return field.enum.symbols.get(value, str(value))
    return Decimal(value) if field.kind in ("uint64", "fixed64") else value
