"""What a broker offloads to a directory is what the official client read; it serves MapFiles that we wrote."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from live.broker import COLUMNS, messages_by_topic, scanned
from live.sent import TOPICS
from mapfiles import lay_out_mapfile, mapfile

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from pulsar_offload import open_tier, scan


def stored_ledgers(root, topic):
    """The folders `<ledger>-<uuid>` of a topic or partition, and the files in each."""
    namespace, _, name = topic.removeprefix("persistent://").rpartition("/")
    folder = root / namespace / "persistent" / name
    return {ledger.name: {file.name for file in ledger.iterdir()} for ledger in folder.iterdir()}


@pytest.mark.nightly
def test_every_ledger_that_the_broker_calls_offloaded_is_there(filesystem_tier):
    root, topics = filesystem_tier
    files = {"data", "index", ".data.crc", ".index.crc"}
    for name, ledgers in [each for topic in topics.values() for each in topic.ledgers.items()]:
        assert stored_ledgers(root, name) == {f"{each.ledger_id}-{each.uuid}": files for each in ledgers}


@pytest.mark.nightly
@pytest.mark.parametrize("topic", TOPICS)
def test_the_arrow_scan_gives_what_the_client_read(filesystem_tier, topic):
    root, topics = filesystem_tier
    with open_tier(root) as tier:
        assert scanned(tier, topics[topic].name) == topics[topic].read


@pytest.mark.nightly
def test_the_driver_filesystem_finds_it_by_pulsars_own_options(broker, filesystem_tier):
    root, topics = filesystem_tier
    options = {"fileSystemURI": root.as_uri(), "fileSystemProfilePath": str(broker.filesystem_profile)}
    with open_tier("filesystem", **options) as tier:
        assert scanned(tier, topics["json"].name) == topics["json"].read


@pytest.mark.nightly
@pytest.mark.spark
def test_the_spark_source_gives_what_the_client_read(filesystem_tier, spark):
    root, topics = filesystem_tier
    reader = spark.read.format("pulsar_offload").option("columns", ",".join(COLUMNS))
    rows = reader.load(str(root)).toArrow().to_pylist(maps_as_pydicts="strict")
    assert messages_by_topic(rows) == {name: topic.read for name, topic in topics.items()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("compression", FileCompression)
def test_the_broker_serves_mapfiles_that_we_wrote_in_the_place_of_its_own(live, tmp_path, compression):
    namespace = live.new_namespace(live.broker.filesystem_policies(tmp_path, deletion_lag_ms=0))
    topic = live.send(f"persistent://{namespace}/ours", TOPICS["compression-lz4"])
    ledgers = live.admin.offload_all(topic.name)
    payloads: dict[int, list[bytes]] = defaultdict(list)
    with open_tier(tmp_path) as tier:
        for row in scan(tier, topic.name, level="entries").to_table().to_pylist():
            payloads[row["__ledgerId"]].append(row["value"])
    for ledger in ledgers:
        written = mapfile(
            payloads[ledger.ledger_id],
            compression=compression,
            ledger_id=ledger.ledger_id,
            block_bytes=10_000,
            index_interval=3,
            managed_ledger=f"{namespace}/persistent/ours",
        )
        lay_out_mapfile(tmp_path, replace(written, key=replace(written.key, uuid=ledger.uuid)))
    live.admin.drop_bookkeeper_copies(topic.name)
    live.assert_serves(topic, [len(topic.read) // 2])
