"""`offload gc`: find objects that no record needs, and delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_options import (
    AsJson,
    ChangeOptions,
    Namespaces,
    OptionGroup,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
    parse_seconds,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import FoundTopics, nothing_at, topic_filter
from offload_core.interfaces.cli.terminal import (
    cell,
    err,
    print_failure,
    print_line,
    print_streamed,
    print_table,
    size,
    table_of,
    warn,
)
from offload_core.maintenance.gc import Collection, CollectionSummary, RemovalOutcome, Scope, measure_clock
from offload_core.metadata.catalogue import TopicName, require_complete
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError

REPORT_VERSION = 1
LEAST_GRACE_S = 3600
"""A shorter grace needs the user's word that no other process writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageRecords(RecordOptions):
    """Records of all managed ledgers, which name the needed objects."""

    records: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The metadata store with the records of all managed ledgers: zk:HOST:2181, sqlite:PATH. By others, "
            "such as a broker's admin REST or files, there is only a report.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeOptions(OptionGroup):
    """Age and owner of what may be deleted."""

    title = "What is collected"

    grace: Annotated[
        str, typer.Option(help="Only what is so old, by the store's clock: 86400, 36h, 7d; an hour at least.")
    ] = "1d"
    accept_short_grace: Annotated[
        bool,
        typer.Option("--accept-short-grace", help="Less than an hour: nothing else is at work on this tier."),
    ] = False
    clock_skew: Annotated[
        str | None,
        typer.Option(
            help="How far the store's clock may be from this machine's; without it, with --yes it is measured, by an "
            "object that is written and deleted, and 5m are taken for it in a dry run."
        ),
    ] = None
    not_shared: Annotated[
        bool,
        typer.Option(
            "--not-shared",
            help="Only the cluster of these records writes to this tier, or below this prefix: so what names no "
            "cluster is its, too.",
        ),
    ] = False

    def scope(self, prefix: str, wants: Callable[[TopicName | None], bool] | None) -> Scope:
        """Return the scope; `OptionError` for a grace period that is too short and not accepted."""
        grace_s = _seconds(self.grace, "--grace")
        if grace_s < LEAST_GRACE_S and not self.accept_short_grace:
            raise OptionError(
                "what is younger than an hour may be needed in a moment",
                expected="--grace 1h or more, or --accept-short-grace",
                found=self.grace,
            )
        grace = timedelta(seconds=grace_s)
        scope = Scope(prefix=prefix, wants=wants, grace=grace, is_shared=not self.not_shared)
        if self.clock_skew is None:
            return scope
        return replace(scope, clock_skew=timedelta(seconds=_seconds(self.clock_skew, "--clock-skew")))


