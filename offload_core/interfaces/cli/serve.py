"""`offload serve`, `offload own` and `offload config`: the service with Pulsar's admin paths, and its settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import AsJson, OptionGroup, command
from offload_core.interfaces.cli.configured import ServiceOptions, on_policies
from offload_core.interfaces.cli.terminal import cell, print_table
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import MissingExtraError
from offload_hooks.shown_urls import shown_url


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningOptions(OptionGroup):
    """Where a service listens."""

    title = "Where it listens"

    host: Annotated[str | None, typer.Option(help="The address; 127.0.0.1 unless it is set.")] = None
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 for any.")] = None
    tls_certificate: Annotated[Path | None, typer.Option(help="Speak TLS by this certificate.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key, if that is another file.")] = None


@command()
def serve(service: ServiceOptions, listening: ListeningOptions) -> None:
    """Answer Pulsar's admin requests for the topics of this service, until SIGTERM or Ctrl-C.

    Examples:
        offload serve --config offload.toml
    """
    _run(service, listening, None)


@command()
def own(
    service: ServiceOptions,
    listening: ListeningOptions,
    take: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="Take this topic from its owner, as one that was killed; may be given again.",
        ),
    ] = None,
) -> None:
    """Do the same as the owner of all topics that no other process has open, and keep them by their policies.

    Examples:
        offload own --config offload.toml
    """
    _run(service, listening, [parse_topic(topic) for topic in take or ()])


def _run(service: ServiceOptions, listening: ListeningOptions, take: Collection[TopicName] | None) -> None:
    flags = {name: each for name, each in asdict(listening).items() if each is not None}
    configuration = service.load(service=flags)
    try:
        from offload_core.interfaces.service import serve as run
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the service needs a library that is not installed",
            found=error.name,
            hint="Run: pip install 'pulsar-offload[serve]'.",
        ) from error
    run(configuration, take)


@command()
def show(service: ServiceOptions, as_json: AsJson = False) -> None:
    """Show each setting, from the file, the environment and by default; secrets and options are masked."""
    configuration = service.load()
    settings = configuration.model_dump(mode="json", exclude={"policies"})
    if configuration.metadata.url is not None:
        settings["metadata"]["url"] = shown_url(configuration.metadata.url)
    for name, url in (("url", configuration.live.url), ("admin_url", configuration.live.admin_url)):
        if url is not None:
            settings["live"][name] = shown_url(url)
    settings["policies"] = configuration.policies.shown()
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    table = Table("setting", "value", box=None, pad_edge=False)
    for name, value in _flat(settings):
        text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        table.add_row(cell(name), cell(text))
    print_table(table, prose=("value",))


def _flat(settings: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value or None if isinstance(value, (dict, list)) else value


@on_policies
def explain(
    policies: PolicyStore,
    topic: Annotated[str, typer.Argument(help="The topic: persistent://tenant/namespace/topic.")],
    as_json: AsJson = False,
) -> None:
    """Show each policy in force for a topic, and the level that sets it: topic, namespace, broker or default."""
    name = parse_topic(topic)
    rows = policies.resolve(name).explain()
    if as_json:
        policies_in_force = {row: {"value": value, "origin": origin} for row, value, origin in rows}
        typer.echo(json.dumps({"topic": name.full, "policies": policies_in_force}, indent=2))
        return
    table = Table("policy", "value", "said by", box=None, pad_edge=False)
    for row, value, origin in rows:
        table.add_row(cell(row), cell(value), origin)
    print_table(table, prose=("value",))


def config_group() -> typer.Typer:
    """The commands `offload config`."""
    app = CommandGroup("Show the settings, and the policies that apply to a topic.")
    app.command()(show)
    app.command()(explain)
    return app
