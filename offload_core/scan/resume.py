"""Where a scan goes on that has read topics before: from one position a topic, also where its ledger is gone since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offload_core.catalogue import Topic, TopicName
from offload_core.scan.positions import Offsets, Position, check_offsets, check_topics, position_of


def resume_offsets(topics: Sequence[Topic], reached: Mapping[TopicName, Position], start: Offsets) -> Offsets:
    """The starts of a scan that leaves out what comes before `reached`; topics that it does not name begin at `start`.

    A position need not be in a ledger that exists: at entry 0 it stands for the first ledger from there on. Topics that
    are gone are passed over, and one that has nothing after its position is not read.

    Raises:
        OptionError: `start` has another form, or names a topic that is not read.
    """
    named = {topic.name: topic for topic in topics if topic.name is not None}
    check_offsets(start, "start")
    check_topics(start, named, "start")
    return {name: _resume(topic, reached.get(name), start) for name, topic in named.items()}  # type: ignore[misc]


def _resume(topic: Topic, reached: Position | None, start: Offsets) -> Position | str:
    if reached is None:
        return position_of(start, topic.name, "earliest")
    following = [ledger.ledger_id for ledger in topic.ledgers if ledger.ledger_id >= reached.ledger_id]
    if not following:
        return "latest"
    if following[0] != reached.ledger_id and reached == Position(reached.ledger_id, 0):
        return Position(following[0], 0)
    return reached
