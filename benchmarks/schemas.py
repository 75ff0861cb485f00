"""Payloads to typed columns: AVRO, JSON and Protobuf of a flat record of ten fields.

The peers go message by message; JSON has others that read many at once: pyarrow's and DuckDB's readers of lines, and
Spark's `from_json` on a binary column.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json

from benchmarks.measure import Result, one_core, seconds_side_by_side
from offload_core.format.schemas.decoders import make_decoder
from offload_core.format.schemas.payload_spans import spans_of
from offload_hooks.schemas import SchemaVersion

MESSAGES = 20_000
SPARK_TIMES = 50
"""Spark reads the messages so many times."""
DUCKDB_TYPES = {
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
    pa.string(): "VARCHAR",
    pa.float64(): "DOUBLE",
    pa.float32(): "FLOAT",
    pa.bool_(): "BOOLEAN",
}
SPARK_TYPES = {of: of for of in DUCKDB_TYPES.values()} | {"VARCHAR": "STRING", "INTEGER": "INT"}

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


PROTOBUF_TYPES = {
    "id": 3,
    "number": 5,
    "name": 9,
    "price": 1,
    "ok": 8,
    "note": 9,
    "quantity": 5,
    "at": 3,
    "weight": 2,
}
"""The same fields as numbers of `FieldDescriptorProto.Type`; `kind` is an enum."""


def run(folder: Path) -> Iterator[Result]:
    """One result per schema type: the rate itself is the ratio, shown beside the peer's; and of JSON one per reader."""
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": of} for name, of in FIELDS.items()],
    }
    schema = fastavro.parse_schema(definition)
    order, native = protobuf_order()
    rows = [row(i) for i in range(MESSAGES)]
    datums = [written(schema, each) for each in rows]
    texts = [json.dumps(each).encode() for each in rows]
    messages = [protobuf_of(order, each) for each in rows]

    def by_fastavro() -> pa.Table:
        return pa.Table.from_pylist([fastavro.schemaless_reader(io.BytesIO(d), schema, None) for d in datums])

    def by_json() -> pa.Table:
        return pa.Table.from_pylist([json.loads(text) for text in texts])

    def by_protobuf() -> pa.Table:
        columns: dict[str, list[Any]] = {name: [] for name in FIELDS}
        for message in map(order.FromString, messages):
            for name, column in columns.items():
                is_null = name in ("note", "quantity") and not message.HasField(name)
                column.append(None if is_null else getattr(message, name))
        return pa.table(columns)

    text = json.dumps(definition)
    with one_core():
        for kind, stored, payloads, library, peer, target in (
            ("AVRO", text, datums, "fastavro", by_fastavro, 1.0),
            ("JSON", text, texts, "json", by_json, 3.0),
            ("PROTOBUF_NATIVE", native, messages, "protobuf", by_protobuf, None),
        ):
            version = SchemaVersion(version=0, type=kind, definition=stored)
            decoder = make_decoder(version, version)
            column = pa.array(payloads, type=pa.binary())
            ours, theirs, _unused = seconds_side_by_side(
                lambda decoder=decoder, column=column: decoder.decode(spans_of(column)), peer, rounds=7
            )
            yield Result(
                name=f"{kind}, flat record of 10 fields: M messages/s",
                ours=f"{MESSAGES / ours / 1e6:.2f} M/s",
                peer=f"{library} and pyarrow: {MESSAGES / theirs / 1e6:.2f} M/s",
                ratio=MESSAGES / ours / 1e6,
                limit=target,
            )
    yield from json_readers(folder, text, texts)


def json_readers(folder: Path, definition: str, texts: list[bytes]) -> Iterator[Result]:
    """JSON against readers of many records at once; each makes the same columns, on one core."""
    version = SchemaVersion(version=0, type="JSON", definition=definition)
    decoder = make_decoder(version, version)
    spans = spans_of(pa.array(texts, type=pa.binary()))
    lines = folder / "orders.json"
    lines.write_bytes(b"\n".join(texts))
    schema = pa.schema(list(decoder.data_type))
    types = {field.name: DUCKDB_TYPES[field.type] for field in schema}
    database = duckdb.connect(config={"threads": 1})

    def by_pyarrow() -> pa.Table:
        joined = pa.BufferReader(b"\n".join(texts))
        return pj.read_json(
            joined, pj.ReadOptions(use_threads=False), pj.ParseOptions(explicit_schema=schema)
        )

    def by_duckdb() -> pa.Table:
        columns = ", ".join(f"'{name}': '{of}'" for name, of in types.items())
        query = f"FROM read_json('{lines}', format = 'newline_delimited', columns = {{{columns}}})"
        return database.sql(query).to_arrow_table()

    with one_core():
        for name, peer in (("pyarrow.json", by_pyarrow), ("DuckDB's read_json", by_duckdb)):
            ours, theirs, ratio = seconds_side_by_side(lambda: decoder.decode(spans), peer, rounds=7)
            yield _of_readers(name, ours / MESSAGES, theirs / MESSAGES, ratio, None)
        theirs = _spark_seconds(
            folder, texts, ", ".join(f"{name} {SPARK_TYPES[of]}" for name, of in types.items())
        )
        yield _of_readers("Spark's from_json", ours / MESSAGES, theirs, theirs / (ours / MESSAGES), 3.0)


def _of_readers(name: str, ours: float, theirs: float, ratio: float, limit: float | None) -> Result:
    """A result of seconds for each message."""
    return Result(
        name=f"JSON against {name}",
        ours=f"{1e-6 / ours:.2f} M/s",
        peer=f"{1e-6 / theirs:.2f} M/s",
        ratio=ratio,
        limit=limit,
    )


def _spark_seconds(folder: Path, texts: list[bytes], columns: str) -> float:
    """Seconds for each message of `from_json`, beyond those of reading the binary column."""
    path = str(folder / "orders.parquet")
    pq.write_table(pa.table({"value": pa.array(texts * SPARK_TIMES, type=pa.binary())}), path)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        frame = session.read.parquet(path)
        typed = frame.select(from_json(frame.value.cast("string"), columns).alias("order")).select("order.*")

        def consume(each: Any) -> None:
            each.write.format("noop").mode("overwrite").save()

        typed_s, plain_s, _ = seconds_side_by_side(lambda: consume(typed), lambda: consume(frame), rounds=3)
        return (typed_s - plain_s) / (len(texts) * SPARK_TIMES)
    finally:
        session.stop()


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


def protobuf_order() -> tuple[Any, str]:
    """The class of the record as a message, and its schema as Pulsar keeps it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="test", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    for i, symbol in enumerate("ABC"):
        kind.value.add(name=symbol, number=i)
    message = file.message_type.add(name="Order")
    for i, name in enumerate(FIELDS):
        field = message.field.add(name=name, number=i + 1, label=1, type=PROTOBUF_TYPES.get(name, 14))
        if name == "kind":
            field.type_name = ".test.Kind"
        if name in ("note", "quantity"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    pool = DescriptorPool()
    pool.Add(file)
    declared = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": "test.Order",
        "rootFileDescriptorName": file.name,
    }
    return GetMessageClass(pool.FindMessageTypeByName("test.Order")), json.dumps(declared)


def protobuf_of(order: Any, value: dict[str, Any]) -> bytes:
    """A record as a message."""
    fields = {name: each for name, each in value.items() if each is not None}
    message: bytes = order(**fields | {"kind": "ABC".index(value["kind"])}).SerializeToString()
    return message
