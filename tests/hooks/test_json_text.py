"""The JSON reader, fields of documents, numbers in texts: what they give and refuse, and by the caller's error only."""

import contextlib
import enum
import json
import math
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_hooks.errors import FormatError, MetadataError, UnsupportedVersionError
from offload_hooks.json_text import INT64, MAX_DEPTH, JsonObject, read_json, whole_number
from offload_hooks.values import utc_time

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_json_wrote_is_read(value):
    assert read_json(json.dumps(value), "it") == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode(), "it") == value


@given(st.binary())
def test_any_bytes_are_a_value_or_the_error(data):
    with contextlib.suppress(FormatError):
        read_json(data, "it")


@pytest.mark.parametrize(
    "text", ["[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH]
)
def test_it_nests_as_deep_as_the_limit_and_no_deeper(text):
    read_json(text, "it")
    with pytest.raises(FormatError, match=f"nested deeper than {MAX_DEPTH}"):
        read_json(f"[{text}]", "it")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"1 2", "Extra data"),
        (b"\xff", "can't decode byte 0xff"),
        ("{}".encode("utf-16"), "can't decode"),
        (b"[" * 200_000, "nested deeper"),
        (b'{"a":' * 200_000, "nested deeper"),
        (b"1" * 5000, "5000 digits"),
        (str(2**64).encode(), "64 bits"),
        (str(-(2**63) - 1).encode(), "64 bits"),
        (b"1e999", "overflows"),
        (b"NaN", "NaN"),
        (b"-Infinity", "-Infinity"),
        (b'"\\ud800"', "surrogates"),
        (b'{"\\udfff": 1}', "surrogates"),
    ],
)
def test_what_is_refused_says_why_and_where(text, why):
    with pytest.raises(MetadataError, match="the sidecar is not JSON") as raised:
        read_json(text, "the sidecar", error=MetadataError, key="a/b", offset=7)
    assert (raised.value.key, raised.value.offset) == ("a/b", 7)
    assert why in str(raised.value.found)


def test_greatest_numbers_are_read():
    assert read_json("[18446744073709551615, -9223372036854775808]", "it") == [2**64 - 1, -(2**63)]
    assert math.isfinite(read_json("1e308", "it"))


def test_a_document_that_is_too_long_is_refused_before_it_is_read():
    with pytest.raises(FormatError) as raised:
        read_json(b"[" * 1000, "it", max_bytes=999)
    assert raised.value.found == "1000 bytes, of which there may be 999"


# --- fields ------------------------------------------------------------------------------------------


class Form(enum.Enum):
    ONE = "one"
    TWO = "two"


UUID_TEXT = "0123abcd-0000-4000-8000-00000000000F"
WHOLE_DOCUMENT = {
    "version": 1,
    "text": "a",
    "number": 7,
    "uuid": UUID_TEXT,
    "uuids": [UUID_TEXT],
    "form": "two",
    "list": [None],
    "numbers": [1, 2],
    "inner": {"text": "b"},
    "inners": [{"text": "c"}],
    "texts": {"x": "y"},
    "nothing": None,
}
TAKES: dict[str, Callable[[JsonObject], object]] = {
    "version": lambda fields: fields.check_version(1),
    "text": lambda fields: fields.text("text"),
    "number": lambda fields: fields.integer("number"),
    "uuid": lambda fields: fields.uuid("uuid"),
    "uuids": lambda fields: fields.uuids("uuids"),
    "form": lambda fields: fields.choice("form", Form),
    "list": lambda fields: fields.array("list"),
    "numbers": lambda fields: fields.integers("numbers", length=2),
    "inner": lambda fields: fields.nested("inner").text("text"),
    "inners": lambda fields: [each.text("text") for each in fields.nested_objects("inners")],
    "texts": lambda fields: fields.texts("texts"),
}


def test_fields_are_taken_with_their_types():
    fields = JsonObject.of(WHOLE_DOCUMENT, "it")
    assert [take(fields) for take in TAKES.values()] == [
        None,
        "a",
        7,
        UUID(UUID_TEXT),
        (UUID(UUID_TEXT),),
        Form.TWO,
        [None],
        (1, 2),
        "b",
        ["c"],
        {"x": "y"},
    ]
    assert (
        fields.optional_text("nothing")
        is fields.optional_integer("gone")
        is fields.optional_uuid("gone")
        is None
    )


WRONG = [
    None,
    True,
    1.0,
    -1,
    2**63,
    "",
    "one ",
    [1],
    [True, 1],
    [1, 2, 3],
    {"x": 1},
    [[]],
    "urn:uuid:" + UUID_TEXT,
]


@pytest.mark.parametrize("name", TAKES)
def test_a_field_of_another_kind_is_refused_with_document_field_and_place(name):
    right = {"version": [2**63], "text": [""], "list": [[1], [True, 1], [1, 2, 3], [[]]], "texts": []}.get(
        name, []
    )
    for wrong in WRONG:
        if wrong in right or (name == "text" and isinstance(wrong, str)):
            continue
        fields = JsonObject.of(WHOLE_DOCUMENT | {name: wrong}, "it", error=MetadataError, key="k", offset=3)
        with pytest.raises(MetadataError, match=f"it has no right field '{name}") as raised:
            TAKES[name](fields)
        assert (raised.value.key, raised.value.offset) == ("k", 3)
        assert len(str(raised.value.found)) < 200


def test_a_field_in_an_inner_object_is_named_with_its_path():
    fields = JsonObject.of({"files": [{"size": 1}, {"size": -1}]}, "it")
    with pytest.raises(FormatError, match=r"'files\[1\].size'"):
        [each.integer("size") for each in fields.nested_objects("files")]


def test_a_newer_version_is_told_from_none():
    with pytest.raises(UnsupportedVersionError):
        JsonObject.read('{"version": 3}', "it").check_version(2)
    JsonObject.read('{"version": 2}', "it").check_version(2)


# --- numbers in texts --------------------------------------------------------------------------------


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_in_texts(number):
    assert whole_number(str(number)) == (number if 0 <= number < 2**63 else None)
    assert whole_number(str(number), INT64) == (number if -(2**63) <= number < 2**63 else None)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "1_0", "٣", "²", "1.0", "0x1", "1" * 5000, "1\n", "-"]
)
def test_other_texts_are_no_whole_numbers(text):
    assert whole_number(text, INT64) is None


# --- times -------------------------------------------------------------------------------------------


@given(st.floats(allow_nan=False) | st.integers(-(2**80), 2**80))
def test_a_time_that_no_calendar_has_becomes_the_nearest(seconds):
    time = utc_time(seconds)
    assert 1000 <= time.year <= 9000
    assert time.utcoffset() == timedelta(0)
    if 0 <= seconds < 1e10:
        assert abs(time.timestamp() - seconds) < 1
