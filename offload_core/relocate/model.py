"""What is to be moved: each new copy, what it takes the place of, and what stays where it is, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from uuid import UUID

from offload_core.catalogue import TopicName
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.codec.object_format import ObjectFormat
from offload_core.metadata import CopyForm


class How(enum.Enum):
    """How a new copy is made."""

    BYTES = "bytes"
    """Its objects are those of the old one, byte by byte."""
    ENTRIES = "entries"
    """The entries are read, and written in another format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One new copy that is to be made, and takes the place of others.

    Attributes:
        ledger_ids: the ledgers that it holds, ascending; with `segment`, those whose records name that.
        segment: a segment, which alone it takes the place of; None for all copies of its ledgers.
        replaces: the attempts that it takes the place of.
        format: of its objects.
        entries, size_bytes: of its ledgers, by their record, where it says it; a segment perhaps has fewer of them.
    """

    topic: TopicName
    ledger_ids: tuple[int, ...]
    form: CopyForm
    segment: UUID | None
    replaces: tuple[UUID, ...]
    how: How
    format: ObjectFormat
    entries: int
    size_bytes: int

    @property
    def name(self) -> str:
        """The managed ledger's name."""
        return managed_ledger_of_topic(self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Ledgers whose cold copies stay where they are, and why in words."""

    topic: TopicName
    ledger_ids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """What is to be done of one topic.

    Attributes:
        moves: in the topic's order.
        left: what can't be moved.
        done: ledgers whose copies are where and as they are to be.
        hot: ledgers that have no cold copy, or none that is complete yet.
    """

    topic: TopicName
    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    done: tuple[int, ...]
    hot: tuple[int, ...]
