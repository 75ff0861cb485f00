"""Protobuf messages to columns: equal to the official library and the plain twin, whatever is written, and damaged."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from scenes.schemas import Compiled, decode_all, fill, shown

from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payload_spans import spans_of
from offload_core.format.schemas.protobuf_reference import read_message
from offload_core.format.schemas.protobuf_types import parse_protobuf
from offload_hooks.errors import PayloadError

BODY = """
enum Kind {{ NONE = 0; SMALL = 3; LARGE = -7; }}
message Point {{ {optional} sint32 x = 1; {optional} double y = 2; repeated fixed32 path = 3 {unpacked}; }}
message Line {{ repeated Point points = 1; {optional} Point middle = 2; {optional} string name = 3; }}
message All {{
  {optional} double a_double = 1; {optional} float a_float = 2; {optional} int64 an_int64 = 3;
  {optional} uint64 a_uint64 = 4; {optional} int32 an_int32 = 5; {optional} fixed64 a_fixed64 = 6;
  {optional} fixed32 a_fixed32 = 7; {optional} bool a_bool = 8; {optional} string a_string = 9;
  {optional} bytes some_bytes = 10; {optional} uint32 a_uint32 = 11; {optional} sfixed32 an_sfixed32 = 12;
  {optional} sfixed64 an_sfixed64 = 13; {optional} sint32 an_sint32 = 14; {optional} sint64 an_sint64 = 300;
  {optional} Kind kind = 16; {optional} Line line = 17; repeated Line lines = 18;
  repeated sint64 numbers = 19 {unpacked}; repeated string texts = 20; repeated Kind kinds = 21 {unpacked};
  repeated bool flags = 22 {unpacked}; repeated double doubles = 23 {unpacked}; repeated float floats = 24;
  map<string, int32> counts = 25; map<uint64, Line> by_number = 26; map<bool, Kind> by_flag = 27;
  oneof choice {{ string text = 28; Line shape = 29; int32 number = 30; Kind sort = 31; }}
  {extra}
}}
"""


def compiled(syntax, *, unpacked=False, extra=""):
    optional = "optional" if syntax == "proto2" else ""
    packing = f"[packed = {str(not unpacked).lower()}]"
    body = BODY.format(optional=optional, unpacked=packing, extra=extra)
    return Compiled(f'syntax = "{syntax}"; package test; {body}')


FILES = {
    "proto3": compiled("proto3"),
    "proto2": compiled(
        "proto2",
        extra="optional group Corner = 40 { optional int32 z = 1; repeated Point points = 2; } "
        'optional string named = 41 [default = "frühe"]; optional Kind usual = 42 [default = LARGE]; '
        "optional float rate = 43 [default = -1.5]; optional uint64 most = 44 [default = 18446744073709551615];",
    ),
}
UNPACKED = {"proto3": compiled("proto3", unpacked=True), "proto2": compiled("proto2", unpacked=True)}
LARGER = compiled(
    "proto3",
    extra="string more = 50; repeated Line even_more = 51; fixed64 eight = 52; map<int32, bytes> most = 53;",
)


def sorted_maps(value):
    """A value with maps in the order of their keys; NaN does not come."""
    if isinstance(value, dict):
        return {name: sorted_maps(item) for name, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted((key, sorted_maps(item)) for key, item in value)
    return [sorted_maps(item) for item in value] if isinstance(value, list) else value


def written(syntax, seed):
    """Messages as any writer may write them: of older and newer schemas, packed or not, in pieces."""
    draw = random.Random(f"{syntax} {seed}")
    own, unpacked = FILES[syntax].message("test.All"), UNPACKED[syntax].message("test.All")
    sources = [own, own, unpacked, LARGER.message("test.All")]
    return [
        b"".join(
            fill(draw, draw.choice(sources)()).SerializeToString()
            for _ in range(draw.choice([0, 1, 1, 2, 3]))
        )
        for _ in range(60)
    ]


@pytest.mark.parametrize("syntax", FILES)
@pytest.mark.parametrize("seed", range(2))
def test_columns_are_what_the_official_library_reads(syntax, seed):
    payloads = written(syntax, seed)
    version = FILES[syntax].schema("test.All")
    array, faults = decode_all([*payloads, None], version)
    assert not any(faults)
    library = FILES[syntax].message("test.All")
    expected = [sorted_maps(shown(library.FromString(payload))) for payload in payloads]
    assert [sorted_maps(value) for value in array.to_pylist()] == [*expected, None]
    message = parse_protobuf(version)
    assert [sorted_maps(read_message(payload, message)) for payload in payloads] == expected


@pytest.mark.parametrize("syntax", FILES)
@pytest.mark.parametrize("seed", range(2))
def test_damage_is_marked_as_the_twin_and_the_library_find_it(syntax, seed):
    draw = random.Random(seed)
    payloads = []
    for payload in written(syntax, seed + 100):
        damaged = bytearray(payload[: draw.randrange(len(payload) + 1)] if draw.random() < 0.3 else payload)
        for _ in range(draw.choice([0, 1, 2])):
            if damaged:
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        payloads.append(bytes(damaged))
    version = FILES[syntax].schema("test.All")
    array, faults = decode_all(payloads, version)
    message, library = parse_protobuf(version), FILES[syntax].message("test.All")
    for payload, value, fault in zip(payloads, array.to_pylist(), faults, strict=True):
        try:
            plain = read_message(payload, message)
        except PayloadError:
            assert fault
            assert value is None
            continue
        assert not fault
        assert repr(sorted_maps(value)) == repr(sorted_maps(plain))  # NaN is not itself
        try:
            by_library = shown(library.FromString(payload))
        except DecodeError:
            continue
        assert repr(sorted_maps(value)) == repr(sorted_maps(by_library))
    assert any(faults)
    assert not all(faults)


@pytest.mark.parametrize("fields", [["an_int32", "lines"], ["shape"], ["counts", "text"], ["number"], []])
def test_fields_that_nobody_wants_are_passed_over(fields):
    version = FILES["proto3"].schema("test.All")
    payloads = written("proto3", 7)
    whole, _ = decode_all(payloads, version)
    decoder = make_decoder(version, version, fields)
    some, faults = decoder.decode(spans_of(pa.array(payloads, type=pa.binary())))
    some.validate(full=True)
    assert not faults.any()
    assert [field.name for field in decoder.data_type] == [
        n for n in (f.name for f in whole.type) if n in fields
    ]
    expected = [{name: value[name] for name in value if name in fields} for value in whole.to_pylist()]
    assert some.to_pylist() == expected
    message = parse_protobuf(version)
    plain = [read_message(payload, message, fields) for payload in payloads]
    assert [sorted_maps(value) for value in plain] == [sorted_maps(value) for value in expected]


def test_types_of_columns():
    version = FILES["proto3"].schema("test.All")
    types = {field.name: field.type for field in make_decoder(version, version).data_type}
    point = pa.struct([("x", pa.int32()), ("y", pa.float64()), ("path", pa.list_(pa.int64()))])
    line = pa.struct([("points", pa.list_(point)), ("middle", point), ("name", pa.string())])
    assert types["line"] == line
    assert types["a_uint64"] == pa.decimal128(20, 0)
    assert types["a_uint32"] == pa.int64()
    assert types["kind"] == pa.string()
    assert types["by_number"] == pa.map_(pa.decimal128(20, 0), line)
    assert types["an_sint64"] == pa.int64()


def one(version, payload):
    array, faults = decode_all([payload], version)
    assert not any(faults)
    return array.to_pylist()[0]


def test_an_enums_unknown_number_is_its_digits_if_it_is_open_and_else_not_there():
    field = bytes([16 << 3 & 127 | 128, 1, 5])
    assert one(FILES["proto3"].schema("test.All"), field)["kind"] == "5"
    assert one(FILES["proto2"].schema("test.All"), field)["kind"] is None


def test_presence():
    three, two = (one(FILES[syntax].schema("test.All"), b"") for syntax in ("proto3", "proto2"))
    assert (three["an_int32"], three["a_string"], three["kind"]) == (0, "", "NONE")
    assert (three["line"], three["text"], three["lines"], three["counts"]) == (None, None, [], [])
    assert (two["an_int32"], two["a_string"], two["kind"]) == (None, None, None)
    assert (two["named"], two["usual"], two["rate"], two["most"]) == ("frühe", "LARGE", -1.5, 2**64 - 1)


def test_a_closed_enums_unknown_number_drops_no_entry_of_a_map_after_it():
    payload = bytes([16 << 3 & 127 | 128, 1, 5]) + bytes(
        [25 << 3 & 127 | 2 | 128, 1, 5, 0x0A, 1, 0x61, 0x10, 3]
    )
    assert one(FILES["proto2"].schema("test.All"), payload)["counts"] == [("a", 3)]
