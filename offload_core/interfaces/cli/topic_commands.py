"""`offload topics`: offload a topic, delete its hot copies, show its layout and its transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import cycle, groupby
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.messages.entry import TransactionId
from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import AsJson, parse_seconds, parse_size
from offload_core.interfaces.cli.configured import on_configuration, on_topics, open_service
from offload_core.interfaces.cli.ledger_facts import filter_note, recorded
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.policy_commands import add_topic_policies
from offload_core.interfaces.cli.terminal import err, out, print_line, print_table, printable
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.policy_places import namespace_of
from offload_core.metadata.catalogue.recorded_catalogue import ends_of_open
from offload_core.metadata.catalogue.recorded_copies import RecordedRange, layout_of
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.policies import EffectivePolicies, parse_policies, resolve_policies
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.configuration import Configuration
from offload_core.writing.managed_ledger import (
    DueLedgers,
    Environment,
    OffloadedTopic,
    TransactionStatus,
    begin_times_ms,
    complete_streamed,
    due_ledgers,
    first_unoffloaded,
    look_at_transactions,
    no_tier,
    settle_transactions,
    topic_offloads,
    waits_of,
)
from offload_core.writing.managed_ledger.streaming.completion_requests import DEFAULT_TIMEOUT_S
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import OptionError, UnknownTopicError


def topics_group() -> typer.Typer:
    """The commands `offload topics`."""
    app = CommandGroup("Offload topics; set and get their offload policies and retention.")
    app.command("offload")(on_configuration(offload))
    app.command()(on_topics(delete_hot_copies))
    app.command()(on_configuration(layout))
    app.command()(on_topics(transactions))
    add_topic_policies(app)
    return app


_LOOKS_S = 0.2
_STOPS_WITHIN_S = 30.0
"""The block that is on its way is written, and the attempt given up."""

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or a partition.")
]
SizeThreshold = Annotated[
    str,
    typer.Option(
        "--size-threshold",
        "-s",
        help="Leave the newest ledgers hot up to this size: 10MB, 1GiB; 0: none of them.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(min=0.0, help="How long its owner may take to complete a streamed topic's segment, in s."),
]
Lag = Annotated[
    str | None,
    typer.Option(
        "--lag", "-l", help="Only those offloaded so long ago: 300, 5m, 1d; by default the policies' lag."
    ),
]


Yes = Annotated[bool, typer.Option("--yes", help="Delete them. Without it they are shown.")]


Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="A topic of the running cluster in the settings: its ledgers are copied from BookKeeper, and verified, "
        "before its record names the copies.",
    ),
]
OfLive = Annotated[
    bool,
    typer.Option("--live", help="A topic of the running cluster in the settings, up to its newest entry."),
]
ByBroker = Annotated[
    bool,
    typer.Option(
        "--by-broker",
        help="With --live: the topic's broker offloads it; what it wrote is verified afterwards.",
    ),
]


def offload(
    configuration: Configuration,
    topic: Topic,
    size_threshold: SizeThreshold = "0",
    live: Live = False,
    by_broker: ByBroker = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Offload a topic's sealed ledgers to the tier of its policies; of a streamed topic everything.

    The owner of a streamed topic completes its segment; this command does if no process has the topic open.
    """
    name, kept_bytes = parse_topic(topic), max(parse_size(size_threshold), 0)
    if by_broker and not live:
        raise OptionError("only topics of a running cluster have brokers", expected="--live --by-broker")
    if live:
        _offload_live(configuration, name, kept_bytes, by_broker=by_broker, as_json=as_json)
        return
    with open_service(configuration) as (environment, policies):
        holding = policies.resolve(name).offload
        if holding.driver is None:
            raise no_tier(name)
        if holding.is_streamed:
            _complete_segment(environment, managed_ledger_of_topic(name), holding, timeout, as_json)
            return
        offloads = topic_offloads(environment, managed_ledger_of_topic(name))
        due = _due(offloads, holding, kept_bytes, environment)
        if due.target is not None:
            _watched(offloads, partial(offloads.offload_prefix, due.target))
    _print_offloaded(offloads, due, as_json)


