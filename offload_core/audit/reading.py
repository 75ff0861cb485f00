"""What an audit log says, line by line. A line that a crash tore is passed over. Source: docs/formats/audit-log.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from offload_core.audit.log import VERSION
from offload_hooks.errors import FormatError, ObjectNotFoundError, StoreError
from offload_hooks.json_text import JsonObject, read_json


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
        at = datetime.fromisoformat(fields.text("at")).astimezone(UTC)
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
