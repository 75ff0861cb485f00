"""The SQLite store: which files it takes, what it says when it cannot, and what becomes of it when a process forks."""

from __future__ import annotations

import gzip
import os
import resource
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from full_disk import APART, is_possible
from golden import GOLDEN
from records import STANDALONE_RECORDS
from required import need

from offload_core.metadata.records import parse_stored_record
from offload_core.metadata.stores.sqlite import (
    APPLICATION_ID,
    MAX_VALUE_BYTES,
    SCHEMA_VERSION,
    SqliteStore,
    parse_file,
)
from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    FormatError,
    ObjectNotFoundError,
    OptionError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    UnsupportedVersionError,
    VersionConflictError,
)
from offload_hooks.testing.forks import forked, in_forked_child, in_forked_children
from pulsar_offload import open_tier

PATH = "/managed-ledgers/acme/cold/persistent/orders"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "records.db"


@contextmanager
def opened(file, **options):
    with closing(SqliteStore(f"sqlite:{file}", **{"create": True, **options})) as store:
        yield store


@contextmanager
def by_hand(file):
    """The file without the store; what is done is committed."""
    with closing(sqlite3.connect(file)) as connection, connection:
        yield connection


# --- files -------------------------------------------------------------------------------------


def test_records_lie_in_one_file_and_are_read_by_its_url(file):
    with opened(file) as store:
        for path in STANDALONE_RECORDS:
            store.put(f"/managed-ledgers/acme/cold/persistent/{path.stem}", path.read_bytes(), None)
    assert [path.name for path in file.parent.iterdir()] == ["records.db"]
    with open_tier("/nowhere") as tier:
        found = tier.records(f"sqlite:{file}")
    assert {name.full.rpartition("/")[2]: info for name, info in found.items()} == {
        path.stem: parse_stored_record(path.read_bytes()).info for path in STANDALONE_RECORDS
    }


def test_a_file_says_what_it_is(file):
    with opened(file):
        pass
    data = file.read_bytes()
    assert data[60:64] == SCHEMA_VERSION.to_bytes(4, "big")
    assert data[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"POMD"


def test_a_file_of_version_1_is_read_and_written(file):
    kept = Path(__file__).parents[1] / "docs" / "metadata-database-v1.db.gz"
    file.write_bytes(gzip.decompress(kept.read_bytes()))
    with opened(file, create=False) as store:
        found = store.get(PATH)
        assert found == ((GOLDEN / "metadata" / "none.ml.bin").read_bytes(), 2)
        assert store.put(PATH, b"x", 2) == 3


def test_without_create_no_file_is_made(file):
    with pytest.raises(
        ObjectNotFoundError, match=r"no such metadata database .*records\.db.*option 'create'"
    ):
        SqliteStore(f"sqlite:{file}")
    assert not file.exists()
    with opened(file) as store:
        version = store.put(PATH, b"x", None)
    with opened(file, create="false") as store:
        assert store.get(PATH) == (b"x", version)


def test_where_no_file_can_be_made_is_told(tmp_path):
    for place in (tmp_path / "none" / "records.db", tmp_path):
        with pytest.raises(AccessDeniedError, match="cannot be opened"):
            SqliteStore(f"sqlite:{place}", create=True)


FOREIGN = "CREATE TABLE addresses (street TEXT)"
FOREIGN_ID = "PRAGMA application_id = 7; CREATE TABLE records (path TEXT)"
NEWER = f"PRAGMA user_version = {SCHEMA_VERSION + 1}"


@pytest.mark.parametrize(
    ("is_ours", "script", "kind", "message"),
    [
        (False, FOREIGN, BadMagicError, "the database of another program"),
        (False, FOREIGN_ID, BadMagicError, "the database of another program .* found 0x7"),
        (True, NEWER, UnsupportedVersionError, "expected 1, found 2. Upgrade"),
        (False, None, BadMagicError, "no SQLite database"),
    ],
)
def test_other_files_are_refused_and_left_as_they_are(file, is_ours, script, kind, message):
    if is_ours:
        with opened(file):
            pass
    if script is None:
        file.write_text("no database\n" * 1000)
    else:
        with by_hand(file) as connection:
            connection.executescript(script)
    before = file.read_bytes()
    for create in (True, False):
        with pytest.raises(kind, match=message):
            SqliteStore(f"sqlite:{file}", create=create)
    assert file.read_bytes() == before


def test_a_file_without_its_table_is_damaged(file):
    with opened(file):
        pass
    with by_hand(file) as connection:
        connection.execute("DROP TABLE records")
    with opened(file) as store:
        for call in (lambda: store.get(PATH), lambda: store.put(PATH, b"x", None)):
            with pytest.raises(FormatError, match="is damaged"):
                call()


def test_a_damaged_file_is_an_error_with_its_place(file):
    with opened(file) as store:
        for i in range(200):
            store.put(f"{PATH}-{i}", bytes(1000), None)
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    with opened(file) as store, pytest.raises(FormatError, match=r"is damaged .*records\.db.*orders-7"):
        store.get(f"{PATH}-7")


def test_a_value_that_is_no_bytes_is_an_error(file):
    with opened(file) as store:
        store.put(PATH, b"x", None)
        with by_hand(file) as connection:
            connection.execute("UPDATE records SET value = 'text'")
        with pytest.raises(FormatError, match="no bytes"):
            store.get(PATH)


def test_a_value_that_is_too_large_is_neither_written_nor_read(file):
    with opened(file) as store:
        with pytest.raises(OptionError, match="too large"):
            store.put(PATH, bytes(MAX_VALUE_BYTES + 1), None)
        with by_hand(file) as connection:
            connection.execute(
                "INSERT INTO records (path, value) VALUES (?, zeroblob(?))",
                (PATH, MAX_VALUE_BYTES + (2 << 20)),
            )
        with pytest.raises(FormatError, match="TOOBIG"):
            store.get(PATH)


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite://host/x.db", "sqlite:/x.db?mode=ro", "sqlite:/x#y", "sqlite:/x/", "sqlite:/a%00b"],
)
def test_other_urls_are_refused(url):
    with pytest.raises(OptionError, match="no URL of an SQLite file"):
        parse_file(url)


