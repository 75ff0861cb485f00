from __future__ import annotations

import fcntl
import os
import threading
from functools import partial

import pytest
from commit_races import race_of_processes

from offload_drivers.local import LocalDriver
from offload_hooks import ObjectStat
from offload_hooks.errors import ObjectNotFoundError, UploadError
from offload_hooks.testing.threads import outcomes, together

DEADLINE_S = 60


def test_of_racing_create_only_commits_exactly_one_wins_and_its_metadata_stands(tmp_path):
    rounds, names = 4, "abcdef"
    taken = race_of_processes(LocalDriver, {"root": str(tmp_path)}, names, rounds)
    winners = {i: [name for name in names if i in taken[name]] for i in range(rounds)}
    driver = LocalDriver(str(tmp_path))
    for i, won in winners.items():
        assert len(won) == 1, winners
        stat = driver.stat(f"d{i}/k")
        assert (stat.user_metadata, stat.content_type) == ({"who": won[0]}, f"type/{won[0]}")
        assert driver.read_range(f"d{i}/k", 0, stat.size_bytes) == won[0].encode() * 1000
    assert list(driver.list_uploads("")) == []


@pytest.mark.long
def test_a_reader_never_sees_an_object_with_the_metadata_of_another(tmp_path):
    driver = LocalDriver(str(tmp_path))
    stop = threading.Event()

    def replace():
        try:
            for i in range(30):
                name = "x" * (i % 7 + 1)
                driver.write_index("k", name.encode(), "x/y", {"length": str(len(name))}, False)
                if i % 10 == 9:
                    driver.delete(["k"])
        finally:
            stop.set()

    def read():
        while not stop.is_set():
            try:
                stat = driver.stat("k")
            except ObjectNotFoundError:
                continue
            assert stat.user_metadata == {"length": str(stat.size_bytes)}

    together([replace, read, read, read], DEADLINE_S)


def test_deleting_and_creating_at_once_never_loses_metadata(tmp_path):
    driver = LocalDriver(str(tmp_path))

    def create():
        for _ in range(20):
            driver.write_index("k", b"x", "x/y", {"a": "b"}, False)

    def delete():
        for _ in range(40):
            driver.delete(["k"])

    together([create, delete, delete], DEADLINE_S)
    driver.write_index("k", b"x", "x/y", {"a": "b"}, False)
    assert driver.stat("k").user_metadata == {"a": "b"}


def test_the_same_upload_committed_twice_at_once_is_committed_once(tmp_path):
    driver = LocalDriver(str(tmp_path))
    for i in range(4):
        upload = driver.begin_data(f"k{i}", "x/y", {"a": "b"})
        receipts = [driver.write_block(upload, 1, 0, b"data")]
        ends = outcomes([partial(driver.commit_data, upload, receipts, False)] * 3, DEADLINE_S)
        assert sorted(type(end).__name__ for end in ends) == ["ObjectStat", "UploadError", "UploadError"]
        assert driver.stat(f"k{i}").user_metadata == {"a": "b"}


def test_nothing_is_put_in_place_or_removed_without_the_lock(tmp_path, monkeypatch):
    driver = LocalDriver(str(tmp_path))
    aborted = driver.begin_data("k", "x/y", {})
    held, acts = [False], []
    flock, unlink, replace = fcntl.flock, os.unlink, os.replace

    def locking(descriptor, operation):
        flock(descriptor, operation)
        held[0] = operation == fcntl.LOCK_EX

    def is_record(name):  # an upload's record is its own
        name = name.removesuffix(".tmp")
        return name.endswith(".json") and not name.endswith(".metadata.json")

    def removing(name, **where):
        if not name.endswith(".json.tmp") or not is_record(name):
            acts.append((held[0], name))
        unlink(name, **where)

    def renaming(source, target, **where):
        if not is_record(target):
            acts.append((held[0], target))
        replace(source, target, **where)

    monkeypatch.setattr(fcntl, "flock", locking)
    monkeypatch.setattr(os, "unlink", removing)
    monkeypatch.setattr(os, "replace", renaming)
    driver.abort_data(aborted)
    driver.write_index("k", b"one", "x/y", {}, False)
    driver.write_index("k", b"two", "x/y", {}, False)
    driver.delete(["k"])
    assert len(acts) > 10
    assert [path for was_held, path in acts if not was_held] == []


@pytest.mark.parametrize("key", ["a/b/c", "k"])
def test_aborting_while_committing_leaves_the_whole_object_or_none(tmp_path, key):
    driver = LocalDriver(str(tmp_path))
    upload = driver.begin_data(key, "x/y", {"a": "b"})
    receipts = [driver.write_block(upload, 1, 0, b"data")]
    commit, abort = partial(driver.commit_data, upload, receipts, False), partial(driver.abort_data, upload)
    committed, aborted = outcomes([commit, abort], DEADLINE_S)
    assert type(committed) in (ObjectStat, UploadError)
    assert type(aborted) is bool
    if isinstance(committed, ObjectStat):
        assert driver.stat(key).user_metadata == {"a": "b"}
    assert list(driver.list_uploads("")) == []
