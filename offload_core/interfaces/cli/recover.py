"""`offload recover`: rebuild managed ledgers' records from a tier alone, into a metadata store that lacks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_options import (
    AsJson,
    ChangeOptions,
    TierOptions,
    Topics,
    command,
    named,
)
from offload_core.interfaces.cli.ledger_facts import record_to_json
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import FoundTopics, nothing_at, topic_filter
from offload_core.interfaces.cli.terminal import cell, out, print_line, print_streamed, print_table, warn
from offload_core.maintenance.record_recovery import (
    APPROXIMATE,
    NEVER_KNOWN,
    Recovered,
    RecoveryOutcome,
    UnknownFact,
    recover_records,
)
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.catalogue.topics import UNKNOWN_TOPIC
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.hot import FileLedgerStore
from offload_hooks.errors import OptionError
from offload_hooks.metadata_stores import WritableMetadataStore

_SAID = {
    RecoveryOutcome.NEW: "{}written",
    RecoveryOutcome.SAME: "there already",
    RecoveryOutcome.OTHER: "another record is there, and stays",
    RecoveryOutcome.NONE: "no record",
    RecoveryOutcome.GONE: "not written: objects of it were deleted meanwhile; call it again",
}


@command(failed=2)
def recover(
    where: TierOptions,
    changes: ChangeOptions,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The metadata store: sqlite:/var/lib/offload.db, zk://host:2181/offload."
        ),
    ] = None,
    into_option: Annotated[
        list[str] | None,
        typer.Option(
            "--into-option",
            metavar="NAME=VALUE",
            help="An option of the metadata store, such as create=true for a new file; may be given again.",
        ),
    ] = None,
    topic: Topics = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Whose objects are taken of a topic that several clusters have offloaded."),
    ] = None,
    hot: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The hot tier that goes on with these topics: it skips their ledgers' ids."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild managed ledgers' records from a tier alone, and report what cannot be known.

    Without --yes nothing is written. A record that is there is never changed. It can be called again after any
    failure, and goes on. The exit code is 1 if a record would be written, a topic has another one, or something is left
    that is in none; 2 if something failed.

    Examples:
        offload recover s3://bucket/prefix --into sqlite:records.db
    """
    if changes.yes and into is None:
        raise OptionError("records need a place", expected="--into URL")
    log = changes.open_log()
    seen = FoundTopics.of(topic)
    wanted = topic_filter(topic)
    store = (
        None if into is None else _opened(into, named(into_option, "the metadata store"), creates=changes.yes)
    )
    is_left = False
    greatest = -1
    topics = 0

    def noted(found: Iterator[Recovered]) -> Iterator[Recovered]:
        nonlocal is_left, greatest, topics
        for each in seen.watch(found, lambda one: one.rebuilt.topic):
            is_left |= _leaves_something(each) or (not changes.yes and each.outcome is RecoveryOutcome.NEW)
            if each.rebuilt.info is not None:
                greatest = max(greatest, *(one.ledger_id for one in each.rebuilt.info.ledgers))
            topics += 1
            work.update(f"{topics:,} topics")
            yield each

    with (
        where.open() as tier,
        nullcontext() if store is None else closing(store),
        long_work(
            "reading", go_on="Records that were written stay; the next call goes on.", logs=True
        ) as work,
    ):
        records = None if store is None else ManagedLedgerRecords(store)
        found = noted(recover_records(tier.store, records, log, wanted=wanted, cluster=cluster))
        if as_json:
            print_streamed(
                {
                    "topics": (_to_json(each, written=changes.yes) for each in found),
                    "never_known": NEVER_KNOWN,
                    "approximate": APPROXIMATE,
                }
            )
        else:
            _print(found, written=changes.yes)
            changes.show_next_step(into is not None and greatest >= 0)
            if into is None and greatest >= 0:
                print_line("Records need a place: --into URL.")
        seen.require_all(tier.store)
        if not seen.anything:
            warn(nothing_at(tier.store, ""))
    if changes.yes and hot is not None and greatest >= 0:
        with closing(FileLedgerStore(hot)) as ledgers:
            ledgers.skip_ids(greatest)
    if is_left:
        raise typer.Exit(1)


