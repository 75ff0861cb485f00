"""`offload topics offload` and `delete-hot-copies`: done here and now, beside whoever owns the topic."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated

import typer

from offload_core.interfaces.cli.amounts import parse_seconds, parse_size
from offload_core.interfaces.cli.progress import byte_bar
from offload_core.interfaces.cli.shared import AsJson, err, out, printable
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.policies import EffectivePolicies, parse_policies, resolve_policies
from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import (
    Environment,
    TopicOffloads,
    complete_streamed,
    due_ledgers,
    first_unoffloaded,
    no_tier,
    topic_offloads,
    waits_of,
)
from offload_core.writing.managed_ledger.streaming.completion_requests import DEFAULT_TIMEOUT_S
from offload_core.writing.settings import PolicyStore

_LOOKS_S = 0.2

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or a partition.")
]
SizeThreshold = Annotated[
    str,
    typer.Option(
        "--size-threshold",
        "-s",
        help="Leave the newest ledgers hot up to this size: 10M, 1G; 0: none of them.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(min=0.0, help="How long its owner may take to complete a streamed topic's segment, in s."),
]
Lag = Annotated[
    str | None,
    typer.Option(
        "--lag", "-l", help="Only those offloaded so long ago: 300, 5m, 1d; else what the policies say."
    ),
]


Yes = Annotated[bool, typer.Option("--yes", help="Delete them. Without it they are shown.")]


def offload(
    environment: Environment,
    policies: PolicyStore,
    topic: Topic,
    size_threshold: SizeThreshold = "0",
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Offload a topic's sealed ledgers to the tier that its policies name; of one that is streamed all that there is.

    A topic that is streamed has its segment completed by its owner, or here where no process has it open.
    """
    name, kept_bytes = parse_topic(topic), parse_size(size_threshold)
    holding = policies.resolve(name).offload
    driver = holding.driver
    if driver is None:
        raise no_tier(name)
    if holding.is_streamed:
        _complete_segment(environment, managed_ledger_of_topic(name), holding, timeout, as_json)
        return
    offloads = topic_offloads(environment, managed_ledger_of_topic(name))
    said = {"driver": driver, "threshold_in_bytes": max(kept_bytes, 0)}
    due = due_ledgers(
        offloads.read_info(), resolve_policies(topic=parse_policies(said)), environment.now_ms()
    )
    if due.target is not None:
        _watched(offloads, due.target)
    done = offloads.offload_status.offloaded
    skipped = dict(sorted({**due.skipped, **offloads.offload_status.waiting}.items()))
    if as_json:
        out.print_json(
            data={"offloaded": list(done), "skipped": {str(each): skipped[each] for each in skipped}}
        )
        return
    for ledger_id in done:
        out.print(f"ledger {ledger_id}: offloaded", highlight=False)
    for ledger_id, why in skipped.items():
        out.print(f"ledger {ledger_id}: not offloaded: {printable(why)}", markup=False, highlight=False)


def delete_hot_copies(
    environment: Environment,
    policies: PolicyStore,
    topic: Topic,
    lag: Lag = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete hot copies of ledgers that were offloaded, after a look at the cold ones.

    Without --yes it is shown which would be deleted, and the exit code is 1 if there are any. Each deletion stands
    before in the audit log that the settings name.
    """
    name = parse_topic(topic)
    lag_s = policies.resolve(name).offload.deletion_lag_s if lag is None else parse_seconds(lag)
    found: list[int] = []
    if lag_s is not None and lag_s >= 0:
        offloads = topic_offloads(environment, managed_ledger_of_topic(name))
        found = offloads.delete_hot_copies(lag_s) if yes else offloads.due_hot_copies(lag_s)
    if as_json:
        out.print_json(data={"deleted": found if yes else [], "would_be_deleted": [] if yes else found})
    else:
        for ledger_id in found:
            out.print(f"ledger {ledger_id}: hot copy {'' if yes else 'would be '}deleted", highlight=False)
    if found and not yes:
        raise typer.Exit(1)


def _complete_segment(
    environment: Environment, name: str, policies: EffectivePolicies, timeout_s: float, as_json: bool
) -> None:
    """Have the owner complete its segment, or do it here if it has none, and report how far the topic is offloaded."""
    with err.status("Waiting until the topic's segment is complete"):
        info = complete_streamed(environment, name, policies, timeout_s)
    first, waits_for = first_unoffloaded(info), waits_of(info)
    if as_json:
        waiting = {} if waits_for is None else {"waits_for": waits_for}
        out.print_json(data={"first_unoffloaded": str(first), **waiting})
        return
    out.print(f"offloaded up to {first}", highlight=False)
    if waits_for is not None:
        out.print(f"what follows waits for {waits_for}", highlight=False, markup=False)


def _watched(offloads: TopicOffloads, target: EntryPosition) -> None:
    """Offload, and show how far it has come."""
    with ThreadPoolExecutor(1) as pool, byte_bar() as bar:
        running, task, ledger_id = pool.submit(offloads.offload_prefix, target), None, None
        try:
            while not wait([running], timeout=_LOOKS_S).done:
                progress = offloads.offload_status.progress
                if progress is None:
                    continue
                if progress.ledger_id != ledger_id:
                    ledger_id = progress.ledger_id
                    task = bar.add_task(f"ledger {ledger_id}", total=progress.total_bytes)
                if task is not None:
                    bar.update(task, completed=min(progress.data_bytes, progress.total_bytes))
        finally:
            offloads.stop_offload()  # Ctrl-C; else it has ended
        running.result()
