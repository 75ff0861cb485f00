"""How far topics were read: a position in each, that of the next message; and what a scan reads that goes on there.

Behind a ledger that takes no more entries it is the next id with entry 0, whether or not there is a ledger of that id:
at entry 0 a position stands for the first ledger from there on. Streams and exports keep such positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from offload_core.metadata.catalogue import Topic, TopicName
from offload_core.reading.scan.positions import Offsets, Position, check_offsets

Frontier = Mapping[TopicName, Position]
"""The next position of each topic; one that is not in it is read from its beginning."""

BEGINNING = Position(0, 0)


def resume_offsets(topics: Sequence[Topic], reached: Frontier, start: Offsets) -> tuple[list[Topic], Offsets]:
    """What a scan reads that goes on where topics were read up to: the ledgers in question, and its starts.

    Topics that `reached` does not name begin at `start`; those that are gone are passed over.

    Raises:
        OptionError: `start` has another form.
    """
    check_offsets(start, "start")
    # Also of topics that are not read: planning refuses them.
    offsets: dict[TopicName, Position | Literal["earliest", "latest"]]
    offsets = {} if isinstance(start, str) else dict(start)
    narrowed = []
    for topic in topics:
        name, rest = topic.name, topic
        if name is not None and name in reached:
            rest = _from(topic, reached[name])
            offsets[name] = reached[name] if rest.ledgers and _is_inside(reached[name]) else "earliest"
        elif name is not None and isinstance(start, str):
            offsets[name] = start
        narrowed.append(rest)
    return narrowed, offsets


def between(
    topics: Sequence[Topic], start: Frontier, end: Frontier
) -> tuple[list[Topic], Frontier, Frontier]:
    """What lies between two frontiers: the topics with the ledgers in question, and their positions as a scan's bounds.

    A position at a ledger's beginning needs no bound, nor does that ledger have to be there.
    """
    narrowed: list[Topic] = []
    starts: dict[TopicName, Position] = {}
    stops: dict[TopicName, Position] = {}
    for topic in topics:
        if topic.name is None or topic.name not in end:
            continue
        first, last = start.get(topic.name, BEGINNING), end[topic.name]
        if first >= last:
            continue
        if _is_inside(first):
            starts[topic.name] = first
        if _is_inside(last):
            stops[topic.name] = last
        rest = _from(topic, first)
        until = last.ledger_id + _is_inside(last)
        narrowed.append(
            replace(rest, ledgers=tuple(ledger for ledger in rest.ledgers if ledger.ledger_id < until))
        )
    return narrowed, starts, stops


def _from(topic: Topic, position: Position) -> Topic:
    """The topic without the ledgers before a position."""
    return replace(
        topic, ledgers=tuple(ledger for ledger in topic.ledgers if ledger.ledger_id >= position.ledger_id)
    )


def _is_inside(position: Position) -> bool:
    """Whether there are messages of the position's ledger before it."""
    return position.entry_id > 0 or position.batch_index > 0
