"""The demo (`make demo`): a broker's objects through Spark to Parquet and back; topics of our own from hot to cold.

Everything it writes lies in `.demo/` at the root of the checkout and is made anew by every run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import example_tier
import filtered_topic
import life_of_a_topic
import switched_topic
import toolbox
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from pulsar_offload import open_tier

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / ".demo"

console = Console(highlight=False)


def main() -> None:
    """Run all steps; each says what it does."""
    began = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    tier = DEMO / "tier"
    step("Lay out what a Pulsar 4.0.8 broker offloaded to S3 as a tier in a directory")
    with open_tier(tier) as opened:
        count = example_tier.lay_out(opened.store)
    console.print(f"{count} objects, byte for byte as the broker wrote them, in {shown(tier)}")

    step("List it: topics, ledgers, sizes, formats. No broker, no metadata store, only the objects")
    offload("ls", str(tier))

    step("Look after it: the operator's toolbox")
    toolbox.run(tier, DEMO, offload, say)

    step("Read it through Spark")
    spark = start_spark()
    messages = spark.read.format("pulsar_offload").load(str(tier)).cache()
    messages.printSchema()
    text = f.regexp_replace(f.col("value").cast("string"), r"\s+", " ")
    json_topic = spark.read.format("pulsar_offload").option("topic", "acme/cold/json").load(str(tier))
    json_topic.orderBy("__ledgerId", "__entryId", "__batchIndex").select(
        f.col("__publishTime").alias("publish time"),
        f.col("__key").cast("string").alias("key"),
        "__ledgerId",
        "__entryId",
        "__batchIndex",
        f.substring(text, 1, 60).alias("value"),
    ).show(5, truncate=False)

    step("Messages per topic and per minute")
    chart(messages)

    step("Write them to Parquet with Spark, read them back, compare")
    parquet = DEMO / "parquet"
    messages.write.partitionBy("__topic").parquet(str(parquet))
    compare(messages, spark.read.parquet(str(parquet)).select(messages.columns))
    size = sum(path.stat().st_size for path in parquet.rglob("*.parquet"))
    console.print(f"Equal, row by row. {size / 1e6:.1f} MB of Parquet in {shown(parquet)}")

    step("A topic of our own: produce, roll over, offload, delete hot copies. No server")
    topic = life_of_a_topic.run(spark, DEMO / "life", show_places)

    step("Read it through Spark, by its record")
    count_orders(topic)

    step("What nothing needs: objects beside it whose topic has no record any more")
    with open_tier(DEMO / "life" / "cold") as opened:
        example_tier.lay_out(
            opened.store,
            lambda stored: stored["metadata"]["managedledgername"] == "acme/cold/persistent/json",
        )
    toolbox.find_garbage(DEMO / "life" / "cold", life_of_a_topic.records_url(DEMO / "life"), offload, say)

    step("A topic that went from ledgers to streaming and back: which positions lie in which object")
    switched = switched_topic.run(spark, DEMO / "switched", say)
    offload("topics", "layout", switched_topic.TOPIC, "--config", str(DEMO / "switched" / "offload.toml"))
    counted, expected = switched_topic.count(switched)
    if counted != expected:
        sys.exit(f"Spark has {counted} messages, and {expected} were produced.")
    console.print(f"Spark reads it as one: all {counted:,} messages.")

    step("A topic with transactions, offloaded whole and by a filter: what a consumer sees is the same")
    show_filtered(*filtered_topic.run(spark, DEMO / "filtered"))
    offload("ls", str(DEMO / "filtered" / "tombstone" / "cold"))
    spark.stop()

    step(f"Done in {time.monotonic() - began:.0f} s. Now with your own bucket")
    console.print(
        f"  {shown(offload_command())} ls file:///path/to/copy/of/the/bucket\n"
        f"  {shown(offload_command())} cat {shown(tier)} --topic acme/cold/json --limit 5\n"
        '  spark.read.format("pulsar_offload").option("topic", "tenant/namespace/topic").load(URL)',
        soft_wrap=True,
    )


def step(title: str) -> None:
    """Say what comes now."""
    say(f"\n[bold]── {title}[/bold]")


def say(text: str) -> None:
    """A line, however long."""
    console.print(text, soft_wrap=True)


def start_spark() -> SparkSession:
    """Spark on this machine's cores, on loopback, quiet."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # PySpark warns of a newer pandas, which is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    session = (
        SparkSession.builder.master("local[*]")
        .appName("pulsar-offload demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def chart(messages: DataFrame) -> None:
    """Bars in the terminal: messages per topic, and per minute of their publish times."""
    short = f.element_at(f.split("__topic", "/"), -1)
    minute = f.date_format(f.date_trunc("minute", "__publishTime"), "HH:mm")
    for title, label in (("messages per topic", short), ("messages per minute (UTC)", minute)):
        rows = messages.groupBy(label.alias("label")).count().orderBy("label").collect()
        most = max(row["count"] for row in rows)
        table = Table(
            "", "", "", title=title, title_justify="left", box=None, show_header=False, pad_edge=False
        )
        for row in rows:
            table.add_row(row["label"], Bar(most, 0, row["count"], width=40), f"{row['count']:,}")
        console.print(table)


def compare(written: DataFrame, read: DataFrame) -> None:
    """Stop if the two differ in any row or column (maps cannot be compared, so as sorted entries)."""

    def comparable(frame: DataFrame) -> DataFrame:
        entries = f.array_sort(f.map_entries("__messageProperties"))
        return frame.withColumn("__messageProperties", entries)

    one, two = comparable(written), comparable(read)
    if not one.exceptAll(two).isEmpty() or not two.exceptAll(one).isEmpty():
        sys.exit("What was read back from Parquet is not what was written.")


def show_places(title: str, places: list[life_of_a_topic.LedgerPlace]) -> None:
    """What lies where after a step of a topic's life."""
    table = Table(box=None, pad_edge=False)
    for heading in ("ledger", "state", "entries", "hot bytes", "cold bytes"):
        table.add_column(heading, justify="left" if heading == "state" else "right")
    for place in places:
        sizes = ["–" if size is None else f"{size:,}" for size in (place.hot_bytes, place.cold_bytes)]
        state = "sealed" if place.is_sealed else "open"
        table.add_row(str(place.ledger_id), state, str(place.entries), *sizes)
    console.print(f"{title}:", table, "", sep="\n")


def count_orders(topic: DataFrame) -> None:
    """Show the orders in cold storage; stop if they are not those of the ledgers that were offloaded."""
    orders = life_of_a_topic.orders_by_customer(topic).orderBy("customer")
    orders.show()
    count = sum(row["orders"] for row in orders.collect())
    if count != life_of_a_topic.OFFLOADED_MESSAGES:
        sys.exit(f"Spark has {count} messages, and {life_of_a_topic.OFFLOADED_MESSAGES} were offloaded.")
    console.print(f"All {count:,} messages that were offloaded; the open ledger has the others.")


def show_filtered(committed: int, copies: list[filtered_topic.FilteredCopy]) -> None:
    """What each filter leaves; stop if it is not what was committed."""
    table = Table(box=None, pad_edge=False)
    for heading in ("in place of what is dropped", "data bytes", "saved", "committed messages"):
        table.add_column(heading, justify="left" if heading.startswith("in") else "right")
    whole = copies[0].data_bytes
    for copy in copies:
        saved = f"{1 - copy.data_bytes / whole:.0%}"
        table.add_row(copy.mode, f"{copy.data_bytes:,}", saved, f"{copy.messages:,}")
    console.print(table)
    if {(copy.messages, copy.digest) for copy in copies} != {(committed, copies[0].digest)}:
        sys.exit(f"{committed} messages were committed, and Spark reads others.")


def offload(*arguments: str, code: int = 0) -> None:
    """Show a command and run it; stop if it ends with another exit code."""
    command = offload_command()
    words = [shown(Path(text)) if text.startswith("/") else text for text in arguments]
    say(f"$ {' '.join([shown(command), *words])}")
    ended = subprocess.run([str(command), *arguments], check=False).returncode
    if ended != code:
        sys.exit(f"It ended with {ended}, and not with {code}.")


def offload_command() -> Path:
    """The command of this environment."""
    return Path(sys.executable).parent / "offload"


def shown(path: Path) -> str:
    """A path as it is typed from the checkout."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    main()
