"""Protobuf schemas from the text of a .proto file, and messages as the official library reads them."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from offload_hooks.schemas import SchemaVersion

_UNSIGNED = ("TYPE_UINT64", "TYPE_FIXED64")
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
            arguments = ["", f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder}/set"]
            include = Path(protoc.__file__).parent / "_proto"
            assert protoc.main([*arguments, f"-I{include}", "test.proto"]) == 0
            self.files = descriptor_pb2.FileDescriptorSet.FromString((Path(folder) / "set").read_bytes())
        self._pool = DescriptorPool()
        for file in self.files.file:
            self._pool.Add(file)

    def schema(self, root: str, number: int = 0) -> SchemaVersion:
        """The schema of a message as Pulsar keeps it."""
        declared = {
            "fileDescriptorSet": base64.b64encode(self.files.SerializeToString()).decode(),
            "rootMessageTypeName": root,
            "rootFileDescriptorName": "test.proto",
        }
        return SchemaVersion(version=number, type="PROTOBUF_NATIVE", definition=json.dumps(declared))

    def message(self, root: str) -> Any:
        """The class of a message."""
        return GetMessageClass(self._pool.FindMessageTypeByName(root))


def shown(message: Any) -> dict[str, Any]:
    """A message of the official library's as our columns show it."""
    return {field.name: _shown_field(message, field) for field in message.DESCRIPTOR.fields}


def _shown_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.label == field.LABEL_REPEATED:
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
        if field.label == field.LABEL_REPEATED:
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
