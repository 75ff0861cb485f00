"""`offload ls`: what lies in a tier, by tenant, namespace, topic, ledger or object, and what is wrong."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from offload_core.interfaces.cli.executors import Lookers, Master, Processes, looking
from offload_core.interfaces.cli.json_document import print_streamed
from offload_core.interfaces.cli.looking.ls_views import (
    Shown,
    object_to_json,
    print_problems,
    print_rows,
    row_to_json,
    topics_to_json,
)
from offload_core.interfaces.cli.nothing_found import Seen, missing_warned_of
from offload_core.interfaces.cli.progress import count_bar
from offload_core.interfaces.cli.shared import (
    AsJson,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    TopicGlobs,
    Url,
    named,
    opened,
    reported,
)
from offload_core.maintenance.inventory import Level, Row, Spool, TopicPatterns, recorded_ledgers, rows_of
from offload_core.metadata.catalogue import StoredObject, TierReader, TopicName, open_records
from offload_core.metadata.catalogue.survey import FoundLedger, LedgerSurvey
from offload_core.storage.executors import Executor
from offload_hooks.errors import OptionError


class Sort(enum.Enum):
    """What rows are sorted by: numbers and times of `newest` from the greatest on."""

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


def ls(
    url: Url,
    by: Annotated[
        Level | None, typer.Option(help="What has a line; a segment is a data object. A topic, by default.")
    ] = None,
    ledgers: Annotated[
        bool, typer.Option("--ledgers", "-l", help="A line for each ledger: --by ledger.")
    ] = False,
    topic: TopicGlobs = None,
    sort: Annotated[
        Sort | None, typer.Option(help="By what; the largest and newest first, the oldest of oldest.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many lines.")] = None,
    master: Master = None,
    workers: Lookers = None,
    processes: Processes = False,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what is offloaded to a tier: ledgers, entries, sizes, formats, ages and problems, by topic or else.

    With records also those ledgers that are not offloaded, and what became of each attempt.
    """
    with reported(debug):
        if ledgers and by not in (None, Level.LEDGER):
            raise OptionError("--ledgers is --by ledger", expected="one of them")
        level = Level.LEDGER if ledgers else by or Level.TOPIC
        with (
            opened(url, driver, option, layer) as tier,
            looking(master, workers, processes) as executor,
            _inventory(
                tier, prefix, records, records_option, TopicPatterns(tuple(topic or ())), executor
            ) as found,
            Spool[Row]() as rows,
            Spool[StoredObject]() as problems,
            missing_warned_of(Seen.of_patterns(topic), tier.store, prefix) as seen,
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
def _inventory(
    tier: TierReader,
    prefix: str,
    records: str | None,
    records_option: list[str] | None,
    wanted: TopicPatterns,
    executor: Executor | None,
) -> Iterator[Iterator[FoundLedger | StoredObject]]:
    """The ledgers of a tier, by its objects or by records; then the objects that belong to no known ledger."""
    if records is not None:
        given = named(records_option, "the records")
        with open_records(records, tier.store, tier.options, given) as source:
            yield iter(recorded_ledgers(tier.store, source, prefix=prefix, wanted=wanted, executor=executor))
        return
    with LedgerSurvey(keeps_blocks=False) as survey:
        with count_bar("pairs of objects") as listener:
            survey.fill(tier.store, prefix=prefix, takes=wanted, executor=executor, listener=listener)

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
