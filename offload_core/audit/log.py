"""Where changes are recorded, before they are made.

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from offload_core.audit.changes import Change, Deletion
from offload_core.offload.clock import system_now_ms
from offload_hooks.errors import StoreError
from offload_hooks.private_files import open_file, sync_directory

VERSION = 1

_log = logging.getLogger(__name__)


class AuditLog(Protocol):
    """Where changes are recorded. Calls may come from many threads at once."""

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
        said = ", ".join(f"{name} {value}" for name, value in fields.items() if name not in ("action", "why"))
        _log.info("%s: %s: %s", change.action.value, said, change.why)


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
        """Make sure that the file is there and may be written, before anything is begun that ends in changes.

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
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
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
        if not self._is_synced:  # whoever created the file may have been killed before its name was durable
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
    """The records of filters as they stand in indexes."""
    records = [record.to_json() for record in deletion.filtered]
    return {"filtered": records} if records else {}
