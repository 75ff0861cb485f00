"""Failures of the machine at any moment, with any of the pages lost that were not synced; and fsyncs that fail."""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore, ledger_reader, ledger_recovery
from offload_hooks.errors import LedgerFailedError
from offload_hooks.testing.content import content

# --- A disk that forgets what was not synced, page by page, and whose fsync may fail; under the ledger files of a test


PAGE = 4096
MAPPED_PAGES = range(3)


@dataclass(slots=True)
class _File:
    synced: dict[int, bytes] = field(default_factory=dict)
    synced_bytes: int = 0
    seen: dict[int, bytes] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)


class FailingDisk:
    """Patches `os`; `after_each` is called after each call that changes a file."""

    def __init__(self, monkeypatch):
        self._files: defaultdict[int, _File] = defaultdict(_File)
        self.fail_next_sync = False
        self.syncs = 0
        self.after_each: Callable[[], None] = lambda: None
        self._real = {name: getattr(os, name) for name in ("pwrite", "pwritev", "ftruncate")}
        monkeypatch.setattr(os, "pwrite", partial(self._write, "pwrite"))
        monkeypatch.setattr(os, "pwritev", partial(self._write, "pwritev"))
        monkeypatch.setattr(os, "ftruncate", self._ftruncate)
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def image(self, path, dice):
        """What is found of a file after a power failure; without dice, only what was synced."""
        file, data = self._files[path.stat().st_ino], path.read_bytes()
        self._look(file, data)
        size = len(data) if dice is not None and dice.random() < 0.7 else file.synced_bytes
        chance = dice.choice([0.1, 0.5, 0.9]) if dice is not None else 0
        pages = []
        for page in range(-(-size // PAGE)):
            lucky = page in file.dirty and dice is not None and dice.random() < chance
            found = data[page * PAGE : (page + 1) * PAGE] if lucky else file.synced.get(page, b"")
            pages.append(found.ljust(PAGE, b"\0"))
        return b"".join(pages)[:size]

    def _look(self, file, data):
        """The pages that are mapped change without a call."""
        for page in MAPPED_PAGES:
            now = data[page * PAGE : (page + 1) * PAGE]
            if file.seen.get(page) != now:
                file.seen[page] = now
                file.dirty.add(page)

    def _changed(self, descriptor, begin, end):
        file = self._files[os.fstat(descriptor).st_ino]
        file.dirty.update(range(begin // PAGE, -(-end // PAGE)))
        self.after_each()

    def _write(self, name, descriptor, data, offset):
        written = self._real[name](descriptor, data, offset)
        self._changed(descriptor, offset, offset + written)
        return written

    def _ftruncate(self, descriptor, size):
        self._real["ftruncate"](descriptor, size)
        self._changed(descriptor, max(0, size - 1), size)

    def _sync(self, descriptor):
        self.syncs += 1
        file, size = self._files[os.fstat(descriptor).st_ino], os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        self._look(file, data)
        if self.fail_next_sync:
            self.fail_next_sync = False
            file.dirty.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for page in file.dirty:
            file.synced[page] = data[page * PAGE : (page + 1) * PAGE]
        file.dirty.clear()
        file.synced_bytes = size
        self.after_each()


# --- the tests ------------------------------------------------------------------------------------


ENTRIES = [content(size, seed) for seed, size in enumerate([0, 10, 5000, 300, 4096, 1, 9000, 20, 20, 20])]
BATCH = [content(1500, 100 + seed) for seed in range(12)]
LARGE = [content(700, 200 + seed) for seed in range(3)]
ALL = ENTRIES + BATCH + LARGE


@pytest.fixture
def disk(monkeypatch):
    return FailingDisk(monkeypatch)


class Afterwards:
    """The machine is started anew, and finds an image of the ledger's file."""

    def __init__(self, folder, monkeypatch, disk):
        self.folder, self.monkeypatch, self.disk = folder, monkeypatch, disk
        self.count = 0

    def entries(self, path, dice):
        """What recovery finds; it raises no error."""
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir(parents=True)
        (folder / path.name).write_bytes(self.disk.image(path, dice))
        store = FileLedgerStore(folder)
        with self.monkeypatch.context() as patched:
            for module in (ledger_reader, ledger_recovery):
                patched.setattr(module, "boot_identity", lambda: 1)
            ledger_id = int(path.stem)
            answer = store.recover(ledger_id)
            found = all_entries(store.open(ledger_id))
            assert store.verify(ledger_id) == answer.status
        store.close()
        return found


@pytest.mark.parametrize("sync", ["always", "never"])
def test_what_is_durable_is_there_whatever_pages_were_lost(tmp_path, monkeypatch, disk, sync):
    path, dice = tmp_path / "before" / "0.ledger", random.Random(sync)
    afterwards = Afterwards(tmp_path / "after", monkeypatch, disk)
    durable, looking = 0, False
    found_counts = []

    def look():
        nonlocal looking
        if not looking and path.exists():
            looking = True
            for each in (None, *[dice] * 5):
                found = afterwards.entries(path, each)
                assert found == ALL[: len(found)]
                assert len(found) >= durable
                found_counts.append(len(found) - durable)
            looking = False

    disk.after_each = look
    store = FileLedgerStore(path.parent, sync=sync)
    writer = store.create({})
    for i, entry in enumerate(ENTRIES):
        writer.append(entry)
        if i % 4 == 3:
            writer.sync()
        durable = i + 1 if sync == "always" or i % 4 == 3 else durable
        look()
    writer.append_batch(BATCH)
    durable = len(ENTRIES + BATCH) if sync == "always" else durable
    look()
    writer.append_batch(LARGE)
    look()
    writer.close()
    durable = len(ALL)
    look()
    store.close()
    assert afterwards.count > 100
    assert min(found_counts) == 0
    assert max(found_counts) > 0


def test_an_fsync_that_fails_is_final(tmp_path, disk):
    store = FileLedgerStore(tmp_path, sync="always")
    writer = store.create({})
    assert writer.append(b"durable") == 0
    disk.fail_next_sync = True
    with pytest.raises(LedgerFailedError, match="an fsync failed: Input/output error") as caught:
        writer.append(b"not known")
    assert (caught.value.ledger_id, caught.value.key) == (0, str(tmp_path / "0.ledger"))
    syncs = disk.syncs
    for call in (lambda: writer.append(b"x"), lambda: writer.append_batch([b"x"]), writer.sync, writer.close):
        with pytest.raises(LedgerFailedError):
            call()
    assert disk.syncs == syncs, "it must not be tried again as if nothing was lost"
    reader = store.open(0)
    assert all_entries(reader) == [b"durable"]
    store.close()


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_recovery_after_an_fsync_that_failed_writes_anew_what_the_system_gave_up(
    tmp_path, monkeypatch, disk, sync
):
    path = tmp_path / "before" / "0.ledger"
    store = FileLedgerStore(path.parent, sync=sync, sync_interval_s=3600)
    writer = store.create({})
    writer.append_batch(ENTRIES[:3])
    writer.sync()
    disk.fail_next_sync = True

    def append_durably():
        writer.append_batch(ENTRIES[3:])
        writer.sync()

    with pytest.raises(LedgerFailedError):
        append_durably()
    other = FileLedgerStore(path.parent)
    assert other.recover(0).status.entry_count == len(ENTRIES)
    afterwards = Afterwards(tmp_path / "after", monkeypatch, disk)
    assert afterwards.entries(path, None) == ENTRIES
    store.close()
    other.close()


def test_an_fsync_that_fails_in_the_background_is_told_by_the_next_call(tmp_path, disk):
    store = FileLedgerStore(tmp_path, sync="interval", sync_interval_s=0.01)
    writer = store.create({})
    disk.fail_next_sync = True

    def append_until_it_fails():
        while True:
            writer.append(b"x")

    with pytest.raises(LedgerFailedError, match="an fsync failed"):
        append_until_it_fails()
    store.close()


def test_an_fsync_that_fails_when_a_descriptor_is_given_up_is_told_by_the_next_call(tmp_path, disk):
    store = FileLedgerStore(tmp_path, sync="never", max_open_files=1)
    writer, another = store.create({}), store.create({})
    writer.append(b"x")
    disk.fail_next_sync = True
    another.append(b"y")
    with pytest.raises(LedgerFailedError, match="an fsync failed"):
        writer.append(b"x")
    assert another.append(b"y") == 1
    store.close()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_ledger_whose_sealing_fails_can_be_recovered(tmp_path, disk, failing):
    store = FileLedgerStore(tmp_path, sync="never")
    writer = store.create({})
    writer.append_batch(ENTRIES)
    before = disk.syncs

    def fail_later():
        disk.fail_next_sync = disk.syncs == before + failing - 1

    disk.after_each = fail_later
    with pytest.raises(LedgerFailedError):
        writer.close()
    disk.after_each, disk.fail_next_sync = (lambda: None), False
    assert store.recover(0).status.entry_count == len(ENTRIES)
    assert all_entries(store.open(0)) == ENTRIES
    store.close()
