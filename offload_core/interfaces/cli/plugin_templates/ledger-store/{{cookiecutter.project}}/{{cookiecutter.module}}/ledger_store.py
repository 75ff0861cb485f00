"""The ledger store `{{ cookiecutter.name }}` for pulsar-offload: a hot tier.

What each method must do is in the docstrings of `offload_hooks.ledger_stores`; they are the law. As it was
made, this store keeps ledgers in an SQLite file. Put your store's client in the place of SQLite, method by
method: the comments name the points to consider, and the conformance suite checks the result.
"""

import json
import sqlite3
import time
from contextlib import closing, contextmanager

from offload_hooks.errors import (
    LedgerClosedError,
    LedgerFencedError,
    OptionError,
    RangeError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnknownLedgerError,
)
from offload_hooks.ledger_stores import (
    DEFAULT_READ_BYTES,
    EntryBatch,
    LedgerStatus,
    LedgerStoreDescription,
    RecoveredLedger,
)

# AUTOINCREMENT: an id is never given again, also not after a deletion.
TABLES = """
CREATE TABLE IF NOT EXISTS ledgers (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entry_count INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL DEFAULT 0, sealed INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL, metadata TEXT NOT NULL, fenced INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS entries (
    ledger_id INTEGER, entry_id INTEGER, payload BLOB NOT NULL, PRIMARY KEY (ledger_id, entry_id));
"""
RANGE = "SELECT payload FROM entries WHERE ledger_id = ? AND entry_id BETWEEN ? AND ? ORDER BY entry_id"
COLUMNS = "id, entry_count, size_bytes, sealed, created_at_ms, metadata, fenced"
KINDS = {"SQLITE_BUSY": StoreUnavailableError, "SQLITE_FULL": StoreFullError}
MAX_ENTRY_BYTES, MAX_METADATA_BYTES = 5 << 20, 4 << 10


