"""The audit log: changes are recorded before they are made, and read line by line.

So every deletion has a line; one that was made again after a failure has two. The file is lines of JSON. A reader skips
a line that a crash cut off. Source: docs/formats/audit-log.md.
"""

from __future__ import annotations

import enum
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import FilterRecord
from offload_core.storage.clock import system_now_ms
from offload_hooks.errors import FormatError, ObjectNotFoundError, StoreError
from offload_hooks.json_text import JsonObject, read_json
from offload_hooks.private_files import open_file, sync_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A copy of a ledger that is about to be deleted.

    Attributes:
        managed_ledger: its name; `(unknown topic)` for an object that does not state it.
        ledger_id: None for an object that does not state its ledgers.
        copy: in the hot tier, or a cold one.
        why: in words.
        uuid: of a cold copy: the attempt's.
        entries, size_bytes: what the ledger has, if recorded.
        begin, end: of a segment: its first and last entry, perhaps of other ledgers, if recorded.
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
    """Action that is about to be taken, other than a deletion of a ledger's copy."""

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
        before: the old value, in words or as a key; None if there is none.
        after: the new one.
    """

    action: ChangeAction
    why: str
    managed_ledger: str | None = None
    ledger_id: int | None = None
    uuid: UUID | None = None
    key: str | None = None
    before: str | None = None
    after: str | None = None


VERSION = 1

_log = logging.getLogger(__name__)


class AuditLog(Protocol):
    """Log of changes. Calls may come from many threads at once."""

    def record(self, change: Deletion | Change) -> None:
        """Record a change, before it is made; if this raises, it is not made."""


class LoggedChanges:
    """Records changes in the program's log, as information."""

    def record(self, change: Deletion | Change) -> None:
        """See `AuditLog`."""
        if isinstance(change, Deletion):
            _log.info(
                "deleting the %s copy of ledger %s of %s: %s",
                change.copy,
                change.ledger_id,
                change.managed_ledger,
                change.why,
            )
            return
        fields = {name: value for name, value in _of_change(change).items() if value is not None}
        values = ", ".join(
            f"{name} {value}" for name, value in fields.items() if name not in ("action", "why")
        )
        _log.info("%s: %s: %s", change.action.value, values, change.why)


PROGRAM_LOG: AuditLog = LoggedChanges()


class FileAuditLog:
    """Records changes as lines at the end of a file, durably; several processes may share it.

    Args:
        path: the file, made if need be, for this user alone; not a symbolic link.
        now_ms: the time, in ms since 1970, UTC.
    """

    def __init__(self, path: str | os.PathLike[str], *, now_ms: Callable[[], int] = system_now_ms) -> None:
        self._path = Path(path)
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._is_synced = False

    def check_writable(self) -> None:
        """Check that the file exists and can be written, before any change is begun.

        Raises:
            StoreError: it cannot be.
        """
        with self._translated(), self._lock:
            os.close(self._open())

    def record(self, change: Deletion | Change) -> None:
        """See `AuditLog`.

        Raises:
            StoreError: the line could not be written.
        """
        at = datetime.fromtimestamp(self._now_ms() / 1000, timezone.utc)
        fields = _of_deletion(change) if isinstance(change, Deletion) else _of_change(change)
        line = {"version": VERSION, "at": at.isoformat(timespec="milliseconds"), **fields}
        data = json.dumps(line).encode() + b"\n"
        with self._translated(), self._lock:
            descriptor = self._open()
            try:
                end = os.fstat(descriptor).st_size
                if end and os.pread(descriptor, 1, end - 1) != b"\n":
                    data = b"\n" + data  # a crash tore the line before
                if os.write(descriptor, data) != len(data):
                    raise StoreError("the audit log has no room for a line", key=str(self._path))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        descriptor = open_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        if (
            not self._is_synced
        ):  # the process that created the file may have been killed before its name was durable
            try:
                sync_directory(self._path.absolute().parent)
            except BaseException:
                os.close(descriptor)
                raise
            self._is_synced = True
        return descriptor

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"the audit log cannot be written: {error.strerror}", key=str(self._path)
            ) from error


def _of_deletion(deletion: Deletion) -> dict[str, Any]:
    return {
        "action": "delete",
        "copy": deletion.copy,
        "managed_ledger": deletion.managed_ledger,
        "ledger_id": deletion.ledger_id,
        "uuid": None if deletion.uuid is None else str(deletion.uuid),
        "entries": deletion.entries,
        "size_bytes": deletion.size_bytes,
        **{
            name: str(position)
            for name, position in (("begin", deletion.begin), ("end", deletion.end))
            if position is not None
        },
        **_filtered(deletion),
        "why": deletion.why,
    }


def _of_change(change: Change) -> dict[str, Any]:
    return {
        "action": change.action.value,
        "managed_ledger": change.managed_ledger,
        "ledger_id": change.ledger_id,
        "uuid": None if change.uuid is None else str(change.uuid),
        "key": change.key,
        "before": change.before,
        "after": change.after,
        "why": change.why,
    }


def _filtered(deletion: Deletion) -> dict[str, Any]:
    """The records of filters, as in indexes."""
    records = [record.to_json() for record in deletion.filtered]
    return {"filtered": records} if records else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """A change that was recorded before it was made.

    Attributes:
        action: `delete`, or a `ChangeAction`'s value; a newer program may know others.
        copy: of a deletion: `hot` or `cold`.
    """

    at: datetime
    action: str
    managed_ledger: str | None
    ledger_id: int | None
    uuid: UUID | None
    copy: str | None
    why: str
    key: str | None
    before: str | None
    after: str | None


def read_audit_log(
    path: str | os.PathLike[str], *, wrong: Callable[[FormatError], None] | None = None
) -> Iterator[AuditLine]:
    """The lines of a file, in their order.

    Args:
        path: of the file.
        wrong: takes the error of each line that is JSON and none of an audit log, or of a newer one; the next line
            follows. None: it is raised.

    Raises:
        ObjectNotFoundError: it is not there. StoreError: it cannot be read.
        FormatError: it is another file: it begins with no line of an audit log, whole or torn; or see `wrong`.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                parsed = _parsed(line)
                if number == 1 and parsed is None and line.strip() and not line.startswith(b"{"):
                    raise FormatError("this is no audit log", key=os.fspath(path))
                if parsed is None:
                    continue
                try:
                    audit_line = _line(parsed, f"{os.fspath(path)}, line {number}")
                except FormatError as error:
                    if wrong is None:
                        raise
                    wrong(error)
                else:
                    yield audit_line
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        if isinstance(error, FileNotFoundError):
            raise ObjectNotFoundError("there is no such audit log", key=os.fspath(path)) from error
        raise StoreError(f"the audit log cannot be read: {error.strerror}", key=os.fspath(path)) from error


def _parsed(line: bytes) -> object:
    try:
        return read_json(line, "a line of an audit log")
    except FormatError:
        return None


def _line(value: object, place: str) -> AuditLine:
    fields = JsonObject.of(value, "a line of an audit log", key=place)
    fields.check_version(VERSION)
    try:
        at = datetime.fromisoformat(fields.text("at")).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise fields.wrong("at", "a time as in ISO 8601") from None
    return AuditLine(
        at=at,
        action=fields.text("action"),
        managed_ledger=fields.optional_text("managed_ledger"),
        ledger_id=fields.optional_integer("ledger_id"),
        uuid=fields.optional_uuid("uuid"),
        copy=fields.optional_text("copy"),
        why=fields.optional_text("why") or "",
        key=fields.optional_text("key"),
        before=fields.optional_text("before"),
        after=fields.optional_text("after"),
    )
