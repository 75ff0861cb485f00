"""Exports to a folder of Parquet files: what is there, where, and what a second export adds."""

import json
import os
import shutil
import threading
from datetime import UTC, datetime
from urllib.parse import quote

import dask.dataframe as dd
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from entries import entry, marker, pip17_object
from scenes.exports import (
    DAY_MS,
    FIRST_DAY_MS,
    ORDERS,
    add_bad_ledger,
    add_ledger,
    add_segment,
    as_earlier_versions_left_it,
    messages,
    parquet_files,
    parquet_rows,
    scanned,
)
from tiers import Names, lay_out, lay_out_broker_objects

import pulsar_offload
from offload_core.reading.export import ExportProgress, ExportReport, ParquetOptions
from offload_core.storage.tier import open_store
from offload_hooks.errors import DataLossError, FormatError, MetadataError, OptionError, StoreError
from pulsar_offload import open_tier

pytestmark = pytest.mark.long


def export(tier, to, **options):
    with open_tier(tier) as reader:
        return pulsar_offload.export(reader, to, **{"topics": ORDERS} | options)


@pytest.mark.nightly
def test_a_brokers_topics_are_exported_as_they_are_scanned(tmp_path):
    lay_out_broker_objects(tmp_path / "tier")
    with open_tier(tmp_path / "tier") as reader:
        pulsar_offload.export(reader, tmp_path / "out", topics_pattern=r"acme/cold/.*", file_bytes=100_000)
    rows = scanned(tmp_path / "tier")
    assert parquet_rows(tmp_path / "out") == rows
    assert len(list((tmp_path / "out").glob("topic=p*"))) == len({row["__topic"] for row in rows}) >= 13


def test_every_message_is_there_once_by_topic_and_day_in_order_of_positions(tier, tmp_path):
    out = tmp_path / "out"
    report = export(tier, out, file_bytes=4096)
    rows = scanned(tier)
    assert parquet_rows(out) == rows
    files = parquet_files(out)
    assert (report.rows, report.files, report.size_bytes) == (len(rows), len(files), sum(files.values()))
    assert report.complete
    places = []
    for key in sorted(files):
        table = pq.read_table(out / key, partitioning=None)
        (topic,) = set(table["__topic"].to_pylist())
        (day,) = {time.date().isoformat() for time in table["__publishTime"].to_pylist()}
        assert key.startswith(f"topic={topic.replace(':', '%3A').replace('/', '%2F')}/date={day}/")
        columns = (table[name].to_pylist() for name in ("__ledgerId", "__entryId", "__batchIndex"))
        positions = list(zip(*columns, strict=True))
        assert positions == sorted(positions)
        places.append((topic, positions[0]))
    assert places == sorted(places)
    assert len(places) == 8
    query = (
        f"select topic, date, count(*) from read_parquet('{out}/**/*.parquet', hive_partitioning = true)"
        " group by all order by all"
    )
    days = [datetime.fromtimestamp((FIRST_DAY_MS + n * DAY_MS) / 1000, UTC).date() for n in (0, 1)]
    topics = [f"persistent://acme/cold/orders-partition-{n}" for n in (0, 1)]
    assert duckdb.sql(query).fetchall() == [(topic, day, 16) for topic in topics for day in days]
    shown = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    names = [name for name in shown if (out / name).stat().st_size]
    assert {name.suffix for name in names} == {".parquet"}, "Polars takes every file for data that has bytes"


def test_readers_of_folders_read_it_as_it_is_while_they_have_it_open_too(tier, tmp_path):
    out = tmp_path / "out"
    count = export(tier, out).rows
    frame, dataset = pl.scan_parquet(out), ds.dataset(out, partitioning="hive")
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    more = export(tier, out).rows
    (*_, last) = dataset.schema.names
    assert (len(frame.collect()), dataset.count_rows(), last) == (count + more, count, "date")
    by_day = pl.scan_parquet(out).group_by("topic", "date").len().sort("topic", "date").collect().rows()
    days = [datetime.fromtimestamp((FIRST_DAY_MS + n * DAY_MS) / 1000, UTC).date() for n in range(3)]
    topics = [f"persistent://acme/cold/orders-partition-{n}" for n in (0, 1)]
    assert by_day == [
        (topics[0], days[0], 16),
        (topics[0], days[1], 16),
        (topics[0], days[2], 12),
        (topics[1], days[0], 16),
        (topics[1], days[1], 16),
    ]
    assert duckdb.sql(f"select count(*) from read_parquet('{out}')").fetchall() == [(count + more,)]
    assert len(pd.read_parquet(out)) == len(dd.read_parquet(out)) == count + more


