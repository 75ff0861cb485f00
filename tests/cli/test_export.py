"""`offload export`: the command line of exports."""

import sys

import pytest
from scenes.exports import (
    ORDERS,
    add_bad_ledger,
    delta_rows,
    iceberg_options,
    iceberg_rows,
    parquet_files,
    parquet_rows,
    scanned,
    two_partitions,
)

pytestmark = pytest.mark.long


@pytest.fixture
def tier(tmp_path):
    return two_partitions(tmp_path / "tier")


def test_a_topic_is_exported_and_the_next_time_what_is_new(offload, tier, tmp_path):
    arguments = ("export", tier, "--topic", ORDERS, "--to", tmp_path / "out", "--file-bytes", "4096")
    done = offload(*arguments)
    assert (done.code, done.out) == (0, "")
    assert "64 rows in 8 files" in done.err
    assert parquet_rows(tmp_path / "out") == scanned(tier)
    assert "nothing new since the last export" in offload(*arguments).err


def test_to_delta_and_iceberg(offload, tier, tmp_path):
    assert offload("export", tier, "-t", ORDERS, "--to", f"delta:{tmp_path}/delta").code == 0
    assert delta_rows(tmp_path / "delta") == scanned(tier)
    again = offload("export", tier, "-t", ORDERS, "--to", f"delta:{tmp_path}/delta")
    assert (again.code, "nothing new since the last export" in again.err) == (0, True)
    (tmp_path / "iceberg").mkdir()
    options = [f"--to-option={name}={value}" for name, value in iceberg_options(tmp_path / "iceberg").items()]
    assert offload("export", tier, "-t", ORDERS, "--to", "iceberg:test/exports.orders", *options).code == 0
    assert iceberg_rows(tmp_path / "iceberg") == scanned(tier)


def test_columns_pattern_compression_and_workers(offload, tier, tmp_path):
    import pyarrow.parquet as pq

    pattern = ("--topics-pattern", ".*partition-1", "--columns", "value, __key", "--workers", "1")
    assert offload("export", tier, *pattern, "--to", tmp_path / "out", "--compression", "gzip").code == 0
    (first, second) = parquet_files(tmp_path / "out")
    found = pq.read_metadata(tmp_path / "out" / first)
    assert (found.schema.names, found.row_group(0).column(0).compression) == (["value", "__key"], "GZIP")
    assert "partition-1" in first + second


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_other_formats_have_the_rows_and_no_options_of_parquet(offload, tier, tmp_path, kind):
    arguments = (
        "export",
        tier,
        "-t",
        ORDERS,
        "--to",
        tmp_path / "out",
        "--format",
        kind,
        "--columns",
        "__key",
    )
    assert "64 rows" in offload(*arguments).err
    lines = [line for path in (tmp_path / "out").rglob(f"*.{kind}") for line in path.read_text().split()]
    assert (
        len([line for line in lines if "bGVkZ2VyI" in line]) == 32
    )  # base64 of "ledger …"; batches have no keys
    assert "nothing new since the last export" in offload(*arguments).err
    done = offload(*arguments, "--compression", "gzip")
    assert (done.code, "options of Parquet" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--to", "out"), "--topic or --topics-pattern"),
        (("-t", "a/b/c", "--to", "out", "--master", "local", "--workers", "2"), "Spark decides"),
        (("-t", ORDERS, "--to", "./out", "--compression", "zip"), "no such compression"),
        (("-t", ORDERS, "--to", "iceberg:x"), "names no Iceberg table"),
        (("-t", ORDERS, "--to", "./out", "--to-option", "x"), "NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(offload, tier, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = offload("export", tier, *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_bad_entry_is_one_line_and_exit_code_1(offload, tier, tmp_path):
    add_bad_ledger(tier)
    done = offload("export", tier, "-t", ORDERS, "--to", tmp_path / "out")
    assert done.code == 1
    assert "ledger 9" in done.err
    assert "entry 1" in done.err


def test_a_missing_extra_names_the_install_line(offload, tier, tmp_path, monkeypatch):
    for kind, module in (("iceberg", "pyiceberg.catalog"), ("delta", "deltalake")):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, f"offload_core.reading.export.{kind}_target", raising=False)
        done = offload("export", tier, "-t", ORDERS, "--to", f"{kind}:{tmp_path}/x.y")
        assert done.code == 1
        assert f"pip install 'pulsar-offload[{kind}]'" in done.err
