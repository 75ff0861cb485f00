"""The receipt of a deletion: what was deleted, when, by which records, and what a last listing found.

A JSON file, written as the deletion goes on, which has its name only when it is whole. Source: docs/gc.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from offload_hooks.errors import StoreError
from offload_hooks.private_files import open_file, sync_directory

VERSION = 1


class Receipt:
    """A receipt that is being written; see `written_receipt`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._count = 0
        self._bytes = 0

    def add(self, fields: dict[str, Any]) -> None:
        """Something that was deleted; its `size_bytes` is counted."""
        self._file.write(("," if self._count else "") + "\n" + json.dumps(fields))
        self._count += 1
        self._bytes += fields.get("size_bytes") or 0

    def end(self, fields: dict[str, Any]) -> None:
        """All else, in the end."""
        sums = {"count": self._count, "size_bytes": self._bytes, "ended_at": _now()}
        self._file.write(f"\n], {json.dumps(sums | fields)[1:]}\n")


@contextmanager
def written_receipt(path: str | os.PathLike[str], about: dict[str, Any]) -> Iterator[Receipt]:
    """A receipt, to be ended inside a `with`; if that fails, what is there stays beside, as `<name>.unfinished`.

    Raises:
        StoreError: the file cannot be written, or is there already.
    """
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        if os.path.lexists(target):
            raise StoreError("a receipt is not overwritten", key=str(target))
        with suppress(FileNotFoundError):
            unfinished.unlink()  # of one that was killed
        descriptor = open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            head = json.dumps({"version": VERSION, "begun_at": _now()} | about)
            file.write(f'{head[:-1]}, "deleted": [')
            yield Receipt(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        sync_directory(target.absolute().parent)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"the receipt cannot be written: {error.strerror}", key=str(target)) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
