"""One directory, many processes: any of them may be killed at any point."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import warnings

import pytest
from dying import DIED, die_at, end_after
from layered import CHUNK, Cached, chunk_files, put, size_of

from offload_hooks.errors import OptionError
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.forks import in_forked_child
from offload_layers.block_cache.chunk_files import LAYOUT

CHUNKS = 300
DATA = random.Random(5).randbytes(CHUNK * CHUNKS)
ENTRY = CHUNK + 150  # more than a chunk's file takes
ROOM = 100 * ENTRY


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def driver():
    driver = MemoryDriver()
    put(driver, "k", DATA)
    return driver


@pytest.fixture
def open_cache(driver, directory):
    def make(room=ROOM):
        return Cached(driver, directory=str(directory), memory_bytes=0, disk_bytes=room)

    return make


class ForkedReader:
    """A forked process that does some work; its exit status is 0 if that went well."""

    def __init__(self, work):
        self._began, said = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forking with threads, which there are none of
            self._pid = os.fork()
        if self._pid == 0:
            os.write(said, b"b")
            end_after(work)
        os.close(said)
        assert os.read(self._began, 1) == b"b"
        os.close(self._began)

    def kill(self):
        os.kill(self._pid, signal.SIGKILL)

    def wait(self):
        """Its exit status, or less than 0 for the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def read(cached, number):
    """Read a chunk by the cache, which must be right."""
    assert cached.read("k", number * CHUNK, CHUNK) == DATA[number * CHUNK : (number + 1) * CHUNK]


def read_some(cached, seed, count, directory):
    dice = random.Random(seed)
    for number in range(count):
        read(cached, dice.randrange(CHUNKS))
        assert number % 20 or size_of(directory) <= ROOM
    assert cached.statistics.broken_files == 0
    assert cached.statistics.disk_hits > count / 10


@pytest.mark.long
def test_processes_share_a_directory_and_keep_to_its_room(open_cache, directory):
    workers = [
        ForkedReader(lambda seed=seed: read_some(open_cache(), seed, 150, directory)) for seed in range(4)
    ]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert ROOM / 2 < size_of(directory) <= ROOM
    assert not list((directory / LAYOUT / "writing").iterdir())


@pytest.mark.long
def test_processes_that_are_killed_leave_right_data_and_room(open_cache, directory):
    def forever(seed):
        cached = open_cache()
        dice = random.Random(seed)
        while True:
            read(cached, dice.randrange(CHUNKS))

    dice = random.Random(11)
    survivor = ForkedReader(lambda: read_some(open_cache(), 1, 200, directory))
    watcher = open_cache()
    for seed in range(5):
        victim = ForkedReader(lambda seed=seed: forever(seed))
        for _ in range(dice.randrange(40)):
            read(watcher, dice.randrange(CHUNKS))
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        assert size_of(directory) <= ROOM
    assert survivor.wait() == 0
    assert watcher.statistics.broken_files == 0
    read_some(open_cache(), 2, 100, directory)


CALLS = ("open", "pwrite", "truncate", "mkdir", "unlink", "replace", "close", "scandir", "utime")


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_at_any_call_leaves_right_data(open_cache, directory, when, sample):
    room = 3 * ENTRY  # so that chunks must go, too

    def fill(at):
        cached = open_cache(room)
        die_at(at, when, *((os, name) for name in CALLS), (fcntl, "flock"))
        for number in range(8):
            read(cached, number)

    for at in sample(range(1, 1000, 2), 12):
        victim = ForkedReader(lambda at=at: fill(at))
        status = victim.wait()
        assert status in (0, DIED)
        assert size_of(directory) <= room
        after = open_cache(room)
        for number in range(8):
            read(after, number)
        assert after.statistics.broken_files == 0
        if status == 0:
            break
    assert at > 60


def test_a_forked_child_has_its_own_memory_and_the_same_directory(driver, directory):
    cached = Cached(driver, directory=str(directory))
    cached.read("k", 0, 1000)

    def child():
        assert cached.statistics.memory_bytes == 0
        assert cached.read("k", 0, 2000) == DATA[:2000]
        assert (cached.statistics.disk_hits, cached.statistics.misses) == (10, 10)

    in_forked_child(child, 30)
    assert cached.read("k", 1000, 1000) == DATA[1000:2000]
    assert cached.statistics.disk_hits == 10


def test_a_directory_of_another_user_is_refused(open_cache, directory):
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's directory")
    root = directory / LAYOUT
    root.mkdir(parents=True, mode=0o700)
    os.chown(root, 12345, 12345)
    with pytest.raises(OptionError, match="not this user's alone"):
        open_cache()
    assert chunk_files(directory) == []
