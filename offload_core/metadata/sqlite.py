"""Managed ledgers' records in an SQLite file: our own metadata store where none is needed that many machines share.

Many processes and threads of one machine use a file at once. A process has at most two connections to it, one that
reads and one that writes, so no reader waits for a writer. None of them lives through a fork: SQLite would take the
locks of the parent's for the child's own. Source: docs/formats/metadata-database.md.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from offload_core.metadata.sqlite_file import MAX_VALUE_BYTES, SqliteFile
from offload_hooks.errors import (
    MetadataError,
    OptionError,
    StoreError,
    StoreUnavailableError,
    VersionConflictError,
)
from offload_hooks.metadata_stores import check_path
from offload_hooks.option_text import as_choice, as_flag, as_seconds
from offload_hooks.shown_urls import holds_user

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
        create: whether the file is made if there is none.
        synchronous: `full`: what was written is on the disk; `normal`: a power failure may take the last writes, all
            processes still see the same.
        timeout_s: how long a call may wait for other processes.
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
        """No call is under way in this block, and no connection is open."""
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
        """A transaction that writes, if the record has the version that is expected."""
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
            "this is no URL of an SQLite file",
            expected="sqlite:/folder/file.db or sqlite:file.db",
        )
    return str(Path(path).absolute())


class _Connection:
    """A connection that is made when it is first used; `lock` is held by whoever uses it."""

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
        """Give it back; `lock` must be held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def roll_back(self) -> None:
        """Take back the transaction that is open, if one is; `lock` must be held."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()

    def close(self) -> None:
        """Give it back as soon as nobody uses it."""
        with self.lock:
            self.disconnect()


# --- forks -------------------------------------------------------------------------------------


class _Forks:
    """Has the stores of this process at rest, without a connection, while it forks."""

    def __init__(self) -> None:
        self._stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._is_registered = False

    def add(self, store: SqliteStore) -> None:
        """From now on this store, too."""
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
