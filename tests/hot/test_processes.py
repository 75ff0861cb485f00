"""Several processes: a writer that another fences, one that is stopped, ids, deletion, forks."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import ledger_appender
import pytest
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.hot.file_calls import lock
from offload_hooks.errors import ChecksumError, StoreError, StoreTimeoutError, UnknownLedgerError
from offload_hooks.testing.forks import in_forked_child
from offload_hooks.testing.threads import together

pytestmark = pytest.mark.long


class Appender:
    """Another process, which appends when it is told to."""

    def __init__(self, process):
        self.process = process
        self.ledger_id = int(process.stdout.readline().split()[1])

    def append(self):
        """The entry's id, or the error."""
        self.process.stdin.write("entry\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def another_process(folder, sync="always"):
    command = [sys.executable, ledger_appender.__file__, str(folder), sync, "step"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Appender(process)
        finally:
            process.kill()


@pytest.fixture
def store(tmp_path):
    store = FileLedgerStore(tmp_path, lock_timeout_s=0.2)
    yield store
    store.close()


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_writer_in_another_process_fails_at_its_next_append(store, tmp_path, sync):
    with another_process(tmp_path, sync) as other:
        reader = store.open(other.ledger_id)
        assert [other.append(), other.append()] == ["0", "1"]
        assert all_entries(reader) == [b"entry\n"] * 2
        assert store.recover(other.ledger_id).status.entry_count == 2
        assert [other.append(), other.append()] == ["LedgerFencedError"] * 2
        assert all_entries(reader) == [b"entry\n"] * 2
        assert store.verify(other.ledger_id).sealed


def test_a_writer_in_another_process_fails_after_deletion(store, tmp_path):
    with another_process(tmp_path) as other:
        assert other.append() == "0"
        reader = store.open(other.ledger_id)
        held = os.open(tmp_path / f"{other.ledger_id}.ledger", os.O_RDONLY)
        assert store.delete(other.ledger_id)
        assert os.fstat(held).st_size == 12288, "what other processes have open takes no room for entries"
        assert other.append() == "LedgerFencedError"
        with pytest.raises(UnknownLedgerError):
            reader.read(0, 0)
        os.close(held)


def test_a_lock_that_is_never_let_go_is_an_error_not_a_hang(store):
    writer = store.create({})
    path = store._path_of(writer.ledger_id)
    held = os.open(path, os.O_RDWR)
    lock(held, 1, path)
    for call in (
        partial(writer.append, b"x"),
        writer.close,
        partial(store.recover, writer.ledger_id),
        partial(store.delete, writer.ledger_id),
    ):
        with pytest.raises(StoreTimeoutError, match=r"at most 0\.2 s") as caught:
            call()
        assert caught.value.ledger_id == writer.ledger_id
    assert store.open(writer.ledger_id).status().entry_count == 0
    os.close(held)
    assert writer.append(b"x") == 0


def test_ids_are_unique_over_processes(store, tmp_path):
    with another_process(tmp_path) as one, another_process(tmp_path) as two:
        mine = [store.create({}).ledger_id for _ in range(3)]
        assert sorted([one.ledger_id, two.ledger_id, *mine]) == [0, 1, 2, 3, 4]
    assert store.ledger_ids() == [0, 1, 2, 3, 4]


def test_the_file_of_ids_is_found_damaged_and_no_id_is_given_twice(store, tmp_path):
    file = tmp_path / "next-ledger-id"
    ids = [store.create({}).ledger_id for _ in range(4)]
    whole = file.read_bytes()
    for byte in [*range(16), *range(512, 528)]:
        file.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :])
        ids.append(store.create({}).ledger_id)
        assert ids[-1] > max(ids[:-1])
        whole = file.read_bytes()
    for damaged in (b"\1" * len(whole), whole[:3], b""):
        file.write_bytes(damaged)
        with pytest.raises(ChecksumError) as caught:
            store.create({})
        assert caught.value.key == str(file)


def test_a_forked_child_is_told_to_make_its_own(store, tmp_path):
    writer = store.create({})
    writer.append(b"parent")

    def in_child():
        for call in (
            partial(store.create, {}),
            store.ledger_ids,
            partial(writer.append, b"child"),
            writer.close,
        ):
            with pytest.raises(StoreError, match="forked child"):
                call()
        own = FileLedgerStore(tmp_path)
        assert all_entries(own.open(writer.ledger_id)) == [b"parent"]
        own.create({}).append(b"child")

    in_forked_child(in_child, 30)
    assert writer.append(b"parent") == 1
    assert store.ledger_ids() == [0, 1]


def test_what_a_creation_left_behind_is_removed(tmp_path):
    (tmp_path / "7.new").write_bytes(b"half")
    (tmp_path / "not-ours.txt").write_text("stays")
    store = FileLedgerStore(tmp_path)
    assert store.ledger_ids() == []
    store.create({})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.ledger", "next-ledger-id", "not-ours.txt"]
    store.close()


def test_threads_recover_and_delete_one_ledger_at_once(store, tmp_path):
    with another_process(tmp_path) as other:
        assert other.append() == "0"
        stores = [FileLedgerStore(tmp_path) for _ in range(4)]
        found = together([partial(each.recover, other.ledger_id) for each in stores], 30)
        assert len({str(each) for each in found}) == 1
        deleted = together([partial(each.delete, other.ledger_id) for each in stores], 30)
        assert sorted(deleted) == [False, False, False, True]
        for each in stores:
            each.close()
