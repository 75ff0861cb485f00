"""`offload rollback plan`, `list` and `delete`: the way back from streaming offload."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from offload_core.interfaces.cli.amounts import id_ranges
from offload_core.interfaces.cli.shared import (
    AsJson,
    AuditLogFile,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    TopicNames,
    Url,
    Yes,
    audit_of,
    err,
    named,
    opened,
    out,
    printable,
    reported,
    size,
)
from offload_core.interfaces.cli.upkeep.rollback_views import (
    deletion_table,
    deletion_to_json,
    listing_table,
    listing_to_json,
    plan_statement,
    plan_table,
    plan_to_json,
)
from offload_core.maintenance.rollback import (
    Allowed,
    JudgedObject,
    Released,
    Verdict,
    delete_judged,
    judge_tier,
    list_streaming,
    plan_rollback,
    release_recorded,
)
from offload_core.metadata.catalogue import TopicName, open_records, parse_topic, require_complete
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_hooks.errors import OptionError


def plan(
    url: Url,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what an old version would not find if it were put back, and what to do before.

    The exit code is 0 if it would find all and keep it, 1 if not, or if that is not known: without records only the
    tier says what there is; 2 if something failed.
    """
    with reported(debug, failed=2), opened(url, driver, option, layer) as tier:
        infos = None if records is None else tier.records(records, named(records_option, "the records"))
        planned = plan_rollback(tier.store, infos, prefix=prefix)
        if as_json:
            typer.echo(json.dumps(plan_to_json(planned), indent=2))
        else:
            if any(topic.streamed for topic in planned.topics):
                out.print(plan_table(planned))
            for line in plan_statement(planned):
                out.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        if not planned.loses_nothing:
            raise typer.Exit(1)


def list_objects(
    url: Url,
    prefix: Prefix = "",
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List all streaming objects of a tier, told apart by key and magic, with what is wrong with them."""
    with reported(debug, failed=2), opened(url, driver, option, layer) as tier:
        found = list_streaming(tier.store, prefix).objects
        if as_json:
            typer.echo(json.dumps(listing_to_json(found), indent=2))
            return
        if found:
            out.print(listing_table(found))
        counts = Counter(each.state for each in found)
        count = sum(each.foreign is None for each in found)
        said = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        total = size(sum(each.size_bytes for each in found if each.foreign is None))
        out.print(f"{count} streaming objects, {total}{f': {said}' if said else ''}", highlight=False)


def delete(
    url: Url,
    yes: Yes = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Also what is a ledger's only copy by its record."),
    ] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="First let the records forget segments of ledgers whose hot copies are there; --records is the URL of "
            "a metadata store that can be written.",
        ),
    ] = False,
    audit_log: AuditLogFile = None,
    topic: TopicNames = None,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Delete streaming objects, never others. What records say to be a ledger's only copy is kept.

    What no record knows is kept in any case. Without --yes, which needs --records of a metadata store, it is shown what
    would become of each. It can be called again after any failure, and goes on. The exit code is 1 if a streaming
    object is kept, or would be deleted; 2 if something failed.
    """
    with reported(debug, failed=2):
        if yes and records is None:
            raise OptionError(
                "whose the objects are, and who needs them, only records tell", expected="--records URL"
            )
        if release and records is None:
            raise OptionError("where are the records whose segments are released?", expected="--records URL")
        log = audit_of(yes, audit_log)
        wanted = [parse_topic(each) for each in topic or ()]
        allowed = Allowed(recorded=not release, loss=accept_loss)
        freed: dict[TopicName, Released] = {}
        with opened(url, driver, option, layer) as tier:

            def read(source: str) -> Mapping[TopicName, ManagedLedgerInfo]:
                given = named(records_option, "the records")
                if not release:
                    with open_records(source, tier.store, tier.options, given) as opened_records:
                        topics = require_complete(opened_records) if yes else opened_records.topics()
                        return opened_records.read(topics)
                with closing(open_metadata_store(source, given)) as store:
                    found = release_recorded(ManagedLedgerRecords(store), wanted, dry_run=not yes)
                freed.update(found.topics)
                return found.infos

            reads = None if records is None else partial(read, records)
            chosen = judge_tier(tier.store, reads, prefix=prefix, topics=wanted)
            done: list[JudgedObject] = []
            try:
                if log is not None and records is not None:
                    given = named(records_option, "the records")
                    with open_records(records, tier.store, tier.options, given) as now:
                        delete_judged(
                            tier.store,
                            chosen,
                            log,
                            allowed=allowed,
                            read_again=now.read,
                            listener=done.append,
                        )
            finally:
                _show(chosen, done if yes else None, allowed, freed, as_json=as_json)
        changed = sum(allowed.allows(each.verdict) for each in chosen) - len(done) if yes else 0
        if changed:
            err.print(
                f"{changed} objects stay, as their records have changed meanwhile: call it again",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )
        would_act = not yes and (
            any(allowed.allows(each.verdict) for each in chosen)
            or any(each.ledger_ids for each in freed.values())
        )
        if changed or would_act or any(allowed.leaves(each.verdict) for each in chosen):
            raise typer.Exit(1)


def _show(
    chosen: Sequence[JudgedObject],
    done: Sequence[JudgedObject] | None,
    allowed: Allowed,
    freed: Mapping[TopicName, Released],
    *,
    as_json: bool,
) -> None:
    if as_json:
        typer.echo(json.dumps(deletion_to_json(chosen, done, allowed, freed), indent=2))
        return
    if chosen:
        out.print(deletion_table(chosen, done, allowed))
    due = [each for each in chosen if allowed.allows(each.verdict)] if done is None else done
    for topic, each in freed.items():
        if each.ledger_ids:
            would = "would be " if done is None else ""
            ledgers = id_ranges(each.ledger_ids)
            out.print(printable(f"{topic}: segments {would}released of ledgers {ledgers}"), highlight=False)
        for ledger_id, why in each.kept.items():
            out.print(
                printable(f"{topic}: ledger {ledger_id} keeps its segments: {why}"),
                markup=False,
                highlight=False,
            )
    total = size(sum(each.object.size_bytes for each in due))
    kept = sum(allowed.leaves(each.verdict) for each in chosen)
    what = "would be deleted; nothing was" if done is None else "deleted"
    out.print(f"{len(due)} streaming objects, {total}, {what}; {kept} kept", highlight=False)
    named_still = sum(each.verdict is Verdict.HOT for each in due)
    if named_still:
        err.print(
            f"{named_still} of them are named by records, whose ledgers have hot copies: release their segments "
            "(--release), or these are taken for offloaded.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


def rollback_group() -> typer.Typer:
    """The commands `offload rollback`."""
    app = typer.Typer(no_args_is_help=True, help="The way back from streaming offload.")
    app.command()(plan)
    app.command("list")(list_objects)
    app.command()(delete)
    return app