def test_a_folder_of_an_earlier_version_is_gone_on_with_and_read_by_its_readers_from_then_on(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out)
    manifest = as_earlier_versions_left_it(out)
    assert export(tier, out) == ExportReport()
    assert manifest.stat().st_size, "its columns are not recorded, so it stays as it is"
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    assert export(tier, out).rows == 12
    assert parquet_rows(out) == scanned(tier)
    assert len(pl.scan_parquet(out).collect()) == 76
    assert not manifest.stat().st_size, (
        "an earlier version refuses an empty one: it does not export all again"
    )


def test_a_state_that_is_missing_is_an_error_and_exports_nothing_again(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out)
    before = parquet_files(out)
    (settled,) = out.rglob("_*.parquet")
    for damage in (settled.write_bytes, lambda _: pq.write_table(pa.table({}), settled)):
        damage(b"PAR1")
        with pytest.raises(MetadataError) as caught:
            export(tier, out)
        assert caught.value.key == str(settled.relative_to(out))
    settled.unlink()
    with pytest.raises(MetadataError, match="missing"):
        export(tier, out)
    assert parquet_files(out) == before


def test_states_are_deleted_when_a_later_one_is_there_for_a_day(tier, tmp_path):
    out = tmp_path / "out"
    for ledger_id in (7, 8, 9):
        export(tier, out)
        add_ledger(tier, ledger_id, messages(f"ledger {ledger_id}", 3, day=2))
    (first, second, third) = sorted(path.name for path in out.rglob("_*.parquet"))
    for path in out.rglob("_*.parquet"):
        if path.name == first:
            os.utime(path, (0, 0))
    export(tier, out)
    (*left, fourth) = sorted(path.name for path in out.rglob("_*.parquet"))
    assert left == [second, third]
    assert fourth > third


@pytest.mark.parametrize("columns", [["value"], None, ["__key", "value"], ["value", "__key", "__topic"]])
def test_other_columns_than_those_of_earlier_exports_are_refused_also_if_nothing_is_new(
    tier, tmp_path, columns
):
    out = tmp_path / "out"
    export(tier, out, columns=["value", "__key"])
    before = parquet_files(out)
    for _ in range(2):
        with pytest.raises(OptionError, match="earlier exports to this folder have other columns"):
            export(tier, out, columns=columns)
        add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    assert parquet_files(out) == before
    assert export(tier, out, columns=["value", "__key"]).rows == 12


def test_times_that_jump_about_go_to_their_days_and_keep_their_order(tmp_path):
    tier = tmp_path / "tier"
    days = [n * 7 % 50 for n in range(200)] + [40_000_000]
    entries = [entry(b"%d" % n, publish_time=day * DAY_MS, properties=[]) for n, day in enumerate(days)]
    add_ledger(tier, 3, entries, block_bytes=1 << 20)
    export(tier, tmp_path / "out", parquet=ParquetOptions(row_group_bytes=1000))
    files = parquet_files(tmp_path / "out")
    numbers: dict[str, list[int]] = {}
    for key in sorted(files):
        table = pq.read_table(tmp_path / "out" / key, partitioning=None)
        numbers.setdefault(key.split("/")[1], []).extend(int(value) for value in table["value"].to_pylist())
    assert sorted(number for of_day in numbers.values() for number in of_day) == list(range(201))
    assert all(of_day == sorted(of_day) for of_day in numbers.values())
    assert {days[number] for number in numbers["date=1970-01-08"]} == {7}
    assert len({key.split("/")[1] for key in files}) == 51
    assert any("date=__HIVE_DEFAULT_PARTITION__" in key for key in files)  # no calendar has it


def test_columns_are_those_asked_for(tier, tmp_path):
    export(tier, tmp_path / "out", columns=["value", "__sequenceId"])
    (key, *_) = parquet_files(tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / key).names == ["value", "__sequenceId"]


