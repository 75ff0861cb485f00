"""`offload schemas`: save topics' whole histories beside a tier, and show saved ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from offload_core.format.schemas import schema_to_json
from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import AsJson, RecordOptions, TierOptions, Topics, command
from offload_core.interfaces.cli.nothing_found import chosen_topics
from offload_core.interfaces.cli.terminal import cell, out, print_table, time
from offload_core.metadata.catalogue import TierReader, TopicName
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.reading.scan import ScanOptions
from offload_core.reading.scan.scanning import sampler
from offload_core.reading.schema_providers import SavedSchemas, open_provider, saved_in
from offload_hooks.errors import SchemaError
from offload_hooks.schemas import SchemaHistory, SchemaProvider
from offload_hooks.values import utc_time

_FORMS = "a path or URL of saved schemas, or a provider's name with its options."


@command()
def pull(
    where: TierOptions,
    records: RecordOptions,
    source: Annotated[str, typer.Option("--from", help=f"Who knows the schemas: {_FORMS}")],
    topic: Topics = None,
    to: Annotated[
        str | None,
        typer.Option(help="Save to this directory or URL, instead of the folder `schemas` of the tier."),
    ] = None,
) -> None:
    """Save the whole history of topics' schemas, where scans find them when no broker is asked any more."""
    with where.open() as tier:
        provider = _provider(source, tier)
        saved = saved_in(tier.store) if to is None else SavedSchemas(to, tier=tier.store, **tier.options)
        for name in _topics(tier, topic, records):
            history = provider.history(name.base)
            if history is None:
                out.print(cell(f"{name.base}: has no schema"))
                continue
            key = saved.save(name.base, history)
            out.print(cell(f"{name.base}: {_numbers(history)} saved as {key}"))


@command()
def show(
    where: TierOptions,
    records: RecordOptions,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help=f"Who knows the schemas, instead of the folder `schemas` of the tier: {_FORMS}"
        ),
    ] = None,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of topics' schemas; with --json their definitions as well."""
    with where.open() as tier:
        provider: SchemaProvider
        provider = saved_in(tier.store) if source is None else _provider(source, tier)
        histories = {name.base: provider.history(name.base) for name in _topics(tier, topic, records)}
        if topic and not any(histories.values()):
            raise SchemaError(
                f"no schema is known of {', '.join(histories)}", hint="offload schemas pull saves them."
            )
        known = {name: history for name, history in histories.items() if history is not None}
        if as_json:
            typer.echo(json.dumps({name: schema_to_json(name, known[name]) for name in known}, indent=2))
            return
        if not known:
            out.print(cell(_no_schema_of(len(histories), source)), soft_wrap=True)
            return
        table = Table("topic", "version", "type", "registered", "definition", box=None, pad_edge=False)
        for name, history in known.items():
            for version in history.versions:
                definition = " ".join(version.definition.split())
                table.add_row(
                    cell(name),
                    str(version.version),
                    cell(version.type),
                    "–" if version.timestamp_ms is None else time(utc_time(version.timestamp_ms / 1000)),
                    cell(definition if len(definition) <= 60 else f"{definition[:59]}…"),
                )
        print_table(table, drop=("registered",), prose=("definition",))


def _no_schema_of(topics: int, source: str | None) -> str:
    """Return a line about a tier that may be as it should: its schemas are elsewhere, or there are none."""
    if not topics:
        return "no topics"
    if source is not None:
        return f"{source} has a schema of none of {count_text(topics, 'topic')}"
    count = count_text(topics, "topic")
    return f"no schema of {count} is saved in this tier: offload schemas pull URL --from … saves them"


def _provider(source: str, tier: TierReader) -> SchemaProvider:
    return open_provider(source, tier.store, tier.options, sampler(tier, ScanOptions()))


def _topics(tier: TierReader, names: Sequence[str] | None, records: RecordOptions) -> list[TopicName]:
    """The topics that are named, or all that lie here, a partitioned one once."""
    if names:
        topics = chosen_topics(tier, names, records.opener(tier))
    else:
        catalogue = tier.catalogue(records=records.records, records_options=records.given())
        topics = [topic.name for topic in catalogue.topics if topic.name is not None]
    return list({name.base: name for name in topics}.values())


def _numbers(history: SchemaHistory) -> str:
    versions = ", ".join(str(version.version) for version in history.versions)
    return f"version{'s' if len(history.versions) > 1 else ''} {versions} ({history.newest.type})"


def schemas_group() -> typer.Typer:
    """The commands `offload schemas`."""
    app = CommandGroup("Save and show topics' schemas, which offloaded objects do not hold.")
    app.command()(pull)
    app.command()(show)
    return app
