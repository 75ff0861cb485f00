"""JSON payloads: by the kernel and by its reference, right and wrong."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from drawn_schemas import drawn_json
from scenes.schemas import decode_all, record, rows_of, version

from offload_core.format.schemas import json_decoder
from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payload_spans import spans_of
from offload_hooks.errors import SchemaError

NOON = datetime(2026, 11, 20, 12, 30, 5, 250_000, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture(autouse=True, params=[0, 1_000], ids=["kernel", "reference"])
def few(request, monkeypatch):
    """Payloads are read by the kernel, or as few as here by the reference."""
    monkeypatch.setattr(json_decoder, "FEW", request.param)
    return request.param


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


def test_many_payloads_are_read_by_the_kernel(few, monkeypatch):
    decoder = make_decoder(JSON, JSON)
    monkeypatch.setattr(decoder, "_plainly", None)
    array, faults = decoder.decode(spans_of(pa.array([b'{"id": 1}'] * 1_000, type=pa.binary())))
    assert (array.to_pylist()[-1]["id"], faults.any()) == (1, False)


def numbers(draw):
    """A number's text."""
    kind = draw.randrange(4)
    if kind == 0:
        return repr(struct.unpack("<d", draw.randbytes(8))[0]).replace("nan", "0").replace("inf", "1e400")
    if kind == 1:
        return f"{draw.randrange(10 ** draw.randint(1, 19))}e{draw.randint(-345, 310)}"
    if kind == 2:
        return f"{draw.randrange(10**9)}.{draw.randrange(10**9)}"
    return f"{draw.randrange(2**53, 2**54) | 1}e{draw.randint(-5, 5)}"  # often just between two doubles


def test_every_double_is_the_nearest():
    draw = random.Random()
    texts = [numbers(draw) for _ in range(5_000)]
    array, faults = decode_all([b'{"price": %b}' % text.encode() for text in texts], JSON)
    assert not any(faults)
    for text, found in zip(texts, array.field("price").to_pylist(), strict=True):
        assert struct.pack("<d", found) == struct.pack("<d", float(text)), text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r'"a\"b\\c\/d"', 'a"b\\c/d'),
        (r'"\b\f\n\r\t"', "\b\f\n\r\t"),
        (r'"\u0041\u00e9\u20AC"', "Aé€"),
        (r'"\ud83e\uddca!"', "🧊!"),
        (r'"0123456\n"', "0123456\n"),
        (r'"01234567\n\u0000"', "01234567\n\0"),
        ('""', ""),
    ],
)
def test_texts_are_read_without_their_escapes(written, text):
    array, faults = decode_all([f'{{"name": {written}}}'.encode()] * 2, JSON)
    assert ([row["name"] for row in array.to_pylist()], faults) == ([text] * 2, [False] * 2)


@pytest.mark.parametrize(
    "written",
    [r'"\ud83e"', r'"\udd00"', r'"\ud83e\u0041"', r'"\x"', r'"\u12g4"', '"\x01"', '"\x7f\n"', r'"\"'],
)
def test_texts_that_are_none_are_not_right(written):
    assert decode_all([f'{{"name": {written}}}'.encode()], JSON)[1] == [True]


def test_a_field_that_is_there_twice_has_its_last_value():
    array, faults = decode_all([b'{"id": 1, "id": 2, "i\\u0064": 3}'], JSON)
    assert (array.to_pylist()[0]["id"], faults) == (3, [False])


def test_a_list_that_is_there_twice_has_the_items_of_its_last():
    known = version(0, "JSON", record(tags={"type": "array", "items": "string"}))
    array, faults = decode_all([b'{"tags": ["a"], "tags": ["b"]}', b'{"tags": ["c"]}'], known)
    assert ([row["tags"] for row in array.to_pylist()], faults) == ([["b"], ["c"]], [False, False])


def test_drawn_payloads_are_read_as_the_reference_reads_them():
    draw = random.Random()
    for _ in range(30):
        try:
            drawn = drawn_json(draw, 40)
            decoder = make_decoder(drawn.writer, drawn.reader, drawn.columns)
        except SchemaError:
            continue
        spans = spans_of(pa.array(drawn.payloads, type=pa.binary()))
        (array, faults), (expected, marks) = decoder.decode(spans), decoder._plainly(spans)
        assert repr(rows_of(array)) == repr(rows_of(expected))
        assert faults.tolist() == marks.tolist()
