"""Streams that read several tiers while a topic moves: each entry comes once, wherever its copy is by then."""

import pytest
from scenes.moves import half_moved

from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

TOPIC = "persistent://acme/cold/orders"


@pytest.fixture
def world(tmp_path):
    made, _ = half_moved(tmp_path)
    yield made
    made.records.store.close()


def streamed(spark, world, **more):
    """Run the query until it has what there is; all that it has written by then."""
    spark.dataSource.register(PulsarOffloadDataSource)
    options = {
        "topic": TOPIC,
        "records": f"sqlite:{world.folder}/records.db",
        "level": "entries",
        "refreshIntervalMs": "1",
        "maxOffsetsPerTrigger": "15",
        "startingOffsets": "earliest",
        **more,
    }
    stream = spark.readStream.format("pulsar_offload").options(**options).load(str(world.folder / "source"))
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(world.folder / "checkpoint")).start(
        str(world.folder / "out")
    )
    try:
        query.awaitTermination(120)
    finally:
        query.stop()
    rows = spark.read.parquet(str(world.folder / "out")).collect()
    return sorted((row["__ledgerId"], row["__entryId"], bytes(row["value"])) for row in rows)


def test_a_stream_goes_on_while_its_topic_moves(spark, world):
    tiers = str(world.folder / "target")
    first = {(ledger, entry): value for ledger, entry, value in streamed(spark, world, tiers=tiers)}
    assert sorted(first) == sorted(world.entries)
    late = world.add_ledger(7)
    world.offload(late)
    world.move_all()
    world.source.delete(world.keys(world.source))
    found = streamed(spark, world, tiers=tiers)
    assert [(ledger, entry) for ledger, entry, _ in found] == sorted(world.entries)
