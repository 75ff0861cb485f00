"""The audit log: each copy of a ledger that is deleted, and why, before it is.

So nothing is deleted that does not stand there; what stands there twice was deleted again after a failure. The file is
lines of JSON, described in docs/formats/audit-log.md.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

from offload_core.filters import FilterRecord
from offload_core.metadata import EntryPosition
from offload_core.offload.clock import system_now_ms
from offload_hooks.errors import StoreError

VERSION = 1

_log = logging.getLogger(__name__)


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


class AuditLog(Protocol):
    """Where deletions are recorded. Calls may come from many threads at once."""

    def record(self, deletion: Deletion) -> None:
        """Record a deletion, before it is made; if this raises, nothing is deleted."""


class LoggedDeletions:
    """Records deletions in the program's log, as information."""

    def record(self, deletion: Deletion) -> None:
        """See `AuditLog`."""
        _log.info(
            "deleting the %s copy of ledger %s of %s: %s",
            deletion.copy,
            deletion.ledger_id,
            deletion.managed_ledger,
            deletion.why,
        )


class FileAuditLog:
    """Records deletions as lines at the end of a file, durably; several processes may share it.

    Args:
        path: the file, made if need be.
        now_ms: the time, in ms since 1970, UTC.
    """

    def __init__(self, path: str | os.PathLike[str], *, now_ms: Callable[[], int] = system_now_ms) -> None:
        self._path = Path(path)
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def check_writable(self) -> None:
        """Make sure that the file is there and may be written, before anything is begun that ends in deletions.

        Raises:
            StoreError: it cannot be.
        """
        with self._translated(), self._path.open("ab"):
            pass

    def record(self, deletion: Deletion) -> None:
        """See `AuditLog`.

        Raises:
            StoreError: the line could not be written.
        """
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        line = {
            "version": VERSION,
            "at": at.isoformat(timespec="milliseconds"),
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
        data = json.dumps(line).encode() + b"\n"
        with self._translated(), self._lock, self._path.open("ab+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                data = b"\n" + data  # a crash tore the line before
            if file.write(data) != len(data):
                raise StoreError("the audit log has no room for a line", key=str(self._path))
            os.fsync(file.fileno())

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


def _filtered(deletion: Deletion) -> dict[str, Any]:
    """The records of filters as they stand in indexes."""
    records = [json.loads(record.pack()) for record in deletion.filtered]
    return {"filtered": records} if records else {}
