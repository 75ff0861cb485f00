"""`offload repair`: repair damaged objects as far as their bytes allow, after a dry run that prints the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.interfaces.cli.command_options import (
    AsJson,
    ChangeOptions,
    ExecutorOptions,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
)
from offload_core.interfaces.cli.configured import ConfigFile, metadata_flags, open_service
from offload_core.interfaces.cli.given_copies import (
    TopicCopies,
    copies_to_json,
    finish_copies,
    give_copies,
    open_live,
    show_copies,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import chosen_topics, nothing_at
from offload_core.interfaces.cli.terminal import cell, print_failure, print_line, print_table, table_of, warn
from offload_core.maintenance.live import LiveReplacements
from offload_core.maintenance.repair import Action, HotCopies, PlannedRepair, Repair, Repaired
from offload_core.maintenance.repair.pair_changes import pulsars_bits
from offload_core.maintenance.repair.repair_plan import OpenRecords
from offload_core.maintenance.verify import Code
from offload_core.metadata.catalogue import TierReader
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import is_chosen, topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import Environment
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import OffloadError, OptionError


@command(failed=2)
def repair(
    where: TierOptions,
    records: RecordOptions,
    changes: ChangeOptions,
    executors: ExecutorOptions,
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="Only these objects, by the keys of data or index.", show_default=False),
    ] = None,
    ledger: Annotated[
        list[int] | None, typer.Option("--ledger", help="Only objects of this ledger; may be given again.")
    ] = None,
    topic: Topics = None,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Move what was replaced, or cannot be saved, under quarantine/, unless --records names it. Without "
            "--records make sure that no broker reads it.",
        ),
    ] = False,
    switch_records: Annotated[
        bool,
        typer.Option(
            "--switch-records",
            help="Records that name a copy that is saved are to name the new one, and those that count wrongly are "
            "corrected; --records is the URL of a metadata store that is ours, not a broker's.",
        ),
    ] = False,
    offload_again: Annotated[
        bool,
        typer.Option(
            "--offload-again",
            help="Copies that are damaged or gone, and whose hot ones are there, are offloaded again; with "
            "--switch-records, and the service's configuration.",
        ),
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="The records of the running cluster in the settings are to name the new copies that are whole, and "
            "its brokers are seen to read them.",
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Records name a copy that lacks entries also while its ledger's hot copy has them; without it that "
            "hot copy is kept, and --offload-again is what mends it.",
        ),
    ] = False,
    config: ConfigFile = None,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Rebuild indexes, save what damaged objects still hold into new ones, and quarantine the rest.

    Everything is verified first, to the last byte. Without --yes the command shows what it would do. The exit code is
    0 if nothing is left to be done, 1 if something is, 2 if something failed.

    Examples:
        offload repair s3://bucket/prefix
        offload repair s3://bucket/prefix --yes --audit-log audit.jsonl
    """
    with ExitStack() as held:
        if live and (records.records or switch_records or quarantine or accept_loss):
            raise OptionError(
                "a running cluster's records are in the settings; they get whole copies only, and what they named is "
                "not put aside",
                expected="--live without --records, --switch-records, --quarantine, --accept-loss",
            )
        if switch_records and records.records is None:
            raise OptionError("new copies need records to name them", expected="--records URL")
        if offload_again and not (switch_records or live):
            raise OptionError(
                "records are to name what is offloaded again", expected="--switch-records or --live"
            )
        if accept_loss and not switch_records:
            raise OptionError("records are to name copies that lack entries", expected="--switch-records")
        log = changes.open_log()
        tier = held.enter_context(where.open())
        if live:
            recorded = _of_live(held.enter_context(open_live(config, [tier.store], log)), tier.store)
        else:
            recorded = held.enter_context(
                _opened(tier, records, config, switches=switch_records, needs_hot=offload_again)
            )
        wanted = chosen_topics(tier, topic, recorded.opener)
        unfinished = [] if recorded.live is None or log is None else finish_copies(recorded.live, wanted)
        work = Repair(
            tier.store,
            prefix=prefix,
            keys=[_key(each) for each in keys or ()],
            ledger_ids=ledger or (),
            topics=wanted,
            records=recorded.opener,
            ours=recorded.ours,
            why_not_live=recorded.why_not_live,
            hot=recorded.hot,
            offload_again=offload_again,
            accept_loss=accept_loss,
            quarantine=quarantine,
            executor=held.enter_context(executors.open()),
        )
        shown = held.enter_context(
            long_work(
                "verifying", go_on="What was repaired stays; the next call goes on with the rest.", logs=True
            )
        )
        planned = list(work.plan())
        whole = sum(bool(each.changes) for each in planned)
        if log is not None and whole:
            shown.begin("repairing")
        done: dict[int, Repaired | OffloadError] = {}
        given: list[TopicCopies] = []
        try:
            for number, each in enumerate(planned):
                if log is not None and each.changes:
                    done[number] = _do(work, each, log)
                    shown.update(f"{len(done)} of {whole} objects")
            if recorded.live is not None and log is not None:
                waiting = [each for each in recorded.live.unfinished() if is_chosen(each, wanted)]
                given = unfinished + [give_copies(recorded.live, each) for each in waiting]
        finally:
            show(planned, done if changes.yes else None, given, live=live, as_json=as_json)
        if not as_json:
            changes.show_next_step(any(each.changes for each in planned))
        if not planned and next(tier.store.list_objects(prefix), None) is None:
            warn(nothing_at(tier.store, prefix))
        if any(is_left(each, done.get(number)) for number, each in enumerate(planned)):
            raise typer.Exit(1)
        if any(each.is_left for each in given):
            raise typer.Exit(1)


