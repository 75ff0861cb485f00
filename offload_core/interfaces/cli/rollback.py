"""`offload rollback plan`, `list` and `delete`: the way back from streaming offload."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import (
    AsJson,
    ChangeOptions,
    Prefix,
    RecordOptions,
    RecordsOpener,
    TierOptions,
    Topics,
    command,
)
from offload_core.interfaces.cli.nothing_found import chosen_topics, nothing_at
from offload_core.interfaces.cli.terminal import (
    cell,
    id_ranges,
    out,
    print_line,
    print_note,
    print_table,
    printable,
    size,
    time,
    warn,
)
from offload_core.maintenance.rollback import (
    Allowed,
    JudgedObject,
    Need,
    PlannedLedger,
    PlannedTopic,
    Released,
    RollbackPlan,
    StreamingObject,
    Verdict,
    delete_judged,
    judge_tier,
    list_streaming,
    plan_rollback,
    release_recorded,
)
from offload_core.metadata.catalogue import UNKNOWN_TOPIC, TopicName, require_complete
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store


@command(failed=2)
def plan(where: TierOptions, records: RecordOptions, prefix: Prefix = "", as_json: AsJson = False) -> None:
    """Show what an old version would not find if it were put back, and what to do before.

    The exit code is 0 if it would find and keep everything, 1 if not, or if that is not known, as without records; 2 if
    something failed.
    """
    with where.open() as tier:
        planned = plan_rollback(tier.store, records.read(tier), prefix=prefix)
        if as_json:
            typer.echo(json.dumps(plan_to_json(planned), indent=2))
        else:
            if any(topic.streamed for topic in planned.topics):
                print_table(plan_table(planned), drop=_LEAST_NEEDED, prose=("what to do",))
            for line in plan_statement(planned):
                print_line(line)
        if not planned.topics:
            warn(nothing_at(tier.store, prefix))
        if not planned.loses_nothing:
            raise typer.Exit(1)


@command(failed=2)
def list_objects(where: TierOptions, prefix: Prefix = "", as_json: AsJson = False) -> None:
    """List all streaming objects of a tier, by key and magic, and what is wrong with them."""
    with where.open() as tier:
        found = list_streaming(tier.store, prefix).objects
        if as_json:
            typer.echo(json.dumps(listing_to_json(found), indent=2))
            return
        if found:
            print_table(listing_table(found), drop=("newest", "size", "ledgers"), prose=("what is wrong",))
        counts = Counter(each.state for each in found)
        count = sum(each.foreign is None for each in found)
        counted = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        total = size(sum(each.size_bytes for each in found if each.foreign is None))
        objects, of_each = count_text(count, "streaming object"), f": {counted}" if counted else ""
        out.print(f"{objects}, {total}{of_each}", highlight=False)


@command(failed=2)
def delete(
    where: TierOptions,
    records: RecordOptions,
    changes: ChangeOptions,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also what is a ledger's only copy by its record.")
    ] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="First let the records forget segments of ledgers whose hot copies are there; --records is the URL of "
            "a metadata store that can be written.",
        ),
    ] = False,
    topic: Topics = None,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Delete streaming objects, and no others; keep a ledger's only copy by its record.

    Objects that no record names are kept in any case. Without --yes, which needs --records of a metadata store, the
    command shows what it would do with each. It can be called again after any failure, and goes on. The exit code is 1
    if a streaming object is kept, or would be deleted; 2 if something failed.
    """
    if changes.yes:
        records.require("only records tell which objects are needed")
    if release:
        records.require("segments are released in records")
    log = changes.open_log()
    allowed = Allowed(recorded=not release, loss=accept_loss)
    freed: dict[TopicName, Released] = {}
    with where.open() as tier:
        opener = records.opener(tier)
        wanted = chosen_topics(tier, topic, opener)

        def read(source: str, opener: RecordsOpener) -> Mapping[TopicName, ManagedLedgerInfo]:
            if not release:
                with opener() as opened_records:
                    topics = require_complete(opened_records) if changes.yes else opened_records.topics()
                    return opened_records.read(topics)
            with closing(open_metadata_store(source, records.given())) as store:
                found = release_recorded(ManagedLedgerRecords(store), wanted, dry_run=not changes.yes)
            freed.update(found.topics)
            return found.infos

        reads = None
        if records.records is not None and opener is not None:
            reads = partial(read, records.records, opener)
        chosen = judge_tier(tier.store, reads, prefix=prefix, topics=wanted)
        done: list[JudgedObject] = []
        try:
            if log is not None and opener is not None:
                with opener() as now:
                    delete_judged(
                        tier.store, chosen, log, allowed=allowed, read_again=now.read, listener=done.append
                    )
        finally:
            _show(chosen, done if changes.yes else None, allowed, freed, as_json=as_json)
    changed = sum(allowed.allows(each.verdict) for each in chosen) - len(done) if changes.yes else 0
    if changed:
        objects = count_text(changed, "object")
        print_note(f"{objects} kept, since records have changed meanwhile: call it again", "yellow")
    would_act = not changes.yes and (
        any(allowed.allows(each.verdict) for each in chosen)
        or any(each.ledger_ids for each in freed.values())
    )
    if not as_json:
        changes.show_next_step(would_act)
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
        print_table(deletion_table(chosen, done, allowed), drop=("ledgers", "size"), prose=("why",))
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
    if not chosen:
        print_line("no streaming objects")
        return
    out.print(f"{count_text(len(due), 'streaming object')}, {total}, {what}; {kept} kept", highlight=False)
    named_still = sum(each.verdict is Verdict.HOT for each in due)
    if named_still:
        print_note(
            f"{named_still} of them are named by records, whose ledgers have hot copies: release their segments "
            "(--release), or these are taken for offloaded.",
            "yellow",
        )


