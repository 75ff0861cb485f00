"""`offload repair`: what is damaged is made right as far as its bytes allow, after a dry run that says how."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Annotated, Any

import typer

from offload_core.api import TierReader
from offload_core.catalogue import Records as RecordsOfTopics
from offload_core.catalogue import open_records, parse_topic
from offload_core.cli.shared import (
    AsJson,
    AuditLogFile,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    Url,
    Yes,
    audit_of,
    cell,
    err,
    named,
    opened,
    out,
    printable,
    reported,
    table_of,
)
from offload_core.codec.object_format import ObjectKey, parse_key
from offload_core.metadata import ManagedLedgerRecords, open_metadata_store
from offload_core.repair import Action, PlannedRepair, Repair, Repaired
from offload_core.repair.switching import pulsars_bits
from offload_hooks.errors import OptionError

REPORT_VERSION = 1


def repair(
    url: Url,
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="Only these objects, by the keys of data or index.", show_default=False),
    ] = None,
    ledger: Annotated[
        list[int] | None, typer.Option("--ledger", help="Only objects of this ledger; may be given again.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic, or all its partitions; may be given again."),
    ] = None,
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
            help="Records that name a copy that is saved are to name the new one; --records is the URL of a metadata "
            "store that is ours, not a broker's.",
        ),
    ] = False,
    yes: Yes = False,
    audit_log: AuditLogFile = None,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make indexes anew, save what damaged objects still hold into new ones, put the rest aside.

    Everything is verified first, to the last byte. Without --yes it is shown what would be done. The exit code is 0 if
    nothing is left to be done, 1 if something is, 2 if something failed.
    """
    with reported(debug, failed=2):
        if switch_records and records is None:
            raise OptionError("where are the records that are to name new copies?", expected="--records URL")
        log = audit_of(yes, audit_log)
        own = named(records_option, "the records")
        with opened(url, driver, option, layer) as tier, _ours(records, own, switch_records) as ours:
            work = Repair(
                tier.store,
                prefix=prefix,
                keys=[_key(each) for each in keys or ()],
                ledger_ids=ledger or (),
                topics=[parse_topic(each) for each in topic or ()],
                records=_opener(records, tier, own),
                ours=ours,
                quarantine=quarantine,
            )
            with err.status("verifying"):
                planned = list(work.plan())
            done: list[Repaired] = []
            try:
                if log is not None:
                    for each in planned:
                        if each.changes:
                            done.append(work.do(each, log))
            finally:
                _show(planned, done if yes else None, as_json=as_json)
        changed = {each.planned.key for each in done}
        if any(each.key not in changed and not each.is_done for each in planned):
            raise typer.Exit(1)


@contextmanager
def _ours(source: str | None, own: dict[str, Any], wanted: bool) -> Iterator[ManagedLedgerRecords | None]:
    if not wanted or source is None:
        yield None
        return
    with closing(open_metadata_store(source, own)) as store:
        yield ManagedLedgerRecords(store)


def _opener(
    source: str | None, tier: TierReader, own: dict[str, Any]
) -> Callable[[], AbstractContextManager[RecordsOfTopics]] | None:
    return None if source is None else lambda: open_records(source, tier.store, tier.options, own)


def _key(text: str) -> ObjectKey:
    key = parse_key(text)
    if key is None:
        raise OptionError("this is no key of an offloaded object", key=text)
    return key


def to_json(planned: PlannedRepair, done: Repaired | None) -> dict[str, Any]:
    """One repair as the report has it; docs/repair.md."""
    lost = planned.lost
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
        "by_hand": by_hand(planned),
    }


def by_hand(planned: PlannedRepair) -> list[str]:
    """What is left to whoever calls it."""
    said = []
    new = planned.target or planned.other
    if planned.recorded is not None and new is not None and not planned.is_switched:
        key = parse_key(new)
        assert key is not None
        most, least = pulsars_bits(key.uuid)
        lost = "" if planned.other else "; a broker fails at lost entries"
        said.append(
            f"the record of {planned.recorded} names the damaged copy; --switch-records changes one that is ours, of a "
            f"copy that is no MapFile. In a broker's, its offload context must have uidMsb {most} and uidLsb "
            f"{least}{lost}"
        )
    if planned.choice.action is Action.OTHER_COPY and planned.recorded is None and not planned.is_moved:
        said.append("readers without records read the newest copy: --quarantine puts this one aside")
    if planned.hot and planned.choice.action in (Action.NOT_SAVABLE, Action.SALVAGE):
        ids = ", ".join(map(str, planned.hot))
        said.append(
            f"by its record the hot copy of ledger {ids} is there: keep it, and offload it again{_again(planned)}"
        )
    return said


def _again(planned: PlannedRepair) -> str:
    """How a ledger whose segment is damaged is offloaded again; one in an object of its own stays offloaded."""
    key = None if planned.key is None else parse_key(planned.key)
    if key is None or key.ledger_id is not None or planned.recorded is None:
        return ""
    return (
        f": `offload rollback delete URL --records RECORDS --topic {planned.recorded} --release --yes "
        f"--audit-log FILE`, then `offload topics offload {planned.recorded}`"
    )


def _show(planned: list[PlannedRepair], done: list[Repaired] | None, *, as_json: bool) -> None:
    by_key = {each.planned.key: each for each in done or ()}
    if as_json:
        report = {
            "version": REPORT_VERSION,
            "dry_run": done is None,
            "repairs": [to_json(each, by_key.get(each.key)) for each in planned],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    if planned:
        table = table_of("object", "found", "what is done", "saved", "lost", "why", right=("saved", "lost"))
        for each in planned:
            codes = sorted({finding.code.value for finding in each.findings})
            lost = "" if each.lost is None else str(each.lost.count)
            table.add_row(
                cell(each.key or each.recorded),
                cell(", ".join(codes)),
                cell(_what(each, by_key.get(each.key))),
                cell("" if each.entries is None else str(each.entries)),
                cell(lost),
                cell(each.choice.why),
            )
        out.print(table)
    for each in planned:
        for line in by_hand(each):
            out.print(printable(f"{each.key}: {line}"), markup=False, highlight=False, soft_wrap=True)
        if each.lost is not None and each.lost.count and each.target is not None:
            line = printable(f"{each.key}: lost: {each.lost.pack()}")
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    would = sum(each.changes for each in planned) if done is None else len(done)
    what = "would be repaired; nothing was changed" if done is None else "repaired"
    out.print(f"{len(planned)} damaged, {would} {what}", highlight=False)


def _what(planned: PlannedRepair, done: Repaired | None) -> str:
    action = planned.choice.action.value
    moved = " and quarantine" if planned.is_moved else ""
    if planned.is_done or done is not None:
        return f"{action}{moved}: done"
    return f"{action}{moved}"
