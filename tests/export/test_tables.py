"""Exports to Iceberg and Delta tables, as their own readers, and others, see them."""

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from entries import entry
from pyiceberg.expressions import EqualTo
from scenes.exports import (
    DAY_MS,
    ORDERS,
    add_ledger,
    iceberg_table,
    in_order,
    messages,
    rows_of,
    scanned,
    target_of,
)
from tiers import lay_out_broker_objects

import pulsar_offload
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_core.reading.export import ExportReport
from offload_core.reading.export.delta_target import DeltaTarget
from offload_core.reading.export.iceberg_target import STATE, IcebergTarget
from offload_hooks.errors import MetadataError, OptionError, StoreError, UnsupportedVersionError
from pulsar_offload import open_tier

pytestmark = pytest.mark.long

KINDS = ("iceberg", "delta")
PLACE = ["__topic", "__ledgerId", "__entryId", "__batchIndex"]
TOPIC = "persistent://acme/cold/orders-partition-"


def export(tier, kind, folder, **options):
    with open_tier(tier) as reader:
        return pulsar_offload.export(reader, **target_of(kind, folder) | {"topics": ORDERS} | options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_there_once_and_a_second_export_adds_what_is_new(kind, tier, tmp_path):
    out = tmp_path / "out"
    assert export(tier, kind, out, file_bytes=4096).rows == 64
    assert rows_of(kind, out) == scanned(tier)
    assert export(tier, kind, out) == ExportReport()
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    assert export(tier, kind, out).rows == 12
    assert rows_of(kind, out) == scanned(tier)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_all_columns_of_a_brokers_topics_have_a_type_there(kind, tmp_path):
    lay_out_broker_objects(tmp_path / "tier")
    columns = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]
    export(tmp_path / "tier", kind, tmp_path / "out", topics=(), topics_pattern=".*", columns=columns)
    rows = rows_of(kind, tmp_path / "out")
    for row in rows:
        row["__encryptionKeys"] = row["__encryptionKeys"] or None  # pyiceberg reads no list as an empty one
    assert rows == scanned(tmp_path / "tier", columns=columns)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_one_commit(kind, tier, tmp_path):
    export(tier, kind, tmp_path / "out", file_bytes=4096)
    if kind == "iceberg":
        assert len(iceberg_table(tmp_path / "out").history()) == 1
    else:
        assert DeltaTable(tmp_path / "out").version() == 1  # 0 made the table


@pytest.mark.parametrize(("kind", "target"), [("iceberg", IcebergTarget), ("delta", DeltaTarget)])
def test_of_two_exports_the_slower_fails_and_nothing_is_there_twice(
    kind, target, tier, tmp_path, monkeypatch
):
    monkeypatch.setattr(target, "commit_bytes", 1)
    out = tmp_path / "out"

    def overtake(now):
        if now.done_bytes and not (tmp_path / "overtaken").exists():
            (tmp_path / "overtaken").touch()
            export(tier, kind, out)

    with pytest.raises(StoreError, match="meanwhile"):
        export(tier, kind, out, file_bytes=2048, listener=overtake)
    assert rows_of(kind, out) == scanned(tier)


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_write_to_the_table_is_no_conflict(kind, tier, tmp_path):
    out = tmp_path / "out"
    export(tier, kind, out)
    change_by_another(kind, out)
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    export(tier, kind, out)
    assert rows_of(kind, out) == scanned(tier)


def change_by_another(kind, out):
    if kind == "iceberg":
        with iceberg_table(out).transaction() as transaction:
            transaction.set_properties(owner="somebody")
    else:
        DeltaTable(out).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})


def test_an_iceberg_table_is_pruned_by_topic_and_keeps_the_state_in_properties_and_snapshots(tier, tmp_path):
    export(tier, "iceberg", tmp_path / "out")
    table = iceberg_table(tmp_path / "out")
    of_one = table.scan(row_filter=EqualTo("__topic", f"{TOPIC}1"))
    assert in_order(of_one.to_arrow()) == [row for row in scanned(tier) if row["__topic"] == f"{TOPIC}1"]
    files = [task.file.file_path.removeprefix("file://") for task in of_one.plan_files()]
    assert len(files) == 2
    assert duckdb.sql(f"select count(*) from read_parquet({files!r})").fetchall() == [(32,)]
    assert table.current_snapshot().summary[STATE] == table.properties[STATE]
    assert '"persistent://acme/cold/orders-partition-1": "6:0:0"' in table.properties[STATE]


def test_a_state_of_another_kind_is_refused(tier, tmp_path):
    export(tier, "iceberg", tmp_path)
    for state, error in (
        ('{"version": 2, "number": 1, "positions": {}}', UnsupportedVersionError),
        ("{}", MetadataError),
        ("[1]", MetadataError),
        ('{"version": 1, "number": "1", "positions": {}}', MetadataError),
        ('{"version": 1, "number": 1, "positions": {"x": "y"}}', MetadataError),
    ):
        with iceberg_table(tmp_path).transaction() as transaction:
            transaction.set_properties({STATE: state})
        with pytest.raises(error, match=STATE):
            export(tier, "iceberg", tmp_path)


def test_a_delta_table_has_partitions_and_keeps_the_state_in_ids_that_outlive_its_log(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, "delta", out)
    table = DeltaTable(out)
    assert table.transaction_version("pulsar-offload") == 1
    ids = [f"pulsar-offload/{part}/{TOPIC}1" for part in ("ledger", "entry", "batch")]
    assert [table.transaction_version(each) for each in ids] == [6, 0, 0]
    assert table.metadata().partition_columns == ["topic", "date"]
    query = "select topic, date, count(*) as n from exported group by topic, date order by 1, 2"
    found = pa.table(QueryBuilder().register("exported", table).execute(query).read_all()).to_pylist()
    rows = [(row["topic"], str(row["date"]), row["n"]) for row in found]
    assert rows == [(f"{TOPIC}{n}", day, 16) for n in (0, 1) for day in ("2023-12-09", "2023-12-10")]
    table.create_checkpoint()
    for log in sorted((out / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    assert export(tier, "delta", out) == ExportReport()


def test_times_that_no_calendar_has_are_in_the_tables(tmp_path):
    tier = tmp_path / "tier"
    add_ledger(tier, 3, [entry(b"x", publish_time=5 * DAY_MS), entry(b"y", publish_time=40_000_000 * DAY_MS)])
    for kind in KINDS:
        export(tier, kind, tmp_path / kind, columns=["value", *PLACE])
        assert [row["value"] for row in rows_of(kind, tmp_path / kind)] == [b"x", b"y"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_other_columns_is_refused_and_stays_as_it_was(kind, tier, tmp_path):
    out = tmp_path / "out"
    export(tier, kind, out, topics=f"{ORDERS}-partition-0", columns=PLACE)
    before = rows_of(kind, out)
    with pytest.raises(OptionError, match="other columns"):
        export(tier, kind, out, topics=f"{ORDERS}-partition-1")
    with pytest.raises(OptionError, match="other columns"):
        export(tier, kind, out, topics=f"{ORDERS}-partition-0")  # of which nothing is new
    assert rows_of(kind, out) == before