def _opened(into: str, options: dict[str, Any], *, creates: bool) -> WritableMetadataStore | None:
    """The metadata store; None for one that is yet to be created, and is not by a dry run."""
    if creates or "create" not in options:
        return open_metadata_store(into, options)
    try:
        return open_metadata_store(into, {name: options[name] for name in options if name != "create"})
    except FileNotFoundError:
        return None


def _leaves_something(recovered: Recovered) -> bool:
    return recovered.outcome in (RecoveryOutcome.OTHER, RecoveryOutcome.GONE) or any(
        fact.what.leaves_something for fact in recovered.rebuilt.unknown
    )


def _print(found: Iterator[Recovered], *, written: bool) -> None:
    """A line for each topic as it comes, then its unknown facts."""
    counts = Counter[RecoveryOutcome]()
    for each in found:
        counts[each.outcome] += 1
        rebuilt, info = each.rebuilt, each.rebuilt.info
        name = UNKNOWN_TOPIC if rebuilt.topic is None else rebuilt.topic.full.removeprefix("persistent://")
        ledgers = () if info is None else info.ledgers
        entries = sum(one.info.entries or 0 for one in ledgers)
        what = _SAID[each.outcome].format("" if written else "would be ")
        line = f"{name}: {count_text(len(ledgers), 'ledger')}, {count_text(entries, 'entry')}: {what}"
        print_line(line)
        if rebuilt.unknown:
            print_table(_unknown_table(rebuilt.unknown))
    if not counts:
        print_line("no topics: nothing to be recovered was found")
        return
    for outcome in RecoveryOutcome:
        if counts[outcome]:
            what = _SAID[outcome].format("" if written else "would be ")
            print_line(f"{count_text(counts[outcome], 'topic')}: {what}")
    for heading, lines in (("Not known of any topic:", NEVER_KNOWN), ("Recorded by a rule:", APPROXIMATE)):
        out.print(heading, highlight=False)
        for line in lines:
            print_line(f"  {line}")


def _unknown_table(facts: Sequence[UnknownFact]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, style="yellow")
    for fact in facts:
        where = [] if fact.ledger_id is None else [f"ledger {fact.ledger_id}"]
        where += [] if fact.last_entry_id is None else [_entries(fact)]
        where += [] if fact.key is None else [fact.key]
        meaning = fact.what.meaning if fact.detail is None else f"{fact.what.meaning}; {fact.detail}"
        table.add_row("", fact.what.code, cell(", ".join(where)), cell(meaning))
    return table


def _entries(fact: UnknownFact) -> str:
    if fact.first_entry_id is None or fact.first_entry_id == fact.last_entry_id:
        return f"entry {fact.last_entry_id}"
    return f"entries {fact.first_entry_id}–{fact.last_entry_id}"


def _to_json(recovered: Recovered, *, written: bool) -> dict[str, Any]:
    rebuilt = recovered.rebuilt
    return {
        "topic": None if rebuilt.topic is None else rebuilt.topic.full,
        "cluster": rebuilt.cluster,
        "outcome": recovered.outcome.value,
        "written": written and recovered.outcome is RecoveryOutcome.NEW,
        "ledgers": [
            {"ledger": each.ledger_id, **record_to_json(each)}
            for each in (() if rebuilt.info is None else rebuilt.info.ledgers)
        ],
        "unknown": [
            {
                "code": fact.what.code,
                "what": fact.what.meaning,
                "ledger": fact.ledger_id,
                "first_entry": fact.first_entry_id,
                "last_entry": fact.last_entry_id,
                "key": fact.key,
                "detail": fact.detail,
            }
            for fact in rebuilt.unknown
        ],
    }
