"""`offload ls`: list a tier by tenant, namespace, topic, ledger or object, and its problems."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from offload_core.interfaces.cli.command_options import (
    AsJson,
    Hot,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
)
from offload_core.interfaces.cli.ledger_facts import filter_note, indexed, record_to_json, recorded_state
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import FoundTopics, missing_warned_of
from offload_core.interfaces.cli.terminal import cell, print_streamed, print_table, size, table_of, time
from offload_core.maintenance.inventory import Row, RowLevel, Spool, TopicPatterns, recorded_ledgers, rows_of
from offload_core.metadata.catalogue import Ledger, StoredObject, TierReader, TopicName
from offload_core.metadata.catalogue.survey import FoundLedger, LedgerSurvey
from offload_hooks.errors import OptionError


class Sort(enum.Enum):
    """Sort order of rows: the greatest numbers and newest times first."""

    NAME = "name"
    SIZE = "size"
    ENTRIES = "entries"
    LEDGERS = "ledgers"
    ATTEMPTS = "attempts"
    PROBLEMS = "problems"
    OLDEST = "oldest"
    NEWEST = "newest"


_PLACES: dict[Sort, Callable[[Row], str | float | None]] = {
    Sort.NAME: lambda row: row.name,
    Sort.SIZE: lambda row: row.data_bytes,
    Sort.ENTRIES: lambda row: row.entries,
    Sort.LEDGERS: lambda row: row.ledgers,
    Sort.ATTEMPTS: lambda row: row.attempts,
    Sort.PROBLEMS: lambda row: row.unreadable + row.lacking + row.superseded,
    Sort.OLDEST: lambda row: row.oldest.timestamp() if row.oldest else None,
    Sort.NEWEST: lambda row: row.newest.timestamp() if row.newest else None,
}
_ASCENDING = (Sort.NAME, Sort.OLDEST)


@command()
def ls(
    where: TierOptions,
    records: RecordOptions,
    by: Annotated[
        RowLevel | None,
        typer.Option(help="One line for each of these; a segment is a data object. By default a topic."),
    ] = None,
    ledgers: Annotated[
        bool, typer.Option("--ledgers", "-l", help="A line for each ledger: --by ledger.")
    ] = False,
    topic: Topics = None,
    sort: Annotated[
        Sort | None, typer.Option(help="Sort by this: the largest and newest first, of oldest the oldest.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many lines.")] = None,
    prefix: Prefix = "",
    hot: Hot = None,
    as_json: AsJson = False,
) -> None:
    """List what a tier holds, by topic, ledger or other groups: entries, sizes, formats, ages and problems.

    With records also those ledgers that are not offloaded, and what became of each attempt; with --hot as they are
    in the hot tier now.

    Examples:
        offload ls s3://bucket/prefix
        offload ls s3://bucket/prefix --ledgers --topic 'acme/cold/*'
        offload ls s3://bucket/prefix --records zk://zk-1:2181/pulsar --sort size --limit 20
    """
    records.require_for(hot)
    if ledgers and by not in (None, RowLevel.LEDGER):
        raise OptionError("--ledgers means --by ledger", expected="one of them")
    level = RowLevel.LEDGER if ledgers else by or RowLevel.TOPIC
    with (
        where.open(hot) as tier,
        inventory(tier, prefix, records, TopicPatterns(tuple(topic or ()))) as found,
        Spool[Row]() as rows,
        Spool[StoredObject]() as problems,
        missing_warned_of(FoundTopics.of(topic), tier.store, prefix) as seen,
    ):
        watched = _noting_problems(seen.watch(found, _topic_of), problems)
        if as_json and not (by or ledgers or sort or limit):
            print_streamed({"topics": topics_to_json(watched), "problems": _problems_to_json(problems)})
            return
        shown = Shown()
        for row in rows_of(watched, level):
            shown.note(row)
            rows.add(row, None if sort is None else _PLACES[sort](row))
        chosen = rows.sorted(descending=sort not in (None, *_ASCENDING), limit=limit)
        if as_json:
            lines = (row_to_json(row, level) for row in chosen)
            print_streamed({"by": level.value, "rows": lines, "problems": _problems_to_json(problems)})
            return
        print_rows(chosen, level, shown)
        print_problems(_of_each_once(problems))


@contextmanager
def inventory(
    tier: TierReader, prefix: str, records: RecordOptions, wanted: Callable[[TopicName | None], bool]
) -> Iterator[Iterator[FoundLedger | StoredObject]]:
    """The ledgers of a tier, by its objects or by records; then the objects that belong to no known ledger."""
    opener = records.opener(tier)
    if opener is not None:
        with opener() as source:
            yield iter(recorded_ledgers(tier.store, source, prefix=prefix, wanted=wanted))
        return
    with LedgerSurvey(keeps_blocks=False) as survey:
        with long_work("listing") as work:
            survey.fill(
                tier.store,
                prefix=prefix,
                takes=wanted,
                listener=lambda count: work.update(f"{count:,} pairs of objects"),
                cached=tier.catalogue_cache,
            )

        def all_of_it() -> Iterator[FoundLedger | StoredObject]:
            yield from survey.ledgers()
            yield from survey.strays()

        yield all_of_it()


def _noting_problems(
    found: Iterator[FoundLedger | StoredObject], problems: Spool[StoredObject]
) -> Iterator[FoundLedger]:
    """The ledgers; objects that something is wrong with are kept as they come by."""
    for each in found:
        if isinstance(each, StoredObject):
            problems.add(each, each.key.data_key)
            continue
        for stored in each.ledger.attempts:
            if stored.complaint is not None:
                problems.add(stored, stored.key.data_key)
        yield each


def _topic_of(found: FoundLedger | StoredObject) -> TopicName | None:
    return found.topic if isinstance(found, FoundLedger) else None


def _of_each_once(problems: Spool[StoredObject]) -> Iterator[StoredObject]:
    before = None
    for stored in problems.sorted():
        if stored.key != before:
            yield stored
        before = stored.key


def _problems_to_json(problems: Spool[StoredObject]) -> Iterator[dict[str, object]]:
    for stored in _of_each_once(problems):
        yield object_to_json(stored)


ROWS_AT_ONCE = 10_000
"""A table of more rows is printed as several: none is in memory whole."""


@dataclass(slots=True)
class Shown:
    """The columns that have values, collected before the first row is printed."""

    clusters: set[str | None] = field(default_factory=set)
    filtered: bool = False
    records: bool = False
    classes: bool = False
    problems: bool = False
    hot: bool = False

    def note(self, row: Row) -> None:
        """See a row."""
        self.clusters.add(row.cluster)
        self.filtered |= bool(row.filters)
        self.records |= row.record is not None
        self.classes |= bool(row.storage_classes)
        self.hot |= bool(row.hot_bytes)
        self.problems |= bool(_notes(row))


_Column = tuple[str, Callable[[Row], str | Text], bool]
"""The name of a column, its contents, and True if these are numbers."""


def print_rows(rows: Iterator[Row], level: RowLevel, shown: Shown) -> None:
    """Print rows as tables."""
    columns = list(_columns(level, shown))
    some = list(islice(rows, ROWS_AT_ONCE))
    while True:
        table = Table(box=None, pad_edge=False)
        for name, _, is_number in columns:
            table.add_column(name, justify="right" if is_number else "left")
        for row in some:
            table.add_row(*(value(row) for _, value, _ in columns))
        print_table(table, drop=_LEAST_NEEDED)
        some = list(islice(rows, ROWS_AT_ONCE))
        if not some:
            return


def print_problems(problems: Iterator[StoredObject]) -> None:
    """Print objects with problems as a table."""
    while some := list(islice(problems, ROWS_AT_ONCE)):
        table = table_of("problem", "object", "what is wrong")
        table.style = "yellow"
        for stored in some:
            code, words = stored.complaint or ("", "")
            table.add_row(code, cell(stored.key.data_key), cell(words))
        print_table(table, prose=("what is wrong",))


_LEAST_NEEDED = (
    "attempts",
    "oldest",
    "blocks",
    "storage class",
    "hot",
    "format",
    "filtered",
    "newest",
    "written",
)


def _columns(level: RowLevel, shown: Shown) -> Iterator[_Column]:
    is_object = level is RowLevel.SEGMENT
    yield (
        "topic" if level in (RowLevel.LEDGER, RowLevel.SEGMENT) else level.value,
        lambda row: cell(row.name),
        False,
    )
    if len(shown.clusters) > 1:
        yield "cluster", lambda row: cell(row.cluster or "–"), False
    if level in (RowLevel.TENANT, RowLevel.NAMESPACE):
        yield "topics", lambda row: f"{row.topics:,}", True
    if level is RowLevel.LEDGER:
        yield "ledger", lambda row: str(row.ledger_id), True
    elif is_object:
        yield "first ledger", lambda row: str(row.ledger_id), True
    if level is not RowLevel.LEDGER:
        yield "ledgers", lambda row: f"{row.ledgers:,}", True
    yield "entries", lambda row: _entries(row, level), True
    yield "size", lambda row: size(row.data_bytes), True
    if shown.hot:
        yield "hot", lambda row: size(row.hot_bytes), True
    if level in (RowLevel.LEDGER, RowLevel.SEGMENT):
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
    if level is not RowLevel.LEDGER and shown.problems:
        yield "problems", _notes, False
    if level in (RowLevel.LEDGER, RowLevel.SEGMENT):
        yield "data object", _keys, False


def _entries(row: Row, level: RowLevel) -> str:
    if row.entries is None:
        return "–" if level in (RowLevel.LEDGER, RowLevel.SEGMENT) else "0"
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


def row_to_json(row: Row, level: RowLevel) -> dict[str, Any]:
    """A row."""
    is_one = level in (RowLevel.LEDGER, RowLevel.SEGMENT)
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
        "hot_bytes": row.hot_bytes,
        "formats": list(row.formats),
        "storage_classes": list(row.storage_classes),
        "oldest": row.oldest.isoformat() if row.oldest else None,
        "newest": row.newest.isoformat() if row.newest else None,
        "filters": [each.to_json() for each in row.filters.values()],
        **({"record": record_to_json(row.record)} if row.record else {}),
    }


def _ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "entries": ledger.entries,
        "size_bytes": ledger.data_bytes,
        "formats": [known.value for known in ledger.formats],
        "read_from": [extent.data_key for extent in ledger.extents],
        "filters": [record.to_json() for record in indexed(ledger.extents)],
        "attempts": [object_to_json(stored) for stored in ledger.attempts],
        **({"record": record_to_json(ledger.record)} if ledger.record else {}),
    }
