"""Python API, command line and Spark read the same from all five stores, by nothing but URL and options."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest
from commands import COMMAND
from golden import COLUMNS, TOPICS, assert_topic_is_as_expected
from records import golden_record
from stores import Store
from tiers import put, put_broker_objects

from offload_hooks.values import SETTLED_S
from pulsar_offload import scan

pytestmark = pytest.mark.sampled(12)

READABLE = [topic for topic in TOPICS if topic != "chunk"]


def run(*arguments):
    done = subprocess.run([str(COMMAND), *arguments], capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_every_golden_topic_is_read_by_the_python_api(broker):
    with broker.open_reader() as tier:
        for topic in READABLE:
            rows = scan(tier, f"acme/cold/{topic}", columns=COLUMNS).to_table()
            assert_topic_is_as_expected(rows.to_pylist(maps_as_pydicts="strict"), topic)


def test_the_command_line_lists_and_inspects_and_reads(broker, tmp_path):
    listed = json.loads(run("ls", *broker.command_line(), "--json"))
    local = Store(name="local", url=str(tmp_path))
    assert local.open_reader().catalogue().topics == ()
    assert "acme/cold" in json.dumps(listed)
    out = run("cat", *broker.command_line(), "--topic", "acme/cold/jstring", "--format", "jsonl")
    assert len(out.splitlines()) == 100


@pytest.mark.spark
def test_every_golden_topic_is_read_by_spark(spark, broker):
    reader = spark.read.format("pulsar_offload").options(**broker.spark_options())
    names = ",".join(f"acme/cold/{topic}" for topic in READABLE)
    table = reader.option("topics", names).option("columns", ",".join(COLUMNS)).load().toArrow()
    rows = table.to_pylist(maps_as_pydicts="strict")
    for topic in READABLE:
        of_topic = [row for row in rows if row["__topic"] == f"persistent://acme/cold/{topic}"]
        assert_topic_is_as_expected(of_topic, topic)


def test_records_in_the_same_store_are_read_with_the_tiers_options(store):
    with store.open() as tier:
        put_broker_objects(tier, ["jstring"], named=False)
        path = golden_record("jstring")
        put(tier, f"managed-ledgers/acme/cold/persistent/{path.name}", path.read_bytes(), {"role": "record"})
    with store.open_reader() as reader:
        for records in (
            f"{store.url}/managed-ledgers",
            f"{store.url}/managed-ledgers/acme/cold/persistent/{path.name}",
        ):
            rows = scan(reader, "acme/cold/jstring", columns=COLUMNS, records=records).to_table()
            assert_topic_is_as_expected(rows.to_pylist(maps_as_pydicts="strict"), "jstring")


def test_layers_go_before_any_store(broker, tmp_path):
    layers = [
        "metrics",
        f"block-cache:directory={tmp_path / 'cache'}",
        "hedging",
        "retry:attempts=3",
        "rate-limit",
    ]
    time.sleep(SETTLED_S)  # what is younger is not kept in the cache
    with broker.open_reader(layers=layers) as tier:
        for _ in range(2):
            table = scan(tier, "acme/cold/jstring").to_table()
            assert table.num_rows == 100
    assert any(files for _, _, files in os.walk(tmp_path / "cache"))
