"""`scan_polars`: offloaded topics as a LazyFrame that reads the columns, rows and times that a query needs.

Polars does not name the parts of a predicate. So a comparison is made anew of its parts in each form that can be used
(`_FORMS`), until it is the same. The others are left to Polars, which applies all filters anyway.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from offload_core.interfaces.engines.engine_scan import EngineScan
from offload_core.reading.scan import Condition, Operator
from offload_core.reading.scan.scanning import require_library

if TYPE_CHECKING:
    import polars as pl

_EQUAL, _IN = Operator.EQUAL, Operator.IN
_FORMS: tuple[tuple[Callable[[pl.Expr, pl.Expr], pl.Expr], Operator, bool], ...] = (
    (lambda column, value: column == value, _EQUAL, False),
    (lambda column, value: value == column, _EQUAL, False),
    (lambda column, value: column != value, _EQUAL, True),
    (lambda column, value: value != column, _EQUAL, True),
    (lambda column, value: column > value, Operator.GREATER, False),
    (lambda column, value: value < column, Operator.GREATER, False),
    (lambda column, value: column >= value, Operator.GREATER_OR_EQUAL, False),
    (lambda column, value: value <= column, Operator.GREATER_OR_EQUAL, False),
    (lambda column, value: column < value, Operator.LESS, False),
    (lambda column, value: value > column, Operator.LESS, False),
    (lambda column, value: column <= value, Operator.LESS_OR_EQUAL, False),
    (lambda column, value: value >= column, Operator.LESS_OR_EQUAL, False),
    (lambda column, value: column.is_in(value), _IN, False),
    (lambda column, value: column.str.starts_with(value), Operator.STARTS_WITH, False),
    (lambda column, value: column.str.ends_with(value), Operator.ENDS_WITH, False),
    (lambda column, value: column.str.contains(value, literal=True), Operator.CONTAINS, False),
)
"""Each comparison of a column with a value, its operator, and True if what does not hold must hold."""

_CLOSED: dict[Literal["both", "left", "right", "none"], tuple[Operator, Operator]] = {
    "both": (Operator.GREATER_OR_EQUAL, Operator.LESS_OR_EQUAL),
    "left": (Operator.GREATER_OR_EQUAL, Operator.LESS),
    "right": (Operator.GREATER, Operator.LESS_OR_EQUAL),
    "none": (Operator.GREATER, Operator.LESS),
}
"""The comparisons of `is_between`, with the lower and the upper bound."""


def scan_polars(
    url: str | os.PathLike[str], topics: str | Iterable[str] = (), **options: Any
) -> pl.LazyFrame:
    """Offloaded topics as a Polars LazyFrame, read anew by each `collect`.

    Columns that a query does not use are not made; `head` stops reading. Filters that compare `__publishTime`,
    `__topic`, `__partition`, `__ledgerId`, `__entryId` or `__messageId` with values leave out blocks.

    Args:
        url: where the tier is, as `open_tier` takes it.
        topics: as `scan` takes them.
        options: keywords of `scan` and `open_tier`.

    Raises:
        MissingExtraError: Polars is not installed. Others: those of `open_tier` and `scan`, here and when it is read.
    """
    require_library("polars")
    import polars
    from polars.io.plugins import register_io_source

    source = EngineScan.of(url, topics, options)
    with source.planned() as planned:
        schema = polars.DataFrame(planned.schema.empty_table()).schema
    return register_io_source(functools.partial(_frames, source), schema=schema)


def _frames(
    source: EngineScan,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """The frames of a query, as Polars asks a source for them: it counts `n_rows` before the predicate is applied."""
    import polars

    changed: dict[str, Any] = {} if with_columns is None else {"columns": with_columns}
    if predicate is not None and n_rows is None:
        given = source.options.get("conditions", ())
        changed["conditions"] = (*given, *conditions_of(predicate))
    if n_rows == 0:
        return
    left = n_rows
    with source.planned(**changed) as planned, closing(iter(planned)) as batches:
        for batch in batches:
            frame = polars.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield from frame.iter_slices(batch_size or frame.height or 1)
            if left == 0:
                return


def conditions_of(predicate: pl.Expr) -> tuple[Condition, ...]:
    """Conditions that hold for each row for which a predicate does; those of its parts that are none are left out."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and any((a & b).meta.eq(predicate) for a, b in (parts, parts[::-1])):
        return tuple(condition for part in parts for condition in conditions_of(part))
    if len(parts) == 3:
        return _between(predicate, parts)
    if len(parts) == 1 and (~parts[0]).meta.eq(predicate):
        inner = _comparison(parts[0])
        return () if inner is None else (replace(inner, is_negated=not inner.is_negated),)
    found = _comparison(predicate)
    return () if found is None else (found,)


def _comparison(predicate: pl.Expr) -> Condition | None:
    parts = predicate.meta.pop()
    if len(parts) != 2:
        return None
    for column, value in (parts, parts[::-1]):
        for make, operator, is_negated in (
            _FORMS if column.meta.is_column() and value.meta.is_literal() else ()
        ):
            if make(column, value).meta.eq(predicate):
                return _condition(column, operator, value, is_negated)
    return None


def _condition(column: pl.Expr, operator: Operator, value: pl.Expr, is_negated: bool) -> Condition | None:
    import polars

    found = polars.select(value).to_series().to_list()
    if operator is _IN and found and isinstance(found[0], list):
        (found,) = found
    values = tuple(found)
    if None in values:
        return None  # it holds for nothing, negated or not
    return Condition(
        column=column.meta.output_name(),
        operator=operator,
        value=values if operator is _IN else values[0],
        is_negated=is_negated,
    )


def _between(predicate: pl.Expr, parts: list[pl.Expr]) -> tuple[Condition, ...]:
    for column, *bounds in (parts, parts[::-1]):
        if not column.meta.is_column() or not all(bound.meta.is_literal() for bound in bounds):
            continue
        for low, high in (bounds, bounds[::-1]):
            for closed, (above, below) in _CLOSED.items():
                if column.is_between(low, high, closed=closed).meta.eq(predicate):
                    found = (_condition(column, above, low, False), _condition(column, below, high, False))
                    return tuple(each for each in found if each is not None)
    return ()
