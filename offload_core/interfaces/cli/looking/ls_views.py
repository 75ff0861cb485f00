"""What `offload ls` prints: tables of rows, and the same for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from rich.table import Table
from rich.text import Text

from offload_core.interfaces.cli.looking.filtered import filter_note, filter_to_json, indexed
from offload_core.interfaces.cli.looking.recorded import record_to_json, recorded_state
from offload_core.interfaces.cli.shared import cell, out, size, table_of, time
from offload_core.maintenance.inventory import Level, Row
from offload_core.metadata.catalogue import Ledger, StoredObject
from offload_core.metadata.catalogue.survey import FoundLedger

ROWS_AT_ONCE = 10_000
"""A table of more rows is printed as several: none is in memory whole."""


@dataclass(slots=True)
class Shown:
    """Which columns rows have something for, noted before the first of them is printed."""

    clusters: set[str | None] = field(default_factory=set)
    filtered: bool = False
    records: bool = False
    classes: bool = False
    problems: bool = False

    def note(self, row: Row) -> None:
        """See a row."""
        self.clusters.add(row.cluster)
        self.filtered |= bool(row.filters)
        self.records |= row.record is not None
        self.classes |= bool(row.storage_classes)
        self.problems |= bool(_notes(row))


_Column = tuple[str, Callable[[Row], str | Text], bool]
"""Its name, what stands in it, and whether that is a number."""


def print_rows(rows: Iterator[Row], level: Level, shown: Shown) -> None:
    """Rows as tables, for people."""
    columns = list(_columns(level, shown))
    some = list(islice(rows, ROWS_AT_ONCE))
    while True:
        table = Table(box=None, pad_edge=False)
        for name, _, is_number in columns:
            table.add_column(
                name,
                justify="right" if is_number else "left",
                no_wrap=is_number,
                overflow="fold",
            )
        for row in some:
            table.add_row(*(value(row) for _, value, _ in columns))
        out.print(table)
        some = list(islice(rows, ROWS_AT_ONCE))
        if not some:
            return


def print_problems(problems: Iterator[StoredObject]) -> None:
    """Objects that something is wrong with, for people."""
    while some := list(islice(problems, ROWS_AT_ONCE)):
        table = table_of("problem", "object", "what is wrong")
        table.style = "yellow"
        for stored in some:
            code, words = stored.complaint or ("", "")
            table.add_row(code, cell(stored.key.data_key), cell(words))
        out.print(table)


def _columns(level: Level, shown: Shown) -> Iterator[_Column]:
    is_object = level is Level.SEGMENT
    yield (
        "topic" if level in (Level.LEDGER, Level.SEGMENT) else level.value,
        lambda row: cell(row.name),
        False,
    )
    if len(shown.clusters) > 1:
        yield "cluster", lambda row: cell(row.cluster or "–"), False
    if level in (Level.TENANT, Level.NAMESPACE):
        yield "topics", lambda row: f"{row.topics:,}", True
    if level is Level.LEDGER:
        yield "ledger", lambda row: str(row.ledger_id), True
    elif is_object:
        yield "first ledger", lambda row: str(row.ledger_id), True
    if level is not Level.LEDGER:
        yield "ledgers", lambda row: f"{row.ledgers:,}", True
    yield "entries", lambda row: _entries(row, level), True
    yield "size", lambda row: size(row.data_bytes), True
    if level in (Level.LEDGER, Level.SEGMENT):
        yield "blocks", lambda row: str(row.blocks), True
    if not is_object:
        yield "attempts", lambda row: f"{row.attempts:,}", True
    yield "format", lambda row: ", ".join(row.formats) or "–", False
    if shown.classes:
        yield "storage class", lambda row: cell(", ".join(row.storage_classes) or "–"), False
    if not is_object:
        yield "oldest", lambda row: _time(row.oldest), False
    yield "newest" if not is_object else "written", lambda row: _time(row.newest), False
    if shown.filtered:
        yield "filtered", lambda row: cell(filter_note(row.filters.values())), False
    if shown.records:
        yield "record", lambda row: recorded_state(row.record) if row.record else "", False
    if level is not Level.LEDGER and shown.problems:
        yield "problems", _notes, False
    if level in (Level.LEDGER, Level.SEGMENT):
        yield "data object", _keys, False


def _entries(row: Row, level: Level) -> str:
    if row.entries is None:
        return "–" if level in (Level.LEDGER, Level.SEGMENT) else "0"
    return f"{row.entries:,}"


def _keys(row: Row) -> Text:
    return Text("\n").join(map(cell, row.keys)) if row.keys else Text("none that is complete")


def _notes(row: Row) -> str:
    if row.problem is not None:
        return row.problem
    counts = (
        (row.unreadable, "not readable"),
        (row.lacking, "lack entries"),
        (row.superseded, "superseded"),
        (row.hot_only, "in BookKeeper only"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else time(moment)


# --- for programs ------------------------------------------------------------------------------


def topics_to_json(found: Iterator[FoundLedger]) -> Iterator[dict[str, Any]]:
    """Topics, each with its ledgers as they come."""
    for (topic, cluster), ledgers in groupby(found, key=lambda each: (each.topic, each.cluster)):
        yield {
            "topic": None if topic is None else topic.full,
            "cluster": cluster,
            "ledgers": (_ledger_to_json(each.ledger) for each in ledgers),
        }


def object_to_json(stored: StoredObject) -> dict[str, Any]:
    """An attempt."""
    code, words = stored.complaint or (None, None)
    return {
        "key": stored.key.data_key,
        "format": stored.key.object_format.value,
        "data_bytes": stored.data_bytes,
        "index_bytes": stored.index_bytes,
        "storage_class": stored.storage_class,
        "modified_at": stored.modified_at.isoformat() if stored.modified_at else None,
        "complete": stored.is_complete,
        "problem": code,
        "detail": words,
    }


def row_to_json(row: Row, level: Level) -> dict[str, Any]:
    """A row."""
    is_one = level in (Level.LEDGER, Level.SEGMENT)
    return {
        "topic" if is_one else level.value: row.name,
        "cluster": row.cluster,
        **({"ledger": row.ledger_id, "keys": list(row.keys)} if is_one else {"topics": row.topics}),
        "ledgers": row.ledgers,
        "entries": row.entries,
        "size_bytes": row.data_bytes,
        "stored_bytes": row.stored_bytes,
        "blocks": row.blocks,
        "attempts": row.attempts,
        "unreadable": row.unreadable,
        "lacking": row.lacking,
        "problem": row.problem,
        "superseded": row.superseded,
        "hot_only": row.hot_only,
        "formats": list(row.formats),
        "storage_classes": list(row.storage_classes),
        "oldest": row.oldest.isoformat() if row.oldest else None,
        "newest": row.newest.isoformat() if row.newest else None,
        "filters": [filter_to_json(each) for each in row.filters.values()],
        **({"record": record_to_json(row.record)} if row.record else {}),
    }


def _ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "entries": ledger.entries,
        "size_bytes": ledger.data_bytes,
        "formats": [known.value for known in ledger.formats],
        "read_from": [extent.key.data_key for extent in ledger.extents],
        "filters": [filter_to_json(record) for record in indexed(ledger.extents)],
        "attempts": [object_to_json(stored) for stored in ledger.attempts],
        **({"record": record_to_json(ledger.record)} if ledger.record else {}),
    }
