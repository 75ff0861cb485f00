"""The metadata store `{{ cookiecutter.name }}` for pulsar-offload: values with versions.

What each method must do is in the docstrings of `offload_hooks.metadata_stores`; they are the law. As it
was made, this store keeps values in an SQLite file. Put your store's client in the place of SQLite, method
by method: the comments name the points to consider, and the conformance suite checks the result.
"""

import sqlite3
from contextlib import closing, contextmanager
from urllib.parse import unquote

from offload_hooks.errors import StoreError, StoreFullError, StoreUnavailableError, VersionConflictError
from offload_hooks.metadata_stores import check_path

TABLES = """
CREATE TABLE IF NOT EXISTS records (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
"""
KINDS = {"SQLITE_BUSY": StoreUnavailableError, "SQLITE_FULL": StoreFullError}


class {{ cookiecutter.plugin }}:
    """Records in the SQLite file of a URL `{{ cookiecutter.name }}:/path/of/file.db`."""

    # Called with the URL, and with options by keyword, which may all be text. Neither may show a password.
    def __init__(self, url, timeout_s=10.0):
        self._path = unquote(url.partition(":")[2])
        self._timeout_s = float(timeout_s)
        with self._transaction("/") as database:
            database.executescript(TABLES)

    # Each later read, of any process, gets what was written.
    def get(self, path):
        with self._transaction(check_path(path)) as database:
            query = "SELECT value, version FROM records WHERE path = ?"
            return database.execute(query, (path,)).fetchone()

    # Names directly below the path, each once; a name may have values below it and none of its own.
    def children(self, path):
        below = f"{check_path(path)}/"
        with self._transaction(path) as database:
            query = "SELECT path FROM records WHERE path > ? AND path < ?"
            found = database.execute(query, (below, f"{path}0")).fetchall()  # 0 comes after /
        return {each[len(below) :].partition("/")[0] for (each,) in found}

    # The store must compare and set in one step. A version belongs to one value for ever: it does not come
    # back after a deletion. Where the answer may be lost on its way, raise OutcomeUnknownError.
    def put(self, path, value, expected_version):
        with self._transaction(check_path(path), writes=True) as database:
            self._expect(database, path, expected_version)
            database.execute("UPDATE counter SET version = version + 1")
            (version,) = database.execute("SELECT version FROM counter").fetchone()
            database.execute("REPLACE INTO records VALUES (?, ?, ?)", (path, bytes(value), version))
        return version

    def delete(self, path, expected_version):
        with self._transaction(check_path(path), writes=True) as database:
            self._expect(database, path, expected_version)
            database.execute("DELETE FROM records WHERE path = ?", (path,))

    def close(self):
        pass

    def _expect(self, database, path, expected):
        found = database.execute("SELECT version FROM records WHERE path = ?", (path,)).fetchone()
        version = found and found[0]
        if version != expected:
            raise VersionConflictError("another version is there", key=path, expected=expected, found=version)

    # A connection of its own for each call: calls come from many threads, and from forked children. Errors
    # of the client become ours in one place, with the path. Only StoreUnavailableError is worth another
    # attempt.
    @contextmanager
    def _transaction(self, path, writes=False):
        try:
            with closing(sqlite3.connect(self._path, timeout=self._timeout_s)) as database, database:
                database.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield database
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            raise KINDS.get(name, StoreError)(f"the file says {name or error}", key=path) from error
