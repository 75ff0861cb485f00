"""What `offload repair` shows: a table, the report for machines, and what is left to whoever calls it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from offload_core.format.codec.object_format import parse_key
from offload_core.interfaces.cli.shared import cell, err, out, printable, table_of
from offload_core.maintenance.repair import Action, PlannedRepair, Repaired
from offload_core.maintenance.repair.pair_changes import pulsars_bits
from offload_core.maintenance.verify import Code
from offload_hooks.errors import OffloadError

REPORT_VERSION = 1


def is_left(planned: PlannedRepair, done: Repaired | OffloadError | None) -> bool:
    """Whether something is left of one: what only keeps a hot copy mends nothing."""
    if planned.choice.action is Action.KEEP_HOT:
        return True
    return not isinstance(done, Repaired) and not planned.is_done


def to_json(planned: PlannedRepair, was: Repaired | OffloadError | None) -> dict[str, Any]:
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
    is_gone = any(finding.code is Code.NO_OBJECT for finding in planned.findings)
    lacks = planned.choice.action in (Action.NOT_SAVABLE, Action.SALVAGE, Action.KEEP_HOT)
    if planned.hot and (lacks or (is_gone and planned.choice.action is Action.LEAVE)):
        ids = ", ".join(map(str, planned.hot))
        said.append(
            f"by its record the hot copy of ledger {ids} is there: keep it, and offload it again{_again(planned)}"
        )
    if planned.choice.action is Action.KEEP_HOT:
        said.append(
            "its record goes on naming it, and its hot copy is not deleted until another copy takes its place; "
            "--accept-loss has the record name what can be saved all the same"
        )
    if planned.counts is not None and planned.choice.action is not Action.CORRECT_COUNTS:
        counts = planned.counts
        said.append(
            f"the record of {planned.recorded} must say of ledger {counts.ledger_id}: {counts.after}; it says "
            f"{counts.before}. --switch-records corrects one that is ours; of a broker's, compare with "
            f"`bookkeeper shell ledgermetadata -ledgerid {counts.ledger_id}` where the hot copy is there"
        )
    return said


def _again(planned: PlannedRepair) -> str:
    """How a ledger is offloaded again: with its record, or, of segments, once these are released."""
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
    planned: Sequence[PlannedRepair], done: Mapping[int, Repaired | OffloadError] | None, *, as_json: bool
) -> None:
    """Show all of it; `done` by the number of what was planned, None in a dry run."""
    found = [None if done is None else done.get(number) for number in range(len(planned))]
    if as_json:
        report = {
            "version": REPORT_VERSION,
            "dry_run": done is None,
            "repairs": [to_json(each, was) for each, was in zip(planned, found, strict=True)],
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
        out.print(table)
    for each, was in zip(planned, found, strict=True):
        for line in by_hand(each):
            _say(f"{each.key}: {line}")
        if each.counts is not None and each.choice.action is Action.CORRECT_COUNTS:
            counts = each.counts
            _say(f"{each.key}: ledger {counts.ledger_id}: {counts.before} becomes {counts.after}")
        if each.lost is not None and each.lost.count and each.target is not None:
            _say(f"{each.key}: lost: {each.lost.pack()}")
        if isinstance(was, OffloadError):
            err.print(printable(f"offload: not repaired: {was}"), style="red", markup=False, soft_wrap=True)
    repaired = sum(isinstance(each, Repaired) for each in found)
    would = sum(each.changes for each in planned) if done is None else repaired
    what = "would be repaired; nothing was changed" if done is None else "repaired"
    out.print(f"{len(planned)} damaged, {would} {what}", highlight=False)


def _say(line: str) -> None:
    out.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def _what(planned: PlannedRepair, was: Repaired | OffloadError | None) -> str:
    action = planned.choice.action.value
    moved = " and quarantine" if planned.is_moved else ""
    if isinstance(was, OffloadError):
        return f"{action}{moved}: failed"
    return f"{action}{moved}" + ("" if is_left(planned, was) else ": done")
