"""`offload ls`: topics, their ledgers, sizes, formats, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from offload_core.catalogue import Catalogue, Ledger, Piece, StoredObject, Topic
from offload_core.cli.filtered import filter_note, filter_to_json, indexed
from offload_core.cli.recorded import record_to_json, recorded_state
from offload_core.cli.shared import (
    AsJson,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    Url,
    cell,
    named,
    opened,
    out,
    reported,
    size,
    time,
)


def ls(
    url: Url,
    ledgers: Annotated[bool, typer.Option("--ledgers", "-l", help="A line for each ledger.")] = False,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the offloaded topics of a tier, with their ledgers, sizes, formats and problems.

    With records also those ledgers that are not offloaded, and what became of each attempt.
    """
    with reported(debug), opened(url, driver, option, layer) as tier:
        catalogue = tier.catalogue(
            prefix=prefix, records=records, records_options=named(records_option, "the records")
        )
        if as_json:
            typer.echo(json.dumps(_to_json(catalogue), indent=2))
            return
        out.print(_ledger_table(catalogue) if ledgers else _topic_table(catalogue))
        if catalogue.problems:
            out.print(_problem_table(catalogue))


def _topic_table(catalogue: Catalogue) -> Table:
    clusters = {topic.cluster for topic in catalogue.topics}
    table = Table(box=None, pad_edge=False)
    table.add_column("topic", overflow="fold")
    if len(clusters) > 1:
        table.add_column("cluster", overflow="fold")
    for name in ("ledgers", "entries", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("format")
    table.add_column("newest", no_wrap=True)
    filtered = [filter_note(indexed(_pieces(topic))) for topic in catalogue.topics]
    if any(filtered):
        table.add_column("filtered", overflow="fold")
    notes = [_notes(topic) for topic in catalogue.topics]
    if any(notes):
        table.add_column("problems")
    for topic, by_filter, note in zip(catalogue.topics, filtered, notes, strict=True):
        table.add_row(
            cell(topic.label.removeprefix("persistent://")),
            *([cell(topic.cluster or "–")] if len(clusters) > 1 else []),
            str(len(topic.ledgers)),
            f"{sum(ledger.entries or 0 for ledger in topic.ledgers):,}",
            size(sum(ledger.data_bytes for ledger in topic.ledgers)),
            _formats(*topic.ledgers),
            _newest(_objects(topic)),
            *([cell(by_filter)] if any(filtered) else []),
            *([note] if any(notes) else []),
        )
    return table


def _notes(topic: Topic) -> str:
    broken = sum(not stored.is_complete for stored in _objects(topic))
    superseded = sum(len(ledger.superseded) for ledger in topic.ledgers)
    hot = sum(not ledger.attempts for ledger in topic.ledgers)
    counts = ((broken, "not readable"), (superseded, "superseded"), (hot, "in BookKeeper only"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _newest(objects: Sequence[StoredObject]) -> str:
    times = [stored.modified_at for stored in objects if stored.modified_at is not None]
    return time(max(times)) if times else "–"


def _ledger_table(catalogue: Catalogue) -> Table:
    table = Table("topic", box=None, pad_edge=False)
    for name in ("ledger", "entries", "size", "blocks", "attempts"):
        table.add_column(name, justify="right")
    has_records = any(ledger.record for topic in catalogue.topics for ledger in topic.ledgers)
    is_filtered = any(indexed(_pieces(topic)) for topic in catalogue.topics)
    said = (*(["filtered"] if is_filtered else []), *(["record"] if has_records else []))
    for name in ("format", "newest", *said, "data object"):
        table.add_column(name, overflow="fold")
    for topic in catalogue.topics:
        for ledger in topic.ledgers:
            table.add_row(
                cell(topic.label.removeprefix("persistent://")),
                str(ledger.ledger_id),
                "–" if ledger.entries is None else f"{ledger.entries:,}",
                size(ledger.data_bytes),
                str(sum(len(piece.ledger.blocks) for piece in ledger.pieces)),
                str(len(ledger.attempts)),
                _formats(ledger),
                _newest(ledger.attempts),
                *([cell(filter_note(indexed(ledger.pieces)))] if is_filtered else []),
                *([recorded_state(ledger.record)] if ledger.record else []),
                Text("\n").join(cell(piece.stored.key.data_key) for piece in ledger.pieces)
                or "none that is complete",
            )
    return table


def _problem_table(catalogue: Catalogue) -> Table:
    table = Table("problem", "object", "what is wrong", box=None, pad_edge=False, style="yellow")
    for stored in catalogue.problems:
        code = stored.problem.value if stored.problem else ""
        table.add_row(code, cell(stored.key.data_key), cell(stored.detail))
    return table


def _objects(topic: Topic) -> list[StoredObject]:
    return [stored for ledger in topic.ledgers for stored in ledger.attempts]


def _pieces(topic: Topic) -> list[Piece]:
    return [piece for ledger in topic.ledgers for piece in ledger.pieces]


def _formats(*ledgers: Ledger) -> str:
    return ", ".join(dict.fromkeys(known.value for ledger in ledgers for known in ledger.formats)) or "–"


def _to_json(catalogue: Catalogue) -> dict[str, Any]:
    return {
        "topics": [
            {
                "topic": topic.full_name,
                "cluster": topic.cluster,
                "ledgers": [_ledger_to_json(ledger) for ledger in topic.ledgers],
            }
            for topic in catalogue.topics
        ],
        "problems": [_object_to_json(stored) for stored in catalogue.problems],
    }


def _ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "entries": ledger.entries,
        "size_bytes": ledger.data_bytes,
        "formats": [known.value for known in ledger.formats],
        "read_from": [piece.stored.key.data_key for piece in ledger.pieces],
        "filters": [filter_to_json(record) for record in indexed(ledger.pieces)],
        "attempts": [_object_to_json(stored) for stored in ledger.attempts],
        **({"record": record_to_json(ledger.record)} if ledger.record else {}),
    }


def _object_to_json(stored: StoredObject) -> dict[str, Any]:
    return {
        "key": stored.key.data_key,
        "format": stored.key.object_format.value,
        "data_bytes": stored.data_bytes,
        "index_bytes": stored.index_bytes,
        "modified_at": stored.modified_at.isoformat() if stored.modified_at else None,
        "complete": stored.is_complete,
        "problem": stored.problem.value if stored.problem else None,
        "detail": stored.detail,
    }