class {{ cookiecutter.plugin }}:
    """Ledgers in the SQLite file `path`."""

    # Spell the options out; they may all be text. All wait for one another, but no longer than `timeout_s`.
    def __init__(self, path, timeout_s=30.0):
        self._path, self._timeout_s, self._closed = str(path), float(timeout_s), False
        with self.transaction() as database:
            database.executescript(TABLES)

    # For people; without credentials, and without a request.
    def describe(self):
        name = "{{ cookiecutter.name }}"
        return LedgerStoreDescription(name=name, location=self._path, max_entry_bytes=MAX_ENTRY_BYTES)

    def create(self, custom_metadata):
        metadata = json.dumps({name: value.hex() for name, value in custom_metadata.items()})
        if len(metadata) > 2 * MAX_METADATA_BYTES:
            raise OptionError("a ledger's custom metadata is too large")
        with self.transaction(writes=True) as database:
            created = (time.time_ns() // 1_000_000, metadata)
            made = database.execute("INSERT INTO ledgers (created_at_ms, metadata) VALUES (?, ?)", created)
            ledger_id = made.lastrowid
        return Writer(self, self.status(ledger_id))

    def open(self, ledger_id):
        return Reader(self, self.status(ledger_id).ledger_id)

    # Fence the writer, wherever it is: it fails at its next call. What it acknowledged is kept. A sealed
    # ledger stays as it is. Say how many acknowledged entries a failure of the machine may have lost.
    def recover(self, ledger_id, accept_loss=False):
        with self.transaction(ledger_id, writes=True) as database:
            query = "UPDATE ledgers SET sealed = 1, fenced = 1 WHERE id = ? AND NOT sealed"
            database.execute(query, (ledger_id,))
        return RecoveredLedger(status=self.status(ledger_id))

    def delete(self, ledger_id):
        with self.transaction(ledger_id, writes=True) as database:
            database.execute("DELETE FROM entries WHERE ledger_id = ?", (ledger_id,))
            return database.execute("DELETE FROM ledgers WHERE id = ?", (ledger_id,)).rowcount > 0

    # Read and check all that is there; this one leaves it to SQLite.
    def verify(self, ledger_id):
        status = self.status(ledger_id)
        if status.entry_count:
            Reader(self, ledger_id).read(0, status.entry_count - 1, max(1, status.size_bytes))
        return status

    def ledger_ids(self):
        with self.transaction() as database:
            return [ledger_id for (ledger_id,) in database.execute("SELECT id FROM ledgers ORDER BY id")]

    def close(self):
        self._closed = True

    def status(self, ledger_id):
        with self.transaction(ledger_id) as database:
            return status_of(find(database, ledger_id))

    # A connection of its own for each call: calls come from many threads. Errors of the client become ours
    # in one place, with the ledger. After one of these nothing of the call is there; where a client cannot
    # know that, raise LedgerFailedError.
    @contextmanager
    def transaction(self, ledger_id=None, writes=False):
        if self._closed:
            raise LedgerClosedError("the ledger store was closed", ledger_id=ledger_id)
        try:
            with closing(sqlite3.connect(self._path, timeout=self._timeout_s)) as database, database:
                database.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield database
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            kind = KINDS.get(name, StoreError)
            raise kind(f"the file says {name or error}", ledger_id=ledger_id) from error


def find(database, ledger_id):
    found = database.execute(f"SELECT {COLUMNS} FROM ledgers WHERE id = ?", (ledger_id,)).fetchone()
    if found is None:
        raise UnknownLedgerError("there is no such ledger", ledger_id=ledger_id)
    return found


def status_of(row):
    ledger_id, entry_count, size_bytes, sealed, created_at_ms, metadata, _ = row
    return LedgerStatus(
        ledger_id=ledger_id,
        entry_count=entry_count,
        size_bytes=size_bytes,
        sealed=bool(sealed),
        created_at_ms=created_at_ms,
        custom_metadata={name: bytes.fromhex(value) for name, value in json.loads(metadata).items()},
    )


class Writer:
    """The one writer of a ledger; its calls come from many threads."""

    def __init__(self, store, status):
        self._store, self._closed = store, False
        self.ledger_id, self.status = status.ledger_id, status

    def append(self, payload):
        return self.append_batch([payload])

    # All entries or none, durably, and then all readers see them. The ids follow those that are there.
    def append_batch(self, payloads):
        data = [bytes(payload) for payload in payloads]
        if not data or max(map(len, data)) > MAX_ENTRY_BYTES:
            raise OptionError("no entry, or one that is too large", ledger_id=self.ledger_id)
        with self._writing() as (database, row):
            first = row[1]
            rows = [(self.ledger_id, first + i, payload) for i, payload in enumerate(data)]
            database.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
            counts = (row[1] + len(data), row[2] + sum(map(len, data)), self.ledger_id)
            database.execute("UPDATE ledgers SET entry_count = ?, size_bytes = ? WHERE id = ?", counts)
        return first

    # SQLite has made durable all that is acknowledged.
    def sync(self):
        with self._writing():
            pass

    def close(self):
        if not self._closed:
            with self._writing() as (database, _):
                database.execute("UPDATE ledgers SET sealed = 1 WHERE id = ?", (self.ledger_id,))
            self._closed = True
        return self.status

    @contextmanager
    def _writing(self):
        if self._closed:
            raise LedgerClosedError("the ledger's writer was closed", ledger_id=self.ledger_id)
        try:
            with self._store.transaction(self.ledger_id, writes=True) as database:
                row = find(database, self.ledger_id)
                if row[-1]:
                    raise LedgerFencedError("another has recovered the ledger", ledger_id=self.ledger_id)
                yield database, row
                status = status_of(find(database, self.ledger_id))
        except UnknownLedgerError as error:
            raise LedgerFencedError("another has deleted the ledger", ledger_id=self.ledger_id) from error
        self.status = status


class Reader:
    """Reads one ledger, also while it is written, and does not disturb its writer."""

    def __init__(self, store, ledger_id):
        self._store, self._closed = store, False
        self.ledger_id = ledger_id

    def status(self):
        self._check()
        return self._store.status(self.ledger_id)

    # At least one entry, however large, then as many as there is room for. A range that is not there is an
    # error.
    def read(self, first_entry_id, last_entry_id, max_bytes=DEFAULT_READ_BYTES):
        self._check()
        with self._store.transaction(self.ledger_id) as database:
            count = find(database, self.ledger_id)[1]
            if not 0 <= first_entry_id <= last_entry_id < count or max_bytes < 1:
                raise RangeError("the ledger does not have these entries", ledger_id=self.ledger_id)
            payloads, used = [], 0
            for (payload,) in database.execute(RANGE, (self.ledger_id, first_entry_id, last_entry_id)):
                used += len(payload)
                if payloads and used > max_bytes:
                    break
                payloads.append(payload)
        return EntryBatch.of(first_entry_id, payloads)

    def close(self):
        self._closed = True

    def _check(self):
        if self._closed:
            raise LedgerClosedError("the ledger's reader was closed", ledger_id=self.ledger_id)
