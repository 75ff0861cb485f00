"""Exports to folders of CSV and JSON lines: the columns and rows of a scan, each message once, bytes as base64."""

import base64
import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from scenes.exports import ORDERS, add_ledger, messages, parquet_rows, scanned

import pulsar_offload
from offload_core.format.messages.json_rows import flat_columns, json_lines
from offload_core.reading.export import ExportReport, ParquetOptions
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier

pytestmark = pytest.mark.long

PLACE = ("__topic", "__ledgerId", "__entryId", "__batchIndex")


def export(tier, to, **options):
    with open_tier(tier) as reader:
        return pulsar_offload.export(reader, to, **{"topics": ORDERS} | options)


def text_files(folder, kind):
    return sorted(folder.rglob(f"topic=*/*/*.{kind}"))


def lines_of(folder):
    return [
        json.loads(line) for path in text_files(folder, "jsonl") for line in path.read_text().splitlines()
    ]


def as_json(row):
    """A row of a scan as JSON has it."""
    made = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif isinstance(value, datetime):
            value = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        elif isinstance(value, list):  # a map
            value = dict(value)
        made[name] = value
    return made


def test_json_lines_are_the_rows_of_a_scan_each_once_over_two_exports(tier, tmp_path):
    out = tmp_path / "out"
    assert export(tier, out, format="jsonl", file_bytes=4096).rows == 64
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    assert export(tier, out, format="jsonl").rows == 12
    assert export(tier, out, format="jsonl") == ExportReport()
    assert lines_of(out) == [as_json(row) for row in scanned(tier)]
    found = duckdb.sql(f"select count(*), count(distinct topic) from read_json('{out}/**/*.jsonl')")
    assert found.fetchall() == [(76, 2)]


def test_csv_has_the_same_columns_nested_values_as_json_and_null_apart_from_empty_text(tier, tmp_path):
    out = tmp_path / "out"
    assert export(tier, out, format="csv", file_bytes=4096).rows == 64
    add_ledger(tier, 8, messages("ledger 8", 9, day=2), partition=0)
    assert export(tier, out, format="csv").rows == 12
    rows = [row for path in text_files(out, "csv") for row in csv.DictReader(io.StringIO(path.read_text()))]
    expected = [as_json(row) for row in scanned(tier)]
    assert list(rows[0]) == list(expected[0])
    for row, wanted in zip(rows, expected, strict=True):
        for name, value in wanted.items():
            found = json.loads(row[name]) if isinstance(value, dict) else row[name]
            assert found == ("" if value is None else value if isinstance(value, dict) else str(value))
    found = duckdb.sql(f"select count(*), count(distinct topic) from read_csv('{out}/**/*.csv')")
    assert found.fetchall() == [(76, 2)]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_are_those_asked_for_and_others_refused_the_next_time(tier, tmp_path, kind):
    export(tier, tmp_path, format=kind, columns=["__key", "value"])
    for other in ({"columns": ["value", "__key"]}, {"columns": ["__key"]}, {}):
        with pytest.raises(OptionError, match="other columns"):
            export(tier, tmp_path, format=kind, **other)
    assert export(tier, tmp_path, format=kind, columns=["__key", "value"]) == ExportReport()


def test_a_folder_has_one_format_and_a_table_only_parquet(tier, tmp_path):
    export(tier, tmp_path / "parquet")
    export(tier, tmp_path / "csv", format="csv")
    for folder, kind in (("parquet", "csv"), ("parquet", "jsonl"), ("csv", "parquet"), ("csv", "jsonl")):
        with pytest.raises(OptionError, match="another format"):
            export(tier, tmp_path / folder, format=kind)
    assert parquet_rows(tmp_path / "parquet") == scanned(tier)
    for options, says in (
        ({"format": "orc"}, "no such format"),
        ({"format": "csv", "to": f"delta:{tmp_path}/delta"}, "files of a delta table are Parquet"),
        ({"format": "csv", "parquet": ParquetOptions()}, "options of Parquet"),
    ):
        with pytest.raises(OptionError, match=says):
            export(tier, **{"to": tmp_path / "other"} | options)


def test_values_of_each_kind_have_one_text():
    when = datetime(2026, 11, 22, 0, 30, 0, 1, tzinfo=UTC)
    columns = {
        "text": pa.array(['a,"b"\nc', "", None]),
        "bytes": pa.array([b"\x00\xff", b"", None]),
        "time": pa.array([when, None, when], pa.timestamp("us", tz="UTC")),
        "local": pa.array([when.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "date": pa.array([date(2026, 11, 22), None, None]),
        "decimal": pa.array([Decimal("1.50"), None, None]),
        "number": pa.array([float("nan"), 1.5, None]),
        "nested": pa.array([{"b": b"x", "l": [1.0, float("inf")], "d": date(2026, 1, 2)}, None, None]),
        "map": pa.array([[("k", "1"), ("k", "2")], [], None], pa.map_(pa.string(), pa.string())),
    }
    batch = pa.record_batch(list(columns.values()), list(columns))
    rows = [json.loads(line) for line in json_lines([batch])]
    assert rows[0] == {
        "text": 'a,"b"\nc',
        "bytes": "AP8=",
        "time": "2026-11-22T00:30:00.000001Z",
        "local": "2026-11-22T00:30:00.000001",
        "date": "2026-11-22",
        "decimal": "1.50",
        "number": None,
        "nested": {"b": "eA==", "l": [1.0, None], "d": "2026-01-02"},
        "map": {"k": "2"},
    }
    assert list(rows[1].values()) == ["", "", None, None, None, None, 1.5, None, {}]
    flat = flat_columns(batch)
    assert flat["bytes"].to_pylist() == ["AP8=", "", None]
    assert json.loads(flat["nested"][0].as_py()) == rows[0]["nested"]
    assert flat["map"].to_pylist() == ['{"k": "2"}', "{}", None]
    assert (flat["number"].type, flat["date"].type) == (pa.float64(), pa.date32())
