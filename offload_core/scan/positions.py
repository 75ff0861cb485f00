"""Where a scan starts and ends in each topic: `earliest`, `latest`, or positions as JSON.

The JSON is `{"topic": {"<partition>": "<ledger>:<entry>[:<batch index>]"}}`, the partition −1 for a topic without
partitions; a topic that is not named keeps `earliest` or `latest`. A start is inclusive, an end exclusive.
Source: docs/spark.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from offload_core.catalogue.topics import TopicName, parse_topic
from offload_hooks.errors import OptionError

_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})(?::(\d{1,9}))?")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A message's place: ledger, entry, and index in its batch (0 if it is in none)."""

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"


Offsets = Literal["earliest", "latest"] | Mapping[TopicName, Position | Literal["earliest", "latest"]]


def parse_position(text: str) -> Position:
    """`ledger:entry` or `ledger:entry:batch index`.

    Raises:
        OptionError: another form.
    """
    match = _POSITION.fullmatch(text)
    if match is None:
        raise OptionError("this is not a position", expected="ledger:entry or ledger:entry:batch", found=text)
    return Position(int(match[1]), int(match[2]), int(match[3] or 0))


def parse_offsets(text: str, option: str) -> Offsets:
    """The value of `startingOffsets` or `endingOffsets` (`option`, for errors).

    Raises:
        OptionError: not one of the words, nor JSON of the form above.
    """
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    expected = 'earliest, latest, or {"topic": {"<partition>": "<ledger>:<entry>[:<batch>]"}}'
    try:
        parsed = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise OptionError(
            f"{option} is neither a word nor JSON: {error}", expected=expected, found=text
        ) from error
    if not isinstance(parsed, dict):
        raise OptionError(f"{option} has another form", expected=expected, found=text)
    offsets: dict[TopicName, Position | Literal["earliest", "latest"]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{option} has another form at {topic!r}", expected=expected, found=partitions)
        for partition, position in partitions.items():
            if not re.fullmatch(r"-1|\d{1,9}", partition) or not isinstance(position, str):
                raise OptionError(
                    f"{option} has another form at {topic!r}",
                    expected=expected,
                    found=f"{partition}: {position}",
                )
            name = parse_topic(topic)
            if partition != "-1" and name.partition != int(partition):
                name = TopicName(f"{name.full}-partition-{int(partition)}")
            offsets[name] = position if position in ("earliest", "latest") else parse_position(position)  # type: ignore[assignment]
    return offsets


def offsets_to_json(positions: Mapping[TopicName, Position]) -> dict[str, dict[str, str]]:
    """Positions as the JSON value that `parse_offsets` reads."""
    offsets: dict[str, dict[str, str]] = {}
    for topic in sorted(positions):
        offsets.setdefault(topic.base, {})[str(topic.partition)] = str(positions[topic])
    return offsets


def check_topics(offsets: Offsets, read: Collection[TopicName], option: str) -> None:
    """Refuse positions of a topic that is not read, a slip of the pen perhaps: `OptionError`."""
    if not isinstance(offsets, str):
        others = sorted(topic for topic in offsets if topic not in read)
        if others:
            raise OptionError(
                f"{option} names a topic that is not read",
                expected=", ".join(str(topic) for topic in sorted(read)) or "no topic at all",
                found=", ".join(str(topic) for topic in others),
            )


def check_offsets(offsets: Offsets, option: str) -> None:
    """Refuse what is neither of the words nor positions by topic: `OptionError`."""
    words = ("earliest", "latest")
    if isinstance(offsets, Mapping):
        right = all(
            isinstance(topic, TopicName) and (isinstance(position, Position) or position in words)
            for topic, position in offsets.items()
        )
    else:
        right = offsets in words
    if not right:
        raise OptionError(
            f"{option} has another form",
            expected="earliest, latest, or a position for each topic, as parse_offsets makes them",
            found=repr(offsets),
        )


def position_of(
    offsets: Offsets, topic: TopicName | None, default: Literal["earliest", "latest"]
) -> Position | str:
    """What `offsets` say of `topic`: a position, `earliest` or `latest`."""
    if isinstance(offsets, str):
        return offsets
    return default if topic is None else offsets.get(topic, default)
