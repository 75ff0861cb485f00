"""`offload topics transactions`: how a topic's transactions stand, and whether its entries are to be read anew."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.format.messages.entry import TransactionId
from offload_core.interfaces.cli.shared import AsJson, out, printable
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import (
    Environment,
    TransactionStatus,
    begin_times_ms,
    look_at_transactions,
    settle_transactions,
)
from offload_core.writing.settings import PolicyStore
from offload_hooks.errors import OptionError

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or a partition.")
]
Reset = Annotated[
    bool,
    typer.Option(
        "--reset",
        help="Forget what is persisted, and read the topic from its first entry on: of a topic that had transactions "
        "before it was opened with them here, or whose snapshot is damaged. Nobody else may have it open. Needs --yes.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", help="Do what --reset says. Without it nothing is changed, and the exit code is 1."
    ),
]


def transactions(
    environment: Environment,
    _: PolicyStore,
    topic: Topic,
    reset: Reset = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """How a topic's transactions stand by its snapshot and its sealed ledgers."""
    name = managed_ledger_of_topic(parse_topic(topic))
    if yes and not reset:
        raise OptionError("only --reset changes anything", expected="--yes with --reset")
    if reset and not yes:
        environment.records.require(name)
        if as_json:
            out.print_json(data={"would_be_reset": True})
        else:
            out.print("what is persisted would be forgotten; nothing was changed", highlight=False)
        raise typer.Exit(1)
    if reset:
        if environment.records.read(name) is not None:
            environment.snapshots.reset(name)
        settle_transactions(environment, name)
    status = look_at_transactions(environment, name)
    begun = begin_times_ms(environment, name, status)
    ages_s = {each: max(0.0, (environment.now_ms() - time) / 1000) for each, time in begun.items()}
    if as_json:
        out.print_json(data=_to_json(status, ages_s))
        return
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("state", status.state.value)
    facts.add_row("stable position", _place(status.stable_position))
    facts.add_row("persisted position", _place(status.persisted_position))
    facts.add_row("aborted", str(status.aborted_count))
    facts.add_row("open", str(len(status.open_transactions)))
    out.print(facts)
    if status.open_transactions:
        out.print(_listed(status, ages_s))


def _listed(status: TransactionStatus, ages_s: dict[TransactionId, float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("transaction", "first entry", "age"):
        table.add_column(heading)
    for transaction, first in status.open_transactions.items():
        age_s = ages_s.get(transaction)
        table.add_row(printable(str(transaction)), str(first), "" if age_s is None else f"{age_s:,.0f} s")
    return table


def _place(position: EntryPosition | None) -> str:
    return "none" if position is None else str(position)


def _to_json(status: TransactionStatus, ages_s: dict[TransactionId, float]) -> dict[str, Any]:
    def text(position: EntryPosition | None) -> str | None:
        return None if position is None else str(position)

    return {
        "state": status.state.value,
        "stable_position": text(status.stable_position),
        "persisted_position": text(status.persisted_position),
        "aborted": status.aborted_count,
        "open": [
            {"transaction": list(transaction), "first_entry": str(first), "age_s": ages_s.get(transaction)}
            for transaction, first in status.open_transactions.items()
        ],
    }
