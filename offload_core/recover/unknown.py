"""What a bucket alone does not tell of a topic: found for a place, or the same for every topic."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Unknown(enum.Enum):
    """What is not known, by a stable code; the first word of its value is that code, what follows it in words."""

    OPEN_LEDGER = (
        "open-ledger",
        "it was open when it was offloaded last: what came behind this entry is not here",
    )
    GAP = "gap", "these entries have no copy here: they were never offloaded, or their object is lost"
    TRIMMED = "trimmed", "its first entries are not here: it was trimmed, or they are lost; it is left out"
    SEVERAL_COPIES = (
        "several-copies",
        "of several complete copies the newest is taken, as readers without records do",
    )
    COPIES_DIFFER = (
        "copies-differ",
        "complete copies differ; the newest is taken, as readers without records do",
    )
    LOST_ENTRIES = (
        "lost-entries",
        "the copy was saved from a damaged one, and lacks entries that its record counts",
    )
    NO_COPY = "no-copy", "no attempt at it is complete: it is left out"
    SIZE = "size", "how many bytes its entries had is not known"
    BROKEN_DATA = "broken-data", "its last block cannot be read: it is left out"
    CLUSTERS = "clusters", "several clusters have offloaded a topic of this name: say which"
    NO_TOPIC = "no-topic", "nothing says which topic it is of"
    FOLDER = "folder", "it lies in a folder, where a record does not find it: open the tier there"

    def __init__(self, code: str, meaning: str) -> None:
        self.code = code
        self.meaning = meaning

    @property
    def leaves_something(self) -> bool:
        """Whether entries that may be there are not in the record, or may be lost."""
        return self in (
            Unknown.GAP,
            Unknown.LOST_ENTRIES,
            Unknown.BROKEN_DATA,
            Unknown.CLUSTERS,
            Unknown.NO_TOPIC,
            Unknown.FOLDER,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFact:
    """Something that a recovered record does not say, or says by a choice.

    Attributes:
        first_entry_id, last_entry_id: the entries that it is about; None where it is about a whole ledger or object.
        key: of an object.
        detail: what was found, in words.
    """

    what: Unknown
    ledger_id: int | None = None
    first_entry_id: int | None = None
    last_entry_id: int | None = None
    key: str | None = None
    detail: str | None = None


NEVER_KNOWN = (
    "ledgers that were never offloaded, and what is in BookKeeper only",
    "cursors and subscriptions: where consumers had come to",
    "the managed ledger's properties, and whether it was terminated",
    "ledgers that were deleted, or offloaded through a filter that left nothing",
    "the topics' schemas and policies, which are not in the objects",
    "when a segment was assigned",
)
"""Of no topic."""

APPROXIMATE = (
    "when a ledger that is one object was closed: the time of its index is taken, which is later",
    "when a copy was complete: the time of its index is taken",
    "whether the hot copy is there: it is taken to be gone",
)
"""Of every topic; what is recorded instead."""