def _offload_live(
    configuration: Configuration, topic: TopicName, kept_bytes: int, *, by_broker: bool, as_json: bool
) -> None:
    from offload_core.maintenance.live import (
        LiveTopicOffloads,
        open_live_cluster,
    )  # verifies, as no other does

    with open_live_cluster(configuration) as cluster:
        policies = cluster.policies.resolve(topic).offload
        if policies.driver is None:
            raise no_tier(topic)
        offloads = LiveTopicOffloads(cluster, managed_ledger_of_topic(topic))
        due = _due(offloads, policies, kept_bytes, cluster.mirror)
        if not by_broker:  # also if nothing is due: what processes that ended have left is finished
            _watched(offloads, partial(offloads.offload_prefix, due.target or EntryPosition(0, 0)))
        elif due.target is not None:
            _watched(offloads, partial(offloads.offload_by_broker, due.target))
    _print_offloaded(offloads, due, as_json)


def _due(
    offloads: OffloadedTopic, policies: EffectivePolicies, kept_bytes: int, environment: Environment
) -> DueLedgers:
    fields = {"driver": policies.driver, "threshold_in_bytes": kept_bytes}
    thresholds = resolve_policies(topic=parse_policies(fields))
    return due_ledgers(offloads.read_info(), thresholds, environment.now_ms())


def _print_offloaded(offloads: OffloadedTopic, due: DueLedgers, as_json: bool) -> None:
    done = offloads.offload_status
    skipped = {**due.skipped, **done.waiting}
    if as_json:
        reasons = {str(each): skipped[each] for each in sorted(skipped)}
        out.print_json(data={"offloaded": list(done.offloaded), "skipped": reasons})
        return
    for ledger_id in done.offloaded:
        out.print(f"ledger {ledger_id}: offloaded", highlight=False)
    for ledger_id, why in sorted(skipped.items()):
        out.print(f"ledger {ledger_id}: not offloaded: {printable(why)}", markup=False, highlight=False)
    if not (done.offloaded or skipped):
        print_line("nothing to offload: all sealed ledgers are, or are to stay hot")


