"""What an audit log records: a copy of a ledger that is deleted, or another change."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from offload_core.filters import FilterRecord
from offload_core.metadata import EntryPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A copy of a ledger that is about to be deleted.

    Attributes:
        managed_ledger: its name; `(unknown topic)` of an object of which nothing tells it.
        ledger_id: None for an object of which nothing tells the ledgers.
        copy: in the hot tier, or a cold one.
        why: in words.
        uuid: of a cold copy: the attempt's.
        entries, size_bytes: what the ledger has, where the record says it.
        begin, end: of a segment: its first and last entry, perhaps of other ledgers, where the record says it.
        filtered: of a hot copy: what filters took out of the cold one, which cannot come back.
    """

    managed_ledger: str
    ledger_id: int | None
    copy: Literal["hot", "cold"]
    why: str
    uuid: UUID | None = None
    entries: int | None = None
    size_bytes: int | None = None
    begin: EntryPosition | None = None
    end: EntryPosition | None = None
    filtered: tuple[FilterRecord, ...] = ()


class ChangeAction(enum.Enum):
    """What is about to be done, other than a deletion of a ledger's copy."""

    WRITE = "write"
    """A new object is written under a key that nothing had, or that had what is worse."""
    MOVE = "move"
    """An object goes to another key, out of the way."""
    RECORD = "record"
    """A managed ledger's record is changed."""
    ABORT_UPLOAD = "abort-upload"
    """An upload that is under way no more is aborted, and its parts are gone."""
    DELETE_FILE = "delete-file"
    """Something that is no copy of a ledger is deleted, such as half a file that a crash has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another change that is about to be made.

    Attributes:
        why: in words.
        managed_ledger: its name, where that is known.
        ledger_id: where it is about one ledger.
        uuid: of the attempt that it is about.
        key: of the object that is changed, in its tier; of a move where it was.
        before: what is said or named now, in words or as a key; None if nothing is.
        after: the same of what comes in its place.
    """

    action: ChangeAction
    why: str
    managed_ledger: str | None = None
    ledger_id: int | None = None
    uuid: UUID | None = None
    key: str | None = None
    before: str | None = None
    after: str | None = None
