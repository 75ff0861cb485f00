"""Values of a collection: its scope, each kind of garbage with its code and reason, and the summary."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID

from offload_core.maintenance.verify import Code
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.listing import Pair
from offload_core.storage.clock import system_now_ms
from offload_hooks.errors import OffloadError
from offload_hooks.values import ListedObject, Upload

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_GRACE = timedelta(days=1)
DEFAULT_CLOCK_SKEW = timedelta(minutes=5)

_COMPARED = timedelta(seconds=5)
"""Allowed difference of clocks that were compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Scope of a collection.

    Attributes:
        prefix: only objects whose keys begin so: the folder that the cluster's objects lie in.
        wants: return whether a topic's garbage is collected, None for all; all is listed, and all records are read.
        grace: the least age of garbage, by the store's clock.
        clock_skew: allowed difference of the store's clock from `now_ms`, after its lead was subtracted.
        clock_lead: how far the store's clock is ahead of `now_ms`.
        is_shared: other clusters than that of the records may write here.
        takes_stand_ins: delete also replacements that a mapping or a repair made of copies that records name.
        now_ms: the time, since 1970, UTC.
    """

    prefix: str = ""
    wants: Callable[[TopicName | None], bool] | None = None
    grace: timedelta = DEFAULT_GRACE
    clock_skew: timedelta = DEFAULT_CLOCK_SKEW
    clock_lead: timedelta = timedelta(0)
    is_shared: bool = True
    takes_stand_ins: bool = False
    now_ms: Callable[[], int] = system_now_ms

    @property
    def folder(self) -> str:
        """The folder that the cluster's objects lie in, with its `/`."""
        return f"{self.prefix.removesuffix('/')}/" if self.prefix else ""

    def is_chosen(self, topic: TopicName | None) -> bool:
        """Return whether garbage of a topic is collected, or (None) garbage that names no topic."""
        return self.wants is None or self.wants(topic)

    def now(self) -> datetime:
        """Return the time, by the store's clock as far as it is known."""
        return datetime.fromtimestamp(self.now_ms() / 1000, timezone.utc) + self.clock_lead

    @property
    def before(self) -> datetime:
        """The time, by the store's clock, after which objects are too young."""
        return self.now() - self.grace - self.clock_skew

    def with_lead(self, lead: timedelta) -> Self:
        """Return the same scope with the lead of the store's clock, which was compared."""
        return replace(self, clock_lead=lead, clock_skew=_COMPARED)


class GarbageKind(enum.Enum):
    """Kind of garbage, by a stable name."""

    code: Code
    meaning: str

    def __new__(cls, value: str, code: Code, meaning: str) -> Self:
        """Make a member, whose value is its name for programs."""
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
    FAILED = ("failed", Code.FAILED, "by its record the attempt was abandoned")
    UNFINISHED = (
        "unfinished",
        Code.UNFINISHED,
        "by its record the attempt is not complete, and its lease is not held",
    )
    CONDEMNED = ("condemned", Code.CONDEMNED, "by its record its ledgers are marked for deletion")
    UPLOAD = (
        "upload",
        Code.STALE_UPLOAD,
        "an upload that was neither committed nor aborted, and no lease is held",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Garbage: the objects of an attempt, or an upload.

    Attributes:
        why: the reason in words.
        key: of the data object or the upload; empty for an upload without a key yet.
        pair: the objects; None for an upload.
        upload: None for objects.
        topic, ledger_ids: its topic and ledgers, if they are known.
        managed_ledger: the topic's, by the name in the objects or their record.
        is_placeholder: it was made as a replacement of a copy that records may still name.
        modified_at: of the younger of the objects, or when the upload was begun.
    """

    kind: GarbageKind
    why: str
    key: str
    pair: Pair | None
    upload: Upload | None
    topic: TopicName | None
    ledger_ids: tuple[int, ...]
    size_bytes: int | None
    modified_at: datetime
    is_placeholder: bool = False
    managed_ledger: str | None = None

    @property
    def uuid(self) -> UUID | None:
        """The attempt's."""
        return None if self.pair is None else self.pair.key.uuid

    def to_json(self, now: datetime) -> dict[str, Any]:
        """Return the fields of a report, as docs/gc.md has them."""
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
    """Return the objects of a pair that exist; its checksums, if it has no others."""
    if pair.is_lone:
        return pair.checksums
    return tuple(each for each in (pair.data, pair.index) if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair:
    """A pair of objects, or checksums that lie beside nothing, and facts about it.

    Attributes:
        topic: the managed ledger's name, by the objects themselves or by the record that names them.
        ledger_ids: by its index or key; none if neither has them.
        is_placeholder: it was made as a replacement of a copy that records may still name.
    """

    number: int
    pair: Pair
    topic: str | None = None
    cluster: str | None = None
    is_sound: bool = False
    ledger_ids: tuple[int, ...] = ()
    is_placeholder: bool = False

    @property
    def youngest(self) -> datetime:
        """The time when the younger of the two was written."""
        return max(each.modified_at for each in objects_of(self.pair))


_FAILURES_KEPT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOutcome:
    """Result for garbage: it was deleted, or not, for a reason or because nothing was to be deleted."""

    garbage: Garbage
    is_deleted: bool = False
    why_kept: str | None = None


@dataclass(slots=True, kw_only=True)
class CollectionSummary:
    """A collection in numbers.

    Attributes:
        objects: pairs of data and index objects; `object_bytes` all their bytes; `uploads` that are under way.
        topics: whose records were read.
        garbage, garbage_bytes: by kind; `deleted`, `deleted_bytes` of it that was deleted.
        younger: objects that no record needs, and that are not old enough.
        live: attempts whose leases are held.
        kept: objects that may be needed all the same, by the reason; `kept_bytes` their bytes.
        unknown: objects of the topics that may be another cluster's, by the reason.
        nameless: objects that no record names, and that name no topic.
        is_limited: there is more garbage than was asked for, which is not counted.
        why_incomplete: why nothing is deleted, in words; None if it may be.
        failed: objects that could not be inspected or deleted; `failures` the errors of the first.
    """

    objects: int = 0
    object_bytes: int = 0
    uploads: int = 0
    topics: int = 0
    garbage: Counter[GarbageKind] = field(default_factory=Counter)
    garbage_bytes: Counter[GarbageKind] = field(default_factory=Counter)
    deleted: Counter[GarbageKind] = field(default_factory=Counter)
    deleted_bytes: Counter[GarbageKind] = field(default_factory=Counter)
    younger: int = 0
    live: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    kept_bytes: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    nameless: int = 0
    is_limited: bool = False
    why_incomplete: str | None = None
    failed: int = 0
    failures: list[OffloadError] = field(default_factory=list)

    @property
    def left(self) -> int:
        """The number of garbage that was not deleted."""
        return self.garbage.total() - self.deleted.total()

    def count(self, outcome: RemovalOutcome) -> None:
        """Count garbage and its result."""
        kind, size = outcome.garbage.kind, outcome.garbage.size_bytes or 0
        self.garbage[kind] += 1
        self.garbage_bytes[kind] += size
        if outcome.is_deleted:
            self.deleted[kind] += 1
            self.deleted_bytes[kind] += size

    def fail(self, error: OffloadError) -> None:
        """Count an object that could not be inspected or deleted."""
        self.failed += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(error)
