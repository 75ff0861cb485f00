"""What garbage there is, kind by kind: each with the code that a verification has for it, and why nothing needs it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from offload_core.catalogue import TopicName
from offload_core.catalogue.listing import Pair
from offload_core.verify import Code
from offload_hooks.values import ListedObject, Upload


class Kind(enum.Enum):
    """Why something is garbage, by a stable name."""

    code: Code
    meaning: str

    def __new__(cls, value: str, code: Code, meaning: str) -> Self:
        """A member, whose value is its name for programs."""
        member = object.__new__(cls)
        member._value_ = value
        member.code, member.meaning = code, meaning
        return member

    ORPHAN = ("orphan", Code.ORPHAN, "its topic's record does not name it")
    DELETED_TOPIC = ("deleted-topic", Code.ORPHAN, "its topic has no record any more")
    SUPERSEDED = ("superseded", Code.SUPERSEDED, "its topic's record names other copies, which are here")
    REPLACED = ("replaced", Code.SUPERSEDED, "by its record another copy took its place, which is here")
    NO_INDEX = ("no-index", Code.NO_INDEX, "a data object without an index, and no record names it")
    NO_DATA = ("no-data", Code.NO_DATA, "an index without a data object, and no record names it")
    CHECKSUMS = (
        "checksums",
        Code.CHECKSUMS_ORPHAN,
        "checksums that lie beside nothing, and no record names what they were of",
    )
    FAILED = ("failed", Code.FAILED, "by its record the attempt was given up")
    UNFINISHED = (
        "unfinished",
        Code.UNFINISHED,
        "by its record the attempt is not complete, and nobody is at it",
    )
    CONDEMNED = ("condemned", Code.CONDEMNED, "by its record its ledgers are being deleted")
    UPLOAD = (
        "upload",
        Code.STALE_UPLOAD,
        "an upload that was neither committed nor aborted, and nobody is at it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Something that nothing needs: the objects of an attempt, or an upload.

    Attributes:
        why: in words.
        key: of the data object or the upload; empty for an upload that never got as far as its key.
        pair: the objects; None for an upload.
        upload: None for objects.
        topic, ledger_ids: whose it is, where that is known.
        managed_ledger: the topic's, by the name that the objects or their record have.
        stands_in: it was made to stand in for a copy that records may still name.
        modified_at: of the younger of the objects, or when the upload was begun.
    """

    kind: Kind
    why: str
    key: str
    pair: Pair | None
    upload: Upload | None
    topic: TopicName | None
    ledger_ids: tuple[int, ...]
    size_bytes: int | None
    modified_at: datetime
    stands_in: bool = False
    managed_ledger: str | None = None

    @property
    def uuid(self) -> UUID | None:
        """The attempt's."""
        return None if self.pair is None else self.pair.key.uuid

    def to_json(self, now: datetime) -> dict[str, Any]:
        """For a report, by the names that docs/gc.md has."""
        return {
            "kind": self.kind.value,
            "code": self.kind.code.value,
            "why": self.why,
            "key": self.key,
            "upload": None if self.upload is None else self.upload.upload_id,
            "topic": None if self.topic is None else str(self.topic),
            "ledgers": list(self.ledger_ids),
            "size_bytes": self.size_bytes,
            "modified_at": self.modified_at.isoformat(),
            "age_s": int((now - self.modified_at).total_seconds()),
        }


def objects_of(pair: Pair) -> tuple[ListedObject, ...]:
    """The objects of a pair that are there; its checksums, if there is nothing else of it."""
    if pair.is_lone:
        return pair.checksums
    return tuple(each for each in (pair.data, pair.index) if each is not None)
