"""Queries of Polars read no more than they need, and have the rows that Polars alone would find."""

import logging
import pickle
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from entries import PUBLISH_TIME_MS, batch_entry, entry, pip17_object
from tiers import TOPIC, lay_out

from offload_core.interfaces.engines.engine_scan import EngineScan
from offload_core.interfaces.engines.polars_frame import _frames, conditions_of
from offload_core.reading.scan import Condition, Operator
from offload_hooks.errors import BadMagicError
from pulsar_offload import scan_polars

T0 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=PUBLISH_TIME_MS)
TOPICS, LEDGER, ENTRY = pl.col("__topic"), pl.col("__ledgerId"), pl.col("__entryId")
TIME, BATCH, VALUE = pl.col("__publishTime"), pl.col("__batchIndex"), pl.col("value")


def time_of(ledger_id, entry_id):
    return PUBLISH_TIME_MS + 1000 * (12 * ledger_id + entry_id)


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """Five ledgers of a topic, of twelve entries in some blocks each, a second between them."""
    root = tmp_path_factory.mktemp("tier")
    for number in range(5):
        entries = [
            batch_entry([b"a", b"b"], publish_time=time_of(number, i))
            if i % 3
            else entry(b"x" * 100, publish_time=time_of(number, i))
            for i in range(12)
        ]
        lay_out(root, pip17_object(entries, ledger_id=number, max_block_bytes=500), attempt=number)
    return root


@pytest.fixture
def lazy(tier):
    return scan_polars(tier, TOPIC, time_slack_ms=0)


@pytest.fixture
def bytes_of(caplog):
    """The stored bytes that tasks read while a function ran."""

    def bytes_of(run):
        caplog.clear()
        with caplog.at_level(logging.INFO, "offload_core.reading.scan.metrics"):
            run()
        return sum(record.bytes for record in caplog.records if hasattr(record, "ranges"))

    return bytes_of


def seconds(number):
    return T0 + timedelta(seconds=number)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize(
    ("predicate", "is_pruned"),
    [
        (seconds(40) <= TIME, True),
        (seconds(9) > TIME, True),
        (TIME.is_between(seconds(30), seconds(32), closed="left"), True),
        (seconds(25.0004) == TIME, True),
        (LEDGER == 2, True),
        (LEDGER.is_in([1, 4]) & (ENTRY < 3), True),
        (~LEDGER.is_in([1, 4]), True),
        ((LEDGER != 3) & (BATCH == 1), True),
        (TOPICS.str.ends_with("other"), True),
        (TOPICS == TOPIC, False),
        ((LEDGER == 1) | (ENTRY == 2), False),
        (LEDGER > ENTRY, False),
        (VALUE == b"a", False),
        (LEDGER.cast(pl.Float64) > 2.5, False),
        (LEDGER.is_null(), False),
    ],
    ids=str,
)
def test_a_filter_leaves_out_blocks_and_no_rows(engine, predicate, is_pruned, lazy, bytes_of):
    whole = lazy.collect()
    found = []
    read = bytes_of(lambda: found.append(lazy.filter(predicate).collect(engine=engine)))
    assert found[0].equals(whole.filter(predicate))
    assert (read < bytes_of(lazy.collect)) is is_pruned


def test_conditions_that_are_given_hold_beside_a_filter(tier):
    given = [Condition(column="__ledgerId", operator=Operator.GREATER, value=2)]
    lazy = scan_polars(tier, TOPIC, conditions=given)
    assert lazy.filter(ENTRY < 4).collect()["__ledgerId"].unique().sort().to_list() == [3, 4]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_head_stops_reading(engine, tier, bytes_of):
    lazy = scan_polars(tier, TOPIC, task_bytes=1)
    whole = lazy.collect()
    found = []
    read = bytes_of(lambda: found.append(lazy.head(3).collect(engine=engine)))
    assert found[0].equals(whole.head(3))
    assert read < bytes_of(lazy.collect) / 4
    assert lazy.head(0).collect(engine=engine).equals(whole.head(0))
    assert lazy.slice(5, 20).collect(engine=engine).equals(whole.slice(5, 20))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_rows_are_counted_before_or_after_a_filter_as_the_query_says(engine, lazy):
    whole = lazy.collect()
    for predicate in (LEDGER > 0, seconds(15) < TIME):
        assert lazy.head(25).filter(predicate).collect(engine=engine).equals(whole.head(25).filter(predicate))
        assert lazy.filter(predicate).head(25).collect(engine=engine).equals(whole.filter(predicate).head(25))