def rollback_group() -> typer.Typer:
    """The commands `offload rollback`."""
    app = CommandGroup("Go back from streaming offload to a version without it.")
    app.command()(plan)
    app.command("list")(list_objects)
    app.command()(delete)
    return app


_ADVICE = {
    Need.NOTHING: "nothing: it is being deleted",
    Need.RELEASE: "keep its hot copy; release its segments",
    Need.FINISH: "keep its hot copy; wait until ledger and segment are closed, then release",
    Need.ONLY_COPY: "its only copy is in streaming objects",
    Need.UNKNOWN: "look at its record",
}


# --- plan --------------------------------------------------------------------------------------


_LEAST_NEEDED = ("stored", "in segments", "size", "entries")


def plan_table(planned: RollbackPlan) -> Table:
    """A line for each ledger with segments."""
    table = Table(box=None, pad_edge=False)
    table.add_column("topic", overflow="fold")
    for name in ("ledger", "entries", "size", "in segments", "stored"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("segments", "hot copy", "what to do"):
        table.add_column(name)
    for topic in planned.topics:
        for ledger in topic.streamed:
            table.add_row(
                cell(_label(topic).removeprefix("persistent://")),
                str(ledger.ledger_id),
                _count(ledger.entries),
                size(ledger.size_bytes),
                _count(ledger.streamed_entries),
                size(ledger.streamed_bytes),
                _coverage(ledger),
                {True: "there", False: "gone", None: "not known"}[ledger.hot_copy],
                cell("; ".join([_advice(ledger), *ledger.problems])),
            )
    return table


def plan_statement(planned: RollbackPlan) -> Iterator[str]:
    """Yield the conclusions; the last line is the answer."""
    ledgers = count_text(sum(topic.ledger_count for topic in planned.topics), "ledger")
    topics = count_text(len(planned.topics), "topic")
    streamed = [ledger for topic in planned.topics for ledger in topic.streamed]
    yield f"{ledgers} of {topics}; {len(streamed)} of them have streaming segments"
    if not planned.knows_records:
        yield "without records it is not known which ledgers have hot copies, and what their records name"
        if planned.unread:
            unread = count_text(planned.unread, "streaming object")
            yield f"{unread} cannot be read: which ledgers lie there is not known"
    for need, advice in (
        (Need.RELEASE, "have hot copies: keep these, and release their segments"),
        (Need.FINISH, "have hot copies and a segment or ledger that is open: wait for these"),
        (Need.ONLY_COPY, "are in streaming objects only: an old version will not find them"),
    ):
        needy = planned.of(need)
        if needy:
            yield f"{count_text(len(needy), 'ledger')}, {_amount(needy)}, {advice}"
    unseen = [ledger for ledger in streamed if ledger.unseen_entries]
    if unseen:
        entries = count_text(sum(ledger.unseen_entries or 0 for ledger in unseen), "entry")
        yield f"an old version, put back now, would not find {entries} of {count_text(len(unseen), 'ledger')}"
    if planned.loses_nothing:
        yield "Rolling back loses nothing."
    elif not planned.knows_records:
        yield "Whether rolling back loses something is not known."
    elif planned.of(Need.ONLY_COPY):
        yield "Rolling back loses data."
    else:
        yield "Rolling back loses nothing once these segments are released; not yet."


def plan_to_json(planned: RollbackPlan) -> dict[str, Any]:
    """All of it."""
    return {
        "records": planned.knows_records,
        "loses_nothing": planned.loses_nothing,
        "unread_objects": planned.unread,
        "needs": {need.value: len(planned.of(need)) for need in Need},
        "topics": [
            {
                "topic": None if topic.name is None else topic.name.full,
                "cluster": topic.cluster,
                "ledgers": topic.ledger_count,
                "streamed": [_ledger_to_json(ledger) for ledger in topic.streamed],
            }
            for topic in planned.topics
        ],
    }


def _ledger_to_json(ledger: PlannedLedger) -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "need": ledger.need.value,
        "segments": None if ledger.coverage is None else ledger.coverage.value,
        "closed": ledger.is_closed,
        "hot_copy": ledger.hot_copy,
        "one_object": ledger.one_object,
        "entries": ledger.entries,
        "size_bytes": ledger.size_bytes,
        "streamed_entries": ledger.streamed_entries,
        "streamed_bytes": ledger.streamed_bytes,
        "unseen_entries": ledger.unseen_entries,
        "problems": list(ledger.problems),
    }


