"""A version of a topic's schema → what decodes its payloads into the reader's columns.

The reader is a version as well: the newest, or a chosen one. AVRO is resolved from the version that wrote to the
reader; JSON is read by the reader's field names, Protobuf by its fields' numbers; any other type must be the reader's
own.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.schemas.avro.decode import AvroDecoder
from offload_core.format.schemas.avro.plain import read_datum
from offload_core.format.schemas.avro.types import AvroType, parse_avro
from offload_core.format.schemas.cells import too_many_cells
from offload_core.format.schemas.json_values import JsonValues
from offload_core.format.schemas.key_value import explain_inline, parse_key_value, split_inline
from offload_core.format.schemas.primitives import PRIMITIVE_TYPES
from offload_core.format.schemas.protobuf.decode import ProtobufValues
from offload_core.format.schemas.protobuf.types import parse_protobuf
from offload_core.format.schemas.spans import Spans, ValueDecoder, spans_of_one
from offload_hooks.errors import FormatError, SchemaError
from offload_hooks.schemas import SchemaVersion

_TOGETHER = (("AVRO", "JSON"), ("PROTOBUF", "PROTOBUF_NATIVE"))
"""Types of which one version of a topic's schema can be, and another the other."""
_MOST_STEPS = 2_000_000
"""Of the search for what is wrong with a datum: a few seconds."""


def make_decoder(
    writer: SchemaVersion, reader: SchemaVersion, fields: Collection[str] | None = None
) -> ValueDecoder:
    """Decodes what was written by one version as the columns of another; of a record only `fields`, None for all.

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
        written, wanted = parse_key_value(writer), parse_key_value(reader)
        self.separated = written.separated
        self._key = make_decoder(written.key, wanted.key)
        self._value = make_decoder(written.value, wanted.value)
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