def test_columns_that_a_query_does_not_use_are_not_made(lazy, monkeypatch):
    made = []
    frame = pl.DataFrame
    monkeypatch.setattr(pl, "DataFrame", lambda batch: made.append(batch.schema.names) or frame(batch))
    assert lazy.filter(LEDGER == 2).select("__entryId").collect().height == 20
    assert {tuple(sorted(names)) for names in made} == {("__entryId", "__ledgerId")}


def test_frames_are_no_longer_than_polars_asks_for(tier, lazy):
    frames = list(_frames(EngineScan.of(tier, TOPIC, {}), None, None, None, 3))
    assert max(frame.height for frame in frames) == 3
    assert pl.concat(frames).equals(lazy.collect())


def test_what_comes_later_is_read_by_the_next_collect(tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a")], ledger_id=1), attempt=1)
    lazy = scan_polars(tmp_path, TOPIC)
    assert lazy.collect()["value"].to_list() == [b"a"]
    lay_out(tmp_path, pip17_object([entry(b"b")], ledger_id=2), attempt=2)
    assert lazy.collect()["value"].to_list() == [b"a", b"b"]


def test_a_frame_crosses_to_another_process(lazy):
    assert pickle.loads(pickle.dumps(lazy)).collect().equals(lazy.collect())


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_damage_is_the_error_of_the_scan(engine, tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a")]))
    (damaged,) = tmp_path.glob("*-ledger-*[0-9]")
    lazy = scan_polars(tmp_path)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with pytest.raises(BadMagicError):
        lazy.collect(engine=engine)


@pytest.mark.parametrize(
    ("predicate", "conditions"),
    [
        (LEDGER == 3, [("=", 3, False)]),
        (pl.lit(3) == LEDGER, [("=", 3, False)]),
        (LEDGER != 3, [("=", 3, True)]),
        (~(LEDGER == 3), [("=", 3, True)]),
        (~(LEDGER != 3), [("=", 3, False)]),
        (pl.lit(3) != LEDGER, [("=", 3, True)]),
        (LEDGER > 3, [(">", 3, False)]),
        (pl.lit(3) > LEDGER, [("<", 3, False)]),
        (LEDGER >= 3, [(">=", 3, False)]),
        (pl.lit(3) >= LEDGER, [("<=", 3, False)]),
        (LEDGER < 3, [("<", 3, False)]),
        (pl.lit(3) < LEDGER, [(">", 3, False)]),
        (LEDGER <= 3, [("<=", 3, False)]),
        (pl.lit(3) <= LEDGER, [(">=", 3, False)]),
        (LEDGER.is_in([1, 2]), [("in", (1, 2), False)]),
        (~LEDGER.is_in([1, 2]), [("in", (1, 2), True)]),
        (LEDGER.is_in([1, None]), []),
        (LEDGER.is_between(1, 2), [(">=", 1, False), ("<=", 2, False)]),
        (LEDGER.is_between(1, 2, closed="left"), [(">=", 1, False), ("<", 2, False)]),
        (LEDGER.is_between(1, 2, closed="right"), [(">", 1, False), ("<=", 2, False)]),
        (LEDGER.is_between(1, 2, closed="none"), [(">", 1, False), ("<", 2, False)]),
        (LEDGER.is_between(1, ENTRY), []),
        (~LEDGER.is_between(1, 2), []),
        (LEDGER.str.starts_with("a"), [("starts with", "a", False)]),
        (~LEDGER.str.ends_with("a"), [("ends with", "a", True)]),
        (LEDGER.str.contains("a.", literal=True), [("contains", "a.", False)]),
        (LEDGER.str.contains("a."), []),
        (LEDGER.eq_missing(3), []),
        ((LEDGER > 3) & (ENTRY > LEDGER) & (LEDGER < 9), [(">", 3, False), ("<", 9, False)]),
        (~((LEDGER > 3) & (ENTRY > LEDGER)), []),
        ((LEDGER > 3) | (LEDGER < 1), []),
        (pl.lit(None, dtype=pl.Int64) == LEDGER, []),
        (LEDGER + 1 == 3, []),
        (LEDGER.is_not_null(), []),
        (pl.lit(True), []),
    ],
    ids=str,
)
def test_conditions_of_a_predicate(predicate, conditions):
    found = conditions_of(predicate)
    assert {each.column for each in found} <= {"__ledgerId"}
    assert sorted((each.operator.value, each.value, each.is_negated) for each in found) == sorted(conditions)
