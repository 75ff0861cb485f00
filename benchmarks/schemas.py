"""Payloads to typed columns: AVRO and JSON of a flat record of ten fields. The peer is fastavro, datum by datum."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from benchmarks.measure import Result, one_core, seconds_side_by_side
from offload_core.schemas.decoders import make_decoder
from offload_core.schemas.spans import spans_of
from offload_hooks.schemas import SchemaVersion

MESSAGES = 20_000

FIELDS: dict[str, Any] = {
    "id": "long",
    "number": "int",
    "name": "string",
    "price": "double",
    "ok": "boolean",
    "note": ["null", "string"],
    "quantity": ["null", "int"],
    "at": "long",
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]},
    "weight": "float",
}


def run(_: Path) -> Iterator[Result]:
    """One result per schema type: the rate itself is the ratio for AVRO, JSON is compared with Python's reader."""
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": of} for name, of in FIELDS.items()],
    }
    schema = fastavro.parse_schema(definition)
    rows = [row(i) for i in range(MESSAGES)]
    datums = [written(schema, each) for each in rows]
    texts = [json.dumps(each).encode() for each in rows]

    def by_fastavro() -> pa.Table:
        return pa.Table.from_pylist([fastavro.schemaless_reader(io.BytesIO(d), schema, None) for d in datums])

    def by_json() -> pa.Table:
        return pa.Table.from_pylist([json.loads(text) for text in texts])

    with one_core():
        for kind, payloads, peer, target in (
            ("AVRO", datums, by_fastavro, 1.0),
            ("JSON", texts, by_json, None),
        ):
            version = SchemaVersion(version=0, type=kind, definition=json.dumps(definition))
            decoder = make_decoder(version, version)
            column = pa.array(payloads, type=pa.binary())
            ours, theirs, _unused = seconds_side_by_side(
                lambda decoder=decoder, column=column: decoder.decode(spans_of(column)), peer, rounds=7
            )
            yield Result(
                name=f"{kind}, flat record of 10 fields: M messages/s",
                ours=f"{MESSAGES / ours / 1e6:.2f} M/s",
                peer=f"{'fastavro' if kind == 'AVRO' else 'json'} and pyarrow: {MESSAGES / theirs / 1e6:.2f} M/s",
                ratio=MESSAGES / ours / 1e6,
                limit=target,
            )


def row(i: int) -> dict[str, Any]:
    """The i-th record."""
    return {
        "id": i * 7919,
        "number": i % 1000,
        "name": f"name {i}",
        "price": i / 3,
        "ok": i % 2 == 0,
        "note": None if i % 3 == 0 else f"note {i}",
        "quantity": i if i % 2 else None,
        "at": 1_700_000_000_000 + i,
        "kind": "ABC"[i % 3],
        "weight": i / 2,
    }


def written(schema: Any, value: dict[str, Any]) -> bytes:
    """A datum."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()
