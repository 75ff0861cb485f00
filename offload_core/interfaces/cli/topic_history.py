"""`offload history`: the life of a topic's ledgers, from records, objects, a hot tier and audit logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_options import (
    AsJson,
    Hot,
    Prefix,
    RecordOptions,
    TierOptions,
    command,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.terminal import cell, print_streamed, print_table, table_of, warn
from offload_core.maintenance.inventory.ledger_history import Event, history_of
from offload_core.metadata.catalogue import TierReader, TopicName, parse_topic
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import LedgerRecord
from offload_core.writing.audit import AuditLine, read_audit_log
from offload_hooks.errors import FormatError, UnknownTopicError


@command()
def history(
    where: TierOptions,
    records: RecordOptions,
    topic: Annotated[str, typer.Argument(help="The topic, or one of its partitions.", show_default=False)],
    audit_log: Annotated[
        list[Path] | None,
        typer.Option("--audit-log", metavar="FILE", help="What was changed and deleted; may be given again."),
    ] = None,
    ledger: Annotated[int | None, typer.Option(help="Only this ledger.")] = None,
    prefix: Prefix = "",
    hot: Hot = None,
    as_json: AsJson = False,
) -> None:
    """Show the life of a topic's ledgers in order of time: closed, tried, offloaded, replaced, deleted.

    The tier is listed for all attempts; records and audit logs tell what happened to them, and to the hot copies; with
    --hot the hot tier, since when it has them.

    Examples:
        offload history s3://bucket/prefix acme/cold/orders --records zk://zk-1:2181/pulsar
    """
    records.require_for(hot)
    with where.open(hot) as tier:
        name = parse_topic(topic)
        recorded = _recorded(tier, records, name)
        audits = list(chain.from_iterable(read_audit_log(each, wrong=_warn_of) for each in audit_log or ()))
        events = _events(tier, name, prefix, recorded, audits)
        if not events:
            place = tier.store.describe().location
            raise UnknownTopicError(
                f"nothing is known of this topic under {place}",
                found=name,
                hint="`offload ls` lists the topics of a tier",
            )
        shown = [event for event in events if ledger is None or event.ledger_id == ledger]
        if as_json:
            print_streamed({"topic": name.full, "events": iter(map(_to_json, shown))})
        else:
            print_table(_table(shown), drop=("source", "attempt"), prose=("detail",))


def _warn_of(line: FormatError) -> None:
    warn(f"{line}. It is left out")


def _recorded(tier: TierReader, options: RecordOptions, name: TopicName) -> list[LedgerRecord]:
    opener = options.opener(tier)
    if opener is None:
        return []
    with opener() as records:
        found = records.read([each for each in records.topics() if each == name])
    return [ledger for info in found.values() for ledger in info.in_order]


def _events(
    tier: TierReader,
    name: TopicName,
    prefix: str,
    recorded: Sequence[LedgerRecord],
    audits: Sequence[AuditLine],
) -> list[Event]:
    uuids = set(_uuids(recorded))
    with LedgerSurvey(keeps_blocks=False) as survey:
        with long_work("listing") as work:
            survey.fill(
                tier.store,
                prefix=prefix,
                takes=lambda each: each == name or (each is None and bool(uuids)),
                listener=lambda count: work.update(f"{count:,} pairs of objects"),
                cached=tier.catalogue_cache,
            )
        found = [
            each.ledger
            for each in survey.ledgers()
            if each.topic is not None or any(one.key.uuid in uuids for one in each.ledger.attempts)
        ]
        strays = [
            each for each in survey.strays() if each.managed_ledger is not None or each.key.uuid in uuids
        ]
    open_hot = None if tier.store.hot is None else tier.store.hot.open
    return history_of(managed_ledger_of_topic(name), found, recorded, audits, strays, open_hot=open_hot)


def _uuids(recorded: Sequence[LedgerRecord]) -> Iterator[object]:
    """Of attempts that records name: Pulsar's own segments do not name their topic."""
    for ledger in recorded:
        if ledger.context is not None:
            yield ledger.context.uuid
            yield from (segment.uuid for segment in ledger.context.segments)


def _table(events: Sequence[Event]) -> Table:
    table = table_of("time", "ledger", "what", "attempt", "source", "detail")
    for event in events:
        table.add_row(
            "–" if event.at is None else f"{event.at:%Y-%m-%d %H:%M:%SZ}",
            "–" if event.ledger_id is None else str(event.ledger_id),
            event.what.value,
            "" if event.uuid is None else str(event.uuid),
            event.source,
            cell(event.detail),
        )
    return table


def _to_json(event: Event) -> dict[str, Any]:
    return {
        "at": None if event.at is None else event.at.isoformat(timespec="milliseconds"),
        "ledger": event.ledger_id,
        "what": event.what.value,
        "uuid": None if event.uuid is None else str(event.uuid),
        "source": event.source,
        "detail": event.detail,
    }
