"""The embedded store: shared fsyncs, a full disk, few descriptors, indexes, options, being found as a plugin."""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore, ledger_layout, ledger_writer, sparse_index
from offload_core.storage.hot.sparse_index import Indexes, SparseIndex
from offload_core.storage.tier.registry import LEDGER_STORES, make_ledger_store
from offload_hooks.errors import (
    AccessDeniedError,
    LedgerFailedError,
    OptionError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
)
from offload_hooks.testing.content import content
from offload_hooks.testing.threads import together


@pytest.fixture
def make_store(tmp_path):
    stores = []

    def make(**options):
        stores.append(FileLedgerStore(tmp_path / "ledgers", **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


# --- group commit ------------------------------------------------------------------------------


def test_appends_that_come_at_once_share_an_fsync(make_store, monkeypatch):
    store, threads = make_store(sync="always"), 8
    ledger = store.create({})
    waiting = threading.Semaphore(0)
    syncs = []

    def sync_once_all_others_wait(descriptor):
        if not syncs:
            for _ in range(threads - 1):
                waiting.acquire()
        syncs.append(descriptor)

    real = ledger_writer.checked

    def noted(*arguments):
        waiting.release()
        return real(*arguments)

    monkeypatch.setattr(ledger_writer, "checked", noted)
    monkeypatch.setattr(ledger_writer, "sync_file", sync_once_all_others_wait)
    ids = together([partial(ledger.append, b"%d" % i) for i in range(threads)], 30)
    assert sorted(ids) == list(range(threads))
    # The first alone, then the others together; one of them may have been on its way to join.
    assert 2 <= len(syncs) <= 3
    entries = all_entries(store.open(ledger.ledger_id))
    assert [entries[entry_id] for entry_id in ids] == [b"%d" % i for i in range(threads)]


@pytest.mark.parametrize(("sync", "expected"), [("always", 3), ("interval", 0), ("never", 0)])
def test_the_policy_says_when_is_synced(make_store, monkeypatch, sync, expected):
    store = make_store(sync=sync, sync_interval_s=3600)
    ledger = store.create({})
    syncs = []
    monkeypatch.setattr(ledger_writer, "sync_file", syncs.append)
    ledger.append(b"x")
    ledger.append(b"x")
    ledger.append_batch([b"x"] * 1000)
    assert len(syncs) == expected
    ledger.sync()
    assert len(syncs) == max(expected, 1)
    ledger.sync()
    assert len(syncs) == max(expected, 1)


def test_the_interval_is_kept_by_one_thread(make_store, monkeypatch):
    store = make_store(sync="interval", sync_interval_s=0.01)
    ledgers = [store.create({}) for _ in range(5)]
    synced = threading.Semaphore(0)

    def sync_file(descriptor):
        synced.release()

    monkeypatch.setattr(ledger_writer, "sync_file", sync_file)
    before = threading.active_count()
    for _ in range(3):
        for ledger in ledgers:
            ledger.append(b"x")
        for _ in ledgers:
            assert synced.acquire(timeout=30)
    assert threading.active_count() <= before + 1
    assert not synced.acquire(blocking=False), "what is durable is not synced again"


def test_what_could_not_be_synced_for_now_is_tried_again(make_store, monkeypatch, caplog):
    store = make_store(sync="interval", sync_interval_s=0.01)
    ledger = store.create({})
    failures = iter([StoreTimeoutError("held"), RuntimeError("unforeseen")])
    synced = threading.Event()

    def sync(self):
        for failure in failures:
            raise failure
        synced.set()

    with monkeypatch.context() as patched:
        patched.setattr(ledger_writer.FileLedgerWriter, "sync", sync)
        ledger.append(b"x")
        assert synced.wait(30)
    assert [record.getMessage() for record in caplog.records] == ["ledger 0 is not synced yet"] * 2


# --- a full disk -------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size):
    """What is longer meets EFBIG, as a full disk would say ENOSPC, with as much written as there is room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("sync", ["always", "never"])
def test_without_room_nothing_is_appended_and_with_room_all_goes_on(make_store, sync):
    store = make_store(sync=sync)
    ledger = store.create({})
    entries = [content(1000, i) for i in range(50)]
    with files_of_at_most(ledger_layout.FRAMES_OFFSET + 10_000):
        for entry in entries[:9]:
            ledger.append(entry)
        for call in (
            partial(ledger.append, entries[9]),
            partial(ledger.append_batch, entries[9:]),
            partial(ledger.append_batch, [b"small", *entries[9:]]),
        ):
            with pytest.raises(StoreFullError) as caught:
                call()
            assert (caught.value.ledger_id, ledger.status.entry_count) == (0, 9)
            assert os.path.getsize(caught.value.key) == ledger_layout.FRAMES_OFFSET + 9 * 1016
        assert ledger.append(b"small") == 9
        assert all_entries(store.open(0)) == [*entries[:9], b"small"]
    assert ledger.append_batch(entries[9:]) == 10
    assert all_entries(store.open(0)) == [*entries[:9], b"small", *entries[9:]]
    ledger.close()
    assert store.verify(0).entry_count == 51


def test_without_room_for_the_footer_a_ledger_stays_open(make_store):
    store = make_store()
    ledger = store.create({})
    ledger.append(content(1000))
    with files_of_at_most(ledger_layout.FRAMES_OFFSET + 1050), pytest.raises(StoreFullError):
        ledger.close()
    assert not store.open(0).status().sealed
    assert ledger.append(b"more") == 1
    assert ledger.close().entry_count == 2
    assert store.verify(0).sealed


def test_without_room_no_ledger_is_created(make_store):
    store = make_store()
    with files_of_at_most(8000), pytest.raises(StoreFullError):
        store.create({})
    assert store.ledger_ids() == []
    assert store.create({}).ledger_id == 1


def test_a_write_that_fails_otherwise_is_final(make_store, monkeypatch):
    store = make_store()
    ledger = store.create({})
    ledger.append(b"before")
    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(LedgerFailedError, match="a write failed: Input/output error"):
        ledger.append(b"x")
    monkeypatch.undo()
    with pytest.raises(LedgerFailedError):
        ledger.append(b"x")
    assert store.recover(0).status.entry_count == 1


def test_what_cannot_be_taken_back_is_final(make_store, monkeypatch):
    store = make_store()
    ledger = store.create({})
    ledger.append(b"before")
    monkeypatch.setattr(os, "ftruncate", failing)
    with (
        files_of_at_most(ledger_layout.FRAMES_OFFSET + 1000),
        pytest.raises(LedgerFailedError, match="taken back"),
    ):
        ledger.append(bytes(2000))
    monkeypatch.undo()
    assert store.recover(0).status.entry_count == 1


def failing(*arguments):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_one_failure_is_told_to_all_of_a_group_and_each_has_its_own(make_store, monkeypatch):
    store = make_store(sync="always")
    ledger = store.create({})
    monkeypatch.setattr(ledger_writer, "sync_file", failing)

    def append():
        with pytest.raises(LedgerFailedError) as caught:
            ledger.append(b"x")
        return [caught.value]

    errors = together([append] * 8, 30)
    assert len({id(error) for (error,) in errors}) == 8


# --- few descriptors, little memory ------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("sync", ["always", "never"])
def test_many_open_ledgers_need_few_descriptors(make_store, sync):
    store = make_store(sync=sync, max_open_files=5)
    before = descriptors()
    ledgers = [store.create({}) for _ in range(40)]
    readers = [store.open(ledger.ledger_id) for ledger in ledgers]
    for round_ in range(3):
        for ledger, reader in zip(ledgers, readers, strict=True):
            assert ledger.append(b"%d" % round_) == round_
            assert bytes(reader.read(round_, round_)[0]) == b"%d" % round_
        assert descriptors() <= before + 2 * 5
    for ledger in ledgers:
        ledger.close()
        assert store.verify(ledger.ledger_id).entry_count == 3
    store.close()
    assert descriptors() <= before


def test_threads_may_need_more_descriptors_at_once_than_are_kept(make_store):
    store = make_store(sync="never", max_open_files=1)
    ledgers = [store.create({}) for _ in range(8)]

    def use(ledger):
        for i in range(20):
            ledger.append(b"%d" % i)
            store.open(ledger.ledger_id).read(0, i)

    together([partial(use, ledger) for ledger in ledgers], 60)
    assert len(store._files) <= 1
    assert [len(all_entries(store.open(ledger.ledger_id))) for ledger in ledgers] == [20] * 8


def test_an_index_grows_no_further_than_it_may(monkeypatch):
    monkeypatch.setattr(sparse_index, "MAX_POINTS", 16)
    index = SparseIndex()
    offsets = [ledger_layout.FRAMES_OFFSET + 1000 * i for i in range(100_000)]
    for entry_id, offset in enumerate(offsets):
        index.add(entry_id, offset)
    assert 8 <= len(index) <= 16
    for entry_id in (0, 1, 777, 50_000, 99_999):
        found, offset = index.at_or_before(entry_id)
        assert found <= entry_id
        assert offset == offsets[found]
        behind = index.offset_behind(entry_id)
        assert behind is None or behind > offsets[entry_id]
        assert SparseIndex(index.points(1 << 62)).at_or_before(entry_id) == (found, offset)
    points = index.points(offsets[50_000])
    assert (np.diff(points, axis=0) > 0).all()
    assert points[-1, 1] < offsets[50_000]


def test_few_indexes_are_kept():
    indexes, made = Indexes(max_points=10), []

    def make(ledger_id):
        made.append(ledger_id)
        points = [[i, ledger_layout.FRAMES_OFFSET + (i << 17)] for i in range(4)]
        return SparseIndex(np.array(points, dtype=np.int64))

    for ledger_id in (0, 1, 0, 1, 2, 0, 3, 1):
        indexes.find(ledger_id, partial(make, ledger_id))
    assert made == [0, 1, 2, 0, 3, 1]
    written = SparseIndex()
    indexes.begin(9, written)
    assert indexes.find(9, partial(make, 9)) is written
    indexes.end(9)
    assert indexes.find(9, partial(make, 9)) is not written


@pytest.mark.parametrize("by", ["one", "batches"])
@pytest.mark.parametrize("where", ["here", "another store", "sealed"])
def test_any_entry_of_a_ledger_of_many_points_is_read(make_store, by, where):
    store = make_store(sync="never")
    ledger = store.create({})
    entries = [content(i * 7919 % 3000, i) for i in range(600)]
    if by == "one":
        for entry in entries:
            ledger.append(entry)
    else:
        ledger.append_batch(entries[:100])
        ledger.append_batch(entries[100:])
    if where == "sealed":
        ledger.close()
        assert store.verify(0).entry_count == 600
    reader = (make_store() if where == "another store" else store).open(0)
    for i in [0, 599, 300, *range(0, 600, 37), 299]:
        assert bytes(reader.read(i, i)[0]) == entries[i]
        last = min(599, i + 150)
        batch = reader.read(i, last, 200_000)
        assert list(map(bytes, batch)) == entries[i : i + len(batch)]
    assert all_entries(reader) == entries


# --- options -----------------------------------------------------------------------------------


def test_it_is_found_by_its_name_and_takes_options_as_text(tmp_path):
    options = {"path": str(tmp_path), "sync": "interval", "sync_interval_s": "0.5", "max_open_files": "3"}
    store = make_ledger_store("embedded", options)
    assert (store.describe().name, store.describe().location) == ("embedded", str(tmp_path))
    assert store.create({}).append(b"x") == 0
    store.close()
    assert LEDGER_STORES == "pulsar_offload.ledger_stores"


@pytest.mark.parametrize(
    "options",
    [
        {"sync": "sometimes"},
        {"sync_interval_s": "soon"},
        {"sync_interval_s": -1},
        {"max_open_files": 0},
        {"lock_timeout_s": "x"},
        {"path": " "},
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        FileLedgerStore(**({"path": str(tmp_path)} | options))


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    store = FileLedgerStore(tmp_path / "file" / "ledgers")
    with pytest.raises(StoreError):
        store.create({})
    store.close()


def test_a_folder_that_may_not_be_written_is_named(make_store, monkeypatch):
    def denied(*arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    store = make_store()
    ledger = store.create({})
    monkeypatch.setattr(os, "open", denied)
    for call in (partial(store.create, {}), partial(store.open, 0), partial(store.recover, 0)):
        with pytest.raises(AccessDeniedError, match="Permission denied") as caught:
            call()
        assert "ledgers" in caught.value.key
    monkeypatch.undo()
    assert ledger.append(b"x") == 0
