"""Start and end of a scan in each topic: `earliest`, `latest`, or positions as JSON; message ids as positions.

The JSON is `{"topic": {"<partition>": "<ledger>:<entry>[:<batch index>]"}}`, the partition −1 for a topic without
partitions; a topic that is not named keeps `earliest` or `latest`. A start is inclusive, an end exclusive. In place of
a position a message id (Pulsar's `MessageIdData` bytes, the column `__messageId`) stands as `base64:…` or `hex:…`, or,
in place of all partitions, as the list of its bytes: so pulsar-spark writes it, `{"topic": [8,11,16,101]}`.
Source: docs/spark.md, docs/formats/entry.md.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import DecodeError

from offload_core.metadata.catalogue.topics import TopicName, parse_topic
from offload_hooks.errors import FormatError, OptionError
from offload_hooks.json_text import WHOLE, read_json, shortened
from offload_proto.messages_pb2 import MessageIdData

_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})(?::(\d{1,9}))?", re.ASCII)
_ID = re.compile(r"(base64|hex):(.*)", re.DOTALL)

_EARLIEST, _LATEST = 2**64 - 1, 2**63 - 1
"""Ledger and entry of the ids that Pulsar's clients call earliest and latest."""


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
    match = _POSITION.fullmatch(text) if isinstance(text, str) else None
    position = None if match is None else Position(int(match[1]), int(match[2]), int(match[3] or 0))
    if position is None or position.ledger_id not in WHOLE or position.entry_id not in WHOLE:
        raise OptionError(
            "this is not a position",
            expected="ledger:entry, ledger:entry:batch, or a message id as base64:… or hex:…",
            found=shortened(text),
        )
    return position


def position_of_message_id(message_id: bytes) -> Position:
    """The place of a message, given its id as `__messageId` has it, or as a client's `serialize` makes it.

    Raises:
        OptionError: these bytes are no message id.
    """
    parsed = _parsed_id(message_id)
    if max(parsed.ledgerId, parsed.entryId) >= 1 << 63:
        raise _no_id(message_id.hex())
    return Position(parsed.ledgerId, parsed.entryId, max(parsed.batch_index, 0))


def message_id_of_position(position: Position, *, partition: int = -1) -> bytes:
    """The id of the message at a position, as Pulsar's clients take it; `partition` −1 for a topic that has none.

    It names the batch index only if that is not 0, and never the batch's size: for seeking, not for comparing with
    `__messageId`.
    """
    made = MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)
    if partition >= 0:
        made.partition = partition
    if position.batch_index:
        made.batch_index = position.batch_index
    return made.SerializeToString()


def parse_offsets(text: str, option: str) -> Offsets:
    """The value of `startingOffsets` or `endingOffsets` (`option`, for errors).

    Raises:
        OptionError: not one of the words, nor JSON of the form above.
    """
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    expected = 'earliest, latest, or {"topic": {"<partition>": "<ledger>:<entry>[:<batch>]"}}'
    try:
        parsed = read_json(text, option)
    except FormatError as error:
        raise OptionError(
            f"{option} is neither a word nor JSON: {error.found}", expected=expected, found=shortened(text)
        ) from error
    if not isinstance(parsed, dict):
        raise OptionError(f"{option} has another form", expected=expected, found=shortened(text))
    offsets: dict[TopicName, Position | Literal["earliest", "latest"]] = {}
    for topic, given in parsed.items():
        partitions = given
        if isinstance(given, list):
            partitions = {str(parse_topic(topic).partition): f"hex:{_hex_of(given, option, topic)}"}
        if not isinstance(partitions, dict):
            raise OptionError(f"{option} has another form at {topic!r}", expected=expected, found=partitions)
        for partition, position in partitions.items():
            if not re.fullmatch(r"-1|[0-9]{1,9}", partition) or not isinstance(position, str):
                raise OptionError(
                    f"{option} has another form at {topic!r}",
                    expected=expected,
                    found=f"{partition}: {position}",
                    hint=_NO_NUMBERS if isinstance(position, int) else None,
                )
            name = parse_topic(topic)
            if partition != "-1" and name.partition != int(partition):
                name = TopicName(f"{name.full}-partition-{int(partition)}")
            offsets[name] = _parse_place(position, name)
    return offsets


_NO_NUMBERS = "Pulsar has no numbers of messages as Kafka has: give ledger:entry, or start by time."


def _hex_of(given: list[object], option: str, topic: str) -> str:
    """The bytes of a list, which may have signs, as hexadecimal digits."""
    if not all(type(each) is int and -128 <= each <= 255 for each in given):
        raise OptionError(
            f"{option} has another form at {topic!r}", expected="the bytes of a message id", found=str(given)
        )
    return bytes(each & 0xFF for each in given).hex()  # type: ignore[operator]


def _parse_place(text: str, topic: TopicName) -> Position | Literal["earliest", "latest"]:
    """A word, a position, or the id of a message of `topic`."""
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    match = _ID.fullmatch(text)
    if match is None:
        return parse_position(text)
    try:
        data = bytes.fromhex(match[2]) if match[1] == "hex" else base64.b64decode(match[2], validate=True)
    except (ValueError, binascii.Error) as error:
        raise _no_id(text) from error
    parsed = _parsed_id(data)
    if parsed.HasField("partition") and parsed.partition >= 0 and parsed.partition != topic.partition:
        raise OptionError(
            f"a message id is not of {topic}",
            expected=f"partition {topic.partition}",
            found=f"partition {parsed.partition}: {text}",
        )
    if parsed.ledgerId == parsed.entryId == _EARLIEST:
        return "earliest"
    if parsed.ledgerId == parsed.entryId == _LATEST:
        return "latest"
    return position_of_message_id(data)


def _parsed_id(message_id: bytes) -> MessageIdData:
    parsed = MessageIdData()
    try:
        parsed.ParseFromString(message_id)
    except DecodeError as error:
        raise _no_id(message_id.hex()) from error
    if not parsed.IsInitialized():
        raise _no_id(message_id.hex())
    return parsed


def _no_id(found: str) -> OptionError:
    return OptionError("this is not a message id", expected="bytes of MessageIdData", found=found)


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
    """Refuse values that are neither a known word nor positions by topic: `OptionError`."""
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
    """Look up `topic` in `offsets`: a position, `earliest` or `latest`."""
    if isinstance(offsets, str):
        return offsets
    return default if topic is None else offsets.get(topic, default)
