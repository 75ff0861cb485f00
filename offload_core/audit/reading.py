"""What an audit log says, line by line. A line that a crash tore is passed over. Source: docs/formats/audit-log.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from offload_core.audit.log import VERSION
from offload_hooks.errors import FormatError, ObjectNotFoundError, StoreError, UnsupportedVersionError


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


def read_audit_log(path: str | os.PathLike[str]) -> Iterator[AuditLine]:
    """The lines of a file, in their order.

    Raises:
        ObjectNotFoundError: it is not there. StoreError: it cannot be read.
        FormatError: it is another file: it begins with no line of an audit log, whole or torn; or a line
            is JSON, and none of an audit log. UnsupportedVersionError: of a newer one.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                parsed = _parsed(line)
                if number == 1 and parsed is None and line.strip() and not line.startswith(b"{"):
                    raise FormatError("this is no audit log", key=os.fspath(path))
                if parsed is not None:
                    yield _line(parsed, f"{os.fspath(path)}, line {number}")
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        if isinstance(error, FileNotFoundError):
            raise ObjectNotFoundError("there is no such audit log", key=os.fspath(path)) from error
        raise StoreError(f"the audit log cannot be read: {error.strerror}", key=os.fspath(path)) from error


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _line(fields: object, place: str) -> AuditLine:
    try:
        if not isinstance(fields, dict):
            raise TypeError("a line is an object")
        if fields["version"] != VERSION:
            raise UnsupportedVersionError(
                "a line of an audit log has a version that is not known",
                key=place,
                expected=VERSION,
                found=fields["version"],
            )
        uuid = fields.get("uuid")
        return AuditLine(
            at=datetime.fromisoformat(fields["at"]).astimezone(UTC),
            action=str(fields["action"]),
            managed_ledger=fields.get("managed_ledger"),
            ledger_id=fields.get("ledger_id"),
            uuid=None if uuid is None else UUID(uuid),
            copy=fields.get("copy"),
            why=str(fields.get("why", "")),
            key=fields.get("key"),
            before=fields.get("before"),
            after=fields.get("after"),
        )
    except UnsupportedVersionError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise FormatError("a line is none of an audit log", key=place) from error
