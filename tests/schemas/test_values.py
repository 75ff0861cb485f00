"""Primitive types, key and value: payloads by the decoders, right and wrong."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from scenes.schemas import decode_all, record, version, write

from offload_core.format.schemas.primitives import PRIMITIVE_TYPES
from offload_hooks.errors import SchemaError

NOON = datetime(2026, 11, 20, 12, 30, 5, 250_000, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
DAYS = (NOON.date() - date(1970, 1, 1)).days
NANOSECONDS = ((12 * 60 + 30) * 60 + 5) * 10**9 + 250_000_000

VALUES: list[tuple[str, bytes, Any]] = [
    ("BOOLEAN", b"\x01", True),
    ("BOOLEAN", b"\x00", False),
    ("INT8", b"\x80", -128),
    ("INT16", b"\x12\x34", 0x1234),
    ("INT32", b"\xff\xff\xff\xfe", -2),
    ("INT64", b"\x7f" + b"\xff" * 7, 2**63 - 1),
    ("FLOAT", struct.pack(">f", 1.5), 1.5),
    ("DOUBLE", struct.pack(">d", -0.1), -0.1),
    ("STRING", "grün".encode(), "grün"),
    ("STRING", b"", ""),
    ("BYTES", b"\xff\x00", b"\xff\x00"),
    ("NONE", b"\xff", b"\xff"),
    ("DATE", struct.pack(">q", NOON_MS), NOON),
    ("TIMESTAMP", struct.pack(">q", NOON_MS), NOON),
    ("TIME", struct.pack(">q", NOON_MS), time(12, 30, 5, 250_000)),
    ("TIME", struct.pack(">q", -1), time(23, 59, 59, 999_000)),
    ("INSTANT", struct.pack(">qi", NOON_MS // 1000, 250_000_999), NOON),
    ("INSTANT", struct.pack(">qi", -1, 0), datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=1)),
    ("LOCAL_DATE", struct.pack(">q", DAYS), NOON.date()),
    ("LOCAL_TIME", struct.pack(">q", NANOSECONDS), time(12, 30, 5, 250_000)),
    ("LOCAL_DATE_TIME", struct.pack(">qq", DAYS, NANOSECONDS), NOON.replace(tzinfo=None)),
]


@pytest.mark.parametrize(("kind", "payload", "value"), VALUES)
def test_primitive_types_are_read(kind, payload, value):
    array, faults = decode_all([payload, None, payload], version(0, kind))
    assert array.to_pylist() == [value, None, value]
    assert faults == [False] * 3


def test_every_primitive_type_is_tried_here():
    assert {kind for kind, _, _ in VALUES} == set(PRIMITIVE_TYPES)


@pytest.mark.parametrize("kind", sorted(set(PRIMITIVE_TYPES) - {"STRING", "BYTES", "NONE"}))
def test_a_value_of_another_size_is_not_right(kind):
    right = next(payload for each, payload, _ in VALUES if each == kind)
    array, faults = decode_all([right, right + b"\0", right[:-1]], version(0, kind))
    assert faults == [False, True, True]
    assert array.null_count == 2


def test_text_that_is_not_utf8_is_not_right():
    array, faults = decode_all([b"a", b"\xff", None], version(0, "STRING"))
    assert (array.to_pylist(), faults) == (["a", None, None], [False, True, False])


@pytest.mark.parametrize("kind", ["INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME", "TIMESTAMP"])
def test_times_beyond_what_a_column_holds_are_null(kind):
    size = {"INSTANT": 12, "LOCAL_DATE_TIME": 16}.get(kind, 8)
    array, faults = decode_all(
        [b"\x7f" + b"\xff" * (size - 1), b"\x80" + b"\0" * (size - 1)], version(0, kind)
    )
    assert (array.to_pylist(), faults) == ([None, None], [False, False])


def kv(key, value):
    return b"".join(
        struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in (key, value)
    )


KV = version(
    3,
    "KEY_VALUE",
    json.dumps({"key": "", "value": record(id="int")}),
    **{"key.schema.type": "INT32", "value.schema.type": "AVRO", "kv.encoding.type": "INLINE"},
)


def test_key_and_value_inline_are_read():
    one, two = struct.pack(">i", 1), write(record(id="int"), {"id": 2})
    payloads = [kv(one, two), kv(None, two), kv(one, None), None, kv(b"123", two), kv(one, b""), b"\0\0"]
    array, faults = decode_all(payloads, KV)
    value = {"id": 2}
    assert array.to_pylist()[:4] == [
        {"key": 1, "value": value}, {"key": None, "value": value}, {"key": 1, "value": None}, None
    ]  # fmt: skip
    assert faults == [False, False, False, False, True, True, True]


@pytest.mark.parametrize(
    "bad",
    [
        version(0, "AVRO", "{"),
        version(0, "AVRO", '{"type": "record", "name": "R"}'),
        version(0, "AVRO", '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}'),
        version(0, "AVRO", "[" * 100_000),
        version(0, "AVRO", '["int", "int"]'),
        version(0, "AVRO", '"nothing"'),
        version(0, "AVRO", record(a=("int", "text"))),
        version(0, "KEY_VALUE", "{}"),
        version(0, "KEY_VALUE", '{"key": "", "value": ""}'),
        version(0, "PROTOBUF", "{}"),
    ],
)
def test_a_definition_that_is_not_right_is_refused(bad):
    newer = version(1, bad.type, record(a=("int", "text"))) if "text" in bad.definition else bad
    with pytest.raises(SchemaError):
        decode_all([], version(0, "AVRO", record(b="int")) if newer is not bad else bad, newer)
