"""Report of `offload relocate`: the plan, what became of each copy, and changes of records that are not ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.given_copies import TopicCopies, copies_to_json, show_copies
from offload_core.interfaces.cli.terminal import (
    cell,
    duration,
    id_ranges,
    print_failure,
    print_line,
    print_table,
    size,
    table_of,
)
from offload_core.maintenance.relocate import Move, OldCopies, Outcome, PlainResult, PlainStatus, TopicPlan
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.records import OtherCopy
from offload_core.metadata.records.relocations import Relocation
from offload_core.metadata.stores.record_paths import record_path

_LEFT = (PlainStatus.HALF, PlainStatus.CONFLICT, PlainStatus.FAILED)


@dataclass(slots=True, kw_only=True)
class Relocated:
    """A plan, its outcomes, and the old copies that were deleted, or in a dry run would be.

    Moves without an outcome were broken off, and may have been made all the same.
    """

    is_dry: bool
    began_at: float = field(default_factory=monotonic)
    plans: list[TopicPlan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    given: list[TopicCopies] = field(default_factory=list)
    old: list[OldCopies] = field(default_factory=list)

    @property
    def deleted(self) -> list[tuple[TopicName, OtherCopy]]:
        """The old copies that were deleted, or in a dry run would be."""
        return [(each.topic, copy) for each in self.old for copy in each.deleted]

    @property
    def planned_bytes(self) -> int:
        """The payloads that are to be moved, by the records."""
        return sum(move.size_bytes for plan in self.plans for move in plan.moves)

    @property
    def is_left(self) -> bool:
        """True if something was not moved or deleted; in a dry run, if something would be."""
        if self.is_dry and (self.deleted or any(plan.moves for plan in self.plans)):
            return True
        errors = [*(each.error for each in self.outcomes), *(each.error for each in self.old)]
        failed = any(error is not None for error in errors) or any(each.is_left for each in self.given)
        return failed or any(plan.left for plan in self.plans)


def show_relocated(done: Relocated, changes: Sequence[Relocation], *, as_json: bool) -> None:
    """All of it; `changes` are what a mapping has, to be changed in records that are not ours."""
    if as_json:
        typer.echo(json.dumps(_to_json(done, changes), indent=2))
        return
    if any(plan.moves for plan in done.plans):
        print_table(_table(done), drop=("how", "format", "payloads"))
    for plan in done.plans:
        for left in plan.left:
            ledgers = id_ranges(left.ledger_ids)
            print_line(f"{plan.topic}: ledger {ledgers} stays where it is: {left.why}")
    for outcome in done.outcomes:
        if outcome.error is not None:
            ledgers = id_ranges(outcome.move.ledger_ids)
            print_failure(f"{outcome.move.topic}: ledger {ledgers} is not moved: {outcome.error}")
    show_copies(done.given)
    for topic, copy in done.deleted:
        ledgers = id_ranges(copy.ledger_ids)
        would = "would be deleted" if done.is_dry else "deleted"
        print_line(f"{topic}: the old copy {copy.uuid} of ledger {ledgers} {would}")
    for old in done.old:
        if old.error is not None:
            print_failure(f"{old.topic}: old copies are not deleted: {old.error}")
    if changes:
        print_line("To be changed in the records, which are not ours:")
        for change in changes:
            for ledger_id in change.copy.ledger_ids:
                print_line(_change_line(change, ledger_id))
    moves = [move for plan in done.plans for move in plan.moves]
    what = f"{count_text(len(moves), 'copy')}, {size(done.planned_bytes)} of payloads"
    already = f"Already there: {count_text(sum(len(plan.done) for plan in done.plans), 'ledger')}."
    if done.is_dry:
        print_line(f"{what}, would be moved; nothing was. {already}")
        return
    moved = sum(each.error is None for each in done.outcomes)
    took = duration(monotonic() - done.began_at)
    print_line(f"{moved} of {what}, moved and verified in {took}. {already}")
    if len(done.outcomes) < len(moves):
        print_line("It was broken off: others may have been moved as well. The next call tells, and goes on.")


def show_copied(result: PlainResult, *, as_json: bool) -> None:
    """Print the outcome of a pair of objects: a line of JSON, or text for pairs that did not exist already."""
    error = None if result.error is None else str(result.error)
    if as_json:
        fields = {
            "key": result.key.data_key,
            "topic": None if result.topic is None else str(result.topic),
            "size_bytes": result.size_bytes,
            "status": result.status.value,
            "error": error,
        }
        typer.echo(json.dumps(fields))
    elif result.status is not PlainStatus.THERE:
        why = f": {error}" if error else ""
        style = "red" if result.status in _LEFT else ""
        print_line(f"{result.status.value}  {result.key.data_key}  {size(result.size_bytes)}{why}", style)


def _table(done: Relocated) -> Table:
    columns = ("topic", "ledgers", "entries", "payloads", "how", "format", "state")
    table = table_of(*columns, right=("entries", "payloads"))
    states = {(each.move.topic, each.move.replaces): each for each in done.outcomes}
    for plan in done.plans:
        for move in plan.moves:
            state = states.get((move.topic, move.replaces))
            state_text = "would be moved" if done.is_dry else "broken off"
            if state is not None:
                left = "" if state.left_out is None else f", {state.left_out:,} entries left out"
                state_text = "failed" if state.error is not None else f"moved, {size(state.size_bytes)}{left}"
            table.add_row(
                cell(str(plan.topic)),
                id_ranges(move.ledger_ids),
                str(move.entries),
                size(move.size_bytes),
                move.how.value,
                move.format.value,
                state_text,
            )
    return table


def _to_json(done: Relocated, changes: Sequence[Relocation]) -> dict[str, Any]:
    states = {(each.move.topic, each.move.replaces): each for each in done.outcomes}
    return {
        "version": 1,
        "dry_run": done.is_dry,
        "topics": [
            {
                "topic": str(plan.topic),
                "moves": [
                    _move_to_json(move, states.get((move.topic, move.replaces))) for move in plan.moves
                ],
                "left": [{"ledgers": list(each.ledger_ids), "why": each.why} for each in plan.left],
                "done": list(plan.done),
                "hot": list(plan.hot),
            }
            for plan in done.plans
        ],
        "given": copies_to_json(done.given),
        "deleted": [{"topic": str(topic), "uuid": str(copy.uuid)} for topic, copy in done.deleted],
        "not_deleted": [
            {"topic": str(each.topic), "error": str(each.error)}
            for each in done.old
            if each.error is not None
        ],
        "changes": [
            _change_to_json(change, ledger_id) for change in changes for ledger_id in change.copy.ledger_ids
        ],
    }


def _move_to_json(move: Move, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "ledgers": list(move.ledger_ids),
        "replaces": [str(each) for each in move.replaces],
        "how": move.how.value,
        "format": move.format.value,
        "entries": move.entries,
        "payload_bytes": move.size_bytes,
        "uuid": None if outcome is None or outcome.uuid is None else str(outcome.uuid),
        "object_bytes": None if outcome is None else outcome.size_bytes,
        "left_out": None if outcome is None else outcome.left_out,
        "error": None if outcome is None or outcome.error is None else str(outcome.error),
    }


def _change_to_json(change: Relocation, ledger_id: int) -> dict[str, Any]:
    return {
        "path": record_path(change.managed_ledger),
        "ledger": ledger_id,
        "old_uuids": [str(each) for each in change.replaces],
        "new_uuid": str(change.copy.uuid),
        "form": change.copy.form.value,
        "driver": change.copy.driver.name,
        "properties": dict(change.copy.driver.properties),
    }


def _change_line(change: Relocation, ledger_id: int) -> str:
    fields = _change_to_json(change, ledger_id)
    properties = " ".join(f"{name}={value}" for name, value in fields["properties"].items())
    old = ", ".join(fields["old_uuids"])
    return (
        f"  {fields['path']}: ledger {ledger_id}: {change.copy.form.value} {old} → {change.copy.uuid}, "
        f"driver {change.copy.driver.name} {properties}"
    )
