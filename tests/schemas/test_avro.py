"""AVRO datums by the kernel: as fastavro reads them, and as the plain twin does whatever the bytes are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.schemas import (
    as_column,
    by_kernel,
    by_reference,
    keeps_branches,
    parsed,
    read,
    records,
    schemas,
    values,
    write,
)

from offload_core.format.schemas.avro_types import AvroType


def same(left, right):
    return repr(left) == repr(right)


@given(data=st.data())
def test_values_are_those_that_fastavro_wrote(data):
    schema = data.draw(schemas())
    avro = parsed(schema)
    datums = [write(schema, value) for value in data.draw(st.lists(values(avro), max_size=5))]
    # Read again: fastavro writes an integer as a double where a union names double before long.
    expected = [as_column(read(datum, schema, schema), avro) for datum in datums]
    found, faults = by_kernel(datums, avro, avro)
    assert not any(faults)
    assert same(found, expected)
    assert same(by_reference(datums, avro, avro)[0], expected)


def evolved(schema, data):
    """A schema that reads what `schema` wrote: fewer fields, more with defaults, wider numbers, unions."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        wider = {"int": ["long", "double"], "long": ["double"], "float": ["double"]}.get(schema, [])
        return data.draw(st.sampled_from([schema, schema, *wider]))
    if schema["type"] == "record":
        kept = [field for field in schema["fields"] if data.draw(st.booleans())]
        fields = [field | {"type": evolved(field["type"], data)} for field in kept]
        added = [
            {"name": "x", "type": ["null", "int"], "default": None},
            {"name": "y", "type": "string", "default": "näh"},
            {"name": "z", "type": {"type": "array", "items": "long"}, "default": [1, -2]},
            {"name": "w", "type": ["double", "null"], "default": 1.5},
            {"name": "v", "type": {"type": "map", "values": "boolean"}, "default": {"k": True}},
        ]
        more = data.draw(st.lists(st.sampled_from(added), unique_by=lambda field: field["name"], max_size=2))
        return schema | {"fields": data.draw(st.permutations([*fields, *more]))}
    for part in ("items", "values"):
        if part in schema:
            return schema | {part: evolved(schema[part], data)}
    return schema


@given(data=st.data())
def test_what_an_older_schema_wrote_is_read_by_a_newer_one_as_fastavro_does(data):
    schema = data.draw(records().filter(keeps_branches))
    newer = evolved(schema, data)
    writer, reader = parsed(schema), parsed(newer)
    datums = [write(schema, value) for value in data.draw(st.lists(values(writer), min_size=1, max_size=4))]
    expected = [as_column(read(datum, schema, newer), reader) for datum in datums]
    found, faults = by_kernel(datums, writer, reader)
    assert not any(faults)
    assert same(found, expected)
    assert same(by_reference(datums, writer, reader)[0], expected)


@pytest.mark.parametrize(
    "branches", [["double", "bytes", "long", "string"], ["string", "long", "bytes", "double"]]
)
@pytest.mark.parametrize("value", [1.5, "a", b"a"])
def test_a_union_takes_a_value_as_the_same_type_before_it_promotes_it(branches, value):
    """As Java's resolution; the specification has the first branch that matches at all."""
    reader = parsed(branches)
    for schema in (branches, [*reversed(branches)]):
        found, faults = by_kernel([write(schema, value)], parsed(schema), reader)
        assert (found, faults) == ([as_column(value, reader)], [False])
        assert same(by_reference([write(schema, value)], parsed(schema), reader)[0], found)


MANY = {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "int"}}}


def test_lists_of_lists_have_room_for_all_their_items():
    avro = parsed(MANY)
    value = [{"a": list(range(3000)), "b": []}, {"c": [1] * 2000}] * 3
    found, faults = by_kernel([write(MANY, value)] * 2, avro, avro)
    assert faults == [False, False]
    assert found == [as_column(value, avro)] * 2


def test_a_datum_cannot_ask_for_more_items_than_it_has_bytes():
    avro = parsed({"type": "array", "items": "null"})
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"
    assert by_kernel([bomb, b"\x02\x00"], avro, avro) == ([None, [None]], [True, False])
    assert by_reference([bomb], avro, avro)[1] == [True]


@pytest.mark.parametrize("damage", [b"\x04\xc3\x28", b"\x02\xff", b"\x06\xed\xa0\x80", b"\x04\xc0\x80"])
def test_a_text_that_is_not_utf8_spoils_its_datum_only(damage):
    avro = AvroType(kind="string")
    good = write("string", "gut")
    assert by_kernel([good, damage, good], avro, avro) == (["gut", None, "gut"], [False, True, False])


def test_only_wanted_fields_are_read():
    from offload_core.format.schemas.avro_program import AvroDecoder

    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": "string"} for n in "abc"]}
    datum = write(schema, {"a": "1", "b": "2", "c": "3"})
    decoder = AvroDecoder(parsed(schema), parsed(schema), fields={"b"})
    array, _ = decoder.decode(np.frombuffer(datum, dtype=np.uint8), np.array([0]), np.array([len(datum)]))
    assert array.to_pylist() == [{"b": "2"}]