def delete_hot_copies(
    environment: Environment,
    policies: PolicyStore,
    topic: Topic,
    lag: Lag = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete hot copies of ledgers that were offloaded, after a check of the cold ones.

    Without --yes the command shows which it would delete, and the exit code is 1 if there are any. Each deletion is
    recorded before, in the audit log of the settings.
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
        if not found:
            print_line(_why_none_is_due(lag_s))
            return
        if not yes:
            err.print("this was a dry run: --yes does it", highlight=False)
    if found and not yes:
        raise typer.Exit(1)


def _why_none_is_due(lag_s: float | None) -> str:
    if lag_s is None or lag_s < 0:
        return "no hot copy is due: by its policies none is deleted"
    return f"no hot copy is due: none was offloaded {lag_s:,.0f} s ago or earlier; --lag sets another time"


def _complete_segment(
    environment: Environment, name: str, policies: EffectivePolicies, timeout_s: float, as_json: bool
) -> None:
    """Have the owner complete its segment, or do it here without an owner; print how far the topic is offloaded."""
    with long_work("waiting until the topic's segment is complete"):
        info = complete_streamed(environment, name, policies, timeout_s)
    first, waits_for = first_unoffloaded(info), waits_of(info)
    if as_json:
        waiting = {} if waits_for is None else {"waits_for": waits_for}
        out.print_json(data={"first_unoffloaded": str(first), **waiting})
        return
    out.print(f"offloaded up to {first}", highlight=False)
    if waits_for is not None:
        out.print(f"what follows waits for {waits_for}", highlight=False, markup=False)


def _watched(offloads: OffloadedTopic, offload: Callable[[], object]) -> None:
    """Offload, and show how far it has come."""
    with (
        ThreadPoolExecutor(1) as pool,
        long_work("offloading", go_on="The next call goes on.", within_s=_STOPS_WITHIN_S) as work,
    ):
        running = pool.submit(offload)
        try:
            while not wait([running], timeout=_LOOKS_S).done:
                progress = offloads.offload_status.progress
                if progress is not None:
                    work.update(
                        f"ledger {progress.ledger_id}",
                        done_bytes=min(progress.data_bytes, progress.total_bytes),
                        whole_bytes=progress.total_bytes,
                    )
        finally:
            offloads.stop_offload()  # Ctrl-C; else it has ended
        running.result()


Reset = Annotated[
    bool,
    typer.Option(
        "--reset",
        help="Forget what is persisted, and read the topic from its first entry on: of a topic that had transactions "
        "before it was opened with them here, or whose snapshot is damaged. No other process may have it open. Needs "
        "--yes.",
    ),
]
ResetYes = Annotated[
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
    yes: ResetYes = False,
    as_json: AsJson = False,
) -> None:
    """Show a topic's transactions, by its snapshot and its sealed ledgers."""
    name = managed_ledger_of_topic(parse_topic(topic))
    if yes and not reset:
        raise OptionError("only --reset changes anything", expected="--yes with --reset")
    if reset and not yes:
        environment.records.require(name)
        if as_json:
            out.print_json(data={"would_be_reset": True})
        else:
            print_line("what is persisted would be forgotten; nothing was changed: --yes does it")
        raise typer.Exit(1)
    if reset:
        if environment.records.read(name) is not None:
            environment.snapshots.reset(name)
        settle_transactions(environment, name)
    status = look_at_transactions(environment, name)
    begun = begin_times_ms(environment, name, status)
    ages_s = {each: max(0.0, (environment.now_ms() - time) / 1000) for each, time in begun.items()}
    if as_json:
        out.print_json(data=_transactions_to_json(status, ages_s))
        return
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("state", status.state.value)
    facts.add_row("stable position", _position(status.stable_position))
    facts.add_row("persisted position", _position(status.persisted_position))
    facts.add_row("aborted", str(status.aborted_count))
    facts.add_row("open", str(len(status.open_transactions)))
    print_table(facts)
    if status.open_transactions:
        print_table(_open_table(status, ages_s))


def _open_table(status: TransactionStatus, ages_s: dict[TransactionId, float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("transaction", "first entry", "age"):
        table.add_column(heading)
    for transaction, first in status.open_transactions.items():
        age_s = ages_s.get(transaction)
        table.add_row(printable(str(transaction)), str(first), "" if age_s is None else f"{age_s:,.0f} s")
    return table


def _position(position: EntryPosition | None) -> str:
    return "none" if position is None else str(position)


def _transactions_to_json(status: TransactionStatus, ages_s: dict[TransactionId, float]) -> dict[str, Any]:
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


_WIDTH = 60
"""Characters of the longest ledger, if the terminal has as many; at least ten."""

_HOT = "·"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLOURS = ("green", "cyan", "yellow", "magenta", "blue", "red")
_KINDS = {
    ObjectFormat.PIP17: "ledger",
    ObjectFormat.STREAMING: "segment",
    ObjectFormat.MAPFILE: "ledger, as MapFile",
}


def layout(configuration: Configuration, topic: Topic, live: OfLive = False, as_json: AsJson = False) -> None:
    """Draw a topic's ledgers, each entry by the letter of the object that has it; a dot where it is hot only."""
    name = parse_topic(topic)
    ranges = _live_ranges(configuration, name) if live else _ranges(configuration, name)
    if as_json:
        out.print_json(data=[_range_to_json(each) for each in ranges])
        return
    if not ranges:
        out.print(printable(f"{name} has no entries"), markup=False, highlight=False)
        return
    letters = dict(zip(dict.fromkeys(each.key for each in ranges if each.key is not None), cycle(_LETTERS)))
    out.print(_ledgers_table(ranges, letters))
    print_table(_objects_table(ranges, letters), drop=("filtered", "what"))


def _ranges(configuration: Configuration, name: TopicName) -> list[RecordedRange]:
    """The layout of a topic of ours."""
    with open_service(configuration) as (environment, _):
        return layout_of(name, _record(environment.records, name))


def _live_ranges(configuration: Configuration, name: TopicName) -> list[RecordedRange]:
    """The layout of a topic of the running cluster, whose bookies tell how far its open ledger is written."""
    from offload_core.maintenance.live import open_live_cluster  # verifies, as no other does

    with open_live_cluster(configuration) as cluster:
        info = _record(cluster.records, name)
        written = ends_of_open(cluster.mirror.hot.store.open, [info])
        return layout_of(name, info, {each: end.entries or 0 for each, end in written.items()})


def _record(records: ManagedLedgerRecords, name: TopicName) -> ManagedLedgerInfo:
    """The record of a topic; of a partitioned topic's the error names a partition."""
    known = records.read(managed_ledger_of_topic(name))
    if known is not None:
        return known.info
    topics = map(topic_of_managed_ledger, records.names([namespace_of(name)]))
    partitions = [each.full for each in topics if each.base == name.full]
    hint = f"Name a partition: {min(partitions)}" if partitions else None
    raise UnknownTopicError("there is no record of this topic", found=name, hint=hint)


def _ledgers_table(ranges: Sequence[RecordedRange], letters: dict[ObjectKey, str]) -> Table:
    ledgers = {ledger_id: list(each) for ledger_id, each in groupby(ranges, lambda each: each.ledger_id)}
    longest = max((_entries(each) for each in ledgers.values()), default=1)
    width = max(10, min(_WIDTH, out.width - max(len(f"ledger {each}  ") for each in ledgers)))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for ledger_id, parts in ledgers.items():
        bar, end, count = Text(), 0, 0
        for part in parts:
            count += part.entries or 0
            stop = max(round(count * width / longest), end + 1)
            letter = _HOT if part.key is None else letters[part.key]
            bar.append((letter if part.is_complete or part.key is None else letter.lower()) * (stop - end))
            if part.key is not None:
                colour = _COLOURS[_LETTERS.index(letter) % len(_COLOURS)]
                bar.stylize(colour if part.is_hot else f"{colour} dim", end, stop)
            end = stop
        table.add_row(f"ledger {ledger_id}", bar)
    return table


def _objects_table(ranges: Sequence[RecordedRange], letters: dict[ObjectKey, str]) -> Table:
    """A row for each object, with the positions that it has, and one for each run that is hot only."""
    table = Table(box=None, pad_edge=False)
    is_filtered = any(each.filter_record is not None for each in ranges)
    headings = ("", "first", "last", "what", "state", *(["filtered"] if is_filtered else []), "object")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("first", "last"))
    for key, grouped in groupby(ranges, lambda each: each.key):
        parts = list(grouped)
        first, last = parts[0], parts[-1]
        end = "" if last.end_entry_id is None else f"{last.ledger_id}:{last.end_entry_id}"
        end += "…" if last.is_written or not end else ""
        table.add_row(
            _HOT if key is None else letters[key],
            f"{first.ledger_id}:{first.first_entry_id}",
            end,
            "" if key is None else _KINDS[key.object_format],
            _state(parts),
            *([_filtered(parts)] if is_filtered else []),
            "" if key is None else key.data_key,
        )
    return table


def _state(parts: Sequence[RecordedRange]) -> str:
    if parts[0].key is None:
        return "hot"
    if not parts[0].is_complete:
        return "hot, not offloaded yet"
    hot = {part.is_hot for part in parts}
    return "cold and hot" if hot == {True} else "cold" if hot == {False} else "cold, partly hot"


def _filtered(parts: Sequence[RecordedRange]) -> str:
    """Summarise what a filter dropped of the object's entries."""
    return printable(filter_note(recorded(dict.fromkeys(each.filter_record for each in parts))))


def _entries(parts: Sequence[RecordedRange]) -> int:
    return max(1, sum(part.entries or 0 for part in parts))


def _range_to_json(part: RecordedRange) -> dict[str, Any]:
    return {
        "ledger_id": part.ledger_id,
        "first_entry_id": part.first_entry_id,
        "end_entry_id": part.end_entry_id,
        "object": None if part.key is None else part.key.data_key,
        "format": None if part.key is None else part.key.object_format.value,
        "complete": part.is_complete,
        "hot": part.is_hot,
        "written": part.is_written,
        "filter": next((each.to_json() for each in recorded([part.filter_record])), None),
    }
