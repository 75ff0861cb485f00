"""What a collection looked at, and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from offload_core.gc.garbage import Garbage, Kind
from offload_hooks.errors import OffloadError

_FAILURES_KEPT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of garbage: it was deleted, or it is there, because nothing was to be deleted or for a reason."""

    garbage: Garbage
    is_deleted: bool = False
    why_kept: str | None = None


@dataclass(slots=True, kw_only=True)
class Summary:
    """What was looked at, and what came of it.

    Attributes:
        objects: pairs of data and index objects; `object_bytes` all their bytes; `uploads` that are under way.
        topics: whose records were read.
        garbage, garbage_bytes: how much of each kind; `deleted`, `deleted_bytes` of it that went.
        younger: that no record needs, and that are not old enough to be looked at.
        live: attempts that somebody is at.
        kept: that may be needed all the same, by the reason; `kept_bytes` how large these are.
        unknown: of the wanted topics, that may be another cluster's, by the reason.
        nameless: that no record names, and that name no topic.
        is_limited: there is more garbage than was asked for, which is not counted.
        why_incomplete: why nothing is deleted, in words; None if it may be.
        failed: that could not be looked at, or deleted; `failures` why, of the first.
    """

    objects: int = 0
    object_bytes: int = 0
    uploads: int = 0
    topics: int = 0
    garbage: Counter[Kind] = field(default_factory=Counter)
    garbage_bytes: Counter[Kind] = field(default_factory=Counter)
    deleted: Counter[Kind] = field(default_factory=Counter)
    deleted_bytes: Counter[Kind] = field(default_factory=Counter)
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
        """Garbage that is still there."""
        return self.garbage.total() - self.deleted.total()

    def count(self, outcome: Outcome) -> None:
        """Some garbage, and what became of it."""
        kind, size = outcome.garbage.kind, outcome.garbage.size_bytes or 0
        self.garbage[kind] += 1
        self.garbage_bytes[kind] += size
        if outcome.is_deleted:
            self.deleted[kind] += 1
            self.deleted_bytes[kind] += size

    def fail(self, error: OffloadError) -> None:
        """Something could not be looked at or deleted."""
        self.failed += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(error)
