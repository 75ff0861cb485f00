"""A finding: a code, the place, and what was expected and found; and a verification in numbers.

Errors of the codec become findings here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from offload_core.maintenance.verify.codes import Code, Severity
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    DecompressionError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    MetadataError,
    OffloadError,
    PaddingError,
    TruncatedError,
)

MOST_OF_AN_OBJECT = 100
"""An object of which more is wrong is not verified to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong.

    Attributes:
        what: a sentence for people.
        topic: of what a record says.
        key: the object.
        ledger_id, block, entry_id: where in the ledger and the object; blocks by their part numbers, from 1.
        offset: the byte in the object.
    """

    code: Code
    what: str
    topic: str | None = None
    key: str | None = None
    ledger_id: int | None = None
    block: int | None = None
    entry_id: int | None = None
    offset: int | None = None
    expected: str | None = None
    found: str | None = None

    @property
    def severity(self) -> Severity:
        """Return how bad it is."""
        return self.code.severity

    def to_json(self) -> dict[str, Any]:
        """For a report, by the names that docs/verify.md has."""
        return {
            "code": self.code.value,
            "severity": self.severity.value,
            "what": self.what,
            "topic": self.topic,
            "key": self.key,
            "ledger": self.ledger_id,
            "block": self.block,
            "entry": self.entry_id,
            "offset": self.offset,
            "expected": self.expected,
            "found": self.found,
            "helps": self.code.helps,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubtful:
    """A finding that holds if the tier still is as it was listed.

    Attributes:
        absent: keys under which nothing is, or the tier has changed since.
        present: keys one of which is there, or the tier has changed since; none: that does not matter.
    """

    finding: Finding
    absent: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


def of_error(code: Code, error: FormatError, **place: Any) -> Finding:
    """The finding that an error of the codec is; `place` is what the error does not know."""
    known = {
        name: getattr(error, name)
        for name in ("key", "ledger_id", "block", "entry_id", "offset")
        if getattr(error, name) is not None
    }
    return Finding(
        code=code,
        what=error.what,
        expected=None if error.expected is None else str(error.expected),
        found=None if error.found is None else str(error.found),
        **{**place, **known},
    )


class Findings:
    """Findings about one object."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """True if no more are taken: so much is wrong that it does not do to go on."""
        return len(self.found) > MOST_OF_AN_OBJECT

    def add(self, finding: Finding) -> None:
        """Take a finding of this object."""
        if self.is_full:
            return
        if len(self.found) == MOST_OF_AN_OBJECT:
            finding = Finding(
                code=Code.MORE,
                what=f"an object has more than {MOST_OF_AN_OBJECT} findings",
                offset=finding.offset,
                block=finding.block,
                ledger_id=finding.ledger_id,
            )
        self.found.append(replace(finding, key=finding.key or self.key))

    def extend(self, findings: Iterable[Finding]) -> None:
        """Take several."""
        for finding in findings:
            self.add(finding)


def code_of(error: FormatError, codes: Iterable[tuple[type[FormatError], Code]], default: Code) -> Code:
    """The code of the first of these kinds that the error is of."""
    return next((code for kind, code in codes if isinstance(error, kind)), default)


INDEX_CODES: tuple[tuple[type[FormatError], Code], ...] = (
    (BadMagicError, Code.INDEX_BAD_MAGIC),
    (TruncatedError, Code.INDEX_TRUNCATED),
    (BadLengthError, Code.INDEX_BAD_LENGTH),
    (EntryOrderError, Code.INDEX_BLOCK_ORDER),
    (MetadataError, Code.INDEX_BAD_METADATA),
    (IndexMismatchError, Code.INDEX_MISMATCH),
    (ChecksumError, Code.INDEX_CHECKSUM),
    (DecompressionError, Code.INDEX_TRUNCATED),
)

FRAME_CODES: tuple[tuple[type[FormatError], Code], ...] = (
    (TruncatedError, Code.ENTRY_CUT_OFF),
    (BadLengthError, Code.ENTRY_BAD_LENGTH),
    (EntryOrderError, Code.ENTRY_WRONG_ID),
    (PaddingError, Code.BLOCK_BAD_PADDING),
)

ENTRY_CODES: tuple[tuple[type[FormatError], Code], ...] = (
    (ChecksumError, Code.MESSAGE_CHECKSUM),
    (BadLengthError, Code.MESSAGE_BAD_LENGTH),
)


_FAILURES_KEPT = 100


@dataclass(slots=True, kw_only=True)
class Summary:
    """A verification in numbers.

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
        """Return how many findings are so bad."""
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
