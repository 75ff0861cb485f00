"""Primitive types, JSON, key and value: payloads by the decoders, right and wrong."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
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


JSON = version(0, "JSON", record(id="long", name=["null", "string"], ok=["null", "boolean"], price="double"))
DEEP = version(
    0,
    "JSON",
    record(
        tags={"type": "array", "items": "string"},
        m=["null", {"type": "map", "values": "int"}],
        blob=["null", "bytes"],
        inner=[
            "null",
            {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "double"]}]},
        ],
        either=["null", "long", "string"],
        at=["null", {"type": "long", "logicalType": "timestamp-millis"}],
        cost=["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
    ),
)


def test_json_is_read_by_field_names():
    payloads = [b'{"id": 1, "name": "\xc3\xbc", "price": 2, "more": [1]}', b'{"ok":true}', None, b"{}"]
    array, faults = decode_all(payloads, JSON)
    assert faults == [False] * 4
    assert array.to_pylist() == [
        {"id": 1, "name": "ü", "ok": None, "price": 2.0},
        {"id": None, "name": None, "ok": True, "price": None},
        None,
        {"id": None, "name": None, "ok": None, "price": None},
    ]


def test_json_of_all_kinds_of_fields_is_read():
    value = {
        "tags": ["a"], "m": {"k": 1}, "blob": "AQI=", "inner": {"x": 1}, "either": "s", "at": NOON_MS, "cost": 1.25
    }  # fmt: skip
    array, faults = decode_all([json.dumps(value).encode()], DEEP)
    assert faults == [False]
    (row,) = array.to_pylist()
    assert row["either"] == {"member0": None, "member1": "s"}
    assert (row["tags"], row["m"], row["blob"], row["inner"]) == (["a"], [("k", 1)], b"\x01\x02", {"x": 1.0})
    assert (row["at"], str(row["cost"])) == (NOON, "1.25")


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b" ", b"{", b"[]", b"1", b"nothing", b'{"id": "1"}', b'{"id": 1.5}', b'{"id": 9223372036854775808}',
        b'{"name": 1}', b'{"name": "\xff"}', b'{"name": "\\ud800"}', b'{"ok": 0}', b'{"price": "x"}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}', b'}{', b"[" * 100_000, b'{"id":',
    ],
)  # fmt: skip
def test_json_that_is_not_right_spoils_its_message_only(wrong):
    good = b'{"id": 7}'
    array, faults = decode_all([good, wrong, good], JSON)
    assert faults == [False, True, False]
    assert [None if row is None else row["id"] for row in array.to_pylist()] == [7, None, 7]


def test_payloads_that_only_together_are_json_are_not_right():
    assert decode_all([b'{"id": 1, "more": [{"a":', b"{}}]}", b'{"id": 3}{"id": 4}'], JSON)[1] == [True] * 3


@pytest.mark.parametrize(
    "ignored",
    [
        b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b"1" * 5000, b"-" + b"1" * 5000, b"1e999",
        b'"\xff"', b'"\xed\xa0\x80"', b'{"\xff": 1}', b"NaN", b'"\\ud800"',
    ],
)  # fmt: skip
def test_what_a_message_is_does_not_depend_on_the_others_of_its_batch(ignored):
    payload = b'{"id": 7, "ignored": ' + ignored + b"}"
    alone, fault = decode_all([payload], JSON)
    beside, faults = decode_all([payload, b"{"], JSON)
    assert (alone.to_pylist(), fault) == (beside.to_pylist()[:1], faults[:1])
    assert fault == [b"\xff" in ignored or b"\xed" in ignored]


@pytest.mark.parametrize("digits", [b"1" * 400, b"-" + b"1" * 400, b"1" * 5000, b"1e999", b"-1e999"])
def test_a_number_that_no_double_holds_is_infinite_in_any_batch(digits):
    expected = float("-inf" if digits[:1] == b"-" else "inf")
    for others in ([], [b"{"]):
        array, faults = decode_all([b'{"price": ' + digits + b"}", *others], JSON)
        assert (array.to_pylist()[0]["price"], faults[0]) == (expected, False)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("9" * 36 + ".25", True),
        ("-" + "9" * 36 + ".25", True),
        ("9" * 37 + ".25", False),
        ("0.125", False),
        ("NaN", False),
    ],
)
def test_json_decimals_have_all_the_digits_that_their_type_has(text, is_right):
    of = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    array, faults = decode_all([json.dumps({"d": text}).encode()], version(0, "JSON", record(d=of)))
    assert faults == [not is_right]
    assert array.to_pylist() == [{"d": Decimal(text)} if is_right else None]


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
