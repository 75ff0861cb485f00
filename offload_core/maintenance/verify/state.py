"""Objects that were verified to the last byte, in a file, so that the next time they are skipped.

An SQLite file: a process that is killed leaves what was committed before. A pair is skipped if both objects, and what
lies beside them, have the sizes and times that they had; one of which something was wrong is not kept, and verified
again. Described in docs/verify.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from offload_core.maintenance.verify.deep import LedgerCount
from offload_core.metadata.catalogue.listing import Pair
from offload_hooks.errors import FormatError, OffloadError, StoreError, UnsupportedVersionError
from offload_hooks.json_text import JsonObject, read_json
from offload_hooks.private_files import create_file
from offload_hooks.values import ListedObject

APPLICATION_ID = 0x504F5653
"""`POVS`, in the file's header, as SQLite has it."""

VERSION = 1
_COMMIT_S = 1.0


class VerifiedObjects:
    """The objects that were found to be sound; a context manager.

    Args:
        path: the file, made if it is not there, for this user alone.
        location: of the tier; a file of another tier is refused.

    Raises:
        FormatError: the file is none of these, or damaged, or of another tier.
        UnsupportedVersionError: a newer one.
        StoreError: it cannot be opened or written.
    """

    def __init__(self, path: str | os.PathLike[str], location: str) -> None:
        self._path = Path(path)
        with self._named():
            create_file(self._path)
            self._file = sqlite3.connect(self._path, isolation_level=None)
            try:
                self._open(location)
            except BaseException:
                self._file.close()
                raise
        self._committed_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._named():
            if self._file.in_transaction:
                self._file.execute("COMMIT")
            self._file.close()

    def find(self, pair: Pair) -> tuple[LedgerCount, ...] | None:
        """Return what was counted in a pair of objects, if it looks as it did then; None if it is to be verified."""
        with self._named():
            row = self._file.execute(
                "SELECT looks, counts FROM verified WHERE key = ?", (pair.key.data_key,)
            ).fetchone()
            if row is None or row[0] != _looks(pair):
                return None
            try:
                return tuple(map(_count, read_json(str(row[1]), "a row")))
            except (FormatError, TypeError) as error:
                raise sqlite3.DatabaseError("a row cannot be read") from error

    def add(self, pair: Pair, counts: Sequence[LedgerCount]) -> None:
        """A pair was found to be sound."""
        fields = LedgerCount.__slots__
        packed = json.dumps([{name: getattr(each, name) for name in fields} for each in counts])
        with self._named():
            if not self._file.in_transaction:
                self._file.execute("BEGIN")
            self._file.execute(
                "INSERT OR REPLACE INTO verified VALUES (?, ?, ?)", (pair.key.data_key, _looks(pair), packed)
            )
            if time.monotonic() - self._committed_at > _COMMIT_S:
                self._file.execute("COMMIT")
                self._committed_at = time.monotonic()

    def _open(self, location: str) -> None:
        ask = self._file.execute
        (application,), (version,) = (
            ask("PRAGMA application_id").fetchone(),
            ask("PRAGMA user_version").fetchone(),
        )
        (tables,) = ask("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application:
            ask("BEGIN IMMEDIATE")
            ask("CREATE TABLE verified (key TEXT PRIMARY KEY, looks TEXT NOT NULL, counts TEXT NOT NULL)")
            ask("CREATE TABLE tier (location TEXT NOT NULL)")
            ask("INSERT INTO tier VALUES (?)", (location,))
            ask(f"PRAGMA application_id = {APPLICATION_ID}")
            ask(f"PRAGMA user_version = {VERSION}")
            ask("COMMIT")
            return
        if application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it was made by another program")
        if version != VERSION:
            raise UnsupportedVersionError(
                "a file of verified objects has a version that is not known",
                key=str(self._path),
                expected=VERSION,
                found=version,
            )
        if ask("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is damaged")
        (known,) = ask("SELECT location FROM tier").fetchone() or (None,)
        if known != location:
            raise FormatError(
                "a file of verified objects is of another tier",
                key=str(self._path),
                expected=location,
                found=known,
                hint="Give each tier a file of its own.",
            )

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, OffloadError):
                raise
            raise StoreError(
                f"a file of verified objects cannot be used: {error.strerror}", key=str(self._path)
            ) from error
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"a file of verified objects cannot be used: {error}", key=str(self._path)
            ) from error
        except sqlite3.DatabaseError as error:
            raise FormatError(
                f"this is no file of verified objects, or it is damaged: {error}",
                key=str(self._path),
                hint="Remove it, or name another: all is verified anew then.",
            ) from error


def _count(value: object) -> LedgerCount:
    fields = JsonObject.of(value, "a row")
    return LedgerCount(
        ledger_id=fields.integer("ledger_id"),
        stop_entry_id=fields.optional_integer("stop_entry_id"),
        entries=fields.integer("entries"),
        payload_bytes=fields.integer("payload_bytes"),
        unchecked=fields.integer("unchecked"),
    )


def _looks(pair: Pair) -> str:
    looks: list[object] = [_look(pair.data), _look(pair.index)]
    beside = {
        name: _look(listed)
        for name, listed in (
            (".data.crc", pair.data_checksums),
            (".index.crc", pair.index_checksums),
            ("checksums", pair.block_checksums),
        )
        if listed is not None
    }
    return json.dumps([*looks, beside] if beside else looks)


def _look(listed: ListedObject | None) -> list[object] | None:
    return None if listed is None else [listed.size_bytes, listed.modified_at.isoformat()]
