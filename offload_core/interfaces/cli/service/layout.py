"""`offload topics layout`: a topic's ledgers drawn, and which positions lie in which object."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, groupby
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.interfaces.cli.looking.filtered import filter_note, filter_to_json, recorded
from offload_core.interfaces.cli.shared import AsJson, out, printable
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.recorded_copies import RecordedRange, layout_of
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.writing.managed_ledger import Environment
from offload_core.writing.settings import PolicyStore, namespace_of
from offload_hooks.errors import UnknownTopicError

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

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or a partition.")
]


def layout(environment: Environment, _: PolicyStore, topic: Topic, as_json: AsJson = False) -> None:
    """Draw a topic's ledgers, each entry by the letter of the object that has it; a dot where it is hot only."""
    name = parse_topic(topic)
    known = environment.records.read(managed_ledger_of_topic(name))
    if known is None:
        raise UnknownTopicError(
            "there is no record of this topic", found=name, hint=_partitions(environment, name)
        )
    ranges = layout_of(name, known.info)
    if as_json:
        out.print_json(data=[_to_json(each) for each in ranges])
        return
    if not ranges:
        out.print(printable(f"{name} has no entries"), markup=False, highlight=False)
        return
    letters = dict(zip(dict.fromkeys(each.key for each in ranges if each.key is not None), cycle(_LETTERS)))
    out.print(_drawn(ranges, letters))
    out.print(_listed(ranges, letters))


def _partitions(environment: Environment, name: TopicName) -> str | None:
    """What to name instead of a partitioned topic."""
    topics = map(topic_of_managed_ledger, environment.records.names([namespace_of(name)]))
    partitions = [each.full for each in topics if each.base == name.full]
    return f"Name a partition: {min(partitions)}" if partitions else None


def _drawn(ranges: Sequence[RecordedRange], letters: dict[ObjectKey, str]) -> Table:
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


def _listed(ranges: Sequence[RecordedRange], letters: dict[ObjectKey, str]) -> Table:
    """A row for each object, with the positions that it has, and one for each run that is hot only."""
    table = Table(box=None, pad_edge=False)
    is_filtered = any(each.filter_record is not None for each in ranges)
    headings = ("", "first", "last", "what", "state", *(["filtered"] if is_filtered else []), "object")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("first", "last"))
    for key, grouped in groupby(ranges, lambda each: each.key):
        parts = list(grouped)
        first, last = parts[0], parts[-1]
        end = "…" if last.end_entry_id is None else f"{last.ledger_id}:{last.end_entry_id}"
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
    """What a filter did to the object's entries."""
    return printable(filter_note(recorded(dict.fromkeys(each.filter_record for each in parts))))


def _entries(parts: Sequence[RecordedRange]) -> int:
    return max(1, sum(part.entries or 0 for part in parts))


def _to_json(part: RecordedRange) -> dict[str, Any]:
    return {
        "ledger_id": part.ledger_id,
        "first_entry_id": part.first_entry_id,
        "end_entry_id": part.end_entry_id,
        "object": None if part.key is None else part.key.data_key,
        "format": None if part.key is None else part.key.object_format.value,
        "complete": part.is_complete,
        "hot": part.is_hot,
        "filter": next(map(filter_to_json, recorded([part.filter_record])), None),
    }
