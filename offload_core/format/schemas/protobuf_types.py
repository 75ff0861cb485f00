"""Protobuf messages as values: definitions of Pulsar's schemas PROTOBUF_NATIVE and PROTOBUF → `MessageType`.

A native schema holds the descriptors of the message's file and of those that it imports. Pulsar's older type holds an
AVRO schema that was made of the class, and for the fields of the message itself, but none of those in it, their numbers
and types (`__PARSING_INFO__`). So there a message in it is its bytes, and an enum is its number.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from offload_hooks.errors import SchemaError
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaVersion

MOST_FIELDS = 10_000
"""Number of fields that a schema may have, those of a message type counted wherever it is used."""

MOST_DEPTH = 100
"""Most levels of nested messages: as many as Protobuf's own readers allow."""

PARSING_INFO = "__PARSING_INFO__"
_NATIVE = ("fileDescriptorSet", "rootMessageTypeName", "rootFileDescriptorName")
_LARGEST_NUMBER = (1 << 29) - 1
_PAIR = [("key", False), ("value", False)]

_KINDS: dict[int, str] = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType:
    """Symbols by their numbers; `is_closed`: a field of another number counts as not there."""

    symbols: dict[int, str]
    is_closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """A field of a message.

    Attributes:
        kind: Protobuf's name of its type: `int32`, `string`, `enum`, `message` …
        is_repeated: whether it is a list, or a map.
        default: what a field that is not there has; None for null.
        oneof: which of the message's oneofs it is in; −1 for none.
        message: of a message or group; None if that is left as it is, bytes.
        enum: of an enum; None if it is left as it is, a number.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False
    default: Any = None
    oneof: int = -1
    message: MessageType | None = None
    enum: EnumType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageType:
    """A message's fields; `is_entry`: it is an entry of a map, of key and value."""

    name: str
    fields: tuple[FieldType, ...]
    is_entry: bool = False


def parse_protobuf(version: SchemaVersion) -> MessageType:
    """The message of a version of the type PROTOBUF_NATIVE or PROTOBUF.

    Raises:
        SchemaError: another form, descriptors that do not go together, a message that holds itself, too many fields,
            messages that nest too deep.
    """
    declared = read_json(version.definition, f"a schema of the type {version.type}", error=SchemaError)
    if not isinstance(declared, dict):
        raise _not_right("an object", declared)
    if version.type == "PROTOBUF_NATIVE":
        return _Native().message(_descriptor(declared), ())
    return _described(declared, version.properties.get(PARSING_INFO))


# --- PROTOBUF_NATIVE ---------------------------------------------------------------------------


def _descriptor(declared: dict[str, Any]) -> Descriptor:
    files, root, file = (declared.get(name) for name in _NATIVE)
    if not isinstance(files, str) or not isinstance(root, str) or not isinstance(file, str):
        raise _not_right(", ".join(_NATIVE), list(declared))
    try:
        listed = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(files, validate=True)).file
        by_name = {each.name: each for each in listed}
    except (binascii.Error, ValueError, DecodeError) as error:
        raise SchemaError(f"a schema's descriptors are no FileDescriptorSet as base64: {error}") from error
    pool = DescriptorPool()
    try:
        for name in _in_order(file, {name: tuple(each.dependency) for name, each in by_name.items()}):
            pool.AddSerializedFile(by_name[name].SerializeToString())
        return pool.FindMessageTypeByName(root)
    except SchemaError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise SchemaError(f"a schema's descriptors do not go together: {error}"[:300]) from error


