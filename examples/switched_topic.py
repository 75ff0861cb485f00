"""A topic that changes how it is offloaded: by whole ledgers, by segments as its entries come, by ledgers again.

It is set up by a file of settings, as `offload serve` and the commands take it. The demo shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from life_of_a_topic import MESSAGES_PER_ENTRY, ROLLOVER, messages, produce, records_url
from pyspark.sql import DataFrame, SparkSession

from pulsar_offload import (
    ManagedLedger,
    StreamingSettings,
    TopicName,
    load_configuration,
    managed_ledger_of_topic,
    open_environment,
    open_managed_ledger,
    open_policies,
)

TOPIC = "persistent://demo/cold/switched"
ENTRIES = 800
SEGMENTS = StreamingSettings(max_segment_bytes=250_000, max_segment_age_s=60)
"""Small ones, so that a ledger has several, and one reaches into the next ledger. The default is 1 GiB."""

Say = Callable[[str], None]


def run(spark: SparkSession, folder: Path, say: Say) -> DataFrame:
    """Live the topic's life in an empty folder; its messages, all of which are in cold storage."""
    configuration = load_configuration(write_settings(folder))
    with (
        open_policies(configuration) as (metadata, policies),
        open_environment(configuration, metadata, policies) as environment,
        open_managed_ledger(
            environment, managed_ledger_of_topic(TopicName(TOPIC)), rollover=ROLLOVER
        ) as topic,
    ):
        produce(topic, range(200))
        offload_ledgers(topic)
        say("Offloaded by ledgers: each sealed ledger is an object of its own")

        topic.set_streaming(SEGMENTS)
        produce(topic, range(200, 550))
        topic.complete_segment()
        say("Streamed: segments went up while entries were appended; the last one was completed by hand")

        topic.set_streaming(None)
        produce(topic, range(550, ENTRIES))
        topic.roll()
        topic.complete_segment()  # of the ledger that is partly in segments
        offload_ledgers(topic)
        say("By ledgers again, from the end of the ledger that was partly in segments")
    return messages(spark, folder, TOPIC)


def write_settings(folder: Path, policies: str = "") -> Path:
    """Records, hot tier and cold tier in one folder, and further policies; the file that says so."""
    folder.mkdir(parents=True)
    path = folder / "offload.toml"
    path.write_text(f"""\
[metadata]
url = {json.dumps(records_url(folder))}
options.create = true

[hot_tier.options]
path = {json.dumps(str(folder / "hot"))}

[policies] # of the broker
driver = "local"
extra_configurations.root = {json.dumps(str(folder / "cold"))}
{policies}
""")
    return path


def offload_ledgers(topic: ManagedLedger) -> None:
    """Seal the ledger that is written, and offload all that are not offloaded yet."""
    topic.roll()
    end = topic.last_position
    assert end is not None
    topic.offload_prefix(type(end)(end.ledger_id + 1, 0))


def count(read: DataFrame) -> tuple[int, int]:
    """How many messages Spark reads, and how many there must be."""
    return read.count(), ENTRIES * MESSAGES_PER_ENTRY
