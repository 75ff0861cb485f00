"""A version of a topic's schema → a decoder of its payloads into the reader's columns.

The reader is a version as well: the newest, or a chosen one. AVRO is resolved from the version that wrote to the
reader; JSON is read by the reader's field names, Protobuf by its fields' numbers; any other type must be the reader's
own.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.schemas.avro_program import AvroDecoder
from offload_core.format.schemas.avro_reference import read_datum
from offload_core.format.schemas.avro_types import AvroType, parse_avro
from offload_core.format.schemas.cells import too_many_cells
from offload_core.format.schemas.json_decoder import JsonValues
from offload_core.format.schemas.kernels.key_value import split_key_values
from offload_core.format.schemas.payload_spans import Spans, ValueDecoder, spans_of_one
from offload_core.format.schemas.primitives import PRIMITIVE_TYPES
from offload_core.format.schemas.protobuf_decoder import ProtobufValues
from offload_core.format.schemas.protobuf_types import parse_protobuf
from offload_hooks.errors import FormatError, PayloadError, SchemaError
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSchema:
    """The two schemas of a version, and whether the key is the message's own."""

    key: SchemaVersion
    value: SchemaVersion
    separated: bool


def parse_key_value(version: SchemaVersion) -> KeyValueSchema:
    """Take a version of type KEY_VALUE apart, as the admin REST gives it.

    Raises:
        SchemaError: another form.
    """
    parts = read_json(version.definition, "a KEY_VALUE schema", error=SchemaError)
    if not isinstance(parts, dict) or "key" not in parts or "value" not in parts:
        raise SchemaError("a KEY_VALUE schema has another form", expected="key and value")
    encoding = version.properties.get("kv.encoding.type", "INLINE")
    if encoding not in ("INLINE", "SEPARATED"):
        raise SchemaError(
            "a KEY_VALUE schema has an unknown encoding", expected="INLINE or SEPARATED", found=encoding
        )
    made = {}
    for part in ("key", "value"):
        kind = version.properties.get(f"{part}.schema.type")
        if kind is None:
            raise SchemaError(f"a KEY_VALUE schema does not say of which type its {part} is")
        definition = parts[part]
        made[part] = SchemaVersion(
            version=version.version,
            type=kind,
            definition=definition if isinstance(definition, str) else json.dumps(definition),
            properties=_properties(version.properties.get(f"{part}.schema.properties")),
        )
    return KeyValueSchema(key=made["key"], value=made["value"], separated=encoding == "SEPARATED")


def _properties(text: str | None) -> dict[str, str]:
    """The properties of one of the two schemas, which stand in one of the version's as JSON."""
    found = read_json(text or "{}", "the text of properties in a KEY_VALUE schema", error=SchemaError)
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise SchemaError("properties in a KEY_VALUE schema are not text")
    return found


def split_inline(spans: Spans) -> tuple[Spans, Spans, npt.NDArray[np.bool_]]:
    """The keys and values of payloads, and which payloads are not right; theirs are null."""
    keys = np.empty((2, len(spans)), dtype=np.int64)
    values = np.empty((2, len(spans)), dtype=np.int64)
    faults = np.empty(len(spans), dtype=np.bool_)
    split_key_values(spans.data, spans.offsets, spans.lengths, keys, values, faults)
    return (
        Spans(data=spans.data, offsets=keys[0], lengths=keys[1]),
        Spans(data=spans.data, offsets=values[0], lengths=values[1]),
        faults,
    )