def test_compression_and_row_groups_are_those_asked_for(tier, tmp_path):
    for compression, named in (("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")):
        out = tmp_path / compression
        export(tier, out, parquet=ParquetOptions(compression=compression, row_group_bytes=1))
        for key in parquet_files(out):
            found = pq.read_metadata(out / key)
            assert found.row_group(0).column(0).compression == named
            assert found.num_row_groups >= 2


def test_a_second_export_adds_only_what_is_new(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out)
    before = parquet_files(out)
    assert export(tier, out) == ExportReport()
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    report = export(tier, out)
    assert report.rows == 12
    assert before.items() < parquet_files(out).items()
    assert parquet_rows(out) == scanned(tier)


def test_a_ledger_that_grows_by_segments_is_gone_on_with(tmp_path):
    tier, out = tmp_path / "tier", tmp_path / "out"
    entries = messages("streamed", 20)
    for first, stop in ((0, 5), (5, 6), (6, 14), (14, 20)):
        blocks = [entries[first : min(first + 2, stop)], entries[first + 2 : stop]]
        add_segment(tier, 7, first, [block for block in blocks if block])
        report = export(tier, out, topics="acme/cold/streamed")
        assert report.rows == sum(2 if n % 3 == 2 else 1 for n in range(first, stop))
        assert parquet_rows(out) == scanned(tier)


def test_a_topic_that_was_not_there_before_is_exported_as_well(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out, topics=f"{ORDERS}-partition-1")
    export(tier, out)
    assert parquet_rows(out) == scanned(tier)


def test_what_retention_took_away_since_is_no_loss(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out)
    exported = parquet_rows(out)
    shutil.rmtree(tier)
    add_ledger(tier, 8, messages("ledger 8", 3, day=2), partition=0)
    export(tier, out)
    assert len(parquet_rows(out)) == len(exported) + 4


def test_the_rest_of_a_streaming_ledger_that_is_gone_is_a_loss(tmp_path):
    tier, out = tmp_path / "tier", tmp_path / "out"
    add_segment(tier, 7, 0, [messages("streamed", 5)])
    export(tier, out, topics="acme/cold/streamed")
    shutil.rmtree(tier)
    add_segment(tier, 9, 0, [messages("streamed", 3)])
    with pytest.raises(DataLossError, match="7:5:0"):
        export(tier, out, topics="acme/cold/streamed")
    assert export(tier, out, topics="acme/cold/streamed", fail_on_data_loss=False).rows == 4


def test_entries_without_rows_are_not_read_again(tmp_path):
    tier, out = tmp_path / "tier", tmp_path / "out"
    add_ledger(tier, 3, [marker(), marker()])
    assert export(tier, out).data_bytes > 0
    assert export(tier, out) == ExportReport()


def test_a_bad_entry_stops_the_export_and_leaves_what_was_committed(tier, tmp_path):
    out = tmp_path / "out"
    add_bad_ledger(tier)
    with pytest.raises(FormatError) as caught:
        export(tier, out, file_bytes=4096)
    assert (caught.value.ledger_id, caught.value.entry_id) == (9, 1)
    assert len(parquet_rows(out)) == 64


def test_an_end_that_is_asked_for_comes_after_what_is_under_way(tier, tmp_path):
    out, ended = tmp_path / "out", threading.Event()
    seen: list[ExportProgress] = []

    def listener(now):
        seen.append(now)
        if now.done_bytes:
            ended.set()

    report = export(tier, out, file_bytes=2048, ended=ended, listener=listener)
    assert not report.complete
    assert 0 < report.rows < 64
    assert [now.done_bytes for now in (seen[0], seen[-1])] == [0, report.data_bytes]
    assert report.data_bytes < seen[0].total_bytes == seen[-1].total_bytes
    assert export(tier, out).complete
    assert parquet_rows(out) == scanned(tier)


def test_following_exports_what_comes_until_it_is_ended(tier, tmp_path):
    out, ended = tmp_path / "out", threading.Event()

    def listener(now):
        if now.rows == 12:  # the ledger that came on
            ended.set()
        elif now.done_bytes == now.total_bytes:
            add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)

    report = export(tier, out, follow_s=0.01, ended=ended, listener=listener)
    assert report.rows == 76
    assert parquet_rows(out) == scanned(tier)


