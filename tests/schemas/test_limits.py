"""Memory in proportion to the input: batches are split by cells, lists are bounded, and kernels check their arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn_schemas import protobuf_version
from google.protobuf import descriptor_pb2
from scenes.schemas import TOPIC, Known, decode_all, history, record, tier_of, version

from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.schemas import cells
from offload_core.format.schemas.avro_program import AvroDecoder
from offload_core.format.schemas.avro_types import parse_avro
from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.kernels import cell_arrays as cell_kernels
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels.avro import read_datums
from offload_core.format.schemas.kernels.key_value import split_key_values
from offload_core.format.schemas.payload_spans import spans_of_one
from offload_core.format.schemas.payloads import PayloadDecoder, Payloads, decoded
from offload_hooks.errors import PayloadError
from pulsar_offload import scan

pytestmark = pytest.mark.long

FIELD = descriptor_pb2.FieldDescriptorProto


def long(value):
    """A length or count of AVRO."""
    out = bytearray()
    value <<= 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def wide_avro(columns):
    """A record without fields, and a newer one of many that have defaults."""
    fields: Any = {f"c{i}": (["null", "long"], None) for i in range(columns)}
    return history(version(0, "AVRO", record()), version(1, "AVRO", record(**fields)))


def wide_json(columns):
    fields: Any = {f"c{i}": (["null", "long"], None) for i in range(columns)}
    return history(version(0, "JSON", record(**fields)))


def wide_protobuf(columns):
    file = descriptor_pb2.FileDescriptorProto(name="wide.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="M")
    for i in range(columns):
        message.field.add(name=f"c{i}", number=i + 1, type=FIELD.TYPE_INT64, label=1)
    return history(protobuf_version(file, "t.M"))


def batch_of(decoder, payloads, versions):
    """A batch as the scan hands it to a decoder."""
    schema = arrow_schema("messages", decoder.needed)
    rows = len(payloads)
    known: dict[str, Any] = {
        "value": payloads,
        "__schemaVersion": [each.to_bytes(8, "big") for each in versions],
        "__entryId": range(rows),
        "__valueIsRaw": [False] * rows,
    }
    columns = [pa.array(known.get(each.name, [None] * rows), type=each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read(known, payloads, versions=0, **options):
    """The batches that a batch of payloads becomes."""
    chosen = Payloads(histories={TOPIC: known}, **options)
    decoder = PayloadDecoder(chosen, TOPIC, chosen.schema([each.name for each in chosen.value_fields()]))
    versions = [versions] * len(payloads) if isinstance(versions, int) else versions
    return list(decoded(iter([batch_of(decoder, payloads, versions)]), decoder))


@pytest.mark.parametrize(
    ("known", "payload", "rows"),
    [(wide_avro(1000), b"", 9_000), (wide_protobuf(1000), b"", 9_000), (wide_json(1000), b"{}", 9_000)],
)
def test_a_batch_of_many_columns_has_few_rows(known, payload, rows):
    batches = read(known, [payload] * rows)
    assert sum(batch.num_rows for batch in batches) == rows
    assert max(batch.num_rows for batch in batches) <= cells.MOST_CELLS // 1000
    assert len(batches) < 7


WIDE = """
import resource, sys
sys.path[:0] = {paths!r}
from test_limits import *
chosen = Payloads(histories={{TOPIC: wide_avro(600)}})
decoder = PayloadDecoder(chosen, TOPIC, chosen.schema([f"c{{i}}" for i in range(600)]))
batch = batch_of(decoder, [b""] * 65_536, [0] * 65_536)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(made.num_rows for made in decoded(iter([batch]), decoder))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> (0 if sys.platform == "darwin" else 10))
"""


def test_very_many_empty_messages_of_many_columns_take_little_memory():
    here = Path(__file__).parent
    program = WIDE.format(paths=[str(here), str(here.parent / "support")])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rows, grown_mib = map(int, done.stdout.split())
    assert rows == 65_536
    assert grown_mib < 400  # it would be 1 GiB if the rows stayed together


ITEM = {f"f{i}": ("int", i) for i in range(1000)}


def avro_lists():
    """Items without bytes, for which a newer version has a thousand defaults; a count may not exceed the bytes."""
    old, new = (
        record(filler="bytes", items={"type": "array", "items": item})
        for item in ({"type": "record", "name": "I", "fields": []}, record(**ITEM) | {"name": "I"})
    )
    return history(version(0, "AVRO", old), version(1, "AVRO", new))


def avro_list(items):
    return long(items) + b"x" * items + (long(items) + b"\0" if items else b"\0")


def protobuf_lists():
    file = descriptor_pb2.FileDescriptorProto(name="lists.proto", package="t", syntax="proto3")
    inner = file.message_type.add(name="I")
    for i in range(1000):
        inner.field.add(name=f"f{i}", number=i + 1, type=FIELD.TYPE_INT32, label=1)
    file.message_type.add(name="M").field.add(
        name="items", number=1, type=FIELD.TYPE_MESSAGE, type_name=".t.I", label=FIELD.LABEL_REPEATED
    )
    return history(protobuf_version(file, "t.M"))


def json_lists():
    item = record(**{name: ["null", of] for name, (of, _) in ITEM.items()}) | {"name": "I"}
    return history(version(0, "JSON", record(items={"type": "array", "items": item})))


LISTS = [
    pytest.param(avro_lists(), avro_list, id="avro"),
    pytest.param(protobuf_lists(), lambda items: b"\x0a\0" * items, id="protobuf"),
    pytest.param(json_lists(), lambda items: json.dumps({"items": [{}] * items}).encode(), id="json"),
]


@pytest.mark.parametrize(("known", "payload"), LISTS)
def test_messages_that_have_too_many_items_together_are_split(known, payload):
    counts = [1, 3000, 2, 3000, 0]
    batches = read(known, [payload(count) for count in counts])
    assert len(batches) > 1
    lengths = [
        each for batch in batches for each in pa.compute.list_value_length(batch.column("items")).to_pylist()
    ]
    assert lengths == counts
    assert (
        max(pa.compute.list_value_length(batch.column("items")).to_numpy().sum() for batch in batches) < 4200
    )


@pytest.mark.parametrize(("known", "payload"), LISTS)
def test_a_message_that_has_too_many_items_by_itself_is_not_right(known, payload):
    counts = [1, 20_000, 2]
    payloads = [payload(count) for count in counts]
    batches = read(known, payloads, mode="PERMISSIVE")
    (table,) = [pa.Table.from_batches(batches)]
    assert [item if item is None else len(item) for item in table.column("items").to_pylist()] == [1, None, 2]
    with pytest.raises(PayloadError, match="too many values"):
        read(known, payloads)


def test_several_versions_of_a_schema_are_split_together(monkeypatch):
    monkeypatch.setattr(cells, "MOST_ARROW_BYTES", 20_000)
    versions = [version(i, "AVRO", record(a="long", **{f"old{i}": ("int", 0)})) for i in range(10)]
    known = history(*versions, version(10, "AVRO", record(a="long", b=("long", 7))))
    payloads: list[bytes | None] = [long(i) + b"\0" for i in range(4000)]
    batches = read(known, payloads, [i % 10 for i in range(4000)])
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).to_pydict() == {"a": list(range(4000)), "b": [7] * 4000}


LARGE = "x" * (1 << 20)


def large_defaults(**fields):
    return history(version(0, "AVRO", record()), version(1, "AVRO", record(**fields)))


def large_protobuf_default():
    file = descriptor_pb2.FileDescriptorProto(name="large.proto", package="t", syntax="proto2")
    message = file.message_type.add(name="M")
    message.field.add(name="c", number=1, type=FIELD.TYPE_STRING, label=1, default_value=LARGE)
    return history(protobuf_version(file, "t.M"))


@pytest.mark.parametrize(
    ("known", "payload"),
    [
        (large_defaults(c=("string", LARGE)), b""),
        (large_defaults(c=("bytes", LARGE[: 1 << 19]), d=("string", LARGE[: 1 << 19])), b""),
        (history(version(0, "AVRO", record(c={"type": "enum", "name": "E", "symbols": [LARGE]}))), b"\0"),
        (large_protobuf_default(), b""),
    ],
    ids=["AVRO text", "AVRO texts", "AVRO enum", "Protobuf text"],
)
def test_texts_of_a_schema_count_as_often_as_they_are_copied(known, payload):
    batches = read(known, [payload] * 200)
    assert sum(batch.num_rows for batch in batches) == 200
    assert max(batch.num_rows for batch in batches) <= cells.MOST_ARROW_BYTES >> 20
    assert {len(text) for batch in batches for text in batch["c"].to_pylist()} <= {1 << 20, 1 << 19}


def test_a_message_that_has_too_much_text_of_its_schema_by_itself_is_not_right():
    empty = {"type": "record", "name": "I", "fields": []}
    of = {"filler": "bytes", "items": {"type": "array", "items": empty}}
    newer = {**of, "items": {"type": "array", "items": record(c=("string", LARGE)) | {"name": "I"}}}
    known = history(version(0, "AVRO", record(**of)), version(1, "AVRO", record(**newer)))
    (batch,) = read(known, [avro_list(1000)], mode="PERMISSIVE")
    assert batch["items"].to_pylist() == [None]
    with pytest.raises(PayloadError, match="too many values"):
        read(known, [avro_list(1000)])


@pytest.mark.parametrize("columns", [["id"], None])
@pytest.mark.parametrize("of", ["null", {"type": "record", "name": "E", "fields": []}])
def test_what_is_wrong_with_a_datum_of_many_values_without_bytes_is_found_in_bounded_time(of, columns):
    fields = {"first": of} | {f"e{i}": "E" if isinstance(of, dict) else of for i in range(3000)}
    inner = record(**fields) | {"name": "I"}
    known = version(0, "AVRO", record(id="int", items={"type": "array", "items": inner}, filler="bytes"))
    decoder = make_decoder(known, known, columns)
    datum = b"\x02" + long(1_000_000) + b"\0" + long(1_000_001) + bytes(1_000_000)
    assert decoder.decode(spans_of_one(datum))[1].tolist() == [True]
    assert "too many values" in str(decoder.explain(datum))


@pytest.mark.parametrize("depth", [1, 2, 4, 12, 40])
def test_lists_that_are_not_asked_for_may_nest_deeper_than_those_that_are(depth):
    inner: Any = "int"
    for i in range(depth):
        inner = {"type": "array", "items": inner} if i % 3 else {"type": "map", "values": inner}
    known = history(version(0, "AVRO", record(id="int", m=inner)))
    datum = (
        b"\x54"
        + b"".join(b"\x02" if i % 3 else b"\x02\x02k" for i in reversed(range(depth)))
        + b"\x06"
        + b"\0" * depth
    )
    reader = tier_of(*[(datum, 0)] * 20)
    table = scan(reader, "acme/cold/orders", columns=["id"], schemas=Known({TOPIC: known})).to_table()
    assert table.column("id").to_pylist() == [42] * 20


def test_one_list_that_is_not_right_takes_nothing_from_the_next():
    """Also of items that have no column of their own."""
    of_nulls = version(0, "AVRO", record(n={"type": "array", "items": "null"}))
    array, faults = decode_all([b"\x06\x06\x06", b"\x04\0"], of_nulls)
    assert faults == [True, False]
    assert array.to_pylist() == [None, {"n": [None, None]}]


# --- kernels by themselves ---------------------------------------------------------------------


def test_bytes_that_are_not_there_are_not_copied():
    data, pool = np.arange(10, dtype=np.uint8), np.arange(5, dtype=np.uint8)
    values, offsets, there = (
        np.zeros(20, dtype=np.uint8),
        np.zeros(2, dtype=np.int32),
        np.ones(1, dtype=np.uint8),
    )
    words = np.zeros((1, 2), dtype=np.uint64)
    for flag, size in ((0, 10), (op.IN_POOL, 5)):
        for offset, length, is_right in (
            (0, size, True),
            (1, size, False),
            (size, 1, False),
            (size + 1, 0, False),
        ):
            cell = np.array([flag | offset << op.SPAN_BITS | length], dtype=np.int64)
            assert cell_kernels.gather_cells(data, pool, cell, there, values, offsets) == is_right
            assert cell_kernels.widen_decimals(data, pool, cell, there, words) == is_right
    cell = np.array([10], dtype=np.int64)
    assert not cell_kernels.gather_cells(data, pool, cell, there, values[:9], offsets)
    assert not cell_kernels.gather_cells(data, pool, cell, there, values, offsets[:1])
    assert not cell_kernels.widen_decimals(data, pool, cell, there, words[:, :1])


def test_arrays_that_do_not_fit_together_are_refused_before_the_loop():
    avro = parse_avro(json.dumps(record(a="long", b={"type": "array", "items": "int"})))
    program = AvroDecoder(avro, avro)._program
    arguments: dict[str, Any] = {
        "data": np.frombuffer(b"\x02\x02\x04\0", dtype=np.uint8),
        "offsets": np.zeros(1, dtype=np.int64),
        "lengths": np.full(1, 4, dtype=np.int64),
        "program": program.instructions,
        "numbers": program.numbers,
        "most_depth": 1,
        "top_level": np.array([0, 1, 2], dtype=np.int64),
        "nested": np.array([3], dtype=np.int64),
        "check_text": False,
        "base": np.arange(5, dtype=np.int64),
        "most_cells": 100,
        **{name: np.zeros(4, dtype=np.int64) for name in ("counts", "items", "need", "cells")},
        "doubles": np.zeros(4),
        "there": np.zeros(4, dtype=np.uint8),
        "faults": np.zeros(1, dtype=np.uint8),
    }

    def run(**other):
        fresh = {
            name: each.copy() if isinstance(each, np.ndarray) else each for name, each in arguments.items()
        }
        return int(read_datums(*(fresh | other).values()))

    assert run() == -1
    wrong_slot, wrong_jump = program.instructions.copy(), program.instructions.copy()
    wrong_size, wrong_items = program.instructions.copy(), program.instructions.copy()
    wrong_slot[0, 1] = 4
    wrong_size[0] = (op.FIXED, 0, -8, 0, 0, 0)
    wrong_items[0] = (op.ITEMS, 0, -1, 1, 0, 0)
    wrong_jump[program.instructions[:, 0] == op.JUMP, 2] = 99
    for other in (
        {"program": wrong_slot},
        {"program": wrong_jump},
        {"program": wrong_size},
        {"program": wrong_items},
        {"program": program.instructions[:-1]},
        {"cells": np.zeros(3, dtype=np.int64)},
        {"there": np.zeros(3, dtype=np.uint8)},
        {"base": np.array([0, 1, 1, 3, 4], dtype=np.int64)},
        {"base": np.arange(4, dtype=np.int64)},
        {"faults": np.zeros(0, dtype=np.uint8)},
        {"top_level": np.array([0, 1, 4], dtype=np.int64)},
    ):
        with pytest.raises(IndexError):
            run(**other)
    faults = np.zeros(1, dtype=np.uint8)
    for other in (
        {"most_depth": 0},
        {"lengths": np.full(1, 5, dtype=np.int64)},
        {"offsets": np.full(1, -1, dtype=np.int64)},
    ):
        assert run(**other, faults=faults) == -1
        assert faults[0] == 1


def test_a_payload_that_lies_outside_of_the_data_has_no_key_and_value():
    data = np.zeros(16, dtype=np.uint8)
    keys, values = np.zeros((2, 5), dtype=np.int64), np.zeros((2, 5), dtype=np.int64)
    faults = np.zeros(5, dtype=np.bool_)
    far = 2**63 - 1
    offsets = np.array([0, 9, -1, far, far - 8], dtype=np.int64)
    lengths = np.array([8, 8, 8, 8, far], dtype=np.int64)
    split_key_values(data, offsets, lengths, keys, values, faults)
    assert faults.tolist() == [False, True, True, True, True]
    with pytest.raises(IndexError):
        split_key_values(data, offsets, lengths, keys[:, :2], values, faults)


@pytest.mark.parametrize("symbols", [1, 3, 1000])
def test_an_enum_of_more_symbols_than_rows_is_read_as_any_other(symbols):
    enum = {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(symbols)]}
    found = version(0, "AVRO", record(e=["null", enum]))
    array, faults = decode_all([b"\x02\0", b"\0", b"\x02\x02", None, b"\x02\xce\x0f"], found)
    last = symbols == 1000
    assert faults == [False, False, symbols == 1, False, not last]
    second = None if symbols == 1 else {"e": "S1"}
    assert array.to_pylist() == [{"e": "S0"}, {"e": None}, second, None, {"e": "S999"} if last else None]
    file = descriptor_pb2.FileDescriptorProto(name="enum.proto", package="t", syntax="proto3")
    for i in range(symbols):
        (file.enum_type[0] if i else file.enum_type.add(name="E")).value.add(name=f"S{i}", number=i)
    file.message_type.add(name="M").field.add(
        name="e", number=1, type=FIELD.TYPE_ENUM, type_name=".t.E", label=1
    )
    array, _ = decode_all([b"", b"\x08\xe7\x07", b"\x08\xff\x7f", None], protobuf_version(file, "t.M"))
    shown = "S999" if last else "999"
    assert array.to_pylist() == [{"e": "S0"}, {"e": shown}, {"e": "16383"}, None]


def test_a_key_and_a_value_count_together():
    part = wide_avro(300).newest.definition
    properties = {"key.schema.type": "AVRO", "value.schema.type": "AVRO"}
    known = history(version(0, "KEY_VALUE", {"key": part, "value": part}, **properties))
    datum = b"\0" * 300
    payload = (len(datum).to_bytes(4, "big") + datum) * 2
    batches = read(known, [payload] * 10_000)
    assert sum(batch.num_rows for batch in batches) == 10_000
    assert max(batch.num_rows for batch in batches) <= cells.MOST_CELLS // 600
