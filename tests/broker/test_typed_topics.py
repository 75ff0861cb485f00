"""AVRO and JSON of a running broker through Spark: nested fields, two versions in one read, what cannot be decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from _pulsar import SchemaType
from entries import entry
from live.broker import RECEIVED_WITHIN_S, produce
from live.sent import RawProducer
from pulsar.schema import AvroSchema, Schema
from pyspark.errors import PySparkException
from scenes.schemas import record

from offload_core.reading.admin_schemas import AdminSchemas
from offload_core.reading.schema_providers import SavedSchemas

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

MALFORMED = b'\xff{"number": "one'
COUNT = 12


class JsonSchema(Schema):
    """JSON by a definition; the client's own takes classes only."""

    def __init__(self, definition):
        super().__init__(dict, SchemaType.JSON, definition, "JSON")

    def encode(self, obj):
        return json.dumps(obj).encode()

    def decode(self, data):
        return json.loads(data)


SCHEMAS: dict[str, Callable[[dict[str, Any]], Any]] = {"avro": partial(AvroSchema, None), "json": JsonSchema}


def order(**more):
    """A definition; each time another, since the client changes those that it is given."""
    city = {"name": "city", "type": ["null", "string"], "default": None}
    fields = [{"name": "name", "type": "string"}, city]
    customer = {"type": "record", "name": "Customer", "fields": fields}
    made = record(number="long", customer=["null", customer], tags={"type": "array", "items": "string"})
    return made | {"fields": [*made["fields"], *({"name": name} | each for name, each in more.items())]}


def newer_order():
    note = {"type": ["null", "string"], "default": None}
    return order(note=note, totals={"type": {"type": "map", "values": "double"}, "default": {}})


def orders(first):
    return [
        {
            "number": number,
            "customer": None
            if number % 5 == 4
            else {"name": f"c{number}", "city": "冷" if number % 2 else None},
            "tags": ["a", "ö"][: number % 3],
        }
        for number in range(first, first + COUNT)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A topic of two versions and a malformed message, what a consumer read of the others, and its schemas."""

    topic: str
    read: list[dict[str, Any]]
    schemas: Path


@pytest.fixture(scope="module", params=SCHEMAS)
def typed(request, broker, cold, client, tmp_path_factory):
    topic = cold.topic(f"typed-{request.param}")
    of = SCHEMAS[request.param]
    newer = [value | {"note": f"n{value['number']}", "totals": {"eur": 0.5}} for value in orders(COUNT)]
    for definition, values, options in (
        (order(), orders(0), {"batching_max_messages": 5, "batching_max_publish_delay_ms": 10_000}),
        (newer_order(), newer, {"batching_enabled": False}),
    ):
        messages = [{"content": value} for value in values]
        produce(client, topic, messages, schema=of(definition), **options)
    consumer = client.subscribe(
        topic, "reading", schema=of(newer_order()), initial_position=pulsar.InitialPosition.Earliest
    )
    read = [consumer.receive(timeout_millis=int(RECEIVED_WITHIN_S * 1000)).value() for _ in range(2 * COUNT)]
    consumer.close()
    with RawProducer(broker.service_url, broker.endpoint, topic) as producer:
        producer.send([entry(MALFORMED, schema_version=bytes(8))])
    cold.offload(topic)
    schemas = tmp_path_factory.mktemp("schemas") / "history.json"
    SavedSchemas(schemas).save(topic, AdminSchemas(broker.endpoint).history(topic))
    return Typed(topic=topic, read=read, schemas=schemas)


def query(spark, cold, typed, mode, **more):
    reader = spark.read.format("pulsar_offload").options(**cold.store.spark_options())
    return reader.options(topic=typed.topic, schemas=str(typed.schemas), mode=mode, **more).load()


def test_both_versions_are_what_the_client_read(spark, cold, typed):
    columns = ["number", "customer", "tags", "note", "totals"]
    query(spark, cold, typed, "DROPMALFORMED", columns=",".join(columns)).createOrReplaceTempView("orders")
    frame = spark.sql("SELECT *, customer.city AS city, totals['eur'] AS eur FROM orders")
    rows = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    absent = {"note": None, "totals": None}  # of JSON; by AVRO the client has the defaults
    wanted = [absent | value for value in typed.read]
    assert [{name: row[name] for name in columns} for row in rows] == wanted
    assert [row["city"] for row in rows] == [(value["customer"] or {}).get("city") for value in wanted]
    assert [row["eur"] for row in rows] == [None] * COUNT + [0.5] * COUNT


def test_a_malformed_message_is_passed_on(spark, cold, typed):
    rows = query(spark, cold, typed, "PERMISSIVE").select("number", "customer", "_corrupt_record").collect()
    assert [row[0] for row in rows] == [*range(2 * COUNT), None]
    assert rows[-1][1] is None
    assert [row[2] and bytes(row[2]) for row in rows] == [None] * 2 * COUNT + [MALFORMED]


def test_a_malformed_message_fails_the_query(spark, cold, typed):
    with pytest.raises(PySparkException, match="PayloadError"):
        query(spark, cold, typed, "FAILFAST").collect()
