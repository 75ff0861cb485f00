"""The JSON reader: what it gives, what it refuses, and that nothing but the caller's error comes."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_hooks.errors import FormatError, MetadataError
from offload_hooks.json_text import MAX_DEPTH, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_json_wrote_is_read(value: object) -> None:
    assert read_json(json.dumps(value), "it") == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode(), "it") == value


@given(st.binary())
def test_any_bytes_are_a_value_or_the_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        read_json(data, "it")


@pytest.mark.parametrize(
    "text", ["[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH]
)
def test_it_nests_as_deep_as_the_limit_and_no_deeper(text: str) -> None:
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
def test_what_is_refused_says_why_and_where(text: bytes, why: str) -> None:
    with pytest.raises(MetadataError, match="the sidecar is not JSON") as raised:
        read_json(text, "the sidecar", error=MetadataError, key="a/b", offset=7)
    assert (raised.value.key, raised.value.offset) == ("a/b", 7)
    assert why in str(raised.value.found)


def test_greatest_numbers_are_read() -> None:
    assert read_json("[18446744073709551615, -9223372036854775808]", "it") == [2**64 - 1, -(2**63)]
    assert math.isfinite(read_json("1e308", "it"))