def test_a_url_names_a_file(monkeypatch, tmp_path):
    assert parse_file("sqlite:///a/b.db") == parse_file("sqlite:/a/b.db") == "/a/b.db"
    assert parse_file("sqlite:/a%20b/%3F.db") == "/a b/?.db"
    monkeypatch.chdir(tmp_path)
    assert parse_file("sqlite:b.db") == f"{tmp_path}/b.db"
    with closing(SqliteStore("sqlite:%3F%23%25.db", create=True)):
        assert (tmp_path / "?#%.db").is_file()


# --- durability, and what fails ----------------------------------------------------------------


@pytest.mark.parametrize(("synchronous", "expected"), [("full", 2), ("normal", 1)])
def test_commits_are_flushed_unless_told_otherwise(file, synchronous, expected):
    with opened(file, **{} if synchronous == "full" else {"synchronous": synchronous}) as store:
        connection = store._file.connect()
        with closing(connection):
            assert connection.execute("PRAGMA synchronous").fetchone() == (expected,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_who_writes_for_too_long_is_not_waited_for_and_readers_do_not_notice(file):
    with opened(file, timeout_s=0.2) as store:
        version = store.put(PATH, b"x", None)
        with by_hand(file) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match=r"more than 0\.2 s .*orders"):
                store.put(PATH, b"y", version)
            assert store.get(PATH) == (b"x", version)
        assert store.put(PATH, b"y", version) > version


def test_an_error_as_a_transaction_ends_leaves_its_outcome_open(file):
    with opened(file) as store:
        version = store.put(PATH, b"small", None)

        def write_beyond_a_limit():
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
            with pytest.raises(OutcomeUnknownError, match=r"IOERR_WRITE"):
                store.put(PATH, bytes(300_000), version)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert store.put(PATH, b"again", store.get(PATH)[1]) > version

        in_forked_child(write_beyond_a_limit, 60)
        assert store.get(PATH)[0] == b"again"


_FILL = """
import sys
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_hooks.errors import StoreFullError
store = SqliteStore(f"sqlite:{sys.argv[1]}/records.db", create=True)
version = store.put("/kept", b"kept", None)
try:
    store.put("/large", bytes(4_000_000), None)
except StoreFullError as error:
    assert "/large" in error.key
    assert (store.get("/kept"), store.get("/large")) == ((b"kept", version), None)
    store.put("/kept", b"again", version)
    print("told")
"""


def test_a_full_disk_is_told(tmp_path):
    need("unshare", is_possible(), "a disk of the test's own needs Linux's user and mount name spaces")
    mounted = f"mount -t tmpfs -o size=2m tmpfs {shlex.quote(str(tmp_path))}"
    python = shlex.join([sys.executable, "-c", _FILL, str(tmp_path)])
    done = subprocess.run(
        [*APART, "sh", "-c", f"{mounted} && exec {python}"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("told\n", "")


def test_a_store_that_is_closed_says_so(file):
    with opened(file) as store:
        pass
    with pytest.raises(StoreError, match="is closed"):
        store.get(PATH)


# --- processes ---------------------------------------------------------------------------------


def test_many_processes_make_one_file(file):
    def make(i):
        def work():
            with opened(file) as store:
                store.put(f"{PATH}-{i}", b"%d" % i, None)

        return work

    in_forked_children([make(i) for i in range(8)], 60)
    with opened(file, create=False) as store:
        assert len(store.children(PATH.rpartition("/")[0])) == 8


def test_a_child_keeps_its_own_locks_when_its_parent_is_done(file):
    """Were a connection to live through a fork, the parent would take itself for the last one, and delete the log."""
    read_end, write_end = os.pipe()
    with opened(file) as store:
        version = store.put(PATH, b"parent", None)

        def go_on():
            now = store.put(PATH, b"child", version)
            os.write(write_end, b".")
            for i in range(20):
                now = store.put(PATH, b"child-%d" % i, now)
                os.write(write_end, b".")

        with forked(go_on):
            os.close(write_end)
            assert os.read(read_end, 1) == b"."
            store.close()
            while os.read(read_end, 4096):
                pass
    os.close(read_end)
    with opened(file) as again:
        assert again.get(PATH)[0] == b"child-19"
        with pytest.raises(VersionConflictError):
            again.put(PATH, b"stale", version)
