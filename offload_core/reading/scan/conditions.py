"""Conditions on columns that tell where a row lies: topic, partition, ledger, entry, message id, publish time.

They leave out topics, ledgers and blocks that cannot hold a row for which all conditions hold. What is read may still
hold others: whoever gave the conditions applies them to the rows as well. A condition of another kind, or on a value of
another type, leaves out nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from offload_core.reading.scan.positions import Position, position_of_message_id
from offload_core.reading.scan.tasks import EntryRange, LedgerShare, TimeRange
from offload_hooks.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 2**63 - 1


class Operator(enum.Enum):
    """How a column's value is compared."""

    EQUAL = "="
    IN = "in"
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column compared with a value (of `IN`, a tuple of values); `is_negated`: what does not hold must hold."""

    column: str
    operator: Operator
    value: object
    is_negated: bool = False


def restrict_shares(shares: Iterable[LedgerShare], conditions: Sequence[Condition]) -> list[LedgerShare]:
    """The ledgers, and of each the entries, that can hold a row for which all conditions hold."""
    by_column = {
        name: [condition for condition in conditions if condition.column == name]
        for name in ("__topic", "__partition", "__ledgerId", "__entryId", "__messageId")
    }
    entry_range = _whole_numbers(by_column["__entryId"])
    places = _places(by_column["__messageId"])
    kept = []
    for share in shares:
        facts = (("__topic", share.topic), ("__partition", share.partition), ("__ledgerId", share.ledger_id))
        if not all(_may_hold(condition, fact) for name, fact in facts for condition in by_column[name]):
            continue
        low, high = entry_range
        if places is not None:
            entries = [place.entry_id for place in places if place.ledger_id == share.ledger_id]
            if not entries:
                continue
            low, high = max(low, min(entries)), min(high, max(entries) + 1)
        asked = _cut(share.asked, low, high)
        if asked is not None:
            kept.append(replace(share, asked=asked))
    return kept


def restrict_times(
    times: TimeRange | None, conditions: Sequence[Condition], slack_ms: int
) -> TimeRange | None:
    """A range of publish times that holds all of `times` for which the conditions on `__publishTime` hold."""
    on_time = [
        replace(condition, value=_milliseconds(condition.value))
        for condition in conditions
        if condition.column == "__publishTime" and _milliseconds(condition.value) is not None
    ]
    low, high = _whole_numbers(on_time)
    given = TimeRange(slack_ms=slack_ms) if times is None else times
    start = low if low > 0 else None
    # A comparison may be finer than the milliseconds that it was rounded down to.
    stop = high + 1 if high < _MOST else None
    restricted = replace(
        given,
        start_ms=max((each for each in (start, given.start_ms) if each is not None), default=None),
        stop_ms=min((each for each in (stop, given.stop_ms) if each is not None), default=None),
    )
    return None if restricted.start_ms is None and restricted.stop_ms is None else restricted


def _whole_numbers(conditions: Sequence[Condition]) -> tuple[int, int]:
    """The half-open range of numbers from 0 on that all conditions can hold for."""
    low, high = 0, _MOST
    for condition in conditions:
        values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if condition.is_negated or len(numbers) != len(values) or not numbers:
            continue
        least, most = min(numbers), max(numbers)
        match condition.operator:
            case Operator.EQUAL | Operator.IN:
                low, high = max(low, least), min(high, most + 1)
            case Operator.GREATER:
                low = max(low, least + 1)
            case Operator.GREATER_OR_EQUAL:
                low = max(low, least)
            case Operator.LESS:
                high = min(high, most)
            case Operator.LESS_OR_EQUAL:
                high = min(high, most + 1)
    return low, high


def _milliseconds(value: object) -> object:
    """Times, or a tuple of them, in whole milliseconds rounded down; None for what is no time with a zone."""
    if isinstance(value, tuple):
        each = tuple(_milliseconds(part) for part in value)
        return None if None in each else each
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _places(conditions: Sequence[Condition]) -> list[Position] | None:
    """Where messages must lie whose ids the conditions name; None if they name none."""
    named = [
        condition
        for condition in conditions
        if not condition.is_negated and condition.operator in (Operator.EQUAL, Operator.IN)
    ]
    if not named:
        return None
    ids = named[0].value if isinstance(named[0].value, tuple) else (named[0].value,)
    places = []
    for each in ids:
        try:
            places.append(position_of_message_id(bytes(each)))
        except (OptionError, TypeError):
            continue  # no message has it
    return places


def _cut(asked: EntryRange, low: int, high: int) -> EntryRange | None:
    """The entries of both ranges; None if there are none."""
    if low > asked.start:
        asked = replace(asked, start=low, start_batch=0)
    if high < _MOST and (asked.stop is None or high < asked.stop):
        asked = replace(asked, stop=high, stop_batch=0)
    return None if asked.stop is not None and asked.stop <= asked.start else asked


_TEXT: dict[Operator, Callable[[str, str], bool]] = {
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
    Operator.CONTAINS: str.__contains__,
}


def _may_hold(condition: Condition, fact: str | int | None) -> bool:
    """Whether a condition holds for a fact; True as well where that cannot be told."""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    if fact is None or not values or any(type(value) is not type(fact) for value in values):
        return True
    return _holds(condition.operator, fact, values) is not condition.is_negated


def _holds(operator: Operator, fact: str | int, values: tuple[object, ...]) -> bool:
    if operator in (Operator.EQUAL, Operator.IN):
        return fact in values
    value = values[0]
    if isinstance(fact, str) and isinstance(value, str):
        if operator in _TEXT:
            return _TEXT[operator](fact, value)
        order = (fact > value) - (fact < value)
    elif isinstance(fact, int) and isinstance(value, int):
        order = (fact > value) - (fact < value)
    else:
        return True
    return {
        Operator.GREATER: order > 0,
        Operator.GREATER_OR_EQUAL: order >= 0,
        Operator.LESS: order < 0,
        Operator.LESS_OR_EQUAL: order <= 0,
    }.get(operator, True)
