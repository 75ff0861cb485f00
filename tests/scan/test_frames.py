"""Scans as Arrow streams: what polars, pandas and DuckDB see of one."""

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entries import batch_entry, entry, pip17_object
from tiers import in_memory, lay_out

from offload_hooks.errors import BadMagicError, MissingExtraError
from pulsar_offload import open_tier, scan

VALUES = [b"a", b"b", b"c", b"d"]
IDS = [0, 1, 1, 2]


@pytest.fixture
def planned():
    tier = in_memory(pip17_object([entry(b"a"), batch_entry([b"b", b"c"]), entry(b"d")]))
    return scan(tier, columns=["value", "__entryId", "__messageProperties"])


def test_polars_takes_a_scan_as_it_is(planned):
    for frame in (pl.DataFrame(planned), planned.to_polars()):
        assert frame.columns == ["value", "__entryId", "__messageProperties"]
        assert frame["value"].to_list() == VALUES
        assert frame["__entryId"].to_list() == IDS


def test_pandas_takes_a_scan_as_it_is(planned):
    for frame in (pd.DataFrame.from_arrow(planned), planned.to_pandas()):
        assert list(frame.columns) == ["value", "__entryId", "__messageProperties"]
        assert frame["value"].tolist() == VALUES
        assert frame["__entryId"].tolist() == IDS


def test_arrow_takes_a_scan_as_it_is(planned):
    assert pa.table(planned) == planned.to_table()
    with planned.to_reader() as reader:
        assert reader.schema == pa.table(planned).schema == planned.schema


def test_duckdb_queries_a_scan_as_it_is(planned):
    found = duckdb.sql("SELECT value, __entryId FROM planned WHERE __entryId > 0")
    assert found.fetchall() == [(b"b", 1), (b"c", 1), (b"d", 2)]


def test_a_scan_without_rows_is_a_stream_with_its_columns():
    nothing = scan(in_memory(), columns=["value", "__entryId"])
    assert pl.DataFrame(nothing).schema == {"value": pl.Binary(), "__entryId": pl.Int64()}
    assert nothing.head().num_rows == 0


@pytest.mark.parametrize(("count", "values"), [(0, []), (1, [b"a"]), (3, [b"a", b"b", b"c"]), (9, VALUES)])
def test_head_has_the_first_rows(planned, count, values):
    assert planned.head(count)["value"].to_pylist() == values


def test_head_reads_no_further_than_it_must(tmp_path):
    for ledger_id in (1, 2):
        lay_out(tmp_path, pip17_object([entry(b"%d" % ledger_id)], ledger_id=ledger_id), attempt=ledger_id)
    (damaged,) = tmp_path.glob("*-ledger-2")
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with open_tier(tmp_path) as tier:
        planned = scan(tier, task_bytes=1)
        assert planned.head(1)["value"].to_pylist() == [b"1"]
        with pytest.raises(BadMagicError):
            planned.to_table()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_with_its_extra(planned, library, monkeypatch):
    monkeypatch.setattr("offload_core.reading.scan.scanning.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'pulsar-offload\[{library}\]'"):
        getattr(planned, f"to_{library}")()