def _in_order(file: str, imports: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """The names of a file and of all that it imports, each after those that it imports itself."""
    waiting = [(file, iter(imports[file]))]
    above, added = {file}, set()
    while waiting:
        name, others = waiting[-1]
        following = next((each for each in others if each not in added), None)
        if following is None:
            waiting.pop()
            above.discard(name)
            added.add(name)
            yield name
        elif following in above:
            raise SchemaError("files of a schema's descriptors import one another", found=following)
        else:
            above.add(following)
            waiting.append((following, iter(imports[following])))


class _Native:
    """Descriptors to values; messages around one another are `above`."""

    def __init__(self) -> None:
        self._count = 0
        self._enums: dict[str, EnumType] = {}
        self._messages: dict[
            str, tuple[MessageType, int, int]
        ] = {}  # with its fields, and how deep they nest
        self._deepest = 0

    def message(self, descriptor: Descriptor, above: tuple[str, ...]) -> MessageType:
        name = descriptor.full_name
        if name in above:
            raise SchemaError(
                f"the message {name} holds itself: it has no columns",
                hint="Read without schemas, and decode `value` in the program.",
            )
        known = self._messages.get(name)
        if known is not None:
            message, count, depth = known
            self._take(count, len(above) + depth)
            return message
        before, deepest = self._count, self._deepest
        self._deepest = len(above)
        self._take(len(descriptor.fields), len(above) + 1)
        declared = descriptor_pb2.DescriptorProto()
        descriptor.CopyToProto(declared)
        is_part = bool(declared.options.map_entry)
        message = MessageType(
            name=name,
            fields=tuple(
                self._field(field, proto, (*above, name), is_part=is_part)
                for field, proto in zip(descriptor.fields, declared.field, strict=True)
            ),
        )
        self._messages[name] = message, self._count - before, self._deepest - len(above)
        self._deepest = max(self._deepest, deepest)
        return message

    def _take(self, fields: int, depth: int) -> None:
        """Count the fields of a message, and how deep messages nest."""
        self._count += fields
        if self._count > MOST_FIELDS:
            raise SchemaError("a message has too many fields", expected=f"at most {MOST_FIELDS}")
        if depth > MOST_DEPTH:
            raise SchemaError("messages nest too deep", expected=f"at most {MOST_DEPTH} in one another")
        self._deepest = max(self._deepest, depth)

    def _field(
        self,
        field: FieldDescriptor,
        declared: descriptor_pb2.FieldDescriptorProto,
        above: tuple[str, ...],
        *,
        is_part: bool,
    ) -> FieldType:
        is_repeated = declared.label == declared.LABEL_REPEATED
        oneof = field.containing_oneof
        message = field.message_type
        is_never_null = is_part or not field.has_presence or declared.HasField("default_value")
        return FieldType(
            name=field.name,
            number=field.number,
            kind=_KINDS[field.type],
            is_repeated=is_repeated,
            default=field.default_value if message is None and not is_repeated and is_never_null else None,
            oneof=-1 if oneof is None or len(oneof.fields) < 2 else oneof.index,
            message=None if message is None else self._inner(message, above, is_repeated=is_repeated),
            enum=None if field.enum_type is None else self._enum(field.enum_type),
        )

    def _inner(self, descriptor: Descriptor, above: tuple[str, ...], *, is_repeated: bool) -> MessageType:
        message = self.message(descriptor, above)
        # A descriptor may use an entry's type elsewhere, which no .proto file can: there it is any message.
        is_entry = is_repeated and descriptor.GetOptions().map_entry
        is_pair = [(field.name, field.is_repeated) for field in message.fields] == _PAIR
        return replace(message, is_entry=True) if is_entry and is_pair else message

    def _enum(self, descriptor: EnumDescriptor) -> EnumType:
        known = self._enums.get(descriptor.full_name)
        if known is None:
            symbols: dict[int, str] = {}
            for value in descriptor.values:
                symbols.setdefault(value.number, value.name)  # of aliases the first
            known = EnumType(symbols=symbols, is_closed=descriptor.is_closed)
            self._enums[descriptor.full_name] = known
        return known


# --- PROTOBUF ----------------------------------------------------------------------------------


def _described(declared: dict[str, Any], info: str | None) -> MessageType:
    listed = read_json(info or "null", f"a PROTOBUF schema's {PARSING_INFO}", error=SchemaError)
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise SchemaError(
            "a PROTOBUF schema does not say its fields' numbers",
            expected=f"the property {PARSING_INFO}",
            found=listed,
            hint="Give the messages' descriptors as a literal schema of the type PROTOBUF_NATIVE.",
        )
    known = declared.get("fields")
    defaults = {
        each.get("name"): each.get("default")
        for each in (known if isinstance(known, list) else ())
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    }
    fields = tuple(_described_field(each, defaults) for each in listed)
    if len({each.name for each in fields}) < len(fields) or len({each.number for each in fields}) < len(
        fields
    ):
        raise _not_right("fields of different names and numbers", listed)
    return MessageType(name=str(declared.get("name")), fields=fields)


def _described_field(each: dict[str, Any], defaults: dict[Any, Any]) -> FieldType:
    number, name, kind, label = (each.get(part) for part in ("number", "name", "type", "label"))
    if type(number) is not int or not 0 < number <= _LARGEST_NUMBER or not isinstance(name, str):
        raise _not_right("a field's number and name", each)
    kind = str(kind).lower()
    if kind not in _KINDS.values() or kind == "group":
        raise _not_right("the type of a field", each)
    is_repeated = label == "LABEL_REPEATED"
    return FieldType(
        name=name,
        number=number,
        kind=kind,
        is_repeated=is_repeated,
        default=None if is_repeated else _default(defaults.get(name), kind),
    )


def _default(value: object, kind: str) -> Any:
    """A default of the AVRO schema as the field's type has it; None where there is none that fits."""
    if kind in ("message", "enum"):
        return None
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "bytes":
        latin = isinstance(value, str) and all(ord(letter) < 256 for letter in value)
        return str(value).encode("latin-1") if latin else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind in ("float", "double"):
        return float(value) if kind == "double" else ctypes.c_float(value).value
    bits = 64 if kind.endswith("64") else 32
    if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        return None
    return value & (1 << bits) - 1 if kind.startswith(("u", "f")) else value


def _not_right(expected: str, found: object) -> SchemaError:
    return SchemaError(
        "this is not a schema of a Protobuf message", expected=expected, found=json.dumps(found)[:200]
    )