def _do(work: Repair, planned: PlannedRepair, log: AuditLog) -> Repaired | OffloadError:
    """Make one repair; return its error, so that the others go on."""
    try:
        return work.do(planned, log)
    except OffloadError as error:
        return error.at(key=planned.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RepairedRecords:
    """Records, as `Repair` takes them, and hot copies.

    Attributes:
        live: of a running cluster, what its records are changed by. why_not_live: see `Repair`.
    """

    opener: OpenRecords | None
    ours: ManagedLedgerRecords | None = None
    hot: HotCopies | None = None
    live: LiveReplacements | None = None
    why_not_live: Callable[[str], str | None] | None = None


@contextmanager
def _opened(
    tier: TierReader, records: RecordOptions, config: Path | None, *, switches: bool, needs_hot: bool
) -> Iterator[_RepairedRecords]:
    """The records of the command, and the hot copies of the service of the settings."""
    with ExitStack() as held:
        ours = hot = None
        if switches:
            store = open_metadata_store(records.require("new copies need records"), records.given())
            ours = ManagedLedgerRecords(held.enter_context(closing(store)))
        if needs_hot or config is not None:
            metadata = metadata_flags(records.records, records.records_option)
            opened = held.enter_context(open_service(load_configuration(config, metadata)))
            hot = _hot(*opened)
        yield _RepairedRecords(opener=records.opener(tier), ours=ours, hot=hot)


def _of_live(live: LiveReplacements, tier: Tier) -> _RepairedRecords:
    """The records of a running cluster, and its hot copies."""

    @cache
    def why_not(name: str) -> str | None:
        copies = live.copies(topic_of_managed_ledger(name))
        try:
            copies.readable_filter()
        except OptionError as error:
            return str(error)
        return copies.why_unreadable(tier_record(tier))

    return _RepairedRecords(
        opener=live.open_records,
        ours=live.mirror.records,
        hot=_hot(live.mirror, live.policies),
        live=live,
        why_not_live=why_not,
    )


def _hot(environment: Environment, policies: PolicyStore) -> HotCopies:
    def offloader_of(tier: Tier, name: str) -> LedgerOffloader:
        holding = policies.resolve(topic_of_managed_ledger(name)).offload
        return LedgerOffloader(
            tier,
            max_block_bytes=holding.max_block_bytes,
            parts_in_flight=holding.max_threads,
            checksums=holding.writes_checksums,
        )

    return HotCopies(environment=environment, offloader_of=offloader_of)


def _key(text: str) -> ObjectKey:
    key = parse_key(text)
    if key is None:
        raise OptionError("this is no key of an offloaded object", key=text)
    return key


REPORT_VERSION = 1


def is_left(planned: PlannedRepair, done: Repaired | OffloadError | None) -> bool:
    """True if one still needs work: keeping a hot copy repairs nothing."""
    if planned.choice.action is Action.KEEP_HOT:
        return True
    return not isinstance(done, Repaired) and not planned.is_done


def to_json(
    planned: PlannedRepair, was: Repaired | OffloadError | None, *, live: bool = False
) -> dict[str, Any]:
    """One repair as the report has it; docs/repair.md."""
    lost, counts, done = planned.lost, planned.counts, was if isinstance(was, Repaired) else None
    error = was if isinstance(was, OffloadError) else planned.failure
    return {
        "key": planned.key,
        "topic": planned.recorded,
        "codes": sorted({finding.code.value for finding in planned.findings}),
        "action": planned.choice.action.value,
        "why": planned.choice.why,
        "entries": planned.entries,
        "lost": None if lost is None else lost.count,
        "lost_entries": None if lost is None or not lost.count else lost.pack(),
        "target": planned.target,
        "other": planned.other,
        "is_done": planned.is_done or done is not None,
        "written": [] if done is None else list(done.written),
        "moved": [] if done is None else list(done.moved),
        "counts": None
        if counts is None
        else {
            "ledger": counts.ledger_id,
            "before": {"entries": counts.before.entries, "size_bytes": counts.before.size_bytes},
            "after": {"entries": counts.after.entries, "size_bytes": counts.after.size_bytes},
        },
        "error": None if error is None else str(error),
        "by_hand": by_hand(planned, live=live),
    }


def by_hand(planned: PlannedRepair, *, live: bool = False) -> list[str]:
    """Return the steps that are left to the user; `live` of a running cluster's records."""
    notes = []
    new = planned.target or planned.other
    if planned.recorded is not None and new is not None and not planned.is_switched:
        key = parse_key(new)
        assert key is not None
        most, least = pulsars_bits(key.uuid)
        lost = "" if planned.other else "; a broker fails at lost entries"
        notes.append(
            f"the record of {planned.recorded} names the damaged copy; --switch-records changes one that is ours, and "
            f"--live a running cluster's, of a copy that is no MapFile. In a broker's, its offload context must have "
            f"uidMsb {most} and uidLsb {least}{lost}"
        )
    is_other = planned.choice.action is Action.OTHER_COPY
    if is_other and planned.recorded is None and not planned.is_moved and not live:
        notes.append("readers without records read the newest copy: --quarantine puts this one aside")
    is_gone = any(finding.code is Code.NO_OBJECT for finding in planned.findings)
    lacks = planned.choice.action in (Action.NOT_SAVABLE, Action.SALVAGE, Action.KEEP_HOT)
    if planned.hot and (lacks or (is_gone and planned.choice.action is Action.LEAVE)):
        ids = ", ".join(map(str, planned.hot))
        notes.append(
            f"by its record the hot copy of ledger {ids} is there: keep it, and offload it again{_again(planned)}"
        )
    if planned.choice.action is Action.KEEP_HOT and live:
        notes.append(
            "brokers delete its hot copy after their lag: --offload-again makes a new copy of it before"
        )
    elif planned.choice.action is Action.KEEP_HOT:
        notes.append(
            "its record goes on naming it, and its hot copy is not deleted until another copy takes its place; "
            "--accept-loss has the record name what can be saved all the same"
        )
    if planned.choice.action is Action.NOT_SAVABLE and not planned.hot:
        aside = "" if planned.is_moved else ", or put it aside by --quarantine"
        notes.append(f"put the object back from a backup or a versioned bucket{aside}")
    if planned.counts is not None and planned.choice.action is not Action.CORRECT_COUNTS:
        counts = planned.counts
        notes.append(
            f"the record of {planned.recorded} must say of ledger {counts.ledger_id}: {counts.after}; it says "
            f"{counts.before}. --switch-records corrects one that is ours; of a broker's, compare with "
            f"`bookkeeper shell ledgermetadata -ledgerid {counts.ledger_id}` where the hot copy is there"
        )
    return notes


def _again(planned: PlannedRepair) -> str:
    """Return how to offload a ledger again: with its record, or, of segments, once these are released."""
    key = None if planned.key is None else parse_key(planned.key)
    if key is None or planned.recorded is None:
        return ""
    if key.ledger_id is not None:
        return ": `--offload-again` where the records are ours"
    return (
        f": `offload rollback delete URL --records RECORDS --topic {planned.recorded} --release --yes "
        f"--audit-log FILE`, then `offload topics offload {planned.recorded}`"
    )


def show(
    planned: Sequence[PlannedRepair],
    done: Mapping[int, Repaired | OffloadError] | None,
    given: Sequence[TopicCopies],
    *,
    live: bool,
    as_json: bool,
) -> None:
    """Show all of it; `done` by the number of what was planned, None in a dry run."""
    found = [None if done is None else done.get(number) for number in range(len(planned))]
    if as_json:
        report = {
            "version": REPORT_VERSION,
            "dry_run": done is None,
            "repairs": [to_json(each, was, live=live) for each, was in zip(planned, found, strict=True)],
            "given": copies_to_json(given),
        }
        typer.echo(json.dumps(report, indent=2))
        return
    if planned:
        table = table_of("object", "found", "what is done", "saved", "lost", "why", right=("saved", "lost"))
        for each, was in zip(planned, found, strict=True):
            codes = sorted({finding.code.value for finding in each.findings})
            lost = "" if each.lost is None else str(each.lost.count)
            table.add_row(
                cell(each.key or each.recorded),
                cell(", ".join(codes)),
                cell(_what(each, was)),
                cell("" if each.entries is None else str(each.entries)),
                cell(lost),
                cell(each.choice.why),
            )
        print_table(table, drop=("lost", "saved"), prose=("found", "why"))
    for each, was in zip(planned, found, strict=True):
        for line in by_hand(each, live=live):
            print_line(f"{each.key}: {line}")
        if each.counts is not None and each.choice.action is Action.CORRECT_COUNTS:
            counts = each.counts
            print_line(f"{each.key}: ledger {counts.ledger_id}: {counts.before} becomes {counts.after}")
        if each.lost is not None and each.lost.count and each.target is not None:
            print_line(f"{each.key}: lost: {each.lost.pack()}")
        if isinstance(was, OffloadError):
            print_failure(f"not repaired: {was}")
    show_copies(given)
    repaired = sum(isinstance(each, Repaired) for each in found)
    would = sum(each.changes for each in planned) if done is None else repaired
    what = "would be repaired; nothing was changed" if done is None else "repaired"
    print_line(f"{len(planned):,} damaged, {would:,} {what}" if planned else "nothing is damaged")


def _what(planned: PlannedRepair, was: Repaired | OffloadError | None) -> str:
    action = planned.choice.action.value
    moved = " and quarantine" if planned.is_moved else ""
    if isinstance(was, OffloadError):
        return f"{action}{moved}: failed"
    return f"{action}{moved}" + ("" if is_left(planned, was) else ": done")