def test_of_two_exports_to_one_place_the_slower_fails_and_nothing_is_there_twice(tier, tmp_path):
    out = tmp_path / "out"

    def overtake(now):
        if now.done_bytes and not (tmp_path / "overtaken").exists():
            (tmp_path / "overtaken").touch()
            export(tier, out)

    with pytest.raises(StoreError, match="another export has written to the same place"):
        export(tier, out, file_bytes=2048, listener=overtake)
    assert parquet_rows(out) == scanned(tier)


def test_a_committed_file_whose_upload_is_gone_is_an_error(tier, tmp_path):
    out = tmp_path / "out"
    export(tier, out)
    manifest = as_earlier_versions_left_it(out)
    (key, *_) = parquet_files(out)
    upload = '"upload": {"id": "' + 32 * "0" + '", "blocks": [[1, ""]]}'
    manifest.write_text(manifest.read_text().replace('"upload": null', upload))
    (out / key).unlink()
    with pytest.raises(DataLossError, match="nor is the upload") as caught:
        export(tier, out)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parquet": ParquetOptions(compression="lzma")}, "no such compression"),
        ({"parquet": ParquetOptions(row_group_bytes=0)}, "row group"),
        ({"columns": ["valeu"]}, "no column 'valeu'"),
        ({"level": "entries"}, "only messages"),
        ({"to": "iceberg:nothing"}, "names no Iceberg table"),
        ({"to": "delta:"}, "which delta table"),
        ({"stop_time": 1_700_000_000_000}, "cannot end at a time"),
    ],
)
def test_what_makes_no_sense_is_refused(tier, tmp_path, options, says):
    with pytest.raises(OptionError, match=says), open_tier(tier) as reader:
        pulsar_offload.export(reader, **{"to": tmp_path / "out", "topics": ORDERS} | options)


def test_objects_without_a_topic_are_refused(tmp_path):
    lay_out(tmp_path / "tier", pip17_object([entry(b"x")]), names=Names(managed_ledger=None))
    with pytest.raises(OptionError, match="name no topic"), open_tier(tmp_path / "tier") as reader:
        pulsar_offload.export(reader, tmp_path / "out", ledger=7)


def test_stale_uploads_of_others_are_left_alone_for_a_day(tier, tmp_path):
    with open_store(tmp_path / "out") as store:
        fresh = store.begin_data("topic=x/date=y/z.parquet")
        export(tier, tmp_path / "out")
        assert [each.upload for each in store.list_uploads("topic=")] == [fresh]


LONG_TOPICS = [f"acme/cold/{'漢' * 26}{suffix}" for suffix in ("", "字", "漢" * 30)] + [
    "acme/cold/" + "x" * 300
]


def test_topics_with_long_names_are_exported_and_gone_on_with_in_the_same_folders(tmp_path):
    tier, out = tmp_path / "tier", tmp_path / "out"
    for number, topic in enumerate(LONG_TOPICS, start=3):
        _lay_out_topic(tier, topic, number)
    assert export(tier, out, topics=LONG_TOPICS).rows == 4 * len(LONG_TOPICS)
    folders = {path.name for path in out.glob("topic=p*")}
    assert len(folders) == len(LONG_TOPICS)
    assert max(len(name.encode()) for name in folders) <= 241
    for number, topic in enumerate(LONG_TOPICS, start=3):
        _lay_out_topic(tier, topic, 100 + number)
    assert export(tier, out, topics=LONG_TOPICS).rows == 4 * len(LONG_TOPICS)
    assert {path.name for path in out.glob("topic=p*")} == folders
    assert parquet_rows(out) == scanned(tier)
    manifest = json.loads(as_earlier_versions_left_it(out).read_bytes())
    assert {f"persistent://{topic}" for topic in LONG_TOPICS} >= {file["topic"] for file in manifest["files"]}


def _lay_out_topic(tier, topic, ledger_id):
    tenant, namespace, name = topic.split("/")
    names = Names(managed_ledger=f"{tenant}/{namespace}/persistent/{quote(name, safe='')}")
    written = pip17_object(messages(f"ledger {ledger_id}", 3), ledger_id=ledger_id)
    lay_out(tier, written, attempt=ledger_id, names=names)
