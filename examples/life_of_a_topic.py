"""The life of a topic on embedded defaults: produced, rolled over, offloaded, its hot copies deleted, read by Spark.

Records are in a SQLite file, ledgers in a folder, their cold copies in another; no server runs. The demo shows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pulsar_offload import (
    Environment,
    FileAuditLog,
    FileLedgerStore,
    HotLedgers,
    KnownTiers,
    LedgerRecord,
    ManagedLedger,
    ManagedLedgerRecords,
    NewMessage,
    ObjectKey,
    RecordedOffloads,
    RolloverPolicy,
    Tier,
    TopicName,
    managed_ledger_of_topic,
    open_managed_ledger,
    open_metadata_store,
    open_tier,
    pack_entry,
)

TOPIC = "persistent://demo/cold/orders"
ENTRIES = 350
MESSAGES_PER_ENTRY = 100
ROLLOVER = RolloverPolicy(max_entries=100, min_age_s=0)
"""Pulsar's defaults are ledgers of 50,000 entries that are ten minutes old at least."""

OFFLOADED_MESSAGES = ENTRIES // ROLLOVER.max_entries * ROLLOVER.max_entries * MESSAGES_PER_ENTRY
"""Those in ledgers that were full."""

CUSTOMERS = ("ada", "grace", "edsger", "barbara")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPlace:
    """Where a ledger is: what the stores themselves say. None stands for no copy there."""

    ledger_id: int
    is_sealed: bool
    entries: int
    hot_bytes: int | None
    cold_bytes: int | None


Show = Callable[[str, list[LedgerPlace]], None]
"""Told of each step and of what lies where after it."""


def run(spark: SparkSession, folder: Path, show: Show) -> DataFrame:
    """Live the topic's life in an empty folder; its messages that are in cold storage."""
    with tiers_in(folder) as (environment, cold):
        name = managed_ledger_of_topic(TopicName(TOPIC))
        with open_managed_ledger(environment, name, rollover=ROLLOVER) as topic:

            def say(title: str) -> None:
                show(title, places(environment, topic, cold))

            produce(topic, range(ENTRIES))
            say(f"Produced {ENTRIES * MESSAGES_PER_ENTRY:,} messages; a ledger that was full was sealed")
            end = topic.last_position
            assert end is not None
            first_hot = topic.offload_prefix(end)
            say(f"Offloaded the sealed ledgers; {first_hot} is the first entry that is not offloaded")
            deleted = topic.delete_hot_copies(lag_s=0)
            say(f"Deleted the hot copies of the ledgers {', '.join(map(str, deleted))}")
            return messages(spark, folder, TOPIC)


@contextmanager
def tiers_in(folder: Path) -> Iterator[tuple[Environment, Tier]]:
    """Records, hot and cold tier in a folder, and what managed ledgers are opened in."""
    folder.mkdir(parents=True)
    with (
        closing(open_metadata_store(records_url(folder), {"create": True})) as metadata,
        closing(FileLedgerStore(folder / "hot")) as hot,
        open_tier(folder / "cold") as cold,
    ):
        records = ManagedLedgerRecords(metadata)
        yield (
            Environment(
                records=records,
                hot=HotLedgers(hot),
                offloads=RecordedOffloads(records, hot, KnownTiers(cold.store)),
                audit=FileAuditLog(folder / "audit.jsonl"),
            ),
            cold.store,
        )


def records_url(folder: Path) -> str:
    """Where the records are, as Spark's option `records` names it."""
    return f"sqlite:{folder}/records.db"


def produce(topic: ManagedLedger, entries: range) -> None:
    """Append orders as a producer with batching sends them, in the entries of these numbers."""
    for number in entries:
        first = number * MESSAGES_PER_ENTRY
        orders = [
            NewMessage(key=CUSTOMERS[i % len(CUSTOMERS)], value=json.dumps({"order": i}).encode())
            for i in range(first, first + MESSAGES_PER_ENTRY)
        ]
        now_ms = time.time_ns() // 1_000_000
        topic.add_entry(pack_entry(orders, producer_name="shop", sequence_id=first, publish_time_ms=now_ms))


def messages(spark: SparkSession, folder: Path, topic: str) -> DataFrame:
    """A topic's messages in cold storage, found by its record."""
    return (
        spark.read.format("pulsar_offload")
        .option("topic", topic)
        .option("records", records_url(folder))
        .load(str(folder / "cold"))
    )


def orders_by_customer(read: DataFrame) -> DataFrame:
    """How many orders each customer has, and up to which number."""
    order = f.get_json_object(f.col("value").cast("string"), "$.order").cast("long")
    customer = f.col("__key").cast("string").alias("customer")
    return read.groupBy(customer).agg(f.count("*").alias("orders"), f.max(order).alias("last"))


def places(environment: Environment, topic: ManagedLedger, cold: Tier) -> list[LedgerPlace]:
    """Each ledger of the topic, and where it is."""
    known = environment.records.read(topic.name)
    return [] if known is None else [_place(environment, ledger, cold) for ledger in known.info.in_order]


def _place(environment: Environment, ledger: LedgerRecord, cold: Tier) -> LedgerPlace:
    hot_bytes = cold_bytes = None
    entries = ledger.info.entries or 0
    if ledger.ledger_id in environment.hot.store.ledger_ids():
        with closing(environment.hot.store.open(ledger.ledger_id)) as reader:
            status = reader.status()
        hot_bytes, entries = status.size_bytes, status.entry_count
    if ledger.context is not None and ledger.context.uuid is not None:
        key = ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)
        cold_bytes = cold.stat(key.data_key).size_bytes
    return LedgerPlace(
        ledger_id=ledger.ledger_id,
        is_sealed=ledger.info.is_closed,
        entries=entries,
        hot_bytes=hot_bytes,
        cold_bytes=cold_bytes,
    )
