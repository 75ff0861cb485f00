"""Filters that Spark hands down, as conditions on where a row lies.

Spark applies each of them to the rows again. Source: docs/spark.md, Filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, Filter

from offload_core.reading.scan import Condition, Operator

_OPERATORS: dict[type[Filter], Operator] = {
    datasource.EqualTo: Operator.EQUAL,
    datasource.EqualNullSafe: Operator.EQUAL,
    datasource.In: Operator.IN,
    datasource.GreaterThan: Operator.GREATER,
    datasource.GreaterThanOrEqual: Operator.GREATER_OR_EQUAL,
    datasource.LessThan: Operator.LESS,
    datasource.LessThanOrEqual: Operator.LESS_OR_EQUAL,
    datasource.StringStartsWith: Operator.STARTS_WITH,
    datasource.StringEndsWith: Operator.ENDS_WITH,
    datasource.StringContains: Operator.CONTAINS,
}


def conditions_of(filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """The conditions that filters stand for, without those that are none (on parts of a column, on nulls)."""
    found = (_condition(each) for each in filters)
    return tuple(condition for condition in found if condition is not None)


def _condition(given: Filter) -> Condition | None:
    is_negated = isinstance(given, datasource.Not)
    inner = given.child if isinstance(given, datasource.Not) else given
    operator = _OPERATORS.get(type(inner))
    attribute, value = getattr(inner, "attribute", ()), getattr(inner, "value", None)
    values: tuple[object, ...] = tuple(value) if isinstance(value, tuple | list) else (value,)
    # What is compared with null holds for nothing, negated or not: such a filter is left to Spark.
    if operator is None or len(attribute) != 1 or None in values:
        return None
    return Condition(
        column=str(*attribute),
        operator=operator,
        value=values if operator is Operator.IN else value,
        is_negated=is_negated,
    )


class PushFilters:
    """The method `pushFilters` of a reader, as far as PySpark's planner can see the one that every reader has.

    PySpark refuses a reader that has a `pushFilters` of its own while `spark.sql.python.filterPushdown.enabled` is
    off, and looks at `__func__` for that; where it is on, it calls this.

    Args:
        take: given the conditions that filters stand for.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[tuple[Condition, ...]], None]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters; all of them are given back, for Spark to apply them."""
        self._take(conditions_of(filters))
        return filters
