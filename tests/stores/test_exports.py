"""Exports to every store: a failure and a kill in the middle, gone on with, and each message is there once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import COMMAND
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from scenes.exports import ORDERS, in_order, scanned, two_partitions

import pulsar_offload
from offload_core.reading.export.delta_target import DeltaTarget
from offload_core.reading.export.iceberg_target import IcebergTarget
from offload_core.storage.executors import ThreadExecutor
from offload_hooks.errors import StoreError
from pulsar_offload import open_tier

pytestmark = pytest.mark.sampled(12)

KILLED = f"""
import json, os, signal, sys
from pulsar_offload import export, open_tier
def die(now):
    if now.done_bytes:  # the first file of this run is committed, others are being written
        os.kill(os.getpid(), signal.SIGKILL)
tier, to, options = json.loads(sys.argv[1])
with open_tier(tier) as reader:
    export(reader, to, {ORDERS!r}, to_options=options, file_bytes=2048, listener=die)
"""


def export(tier, to, options):
    with open_tier(tier) as reader:
        pulsar_offload.export(
            reader, to, ORDERS, to_options=options, file_bytes=2048, executor=ThreadExecutor(1)
        )


def exported(store):
    """The rows of all visible files."""
    keys = [listed.key for listed in store.list_objects("topic=") if listed.key.endswith(".parquet")]
    data = [bytes(store.read_range(key, 0, store.stat(key).size_bytes)) for key in keys]
    return in_order(pa.concat_tables(pq.read_table(pa.BufferReader(each)) for each in data))


def test_an_export_that_fails_and_is_killed_goes_on_and_has_every_message_once(store, tmp_path):
    tier = two_partitions(tmp_path / "source")
    options = dict(store.options)
    faults = [("fault-plan", {"faults": "fail-before commit_data #2"})]
    with pytest.raises(StoreError):
        export(tier, store.url, options | {"layers": faults})
    with store.open() as opened:
        of_first = exported(opened)  # the second file is in a manifest, and not visible
        assert 0 < len(of_first) < 64
    done = subprocess.run(
        [sys.executable, "-c", KILLED, json.dumps([str(tier), store.url, options])],
        timeout=300,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with store.open() as opened:
        of_second = exported(opened)
        assert len(of_first) < len(of_second) < 64
    named = [f"--to-option={name}={value}" for name, value in options.items()]
    subprocess.run(
        [str(COMMAND), "export", str(tier), "-t", ORDERS, "--to", store.url, *named],
        timeout=300,
        capture_output=True,
        check=True,
    )
    with store.open() as opened:
        assert exported(opened) == scanned(tier)
        assert {each.key[-8:] for each in opened.list_objects() if each.size_bytes} == {".parquet"}


@pytest.fixture
def bucket(versitygw, tmp_path):
    """An empty bucket's URL."""
    return f"s3://{versitygw.make_bucket('tables-' + tmp_path.name.replace('_', '-').lower()[:40])}"


def test_iceberg_on_s3(versitygw, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(IcebergTarget, "commit_bytes", 1)
    tier = two_partitions(tmp_path / "source")
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{bucket}/warehouse",
        # Arrow's own S3 client, the default, and this server lose track of a connection's requests now and then.
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": versitygw.endpoint,
        "s3.region": versitygw.region,
        "s3.access-key-id": versitygw.root.access_key,
        "s3.secret-access-key": versitygw.root.secret_key,
    }
    for _ in range(2):
        export(tier, "iceberg:test/exports.orders", options)
        table = load_catalog("test", **options).load_table("exports.orders")
        assert in_order(table.scan().to_arrow()) == scanned(tier)


def test_delta_on_s3(versitygw, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(DeltaTarget, "commit_bytes", 1)
    tier = two_partitions(tmp_path / "source")
    options = {
        "AWS_ENDPOINT_URL": versitygw.endpoint,
        "AWS_REGION": versitygw.region,
        "AWS_ACCESS_KEY_ID": versitygw.root.access_key,
        "AWS_SECRET_ACCESS_KEY": versitygw.root.secret_key,
        "AWS_ALLOW_HTTP": "true",
    }
    for _ in range(2):
        export(tier, f"delta:{bucket}/table", options)
        table = DeltaTable(f"{bucket}/table", storage_options=options)
        query = QueryBuilder().register("exported", table).execute("select * from exported")
        assert in_order(pa.table(query.read_all())) == scanned(tier)


def test_polars_reads_a_folder_on_s3_as_it_is(versitygw, bucket, tmp_path):
    tier = two_partitions(tmp_path / "source")
    keys = {"access_key_id": versitygw.root.access_key, "secret_access_key": versitygw.root.secret_key}
    for _ in range(2):
        export(
            tier, f"{bucket}/orders", {"endpoint_url": versitygw.endpoint, "region": versitygw.region, **keys}
        )
        options = {f"aws_{name}": value for name, value in keys.items()}
        place = {
            "aws_endpoint_url": versitygw.endpoint,
            "aws_region": versitygw.region,
            "aws_allow_http": "true",
        }
        frame = pl.scan_parquet(f"{bucket}/orders/", storage_options=options | place)
        assert frame.select(pl.len(), pl.col("topic").n_unique()).collect().rows() == [(64, 2)]
