"""The metadata store in an SQLite file, for the processes of one machine.

The file is created on request, and refused if it is another program's. Many processes and threads use it at once. A
process has at most two connections, one that reads and one that writes, so no reader waits for a writer. None of them
survives a fork: SQLite would take the parent's locks for the child's own. SQLite's errors become ours. Source:
docs/formats/metadata-database.md.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    FormatError,
    MetadataError,
    ObjectNotFoundError,
    OptionError,
    OutcomeUnknownError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnsupportedVersionError,
    VersionConflictError,
)
from offload_hooks.metadata_stores import check_path
from offload_hooks.option_text import as_choice, as_flag, as_seconds
from offload_hooks.private_files import check_file, create_file
from offload_hooks.shown_urls import holds_user

APPLICATION_ID = 0x504F4D44
"""The application id of our files, at byte 68: `POMD`."""

SCHEMA_VERSION = 1
"""The version at byte 60. A file with a larger one is refused."""

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
    """A database file and its settings. `path` is absolute."""

    def __init__(self, path: str, *, create: bool, synchronous: str, timeout_s: float) -> None:
        self.path = path
        self._create = create
        self._synchronous = synchronous
        self._timeout_s = timeout_s

    def connect(self) -> sqlite3.Connection:
        """Open a connection, without a transaction; call it within `translated`."""
        if not self._create and not os.path.lexists(self.path):
            raise ObjectNotFoundError(
                "there is no such metadata database",
                key=f"sqlite:{self.path}",
                hint="Set the option 'create' to make it.",
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
        """Raise SQLite's errors in the block as ours, with the record's path."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error, path) from error

    @contextmanager
    def committing(self, path: str) -> Iterator[None]:
        """Do the same as `translated`, but an error that is no refusal becomes an `OutcomeUnknownError`."""
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
        """Create the file on request; SQLite's files beside it get its mode."""
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
            if _is_empty(connection):  # still, now that no other process writes
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
_DENIED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)
"""An `ERROR` means a missing or different table: our statements are right."""