def _label(topic: PlannedTopic) -> str:
    return UNKNOWN_TOPIC if topic.name is None else topic.name.full


def _coverage(ledger: PlannedLedger) -> str:
    if ledger.coverage is None:
        return "–"
    return ledger.coverage.value if ledger.is_closed else f"{ledger.coverage.value}, ledger open"


def _advice(ledger: PlannedLedger) -> str:
    return f"{_ADVICE[ledger.need]}{'; a one-object copy is there as well' if ledger.one_object else ''}"


def _amount(ledgers: Sequence[PlannedLedger]) -> str:
    entries = count_text(sum(ledger.entries or 0 for ledger in ledgers), "entry")
    return f"{entries}, {size(sum(ledger.size_bytes or 0 for ledger in ledgers))}"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


# --- list --------------------------------------------------------------------------------------


def listing_table(found: Sequence[StreamingObject]) -> Table:
    """A line for each streaming object."""
    table = Table("data object", "topic", "ledgers", box=None, pad_edge=False)
    table.add_column("size", justify="right", no_wrap=True)
    for name in ("newest", "state", "what is wrong"):
        table.add_column(name)
    for each in found:
        modified = each.stored.modified_at
        table.add_row(
            cell(each.key.data_key),
            cell((_topic(each) or UNKNOWN_TOPIC).removeprefix("persistent://")),
            id_ranges(each.ledger_ids) or "–",
            size(each.size_bytes),
            "–" if modified is None else time(modified),
            each.state,
            cell(each.detail),
        )
    return table


def listing_to_json(found: Sequence[StreamingObject]) -> dict[str, Any]:
    """All of it, with counts."""
    return {"objects": [_object_to_json(each) for each in found]}


def _object_to_json(each: StreamingObject) -> dict[str, Any]:
    return {
        "key": each.key.data_key,
        "topic": _topic(each),
        "cluster": each.stored.cluster,
        "ledgers": list(each.ledger_ids),
        "data_bytes": each.stored.data_bytes,
        "index_bytes": each.stored.index_bytes,
        "modified_at": each.stored.modified_at.isoformat() if each.stored.modified_at else None,
        "state": each.state,
        "detail": each.detail,
    }


def _topic(each: StreamingObject) -> str | None:
    name = each.stored.managed_ledger
    return None if name is None else topic_of_managed_ledger(name).full


# --- delete ------------------------------------------------------------------------------------


def deletion_table(
    chosen: Sequence[JudgedObject], done: Sequence[JudgedObject] | None, allowed: Allowed
) -> Table:
    """A line for each streaming object; `done` None if nothing was to be deleted yet."""
    table = Table("data object", "topic", "ledgers", box=None, pad_edge=False)
    table.add_column("size", justify="right", no_wrap=True)
    for name in ("what", "why"):
        table.add_column(name)
    deleted = {each.object.key for each in done or ()}
    for each in chosen:
        topics = ", ".join(topic.full.removeprefix("persistent://") for topic in each.topics)
        table.add_row(
            cell(each.object.key.data_key),
            cell(topics or UNKNOWN_TOPIC),
            id_ranges([ledger.ledger_id for ledger in each.ledgers]) or "–",
            size(each.object.size_bytes),
            _what(each, done is None, deleted, allowed),
            cell(each.why),
        )
    return table


def _what(each: JudgedObject, is_dry_run: bool, deleted: set[Any], allowed: Allowed) -> str:
    if not allowed.allows(each.verdict):
        return "kept"
    if is_dry_run:
        return "would be deleted"
    return "deleted" if each.object.key in deleted else "not deleted yet"


def deletion_to_json(
    chosen: Sequence[JudgedObject],
    done: Sequence[JudgedObject] | None,
    allowed: Allowed,
    freed: Mapping[TopicName, Released],
) -> dict[str, Any]:
    """All of it, with counts."""
    deleted = {each.object.key for each in done or ()}
    due = [each for each in chosen if allowed.allows(each.verdict)]
    counted = due if done is None else done
    return {
        "dry_run": done is None,
        "count": len(counted),
        "size_bytes": sum(each.object.size_bytes for each in counted),
        "released": {str(topic): list(each.ledger_ids) for topic, each in freed.items()},
        "not_released": {
            str(topic): {str(ledger_id): why for ledger_id, why in each.kept.items()}
            for topic, each in freed.items()
        },
        "objects": [
            {
                **_object_to_json(each.object),
                "verdict": each.verdict.value,
                "why": each.why,
                "is_due": allowed.allows(each.verdict),
                "is_deleted": each.object.key in deleted,
                "judged": [
                    {
                        "ledger": ledger.ledger_id,
                        "topic": None if ledger.topic is None else ledger.topic.full,
                        "verdict": ledger.verdict.value,
                        "why": ledger.why,
                    }
                    for ledger in each.ledgers
                ],
            }
            for each in chosen
        ],
    }
