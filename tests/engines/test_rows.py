"""Each engine that runs in this process has the rows of a scan, equal one for one and in their order."""

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entries import entry, pip17_object
from tables import assert_same_rows
from tiers import lay_out

from offload_core.interfaces.engines import dask_frame
from offload_hooks.errors import OptionError, UnknownTopicError
from pulsar_offload import open_tier, read_dask, scan, scan_polars


def pyarrow_table(planned):
    return pa.table(planned)


def pandas_frame(planned):
    frame = pd.DataFrame.from_arrow(planned)
    return pa.Table.from_pandas(frame, schema=planned.schema, preserve_index=False)


def polars_frame(planned):
    return pl.DataFrame(planned).to_arrow()


def duckdb_query(planned):
    return duckdb.sql("FROM planned").to_arrow_table()


def datafusion_frame(planned):
    in_order = datafusion.SessionConfig().with_target_partitions(1)
    return datafusion.SessionContext(in_order).from_arrow(planned).to_arrow_table()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "read",
    [pyarrow_table, pandas_frame, polars_frame, duckdb_query, datafusion_frame],
    ids=lambda read: read.__name__,
)
def test_what_takes_arrow_streams_reads_a_scan_as_often_as_it_likes(read, planned, expected):
    for _ in range(2):
        assert_same_rows(read(planned), expected)


def test_duckdb_refuses_a_property_that_a_message_has_twice_and_reads_the_other_columns(tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a", properties=[("k", "1"), ("k", "2")])]))
    with open_tier(tmp_path) as opened:
        whole, only_values = scan(opened), scan(opened, columns=["value"])
        with pytest.raises(duckdb.InvalidInputException, match="duplicate key"):
            duckdb.sql("FROM whole").fetchall()
        assert duckdb.from_arrow(only_values.to_reader()).fetchall() == [(b"a",)]
        assert whole.to_table()["__messageProperties"].to_pylist() == [[("k", "1"), ("k", "2")]]
    assert_same_rows(scan_polars(tmp_path).collect().to_arrow(), whole.to_table())


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_lazy_frame_of_polars_has_the_rows(engine, tier, options, expected):
    assert_same_rows(scan_polars(tier, **options).collect(engine=engine).to_arrow(), expected)


@pytest.mark.long
def test_a_frame_of_dask_has_the_rows(tier, options, expected):
    frame = read_dask(tier, **options)
    assert (frame.npartitions > 1) is ("task_bytes" in options)
    found = frame.compute(scheduler="threads")
    assert dict(found.dtypes) == dict(frame.dtypes)
    assert_same_rows(pa.Table.from_pandas(found, schema=expected.schema, preserve_index=False), expected)


def test_dask_makes_the_columns_that_a_query_uses(tier, monkeypatch):
    frame = read_dask(tier, "acme/cold/txn", task_bytes=1)
    made = []
    pandas = dask_frame._pandas
    monkeypatch.setattr(dask_frame, "_pandas", lambda table: made.append(table.schema.names) or pandas(table))
    assert frame["__entryId"].max().compute(scheduler="sync") > 0
    assert made == [["__entryId"]] * frame.npartitions


@pytest.mark.parametrize("read", [scan_polars, read_dask])
@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        (
            {"isolation": "x"},
            OptionError,
            "there is no such isolation: expected committed, uncommitted, found x",
        ),
        ({"colums": ["value"]}, OptionError, "a scan has no option 'colums'.*Did you mean 'columns'?"),
        ({"region": "eu-west-1"}, OptionError, "the driver .* takes no option 'region'"),
        ({"topics": "acme/cold/none"}, UnknownTopicError, "acme/cold/none"),
    ],
)
def test_options_that_are_wrong_are_refused_where_they_are_given(read, options, error, reason, tier):
    with pytest.raises(error, match=reason):
        read(tier, **options)


def test_options_of_the_tier_are_those_of_open_tier(tier):
    count = pl.len()
    found = scan_polars("local", "acme/cold/jstring", root=str(tier), layers=["retry:attempts=2"])
    assert found.select(count).collect().item() == 100
