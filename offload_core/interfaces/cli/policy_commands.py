"""`offload namespaces …` and `offload topics …`: set and get policies of a namespace or a topic.

The commands are those of `pulsar-admin namespaces` and `topicPolicies`, and the same for both levels.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import named, parse_seconds, parse_size
from offload_core.interfaces.cli.configured import on_policies
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.policies import parse_policies
from offload_core.metadata.policies.level import LevelPolicies, Part, parse_retention, unmasked
from offload_core.metadata.records import parse_read_priority
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import OptionError
from offload_hooks.json_text import read_json
from offload_hooks.shown_urls import MASK

Name = Annotated[str, typer.Argument(metavar="NAME", help="tenant/namespace, or a topic.")]
Given = Annotated[
    list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Policies, by any of their names.")
]
PoliciesFile = Annotated[
    Path | None,
    typer.Option(
        "--file", exists=True, dir_okay=False, help="JSON of policies: secrets are not for command lines."
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", "-s", help="10MB, 1GiB, a number of bytes; -1: no limit, never.")
]
Time = Annotated[
    str | None, typer.Option("--time", "-t", help="300 (seconds), 5m, 2h, 1d; -1: no limit, never.")
]
FilterMode = Annotated[
    str | None,
    typer.Option(
        "--mode", "-m", help="tombstone (Pulsar reads the objects; default) or gap (only readers of ours do)."
    ),
]
FilterOptions = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the filter.")
]
Lag = Annotated[str, typer.Option("--lag", "-l", help="300 (seconds), 5m, 2h, 1d; -1: never.")]

Change = Callable[[LevelPolicies], LevelPolicies]
Read = Callable[[PolicyStore, str], LevelPolicies]
Write = Callable[[PolicyStore, str, Change], object]
Remove = Callable[[PolicyStore, str, Part], None]


def namespaces_group() -> typer.Typer:
    """The commands `offload namespaces`."""
    app = CommandGroup("Set and get the offload policies and the retention of namespaces.")
    _add(
        app,
        lambda store, name: store.namespace(name),
        lambda store, name, change: store.change_namespace(name, change),
        lambda store, name, part: store.remove_from_namespace(name, part),
    )
    return app


def add_topic_policies(app: typer.Typer) -> None:
    """Add the commands of policies to `offload topics`."""
    _add(
        app,
        lambda store, name: store.topic(parse_topic(name)),
        lambda store, name, change: store.change_topic(parse_topic(name), change),
        lambda store, name, part: store.remove_from_topic(parse_topic(name), part),
    )


def _add(app: typer.Typer, read: Read, write: Write, remove: Remove) -> None:
    def set_offload_policies(
        policies: PolicyStore, name: Name, given: Given = None, file: PoliciesFile = None
    ) -> None:
        """Set the offload policies, in place of all that were set here."""
        texts = _from_file(file) | named(given, "the policies")
        if not parse_policies(texts).to_json():
            raise OptionError("no policies are given", expected="NAME=VALUE or --file")

        def change(level: LevelPolicies) -> LevelPolicies:
            whole = unmasked(parse_policies(texts).to_json(), level)
            return replace(level, offload=parse_policies(whole), unknown_offload={}, vouched=True)

        write(policies, name, change)

    def get_offload_policies(policies: PolicyStore, name: Name) -> None:
        """Get the offload policies that are set here, secrets masked."""
        _print(read(policies, name).shown_offload())

    def remove_offload_policies(policies: PolicyStore, name: Name) -> None:
        """Remove the offload policies."""
        remove(policies, name, "offload")

    def set_offload_threshold(
        policies: PolicyStore, name: Name, size: Size = None, time: Time = None
    ) -> None:
        """Set the size or the age from which sealed ledgers are offloaded."""
        if size is None and time is None:
            raise OptionError("no threshold is given", expected="--size, --time or both")
        fields = {} if size is None else {"threshold_in_bytes": parse_size(size)}
        fields |= {} if time is None else {"threshold_in_seconds": parse_seconds(time)}
        write(policies, name, lambda level: level.with_fields(**fields))

    def get_offload_threshold(policies: PolicyStore, name: Name) -> None:
        """Get the thresholds that are set here; -1 for none."""
        offload = read(policies, name).offload or parse_policies({})
        for field, value in (
            ("offloadThresholdInBytes", offload.threshold_in_bytes),
            ("offloadThresholdInSeconds", offload.threshold_in_seconds),
        ):
            typer.echo(f"{field}: {-1 if value is None else value}")

    def set_offload_deletion_lag(policies: PolicyStore, name: Name, lag: Lag) -> None:
        """Set how long after the offload the hot copy is deleted."""
        seconds = parse_seconds(lag)
        millis = seconds * 1000 if seconds >= 0 else -1
        write(policies, name, lambda level: level.with_fields(deletion_lag_in_millis=millis))

    def get_offload_deletion_lag(policies: PolicyStore, name: Name) -> None:
        """Get the deletion lag that is set here, in milliseconds."""
        offload = read(policies, name).offload
        _print(None if offload is None else offload.deletion_lag_in_millis)

    def clear_offload_deletion_lag(policies: PolicyStore, name: Name) -> None:
        """Clear the deletion lag."""
        write(policies, name, lambda level: level.with_fields(deletion_lag_in_millis=None))

    def set_tiered_read_priority(
        policies: PolicyStore, name: Name, priority: Annotated[str, typer.Argument(metavar="PRIORITY")]
    ) -> None:
        """Set the read priority: BOOKKEEPER_ONLY, BOOKKEEPER_FIRST, OFFLOADED_ONLY, OFFLOADED_FIRST."""
        parsed = parse_read_priority(priority)
        write(policies, name, lambda level: level.with_fields(tiered_read_priority=parsed))

    def get_tiered_read_priority(policies: PolicyStore, name: Name) -> None:
        """Get the tiered read priority that is set here."""
        offload = read(policies, name).offload
        priority = (
            None if offload is None else offload.tiered_read_priority or offload.offloaded_read_priority
        )
        typer.echo("null" if priority is None else priority.value)

    def remove_tiered_read_priority(policies: PolicyStore, name: Name) -> None:
        """Remove the tiered read priority, by both of its names."""
        write(
            policies,
            name,
            lambda level: level.with_fields(tiered_read_priority=None, offloaded_read_priority=None),
        )

    def set_offload_filter(
        policies: PolicyStore,
        name: Name,
        offload_filter: Annotated[str, typer.Argument(metavar="FILTER")],
        mode: FilterMode = None,
        option: FilterOptions = None,
    ) -> None:
        """Set the offload filter: disabled, transactions, or a plugin's."""
        fields: dict[str, Any] = {"filter": offload_filter, "filter_mode": mode}
        fields["filter_options"] = named(option, "the filter") or None
        if MASK in (fields["filter_options"] or {}).values():
            raise OptionError("an option of the filter is masked", expected="the secret itself")
        write(policies, name, lambda level: level.with_fields(**fields))

    def get_offload_filter(policies: PolicyStore, name: Name) -> None:
        """Get the offload filter that is set here, its mode and its options, secrets masked."""
        shown = read(policies, name).shown_offload() or {}
        fields = ("", "Mode", "Options")
        policy = {
            f"managedLedgerOffloadFilter{each}": shown.get(f"managedLedgerOffloadFilter{each}")
            for each in fields
        }
        _print(policy if any(policy.values()) else None)

    def remove_offload_filter(policies: PolicyStore, name: Name) -> None:
        """Remove the offload filter."""
        write(
            policies,
            name,
            lambda level: level.with_fields(filter=None, filter_mode=None, filter_options=None),
        )

    def set_retention(policies: PolicyStore, name: Name, size: Size = None, time: Time = None) -> None:
        """Set how much of consumed messages is kept, and how long."""
        if size is None or time is None:
            raise OptionError("a retention has a size and a time", expected="--size and --time")
        kept_bytes, kept_s = parse_size(size), parse_seconds(time)
        retention = parse_retention(
            {
                "retentionTimeInMinutes": kept_s // 60 if kept_s >= 0 else -1,
                "retentionSizeInMB": -(-kept_bytes >> 20) if kept_bytes >= 0 else -1,
            },
            name,
        )
        write(policies, name, lambda level: replace(level, retention=retention))

    def get_retention(policies: PolicyStore, name: Name) -> None:
        """Get the retention that is set here."""
        retention = read(policies, name).retention
        _print(None if retention is None else retention.model_dump(mode="json", by_alias=True))

    def remove_retention(policies: PolicyStore, name: Name) -> None:
        """Remove the retention."""
        remove(policies, name, "retention")

    for command in (
        *(set_offload_policies, get_offload_policies, remove_offload_policies),
        *(set_offload_threshold, get_offload_threshold),
        *(set_offload_deletion_lag, get_offload_deletion_lag, clear_offload_deletion_lag),
        *(set_tiered_read_priority, get_tiered_read_priority, remove_tiered_read_priority),
        *(set_offload_filter, get_offload_filter, remove_offload_filter),
        *(set_retention, get_retention, remove_retention),
    ):
        app.command(command.__name__.replace("_", "-"))(on_policies(command))


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    given = read_json(file.read_bytes(), "a file of policies", error=OptionError, key=str(file))
    if not isinstance(given, dict):
        raise OptionError("a file of policies is no JSON object", key=str(file))
    return given


def _print(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
