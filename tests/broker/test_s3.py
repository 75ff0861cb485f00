"""What a running broker offloaded to S3 is, message by message, what the official client read before."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from entries import read_whole, rewritten
from live.broker import scanned
from live.sent import PARTITIONS, TOPICS, Order, orders
from pulsar.schema import AvroSchema
from servers.broker import DEFAULT_BLOCK_BYTES


@pytest.mark.parametrize("topic", TOPICS)
def test_the_arrow_scan_gives_what_the_client_read(s3_tier, topic):
    store, topics = s3_tier
    with store.open_reader() as tier:
        assert scanned(tier, topics[topic].name) == topics[topic].read


def test_the_catalogue_has_the_ledgers_that_the_broker_calls_offloaded(s3_tier):
    store, topics = s3_tier
    with store.open_reader() as tier:
        catalogue = tier.catalogue()
    found = {
        str(topic.name): [(ledger.ledger_id, ledger.extents[0].key.uuid) for ledger in topic.ledgers]
        for topic in catalogue.topics
    }
    told = {
        name: [(ledger.ledger_id, ledger.uuid) for ledger in ledgers]
        for topic in topics.values()
        for name, ledgers in topic.ledgers.items()
    }
    assert found == told
    assert len(told) == len(TOPICS) - len(PARTITIONS) + sum(PARTITIONS.values())


def test_our_writer_makes_the_brokers_bytes(s3_tier):
    store, _ = s3_tier
    with store.open_reader() as reader:
        tier = reader.store
        for topic in reader.catalogue().topics:
            for key in (extent.key for ledger in topic.ledgers for extent in ledger.extents):
                data, index = read_whole(tier, key.data_key), read_whole(tier, key.index_key)
                ours = rewritten(data, index, key, DEFAULT_BLOCK_BYTES)
                assert (ours.data, ours.index) == (data, index), key


def test_records_are_those_that_were_sent(s3_tier):
    _, topics = s3_tier
    schema = fastavro.parse_schema(json.loads(AvroSchema(Order).schema_info().schema()))
    json_values = [json.loads(message["value"]) for message in topics["json"].read]
    avro_values = [
        fastavro.schemaless_reader(io.BytesIO(message["value"]), schema, None)
        for message in topics["avro"].read
    ]
    assert json_values == avro_values == orders()