def explain_inline(payload: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of one payload: the reference implementation of `split_inline`.

    Raises:
        PayloadError: lengths that are not right.
    """
    parts: list[bytes | None] = []
    position = 0
    for what in ("key", "value"):
        if len(payload) - position < 4:
            raise PayloadError(f"a payload ends before its {what}'s length", offset=position)
        length = int.from_bytes(payload[position : position + 4], "big", signed=True)
        position += 4
        if length < -1 or length > len(payload) - position:
            raise PayloadError(
                f"a {what}'s length is not right",
                offset=position - 4,
                expected=f"at most {len(payload) - position}",
                found=length,
            )
        parts.append(None if length < 0 else payload[position : position + length])
        position += max(length, 0)
    if position != len(payload):
        raise PayloadError("a payload goes on behind its value", offset=position)
    return parts[0], parts[1]


_TOGETHER = (("AVRO", "JSON"), ("PROTOBUF", "PROTOBUF_NATIVE"))
"""Types of which one version of a topic's schema can be, and another the other."""
_MOST_STEPS = 2_000_000
"""Most steps of the search for a datum's fault: a few seconds."""


def make_decoder(
    writer: SchemaVersion, reader: SchemaVersion, fields: Collection[str] | None = None
) -> ValueDecoder:
    """Decodes data of one version as the columns of another; of a record only `fields`, None for all.

    Raises:
        SchemaError: a definition that is not right, a type that cannot be decoded, versions that do not go together.
    """
    if writer.type != reader.type and not any(
        {writer.type, reader.type} <= set(types) for types in _TOGETHER
    ):
        raise SchemaError(
            f"version {writer.version} of a schema is of another type than the reader's",
            expected=reader.type,
            found=writer.type,
        )
    if writer.type == "AVRO":
        return AvroValues(parse_avro(writer.definition), parse_avro(reader.definition), fields)
    if writer.type == "JSON":
        return JsonValues(parse_avro(reader.definition), fields)
    if writer.type in ("PROTOBUF", "PROTOBUF_NATIVE"):
        return ProtobufValues(parse_protobuf(reader), fields)
    if writer.type == "KEY_VALUE":
        return KeyValues(writer, reader)
    if writer.type in PRIMITIVE_TYPES:
        return PRIMITIVE_TYPES[writer.type]()
    raise SchemaError(
        f"payloads of the schema type {writer.type} cannot be decoded",
        expected=", ".join([*_TOGETHER[0], *_TOGETHER[1], "KEY_VALUE", *PRIMITIVE_TYPES]),
        hint="Read without schemas, and decode `value` in the program.",
    )


class AvroValues:
    """Decodes AVRO datums."""

    def __init__(self, writer: AvroType, reader: AvroType, fields: Collection[str] | None) -> None:
        self._writer, self._reader, self._fields = writer, reader, fields
        self._decoder = AvroDecoder(writer, reader, fields)
        self.data_type: pa.DataType = self._decoder.data_type

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        return self._decoder.decode(spans.data, spans.offsets, spans.lengths)

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        if self._decoder.has_too_many_cells(payload):
            return too_many_cells(payload)
        try:
            read_datum(payload, self._writer, self._reader, self._fields, most_steps=_MOST_STEPS)
        except FormatError as error:
            return error
        raise AssertionError("the datum is right")


class KeyValues:
    """Decodes payloads of key and value into a struct of both; the separated key comes beside the payload."""

    def __init__(self, writer: SchemaVersion, reader: SchemaVersion) -> None:
        written, read = parse_key_value(writer), parse_key_value(reader)
        self.separated = written.separated
        self._key = make_decoder(written.key, read.key)
        self._value = make_decoder(written.value, read.value)
        self.data_type: pa.DataType = pa.struct(
            [("key", self._key.data_type), ("value", self._value.data_type)]
        )

    def decode(self, spans: Spans, keys: Spans | None = None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`; `keys` are the messages' keys, which those of a separated schema need."""
        none = np.zeros(len(spans), dtype=np.bool_)
        inner_keys, inner_values, faults = (
            (keys, spans, none) if self.separated and keys is not None else split_inline(spans)
        )
        key, key_faults = self._key.decode(inner_keys)
        value, value_faults = self._value.decode(inner_values)
        faults = faults | key_faults | value_faults
        absent = faults if self.separated else faults | (spans.lengths < 0)
        array = pa.StructArray.from_arrays([key, value], fields=list(self.data_type), mask=pa.array(absent))
        return array, faults

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        try:
            key, value = (None, payload) if self.separated else explain_inline(payload)
        except FormatError as error:
            return error
        for part, decoder in ((key, self._key), (value, self._value)):
            if part is not None and decoder.decode(spans_of_one(part))[1][0]:
                return decoder.explain(part)
        return SchemaError("a message's key is not what its KEY_VALUE schema says")
