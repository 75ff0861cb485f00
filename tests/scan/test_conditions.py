"""Conditions leave out what cannot hold a row for which they hold, and nothing else."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from effort import effort
from entries import PUBLISH_TIME_MS, batch_entry, entry, pip17_object
from hypothesis import given
from hypothesis import strategies as st
from tiers import TOPIC, in_memory

from offload_core.reading.scan import (
    Condition,
    Operator,
    Position,
    message_id_of_position,
    position_of_message_id,
)
from offload_hooks.errors import OptionError
from pulsar_offload import scan

T0 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=PUBLISH_TIME_MS)
COLUMNS = [
    "__topic",
    "__partition",
    "__ledgerId",
    "__entryId",
    "__messageId",
    "__publishTime",
    "__batchIndex",
]
TIER = in_memory(
    *(
        pip17_object(
            [
                batch_entry([b"a", b"b"], publish_time=PUBLISH_TIME_MS + 10 * (12 * ledger_id + i))
                if i % 3
                else entry(b"x" * 100, publish_time=PUBLISH_TIME_MS + 10 * (12 * ledger_id + i))
                for i in range(12)
            ],
            ledger_id=ledger_id,
            max_block_bytes=500,
        )
        for ledger_id in range(5)
    )
)
ROWS: list[dict[str, Any]] = scan(TIER, columns=COLUMNS).to_table().to_pylist()

TWINS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.IN: lambda fact, values: fact in values,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.STARTS_WITH: lambda fact, value: fact.startswith(value),
    Operator.ENDS_WITH: lambda fact, value: fact.endswith(value),
    Operator.CONTAINS: lambda fact, value: value in fact,
}
COMPARISONS = list(TWINS)[:6]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "__topic": st.sampled_from([TOPIC, "persistent://acme/cold/other", "", "persistent://", "orders", "z"]),
    "__partition": st.integers(-2, 2),
    "__ledgerId": st.integers(-1, 6),
    "__entryId": st.integers(-1, 13),
    "__messageId": st.sampled_from([*(row["__messageId"] for row in ROWS[::5]), b"", b"no id", b"\x08\x01"]),
    "__publishTime": st.integers(-20, 700).map(lambda ms: T0 + timedelta(microseconds=1000 * ms + ms % 3)),
    "__batchIndex": st.integers(-1, 1),
}


@st.composite
def conditions(draw):
    column = draw(st.sampled_from(list(VALUES)))
    chosen = draw(st.sampled_from(list(TWINS) if column == "__topic" else COMPARISONS))
    values = VALUES[column]
    value = draw(st.lists(values, min_size=1, max_size=3).map(tuple) if chosen is Operator.IN else values)
    return Condition(column=column, operator=chosen, value=value, is_negated=draw(st.booleans()))


def holds(condition, row):
    found = TWINS[condition.operator](row[condition.column], condition.value)
    return found is not condition.is_negated


def wanted(given_conditions):
    return [row for row in ROWS if all(holds(condition, row) for condition in given_conditions)]


@effort(2)
@given(given_conditions=st.lists(conditions(), min_size=1, max_size=3))
def test_every_row_for_which_all_conditions_hold_is_read(given_conditions):
    found = scan(TIER, columns=COLUMNS, conditions=given_conditions).to_table().to_pylist()
    assert [row for row in found if all(holds(each, row) for each in given_conditions)] == wanted(
        given_conditions
    )


@pytest.mark.parametrize(
    ("column", "compared", "value", "ledgers"),
    [
        ("__topic", Operator.EQUAL, TOPIC, {0, 1, 2, 3, 4}),
        ("__topic", Operator.EQUAL, "persistent://acme/cold/other", set()),
        ("__topic", Operator.ENDS_WITH, "/others", set()),
        ("__partition", Operator.GREATER_OR_EQUAL, 0, set()),
        ("__ledgerId", Operator.IN, (1, 3, 9), {1, 3}),
        ("__ledgerId", Operator.GREATER, 2, {3, 4}),
        ("__messageId", Operator.EQUAL, ROWS[-1]["__messageId"], {4}),
        ("__messageId", Operator.EQUAL, b"no id", set()),
        ("__publishTime", Operator.GREATER_OR_EQUAL, T0 + timedelta(milliseconds=480), {4}),
        ("__publishTime", Operator.LESS, T0 + timedelta(milliseconds=100), {0}),
        ("__entryId", Operator.GREATER, 11, set()),
        ("value", Operator.EQUAL, b"x", {0, 1, 2, 3, 4}),
        ("__ledgerId", Operator.EQUAL, "1", {0, 1, 2, 3, 4}),
        ("__ledgerId", Operator.EQUAL, True, {0, 1, 2, 3, 4}),
    ],
)
def test_ledgers_for_which_a_condition_cannot_hold_are_not_read(column, compared, value, ledgers):
    condition = Condition(column=column, operator=compared, value=value)
    reading = scan(TIER, columns=COLUMNS, conditions=[condition], time_slack_ms=0)
    read = {run.ledger_id for task in reading.planned for run in task.extents}
    if column == "__publishTime":  # the ledger before it may hold the time as well, by its first block's
        assert {row["__ledgerId"] for row in reading.to_table().to_pylist()} == ledgers
        assert len(read) <= 2
    else:
        assert (read if column != "__entryId" or ledgers else set()) == ledgers


def test_blocks_for_which_a_condition_cannot_hold_are_not_read():
    place = [
        Condition(column="__ledgerId", operator=Operator.EQUAL, value=2),
        Condition(column="__entryId", operator=Operator.LESS, value=2),
    ]
    reading = scan(TIER, columns=COLUMNS, conditions=place)
    assert reading.data_bytes == 500 < scan(TIER, ledger=2).data_bytes
    assert {row["__entryId"] for row in reading.to_table().to_pylist()} == {0, 1}


def test_a_message_id_is_a_position_and_back():
    for row in ROWS:
        position = position_of_message_id(row["__messageId"])
        assert position == Position(row["__ledgerId"], row["__entryId"], max(row["__batchIndex"], 0))
        assert position_of_message_id(message_id_of_position(position)) == position
    assert message_id_of_position(Position(1, 2, 3), partition=4) == bytes.fromhex("0801100218042003")
    assert message_id_of_position(Position(1, 2)) == bytes.fromhex("08011002")


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\xff", bytes.fromhex("08ffffffffffffffffff011001")])
def test_bytes_that_are_no_message_id_are_refused(data):
    with pytest.raises(OptionError, match="this is not a message id"):
        position_of_message_id(data)
