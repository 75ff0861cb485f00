"""A topic with transactions, offloaded whole and by a filter: what is left out, what that saves, what is read.

The same transactions are made in three topics, whose policies differ in their offload filter. The demo shows it.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

from life_of_a_topic import MESSAGES_PER_ENTRY, ROLLOVER, messages
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from switched_topic import offload_ledgers, write_settings

from pulsar_offload import (
    NewMessage,
    TopicName,
    TransactionalTopic,
    load_configuration,
    managed_ledger_of_topic,
    open_environment,
    open_managed_ledger,
    open_policies,
    open_tier,
    pack_entry,
    parse_key,
)

TOPIC = "persistent://demo/cold/payments"
TRANSACTIONS = 120
ENTRIES_EACH = 5

FILTERS = {
    "no filter": "",
    "tombstone": 'filter = "transactions"',
    "gap": 'filter = "transactions"\nfilter_mode = "gap"',
}
"""Policies by what is shown for them; a tombstone is the default of a filter, since Pulsar reads the objects then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredCopy:
    """A topic's cold copy, and what Spark reads of it.

    Attributes:
        mode: one of `FILTERS`.
        data_bytes: of all data objects.
        messages: how many are read of what a consumer sees.
        digest: of these messages' values, in whatever order.
    """

    mode: str
    data_bytes: int
    messages: int
    digest: int


def run(spark: SparkSession, folder: Path) -> tuple[int, list[FilteredCopy]]:
    """How many messages were committed, and the topic's copies by each filter, in an empty folder."""
    copies = []
    for mode, policies in FILTERS.items():
        place = folder / mode.replace(" ", "-")
        committed = offload_payments(write_settings(place, policies))
        read = messages(spark, place, TOPIC).agg(
            f.count("*").alias("messages"), f.sum(f.crc32(f.col("value"))).alias("digest")
        )
        found = read.collect()[0]
        copies.append(
            FilteredCopy(
                mode=mode,
                data_bytes=data_bytes(place / "cold"),
                messages=found["messages"],
                digest=found["digest"],
            )
        )
    return committed, copies


def offload_payments(settings: Path) -> int:
    """Make transactions, of which some are aborted, and offload them all; how many messages were committed."""
    configuration, dice, committed = load_configuration(settings), random.Random(5), 0
    with (
        open_policies(configuration) as (metadata, policies),
        open_environment(configuration, metadata, policies) as environment,
        open_managed_ledger(
            environment, managed_ledger_of_topic(TopicName(TOPIC)), rollover=ROLLOVER
        ) as ledgers,
    ):
        topic = TransactionalTopic(environment, ledgers)
        for number in range(TRANSACTIONS):
            transaction = topic.begin()
            for entry in range(ENTRIES_EACH):
                first = (number * ENTRIES_EACH + entry) * MESSAGES_PER_ENTRY
                payments = [
                    NewMessage(value=json.dumps({"payment": i}).encode())
                    for i in range(first, first + MESSAGES_PER_ENTRY)
                ]
                payload = pack_entry(
                    payments,
                    producer_name="bank",
                    sequence_id=first,
                    publish_time_ms=time.time_ns() // 1_000_000,
                    transaction=transaction,
                )
                topic.add_entries([payload])
            if dice.random() < 0.3:
                topic.abort(transaction)
            else:
                topic.commit(transaction)
                committed += ENTRIES_EACH * MESSAGES_PER_ENTRY
        offload_ledgers(ledgers)
    return committed


def data_bytes(cold: Path) -> int:
    """The bytes of all data objects of a tier."""
    with open_tier(cold) as tier:
        found = ((parse_key(each.key), each.size_bytes) for each in tier.store.list_objects("", ""))
        return sum(size for key, size in found if key is not None and not key.is_index)