@command(failed=2)
def gc(
    where: TierOptions,
    records: GarbageRecords,
    scope_options: ScopeOptions,
    changes: ChangeOptions,
    take_stand_ins: Annotated[
        bool,
        typer.Option(
            "--take-stand-ins",
            help="What relocate --mapping or repair made to stand in for copies that records name goes as well: no "
            "mapping is used any more.",
        ),
    ] = False,
    moved_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Another tier that records name copies in, such as where relocate moved them: old ones go if the new "
            "ones are there and whole.",
        ),
    ] = None,
    moved_to_driver: Annotated[str | None, typer.Option(help="As --driver, of --moved-to.")] = None,
    moved_to_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="As --option, of --moved-to; may be given again."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="At most so many are found, or with --yes deleted; the next time it goes on."
        ),
    ] = None,
    topic: Topics = None,
    namespace: Namespaces = None,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Find what no managed ledger's record needs; with --yes delete it.

    Orphans, objects of deleted topics, attempts that failed or were left, copies that others took the place of, halves
    of pairs and stale uploads. What may be another cluster's, or a ledger's last copy, is kept, and counted. It can be
    called again after any failure, and goes on. The exit code is 0 if no garbage is left, 1 if some is, 2 if something
    failed.

    Examples:
        offload gc s3://bucket/prefix --records zk://zk-1:2181/pulsar
        offload gc s3://bucket/prefix --records zk://zk-1:2181/pulsar --yes --audit-log audit.jsonl
    """
    records.require("only records tell which copies are needed")
    wants = topic_filter(topic, namespace)
    scope = replace(scope_options.scope(prefix, wants), takes_stand_ins=take_stand_ins)
    seen = FoundTopics.of(topic, namespace)
    with (
        where.open() as tier,
        _elsewhere(moved_to, moved_to_driver, moved_to_option, where.layer) as elsewhere,
        long_work("reading", go_on="The next call goes on with what is left.", logs=True) as work,
    ):
        opener = records.opener(tier)
        assert opener is not None
        if changes.yes:
            with opener() as opened_records:
                require_complete(opened_records)  # before there is an audit log
        log = changes.open_log()
        if log is not None and scope_options.clock_skew is None:
            scope = scope.with_lead(measure_clock(tier.store, log, scope.folder))
        collection = Collection(
            tier.store, opener, scope, elsewhere=elsewhere, listener=lambda now: work.update(_progress(now))
        )
        outcomes = collection.report(limit=limit) if log is None else collection.collect(log, limit=limit)
        about = {"tier": tier.store.describe().location, "dry_run": not changes.yes}
        show(
            seen.watch(outcomes, lambda each: each.garbage.topic), collection.summary, about, as_json=as_json
        )
        if not as_json and collection.summary.why_incomplete is None:
            changes.show_next_step(collection.summary.garbage)
        if not (collection.summary.objects or collection.summary.uploads):
            warn(nothing_at(tier.store, prefix))
        if seen.missing:
            with opener() as opened_records:
                for each in opened_records.topics():
                    seen.note(each)
        if seen.missing:
            warn(f"there is neither a record nor garbage of {' or '.join(seen.missing)}")
    finish(collection.summary)


@contextmanager
def _elsewhere(
    url: str | None, driver: str | None, option: list[str] | None, layer: list[str] | None
) -> Iterator[list[Tier]]:
    """The tier that copies were moved to, if one was given; with a warning if nothing lies there."""
    if url is None:
        if driver or option:
            raise OptionError("options without a tier", expected="--moved-to URL")
        yield []
        return
    elsewhere = TierOptions(url=url, driver=driver, option=option, layer=layer)
    with elsewhere.open() as there:
        if next(there.store.list_objects(), None) is None:
            warn(nothing_at(there.store, ""))
        yield [there.store]


def finish(summary: CollectionSummary) -> None:
    """Print failures, and end with the exit code."""
    for error in summary.failures:
        print_failure(f"failed: {error}")
    if summary.failed:
        raise typer.Exit(2)
    if summary.left or summary.is_limited:
        raise typer.Exit(1)


def _seconds(text: str, option: str) -> int:
    seconds = parse_seconds(text)
    if seconds < 0:
        raise OptionError(f"{option} is no duration", expected="86400, 36h, 7d", found=text)
    return seconds


# --- showing -------------------------------------------------------------------------------------

_SHOWN = 1000


def show(
    outcomes: Iterator[RemovalOutcome], summary: CollectionSummary, about: dict[str, Any], *, as_json: bool
) -> None:
    """Print all outcomes as JSON, or the first as text; and the summary."""
    if as_json:
        print_streamed(_to_json(outcomes, summary, about))
        return
    now = datetime.now(timezone.utc)
    table = table_of("garbage", "what", "of", "size", "age", "")
    count = 0
    for outcome in outcomes:
        count += 1
        if count <= _SHOWN:
            table.add_row(*_row(outcome, now))
    if table.row_count:
        print_table(table, drop=("age", "size"))
    if count > _SHOWN:
        err.print(f"{count - _SHOWN:,} more; for all ask with --json", highlight=False)
    for line in summary_lines(summary, is_dry=bool(about["dry_run"])):
        print_line(line)


def _row(outcome: RemovalOutcome, now: datetime) -> list[Any]:
    garbage = outcome.garbage
    place = garbage.key or "(no key)"
    if garbage.upload is not None:
        place = f"{place}, upload {garbage.upload.upload_id}"
    what = "deleted" if outcome.is_deleted else outcome.why_kept or ""
    hours = (now - garbage.modified_at).total_seconds() / 3600
    return [
        cell(garbage.kind.value),
        cell(place),
        cell(None if garbage.topic is None else garbage.topic.full.removeprefix("persistent://")),
        size(garbage.size_bytes),
        f"{hours / 24:,.0f} d" if hours >= 48 else f"{hours:,.0f} h",
        cell(what),
    ]


def summary_lines(summary: CollectionSummary, *, is_dry: bool) -> Iterator[str]:
    """The result in a few sentences."""
    yield (
        f"{count_text(summary.objects, 'object')}, {size(summary.object_bytes)}, "
        f"{count_text(summary.uploads, 'upload')}; records of {count_text(summary.topics, 'topic')}"
    )
    for kind, count in sorted(summary.garbage.items(), key=lambda each: each[0].value):
        yield f"  {kind.value}: {count:,}, {size(summary.garbage_bytes[kind])}: {kind.meaning}"
    for count, what in (
        (summary.younger, "not old enough"),
        (summary.live, "of attempts whose lease is held"),
        (summary.nameless, "that no record names, and that name no topic"),
    ):
        if count:
            yield f"  kept: {count:,} {what}"
    for word, counts in (("kept", summary.kept), ("unknown", summary.unknown)):
        for why, count in sorted(counts.items()):
            if count:
                known = f", {size(summary.kept_bytes[why])}" if why in summary.kept_bytes else ""
                yield f"  {word}: {count:,}{known}: {why}"
    found, total = summary.garbage.total(), sum(summary.garbage_bytes.values())
    if is_dry and not found:
        yield "no garbage was found"
    elif is_dry:
        yield f"{found:,} would be deleted, {size(total)}; nothing was"
    else:
        deleted = sum(summary.deleted_bytes.values())
        yield f"{summary.deleted.total():,} deleted, {size(deleted)}; {summary.left:,} left"
    if summary.is_limited:
        yield "more is left, beyond the limit"
    if summary.why_incomplete is not None:
        yield f"nothing is deleted by this: {summary.why_incomplete}"


def _progress(now: CollectionSummary) -> str:
    deleted = f", {now.deleted.total():,} deleted" if now.deleted else ""
    topics = f", {now.topics:,} topics" if now.topics else ""
    return f"{now.objects:,} objects{topics}, {now.garbage.total():,} garbage{deleted}"


def _to_json(
    outcomes: Iterator[RemovalOutcome], summary: CollectionSummary, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the report for `print_streamed`: garbage may be much, and its summary is known after it."""
    now = datetime.now(timezone.utc)
    return {
        "version": REPORT_VERSION,
        **about,
        "garbage": (
            each.garbage.to_json(now) | {"is_deleted": each.is_deleted, "why_kept": each.why_kept}
            for each in outcomes
        ),
        "failures": lambda: [str(error) for error in summary.failures],
        "summary": lambda: {
            "objects": summary.objects,
            "object_bytes": summary.object_bytes,
            "uploads": summary.uploads,
            "topics": summary.topics,
            "garbage": {kind.value: count for kind, count in summary.garbage.items()},
            "garbage_bytes": sum(summary.garbage_bytes.values()),
            "deleted": {kind.value: count for kind, count in summary.deleted.items()},
            "deleted_bytes": sum(summary.deleted_bytes.values()),
            "left": summary.left,
            "is_limited": summary.is_limited,
            "younger": summary.younger,
            "live": summary.live,
            "kept": {why: count for why, count in summary.kept.items() if count},
            "kept_bytes": dict(summary.kept_bytes),
            "unknown": dict(summary.unknown),
            "nameless": summary.nameless,
            "why_incomplete": summary.why_incomplete,
            "failed": summary.failed,
        },
    }
