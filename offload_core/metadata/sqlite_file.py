"""The SQLite file of a metadata store: made if there is none, refused if it is not one of ours, its errors as ours.

Source: docs/formats/metadata-database.md.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    FormatError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from offload_hooks.private_files import check_file, create_file

APPLICATION_ID = 0x504F4D44
"""Of our files, at byte 68: `POMD`."""

SCHEMA_VERSION = 1
"""At byte 60. A file with a larger one is refused."""

MAX_VALUE_BYTES = 64 << 20
"""A larger value is neither written nor read."""

_SCHEMA = """
    CREATE TABLE records (
        version INTEGER PRIMARY KEY AUTOINCREMENT,
        path TEXT NOT NULL UNIQUE,
        value BLOB NOT NULL
    )
"""
_WAIT_S = 0.01


class SqliteFile:
    """A file, and how it is opened. `path` is absolute."""

    def __init__(self, path: str, *, create: bool, synchronous: str, timeout_s: float) -> None:
        self.path = path
        self._create = create
        self._synchronous = synchronous
        self._timeout_s = timeout_s

    def connect(self) -> sqlite3.Connection:
        """A connection, without a transaction; errors within `translated`."""
        if not self._create and not os.path.lexists(self.path):
            raise ObjectNotFoundError(
                "there is no such metadata database",
                key=f"sqlite:{self.path}",
                hint="With the option 'create' it is made.",
            )
        self._make_private()
        connection = sqlite3.connect(
            f"file:{quote(self.path)}?mode=rw",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """SQLite's errors in this block are raised as ours, with the record's path."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error, path) from error

    @contextmanager
    def committing(self, path: str) -> Iterator[None]:
        """As `translated`, where an error that is no refusal leaves open whether what was written is there."""
        try:
            yield
        except sqlite3.Error as error:
            translated = self._translate(error, path)
            if type(translated) is not StoreError:
                raise translated from error
            raise OutcomeUnknownError(
                "SQLite fails to end a transaction", key=translated.key, found=translated.found
            ) from error

    def _make_private(self) -> None:
        """Create the file if that is asked for; what SQLite puts beside it gets its mode."""
        try:
            (create_file if self._create else check_file)(self.path)
        except OSError as error:
            raise AccessDeniedError(
                "the metadata database cannot be opened, or not written",
                key=f"sqlite:{self.path}",
                found=error.strerror,
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES + (1 << 20))
        if self._create and _is_empty(connection):
            connection.execute("BEGIN IMMEDIATE")
            if _is_empty(connection):  # still, now that nobody else writes
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        self._check_kind(connection)
        self._write_ahead(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS a flush is one only with these
        connection.execute("PRAGMA checkpoint_fullfsync = ON")

    def _check_kind(self, connection: sqlite3.Connection) -> None:
        key = f"sqlite:{self.path}"
        application_id, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
        if application_id != APPLICATION_ID:
            raise BadMagicError(
                "the file is the database of another program",
                key=key,
                offset=68,
                expected=f"application id {APPLICATION_ID:#x}",
                found=f"{application_id:#x}",
            )
        if version != SCHEMA_VERSION:
            raise UnsupportedVersionError(
                "the metadata database has a version that is not known here",
                key=key,
                offset=60,
                expected=SCHEMA_VERSION,
                found=version,
                hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
            )

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch the file to write-ahead logging, for which SQLite does not wait by itself."""
        until = time.monotonic() + self._timeout_s
        while _pragma(connection, "journal_mode") != "wal":
            try:
                mode = _pragma(connection, "journal_mode = wal")
            except sqlite3.OperationalError as error:
                if _kind(error) not in _BUSY or time.monotonic() > until:
                    raise
                time.sleep(_WAIT_S)
                continue
            if mode != "wal":
                raise StoreError(
                    "the file system has no shared memory for an SQLite database",
                    key=f"sqlite:{self.path}",
                    hint="Network file systems do not; take a local one.",
                )

    def _translate(self, error: sqlite3.Error, path: str) -> StoreError | FormatError:
        key = f"sqlite:{self.path}{path}"
        found = getattr(error, "sqlite_errorname", type(error).__name__)
        kind = _kind(error)
        if kind in _BUSY:
            return StoreUnavailableError(
                f"other processes use the metadata database for more than {self._timeout_s:g} s", key=key
            )
        if kind == sqlite3.SQLITE_FULL:
            return StoreFullError("no room is left for the metadata database", key=key)
        if kind in _DENIED:
            return AccessDeniedError(
                "the metadata database cannot be opened, or not written", key=key, found=found
            )
        if kind == sqlite3.SQLITE_NOTADB:
            return BadMagicError("the file is no SQLite database", key=key, offset=0)
        if kind in _DAMAGED:
            return FormatError("the metadata database is damaged", key=key, found=found)
        return StoreError("SQLite fails", key=key, found=found)


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DENIED = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)
"""A table that is not there, or another one, is an `ERROR`: our statements are right."""


def _kind(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of an extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether no program has written anything to the file."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return (tables, _pragma(connection, "application_id"), _pragma(connection, "user_version")) == (0, 0, 0)
