"""KEY_VALUE schemas: a key and a value, each with a schema of its own.

Inline both are in the payload, each with its length (int32, big-endian; −1: null) before it; separated the key is the
message's key. Source: docs/schemas.md, "Key and value".
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.schemas.kernels.key_value import split_key_values
from offload_core.format.schemas.spans import Spans
from offload_hooks.errors import PayloadError, SchemaError
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
