"""Topics of all kinds of messages that a broker offloaded, in one tier, and what Pulsar's clients read of them.

Those of `acme/kinds` are made by `made_kinds.py`; the others are those of `golden.py`.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from golden import BROKER, COLUMNS, GOLDEN, assert_topic_is_as_expected, stored_objects
from live.clients import rows_as_java_reads
from tiers import put

from offload_core.metadata.catalogue.listing import stream_pairs
from offload_core.storage.tier import Tier
from pulsar_offload import TierReader, scan

MADE = GOLDEN / "broker" / "kinds"
KEYS = {"key_provider": ("pem", {"directory": str(MADE / "keys")})}
KINDS = {
    "compressed batches": "acme/cold/comp-zstd",
    "schema": "acme/cold/avro",
    "transactions": "acme/cold/txn",
    "chunks": "acme/kinds/chunks",
    "encrypted": "acme/kinds/encrypted",
    "encrypted chunks": "acme/kinds/encrypted-chunks",
}
"""The topic of each kind of messages."""

Read = dict[str, Any]

Place = tuple[int, int]
"""Ledger and entry."""


def put_kinds(tier: Tier) -> None:
    """The objects of all `KINDS`, as the broker stored them."""
    topics = {topic.rpartition("/")[2] for topic in KINDS.values()}
    for broker in (BROKER, MADE):
        for key, data, metadata in stored_objects(topics, broker):
            put(tier, key, data, metadata)


def assert_is_as_clients_read(reader: TierReader, kind: str, **options: Any) -> None:
    """All messages of the topic of this kind are what Pulsar's clients read of it, in that order."""
    topic = KINDS[kind]
    name = topic.rpartition("/")[2]
    if topic.startswith("acme/kinds/"):
        assert rows_as_java_reads(reader, topic, **KEYS, **options) == _java_rows(name)
        return
    planned = scan(reader, topic, columns=COLUMNS, **options)
    rows = planned.to_table().to_pylist(maps_as_pydicts="strict")
    assert_topic_is_as_expected(rows, name)


def messages_of(reader: TierReader, kind: str, **options: Any) -> list[Read]:
    """All messages of the topic of this kind, as we read them."""
    columns = ["__ledgerId", "__entryId", "__batchIndex", "__producerName", "__sequenceId", "__key", "value"]
    planned = scan(reader, KINDS[kind], columns=columns, **KEYS, **options)
    return planned.to_table().to_pylist()


def without(messages: Sequence[Read], lost: Sequence[Read]) -> list[Read]:
    """Those that have no part in these entries; `lost` are messages, or chunks of some, which have such."""
    gone = {(each["__producerName"], each["__sequenceId"]) for each in lost}
    return [each for each in messages if (each["__producerName"], each["__sequenceId"]) not in gone]


def entries_of(reader: TierReader, kind: str) -> dict[Place, bytes]:
    """All entries of the topic of this kind."""
    planned = scan(reader, KINDS[kind], level="entries")
    return {(row["__ledgerId"], row["__entryId"]): row["value"] for row in planned.to_table().to_pylist()}


def damage(tier: Tier, place: Place, entry: bytes) -> None:
    """Flip a bit of an entry where it is stored, in its payload; `entry` is what it is."""
    pair = next(each for each in stream_pairs(tier) if each.key.ledger_id == place[0])
    stat = tier.stat(pair.key.data_key)
    data = bytearray(tier.read_range(stat.key, 0, stat.size_bytes))
    data[data.index(entry) + len(entry) - 40] ^= 4
    tier.delete([stat.key])
    put(tier, stat.key, bytes(data), stat.user_metadata)


def _java_rows(name: str) -> list[Read]:
    text = gzip.decompress((MADE / "topics" / f"{name}.jsonl.gz").read_bytes())
    rows = [json.loads(line) for line in text.splitlines()]
    binary = ("id", "value", "key", "ordering_key")
    return [
        {
            name: base64.b64decode(value) if name in binary and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]