def _kind(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of an extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether the file has no contents yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return (tables, _pragma(connection, "application_id"), _pragma(connection, "user_version")) == (0, 0, 0)


_GET = "SELECT value, version FROM records WHERE path = ?"
_VERSION = "SELECT version FROM records WHERE path = ?"
_DELETE = "DELETE FROM records WHERE path = ?"
_INSERT = "INSERT INTO records (path, value) VALUES (?, ?)"
_CHILDREN = """
    SELECT DISTINCT substr(path, :length, instr(substr(path, :length) || '/', '/') - 1)
    FROM records WHERE path > :begin AND path < :end
"""


class SqliteStore:
    """The metadata store `sqlite:`; see `offload_hooks.metadata_stores.WritableMetadataStore`.

    Args:
        url: `sqlite:/var/lib/offload.db`, `sqlite:///var/lib/offload.db`, or `sqlite:offload.db` in the current folder.
        create: whether the file is created if there is none.
        synchronous: `full`: writes are on the disk; `normal`: a power failure may lose the last ones, all processes
            still see the same.
        timeout_s: the longest wait of a call for other processes.
    """

    def __init__(
        self, url: str, *, create: object = False, synchronous: str = "full", timeout_s: object = 10
    ) -> None:
        self._timeout_s = as_seconds("timeout_s", timeout_s)
        self._file = SqliteFile(
            parse_file(url),
            create=as_flag("create", create),
            synchronous=as_choice("synchronous", synchronous, ("full", "normal")),
            timeout_s=self._timeout_s,
        )
        self._reader, self._writer = _Connection(self._file), _Connection(self._file)
        self._closed = False
        _forks.add(self)
        with self._using(self._reader, "") as connection:
            del connection  # it is open, so the file is one of ours

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `WritableMetadataStore`."""
        with self._using(self._reader, check_path(path)) as connection:
            found = connection.execute(_GET, (path,)).fetchone()
        if found is None:
            return None
        value, version = found
        if not isinstance(value, bytes):
            raise MetadataError("the value of a record is no bytes", key=self._key(path))
        return value, version

    def children(self, path: str) -> list[str]:
        """See `WritableMetadataStore`."""
        begin = f"{check_path(path)}/"
        bounds = {"begin": begin, "end": f"{path}0", "length": len(begin) + 1}  # 0 is what follows /
        with self._using(self._reader, path) as connection:
            return [name for (name,) in connection.execute(_CHILDREN, bounds)]

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        if len(value) > MAX_VALUE_BYTES:
            raise OptionError(
                "a record is too large for a metadata store",
                key=self._key(path),
                expected=f"at most {MAX_VALUE_BYTES} bytes",
                found=len(value),
            )
        with self._writing(check_path(path), expected_version) as connection:
            connection.execute(_DELETE, (path,))
            version = connection.execute(_INSERT, (path, value)).lastrowid
        assert version is not None
        return version

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        with self._writing(check_path(path), expected_version) as connection:
            connection.execute(_DELETE, (path,))

    def close(self) -> None:
        """See `WritableMetadataStore`."""
        self._closed = True
        self._reader.close()
        self._writer.close()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Hold all calls in the block, and close the connections."""
        with ExitStack() as held:
            for each in (self._writer, self._reader):
                held.enter_context(each.lock)
                each.disconnect()
            yield

    @contextmanager
    def _using(self, which: _Connection, path: str) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise StoreError("the metadata store is closed", key=self._key(path))
        if not which.lock.acquire(timeout=self._timeout_s):
            raise StoreUnavailableError(
                f"other threads use a metadata store for more than {self._timeout_s:g} s", key=self._key(path)
            )
        try:
            with self._file.translated(path):
                yield which.connected()
        finally:
            which.lock.release()

    @contextmanager
    def _writing(self, path: str, expected_version: int | None) -> Iterator[sqlite3.Connection]:
        """A write transaction, if the record has the expected version."""
        with self._using(self._writer, path) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                found = connection.execute(_VERSION, (path,)).fetchone()
                if expected_version != (None if found is None else found[0]):
                    raise VersionConflictError(
                        "a record has another version than expected",
                        key=self._key(path),
                        expected="none" if expected_version is None else expected_version,
                        found="none" if found is None else found[0],
                    )
                yield connection
                with self._file.committing(path):
                    connection.execute("COMMIT")
            except BaseException:
                self._writer.roll_back()
                raise

    def _key(self, path: str) -> str:
        return f"sqlite:{self._file.path}{path}"


def parse_file(url: str) -> str:
    """The file that a URL of the store names, as an absolute path; `OptionError` for one of another form."""
    rest = url.partition(":")[2]
    path = unquote(rest.removeprefix("//"))
    if (
        (rest.startswith("//") and not rest.startswith("///"))
        or holds_user(url)
        or any(mark in rest for mark in "?#")
        or not path
        or path.endswith("/")
        or "\0" in path
    ):
        raise OptionError(
            "this is no URL of an SQLite file", expected="sqlite:/folder/file.db or sqlite:file.db"
        )
    return str(Path(path).absolute())


class _Connection:
    """A connection that is opened when it is first used; `lock` is held while it is used."""

    def __init__(self, file: SqliteFile) -> None:
        self.lock = threading.Lock()
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def connected(self) -> sqlite3.Connection:
        """The connection; `lock` must be held."""
        if self._connection is None:
            self._connection = self._file.connect()
        return self._connection

    def disconnect(self) -> None:
        """Close it; `lock` must be held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def roll_back(self) -> None:
        """Roll back an open transaction; `lock` must be held."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()

    def close(self) -> None:
        """Close it as soon as it is not used any more."""
        with self.lock:
            self.disconnect()


# --- forks -------------------------------------------------------------------------------------


class _Forks:
    """Keep the stores of this process at rest, without connections, while it forks."""

    def __init__(self) -> None:
        self._stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._is_registered = False

    def add(self, store: SqliteStore) -> None:
        """Add a store."""
        with self._lock:
            if not self._is_registered:  # registered twice, a fork would wait for itself
                os.register_at_fork(
                    before=self._before, after_in_parent=self._after, after_in_child=self._after
                )
                self._is_registered = True
            self._stores.add(store)

    def _before(self) -> None:
        self._lock.acquire()
        for store in list(self._stores):
            self._held.enter_context(store.at_rest())

    def _after(self) -> None:
        self._held.close()
        self._lock.release()


_forks = _Forks()
