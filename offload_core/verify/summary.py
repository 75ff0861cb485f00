"""What a verification looked at, and what came of it, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from offload_core.verify.codes import Code
from offload_core.verify.severity import Severity
from offload_hooks.errors import OffloadError

_FAILURES_KEPT = 100


@dataclass(slots=True, kw_only=True)
class Summary:
    """What was looked at, and what came of it.

    Attributes:
        objects: pairs of data and index objects; `object_bytes` all their bytes.
        ledgers: of records, those that were compared.
        deep_objects: data objects that were verified to the last byte now, of `deep_bytes`; `skipped` those before.
        compared_objects: of those read now, those that were compared with their checksums only, and not counted.
        entries: that were counted in these; `unchecked_entries` those without a checksum.
        with_checksums: pairs that have checksums beside them, which fit; `sealed` those that got some now, or would.
        stand_ins: copies that stand in for those that records name, by a mapping of relocate or after a repair.
        unknown: objects that no record names, which may be another cluster's: nothing is said of them.
        findings: how many of each code.
        failed: objects that could not be verified; `failures` why, of the first.
    """

    objects: int = 0
    object_bytes: int = 0
    topics: int = 0
    ledgers: int = 0
    deep_objects: int = 0
    deep_bytes: int = 0
    compared_objects: int = 0
    skipped: int = 0
    entries: int = 0
    unchecked_entries: int = 0
    with_checksums: int = 0
    sealed: int = 0
    stand_ins: int = 0
    unknown: int = 0
    findings: Counter[Code] = field(default_factory=Counter)
    failed: int = 0
    failures: list[OffloadError] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """How many findings are so bad."""
        return sum(count for code, count in self.findings.items() if code.severity is severity)

    def to_json(self) -> dict[str, Any]:
        """For a report, by the names that docs/verify.md has."""
        return {
            "objects": self.objects,
            "object_bytes": self.object_bytes,
            "topics": self.topics,
            "ledgers": self.ledgers,
            "deep_objects": self.deep_objects,
            "deep_bytes": self.deep_bytes,
            "compared_objects": self.compared_objects,
            "skipped": self.skipped,
            "entries": self.entries,
            "unchecked_entries": self.unchecked_entries,
            "with_checksums": self.with_checksums,
            "sealed": self.sealed,
            "stand_ins": self.stand_ins,
            "unknown": self.unknown,
            "failed": self.failed,
            "errors": self.count(Severity.ERROR),
            "warnings": self.count(Severity.WARNING),
            "codes": dict(sorted((code.value, count) for code, count in self.findings.items())),
        }

    def fail(self, error: OffloadError) -> None:
        """Something could not be verified."""
        self.failed += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(error)
