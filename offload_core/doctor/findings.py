"""What an examination of a tier found: one result for each check, and all of them together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failed", "skipped"]
STATUSES: tuple[Status, ...] = ("ok", "warning", "failed", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found: what was seen, and what to do about it, None if there is nothing to do."""

    status: Status
    seen: str
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check's name, what it found, and how long it took."""

    name: str
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """An examination of one tier.

    Attributes:
        driver: the driver's name.
        location: the tier's root, without credentials.
        read_only: whether nothing was written.
        prefix: what the keys of all objects began with that were made.
        results: of all checks, in their order.
        left_behind: what was made and could not be removed: keys, and uploads as `key (upload id)`.
        interrupted: whether the examination was broken off.
    """

    driver: str
    location: str
    read_only: bool
    prefix: str
    results: tuple[CheckResult, ...]
    left_behind: tuple[str, ...]
    interrupted: bool

    @property
    def has_failed(self) -> bool:
        """Whether any check failed, or not all of them could be made."""
        return self.interrupted or self.count("failed") > 0

    def count(self, status: Status) -> int:
        """How many checks ended so."""
        return Counter(result.finding.status for result in self.results)[status]


def ok(seen: str) -> Finding:
    """All is as it should be."""
    return Finding(status="ok", seen=seen)


def warning(seen: str, fix: str) -> Finding:
    """It works, but something should be looked at."""
    return Finding(status="warning", seen=seen, fix=fix)


def failed(seen: str, fix: str) -> Finding:
    """It does not work, or not as the hooks ask for."""
    return Finding(status="failed", seen=seen, fix=fix)


def skipped(why: str) -> Finding:
    """It was not tried."""
    return Finding(status="skipped", seen=why)
