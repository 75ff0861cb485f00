"""Findings of a verification: their codes, the place, what was expected and found; and a verification in numbers.

A code is for ever: programs go by it. docs/verify.md has the table of codes, and a test compares the two. Errors of the
codec become findings here.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from typing_extensions import Self


class Severity(enum.Enum):
    """Severity of a finding."""

    WARNING = "warning"
    """No data is lost: space is wasted, or a fact is wrong that readers do not need."""

    ERROR = "error"
    """Entries are lost or damaged, or a reader would fail, or give a wrong result."""


_WARNING, _ERROR = Severity.WARNING, Severity.ERROR

_INDEX = "`offload repair URL KEY` makes the index anew if the data object is right"
_DATA = (
    "put the object back from a backup or versioned bucket, or offload again where the hot copy is there "
    "(`offload repair … --offload-again`); else `offload repair URL KEY` saves what it still holds"
)
_LEFT = "nothing needs it: `offload gc URL --records …` deletes it"
_UPGRADE = "take a newer version of this program"
_MAKE_ANEW = "`offload verify --deep --seal` makes them anew"
_COUNTS = "`offload repair URL --records …` counts them, and corrects the record or tells what it must say"
_RECORD = "compare `offload inspect URL KEY --records …`, and correct the record, or offload again"


class Code(enum.Enum):
    """Kind of a finding, by a stable name."""

    severity: Severity
    meaning: str
    helps: str

    def __new__(cls, value: str, severity: Severity, meaning: str, helps: str) -> Self:
        """A member, whose value is its name for programs."""
        member = object.__new__(cls)
        member._value_ = value
        member.severity, member.meaning, member.helps = severity, meaning, helps
        return member

    # --- a pair of objects -------------------------------------------------------------------------
    NO_INDEX = (
        "object.no-index",
        _ERROR,
        "a data object has no index",
        "if its attempt failed, `offload gc URL --records …` deletes it; else " + _INDEX,
    )
    NO_DATA = ("object.no-data", _ERROR, "an index has no data object", _DATA)
    WRONG_LENGTH = (
        "object.wrong-length",
        _ERROR,
        "the data object is shorter or longer than its index says",
        _DATA,
    )
    ORPHAN = ("object.orphan", _WARNING, "its topic's record is here, and no record names the object", _LEFT)
    STALE_UPLOAD = (
        "upload.stale",
        _WARNING,
        "an upload was begun more than a day ago, and neither committed nor aborted",
        "`offload gc URL --records …` aborts it (the store bills its parts), or the bucket's lifecycle rules do",
    )

    # --- user metadata -----------------------------------------------------------------------------
    UNREADABLE_METADATA = (
        "metadata.unreadable",
        _ERROR,
        "the user metadata cannot be read: of a store that has none, its sidecar is damaged",
        "of an index, `offload repair URL KEY`; else copy the sidecar of the pair's index and correct its role",
    )
    NO_VERSION = (
        "metadata.no-version",
        _WARNING,
        "the user metadata has no format version: Pulsar refuses the object",
        "of an index, `offload repair URL KEY`; else copy the object with its user metadata: some tools leave it out",
    )
    UNKNOWN_VERSION = (
        "metadata.unknown-version",
        _ERROR,
        "the user metadata names a format version that is not known",
        _UPGRADE + ", or put the user metadata right",
    )
    WRONG_ROLE = (
        "metadata.wrong-role",
        _WARNING,
        "the user metadata says `index` of a data object, or `data` of an index",
        "see whether the two were mixed up when they were copied; if not, `offload repair URL KEY` corrects an index",
    )
    CONTRADICTION = (
        "metadata.contradiction",
        _WARNING,
        "the user metadata of data and index name different topics, clusters or filters",
        "see whether one of the two is of another attempt",
    )

    # --- the index ---------------------------------------------------------------------------------
    INDEX_BAD_MAGIC = ("index.bad-magic", _ERROR, "the index begins with no magic of an index", _INDEX)
    INDEX_OTHER_FORMAT = (
        "index.other-format",
        _ERROR,
        "the index is of another format than its key stands for",
        "give the pair the key of its format",
    )
    INDEX_TRUNCATED = ("index.truncated", _ERROR, "the index is cut off, or does not inflate", _INDEX)
    INDEX_BAD_LENGTH = (
        "index.bad-length",
        _ERROR,
        "a length, count or block offset in the index contradicts another",
        _INDEX,
    )
    INDEX_BLOCK_ORDER = (
        "index.block-order",
        _ERROR,
        "blocks in the index do not ascend, overlap, or pass the ledger's end",
        _INDEX,
    )
    INDEX_BAD_METADATA = (
        "index.bad-metadata",
        _ERROR,
        "the ledger's metadata cannot be parsed, or lacks what is required",
        _INDEX,
    )
    INDEX_MISMATCH = (
        "index.mismatch",
        _ERROR,
        "the index lists a ledger twice or with another's metadata, or does not fit its data file",
        _INDEX,
    )
    INDEX_CHECKSUM = ("index.checksum", _ERROR, "a MapFile's index does not match its `.crc` file", _INDEX)
    INDEX_OTHER_TOPIC = (
        "index.other-topic",
        _ERROR,
        "the ledger's metadata in the index names another topic than the user metadata",
        "see whether the index is of another ledger",
    )
    INDEX_DIRECTORY = (
        "index.bad-directory",
        _WARNING,
        "the entry directory behind the index is damaged: random reads are slower",
        "`offload repair URL KEY` makes it anew",
    )

    # --- block checksums ---------------------------------------------------------------------------
    CHECKSUMS_BLOCK = ("checksums.block", _ERROR, "a block does not match the checksums beside it", _DATA)
    CHECKSUMS_INDEX = ("checksums.index", _ERROR, "the index does not match the checksums beside it", _INDEX)
    CHECKSUMS_OTHER = ("checksums.contradiction", _ERROR, "the checksums are of other lengths", _DATA)
    CHECKSUMS_DAMAGED = ("checksums.damaged", _WARNING, "the checksums cannot be read", _MAKE_ANEW)
    CHECKSUMS_VERSION = ("checksums.unknown-version", _WARNING, "the checksums are too new", _UPGRADE)
    CHECKSUMS_ORPHAN = ("checksums.orphan", _WARNING, "checksums lie beside nothing", _LEFT)

    # --- copies of one ledger ----------------------------------------------------------------------
    SUPERSEDED = (
        "ledger.superseded",
        _WARNING,
        "a ledger has a newer complete copy, which is read in place of this one",
        "have the records tell which one is named (`--records`); " + _LEFT,
    )
    COPIES_DIFFER = (
        "ledger.copies-differ",
        _ERROR,
        "two complete copies of a ledger do not have as many entries",
        "have the records tell which one is named (`--records`), and compare with the hot copy",
    )
    GAP = (
        "ledger.gap",
        _ERROR,
        "entries of a ledger lie in no object, between or before its segments",
        "look for the missing object in a backup; with `--records` see whether they are hot",
    )
    OVERLAP = (
        "ledger.overlap",
        _WARNING,
        "entries of a ledger lie in two segments",
        "have the records tell which one is named (`--records`)",
    )
    WRONG_ENTRIES = (
        "ledger.wrong-entries",
        _WARNING,
        "the index of a streaming object says that a ledger has more or fewer entries here",
        "none is lost by it; readers go by the blocks. `offload repair URL KEY` makes the index anew",
    )
    KEPT = (
        "ledger.kept-entries",
        _ERROR,
        "an object with gaps does not have the entries that its filter kept, as the index counts them",
        _DATA,
    )
    LOST_ENTRIES = (
        "ledger.lost-entries",
        _ERROR,
        "an object lacks entries that were lost before it was made of a damaged one, as it says itself",
        "look for the damaged object's older versions, or its backup; the rest of it is readable",
    )
    WRONG_SIZE = (
        "ledger.wrong-size",
        _WARNING,
        "the entries' bytes, counted, are not what the index says",
        "`offload repair URL KEY` counts them; an old bookie's metadata may have been wrong from the beginning",
    )

    # --- records -----------------------------------------------------------------------------------
    RECORD_UNREADABLE = (
        "record.unreadable",
        _ERROR,
        "a managed ledger's record cannot be parsed",
        "put the record back from a backup of the metadata store",
    )
    NO_OBJECT = (
        "record.no-object",
        _ERROR,
        "a record says that a copy is complete, and it is not here; the hot copy is",
        "`offload repair URL --records … --offload-again` before its hot copy is deleted",
    )
    LOST = (
        "record.lost",
        _ERROR,
        "by the record the hot copy was deleted, and the entries are in no complete copy here",
        "stop deletions now; put the object back from a backup or versioned bucket",
    )
    ELSEWHERE = (
        "record.elsewhere",
        _WARNING,
        "a copy is not here, and its record names another tier",
        "verify that tier with these records as well",
    )
    BROKEN_COPY = (
        "record.broken-copy",
        _ERROR,
        "a record says that a copy is complete, and it cannot be read; what is wrong with it is told as well",
        "`offload repair URL --records …`, with `--offload-again` where the hot copy is there",
    )
    RECORD_OTHER_FORMAT = (
        "record.other-format",
        _ERROR,
        "a record and an object's key stand for different formats",
        _RECORD,
    )
    OTHER_LEDGER = (
        "record.other-ledger",
        _ERROR,
        "the object that a ledger's record names holds other ledgers",
        _RECORD,
    )
    OTHER_TOPIC = (
        "record.other-topic",
        _ERROR,
        "the object that a topic's record names says that it is of another topic",
        _RECORD,
    )
    RECORD_ENTRIES = (
        "record.entries",
        _ERROR,
        "record and index do not have as many entries of a ledger",
        _COUNTS,
    )
    RECORD_SIZE = ("record.size", _WARNING, "record and index do not have as many bytes of a ledger", _COUNTS)
    RECORD_FILTER = (
        "record.filter",
        _ERROR,
        "record, index and user metadata do not tell the same of a filter that ran, or not all of it",
        "keep the hot copy; where it is there, `offload repair … --offload-again`",
    )
    SEGMENT_GAP = (
        "record.segment-gap",
        _ERROR,
        "a segment's object begins behind the entry that its record says",
        _RECORD,
    )
    SEGMENT_OVERLAP = (
        "record.segment-overlap",
        _WARNING,
        "a segment's object begins before the entry that its record says",
        "none is lost by it; readers go by the record",
    )
    SEGMENT_END = (
        "record.segment-end",
        _ERROR,
        "a segment's object does not end with the entry that its record says",
        _RECORD,
    )
    FALSE_COMPLETE = (
        "record.false-complete",
        _ERROR,
        "a record says that all of a ledger is offloaded, and its complete segments do not have all entries",
        "keep the hot copy; have the missing segments offloaded",
    )
    UNFINISHED = (
        "attempt.unfinished",
        _WARNING,
        "there are objects of an attempt that by its record is not complete, and nobody has a lease on it",
        "the next offload of the ledger removes them, or `offload gc URL --records …`",
    )
    FAILED = (
        "attempt.failed",
        _WARNING,
        "there are objects of a segment that by its record failed",
        "the next offload of the topic removes them, or `offload gc URL --records …`",
    )
    CONDEMNED = (
        "attempt.condemned",
        _WARNING,
        "there are objects of a ledger that by its record is being deleted",
        "the topic's next trim removes them, or `offload gc URL --records …`",
    )

    # --- blocks, with --deep -----------------------------------------------------------------------
    BLOCK_BAD_MAGIC = (
        "block.bad-magic",
        _ERROR,
        "a block does not begin with the magic of its format",
        _DATA,
    )
    BLOCK_HEADER_LENGTH = (
        "block.header-length",
        _ERROR,
        "a block's header declares another length than 128",
        _DATA,
    )
    BLOCK_WRONG_LENGTH = (
        "block.wrong-length",
        _ERROR,
        "a block declares another length than its index",
        _DATA,
    )
    BLOCK_WRONG_FIRST_ENTRY = (
        "block.wrong-first-entry",
        _ERROR,
        "a block declares another first entry than its index",
        _DATA,
    )
    BLOCK_WRONG_LEDGER = (
        "block.wrong-ledger",
        _ERROR,
        "a streaming block declares another ledger than its index",
        _DATA,
    )
    BLOCK_HEADER_REST = (
        "block.header-rest",
        _WARNING,
        "the rest of a block's header is not zero",
        "nobody reads it; the object was changed: " + _DATA,
    )
    BLOCK_BAD_PADDING = (
        "block.bad-padding",
        _ERROR,
        "what follows a block's last entry is not the padding pattern",
        _DATA,
    )
    BLOCK_WRONG_END = (
        "block.wrong-end",
        _ERROR,
        "a block does not end with the entry that its index says",
        _DATA,
    )
    ENTRY_CUT_OFF = ("entry.cut-off", _ERROR, "an entry's frame is cut off", _DATA)
    ENTRY_BAD_LENGTH = (
        "entry.bad-length",
        _ERROR,
        "an entry's length is negative, or reaches past its block",
        _DATA,
    )
    ENTRY_WRONG_ID = ("entry.wrong-id", _ERROR, "an entry is not the one that must come next", _DATA)

    # --- MapFiles, with --deep ---------------------------------------------------------------------
    MAPFILE_DAMAGED = (
        "mapfile.damaged",
        _ERROR,
        "a MapFile's header, sync mark, record or block is not right",
        _DATA,
    )
    MAPFILE_CHECKSUM = (
        "mapfile.checksum",
        _ERROR,
        "a chunk of a MapFile's data does not match its `.crc` file",
        _DATA,
    )

    # --- messages, with --deep ---------------------------------------------------------------------
    MESSAGE_CHECKSUM = ("message.checksum", _ERROR, "an entry's CRC-32C does not match its bytes", _DATA)
    MESSAGE_BAD_METADATA = (
        "message.bad-metadata",
        _ERROR,
        "an entry's metadata cannot be parsed, or lacks what is required",
        _DATA,
    )
    MESSAGE_BAD_LENGTH = ("message.bad-length", _ERROR, "a length in an entry does not fit it", _DATA)
    MESSAGE_DECOMPRESSION = (
        "message.decompression",
        _ERROR,
        "a payload does not decompress as it says",
        _DATA,
    )
    MESSAGE_BAD_BATCH = ("message.bad-batch", _ERROR, "a batch lacks messages that it declares", _DATA)
    MORE = (
        "object.more-findings",
        _ERROR,
        "so much is wrong with an object that the rest of it was not verified",
        "as for its other findings",
    )


MOST_OF_AN_OBJECT = 100
"""An object with more findings is not verified to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault that verification found.

    Attributes:
        what: a sentence; the meaning of the code, unless more is known.
        topic: whose record it is about.
        key: of the object.
        ledger_id, block, entry_id: where in the ledger and the object; blocks by their part numbers, from 1.
        offset: the byte in the object.
    """

    code: Code
    what: str = ""
    topic: str | None = None
    key: str | None = None
    ledger_id: int | None = None
    block: int | None = None
    entry_id: int | None = None
    offset: int | None = None
    expected: str | None = None
    found: str | None = None

    def __post_init__(self) -> None:
        if not self.what:
            object.__setattr__(self, "what", self.code.meaning)

    @property
    def severity(self) -> Severity:
        """The code's severity."""
        return self.code.severity

    def to_json(self) -> dict[str, Any]:
        """The finding in JSON, by the names of docs/verify.md."""
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
        absent: keys that must not exist, or the tier has changed since.
        present: keys one of which must exist, or the tier has changed since; none if that does not matter.
    """

    finding: Finding
    absent: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


def of_error(code: Code, error: FormatError, **place: Any) -> Finding:
    """Return the finding that an error of the codec is; `place` has fields that the error lacks, or another `what`."""
    known = {
        name: getattr(error, name)
        for name in ("key", "ledger_id", "block", "entry_id", "offset")
        if getattr(error, name) is not None
    }
    stated = {
        name: str(getattr(error, name)) for name in ("expected", "found") if getattr(error, name) is not None
    }
    return Finding(code=code, **({"what": error.what} | place | stated | known))


class Findings:
    """Findings about one object."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """True if the object has too many findings to be verified to its end."""
        return len(self.found) > MOST_OF_AN_OBJECT

    def add(self, finding: Finding) -> None:
        """Add a finding of this object."""
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
        """Add several findings."""
        for finding in findings:
            self.add(finding)


def code_of(error: FormatError, codes: Iterable[tuple[type[FormatError], Code]], default: Code) -> Code:
    """Return the code of the first of these kinds that the error is of."""
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
        stand_ins: replacements of copies that records name, by a mapping of relocate or after a repair.
        unknown: objects that no record names, which may be another cluster's: there are no findings about them.
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
        """Count the findings of a severity."""
        return sum(count for code, count in self.findings.items() if code.severity is severity)

    def to_json(self) -> dict[str, Any]:
        """The summary in JSON, by the names of docs/verify.md."""
        names = [each.name for each in fields(self) if each.name not in ("findings", "failures")]
        return {
            **{name: getattr(self, name) for name in names},
            "errors": self.count(Severity.ERROR),
            "warnings": self.count(Severity.WARNING),
            "codes": dict(sorted((code.value, count) for code, count in self.findings.items())),
        }

    def fail(self, error: OffloadError) -> None:
        """Count an object that could not be verified."""
        self.failed += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(error)
