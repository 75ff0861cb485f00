"""Chunks on disk: whatever lies there, what is read is right, and there is never more than allowed."""

from __future__ import annotations

import os
import random
import shutil
import stat
import time

import pytest
from layered import Cached, chunk_files, put, size_of

from offload_hooks import DriverDescription, hookimpl
from offload_hooks.errors import OptionError
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.threads import together
from offload_layers.block_cache import chunk_files as chunk_files_module
from offload_layers.block_cache.chunk_files import LAYOUT, BrokenChunkError, ChunkFiles
from offload_layers.block_cache.chunk_names import ChunkName, ObjectVersion

DATA = random.Random(2).randbytes(1050)


@pytest.fixture
def driver():
    driver = MemoryDriver()
    put(driver, "k", DATA)
    return driver


@pytest.fixture
def open_cache(driver, tmp_path):
    """Makes caches over the same directory, as processes do."""

    def make(driver=driver, **options):
        return Cached(driver, **{"directory": str(tmp_path / "cache"), "memory_bytes": 0, **options})

    return make


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache" / LAYOUT


def name_of(number, key="k"):
    return ChunkName(ObjectVersion("tier", key, 1 << 40, 1), 100, number)


# --- sharing -----------------------------------------------------------------------------------


def test_what_one_cache_read_another_has(open_cache):
    assert open_cache().read("k", 90, 20) == DATA[90:110]
    other = open_cache()
    assert other.read("k", 0, 200) == DATA[:200]
    assert other.fetched() == []
    assert (other.statistics.disk_hits, other.statistics.misses) == (2, 0)


def test_what_comes_from_disk_is_kept_in_memory(open_cache):
    open_cache().read("k", 0, 1)
    other = open_cache(memory_bytes=1000)
    for _ in range(3):
        other.read("k", 0, 1)
    assert (other.statistics.disk_hits, other.statistics.memory_hits) == (1, 2)


def test_tiers_and_versions_and_chunk_sizes_never_mix(driver, open_cache):
    class Elsewhere(MemoryDriver):
        @hookimpl
        def describe(self):
            found = super().describe()
            return DriverDescription(
                name=found.name,
                location=found.location,
                capabilities=found.capabilities,
                driver_metadata={"serviceEndpoint": "http://elsewhere"},
            )

    open_cache().read("k", 0, 1)
    elsewhere = Elsewhere()
    put(elsewhere, "k", DATA[::-1])
    assert open_cache(elsewhere).read("k", 0, 10) == DATA[::-1][:10]
    assert open_cache(chunk_bytes=50).read("k", 40, 20) == DATA[40:60]
    put(driver, "k", DATA[1:] + DATA[:1])
    assert open_cache().read("k", 0, 10) == DATA[1:11]


def test_it_is_this_users_alone(open_cache, root):
    open_cache().read("k", 0, 500)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for path in root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("mode", [0o755, 0o720, 0o701])
def test_a_directory_that_is_open_to_others_is_refused(open_cache, root, mode):
    root.mkdir(parents=True)
    root.chmod(mode)
    with pytest.raises(OptionError, match="not this user's alone"):
        open_cache()


def test_a_directory_that_cannot_be_made_is_refused(open_cache, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OptionError, match="cannot be made"):
        open_cache()


def test_a_link_in_its_place_is_refused(open_cache, root, tmp_path):
    root.parent.mkdir()
    (tmp_path / "other").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "other")
    with pytest.raises(OptionError, match="not this user's alone"):
        open_cache()


# --- damage ------------------------------------------------------------------------------------


def damaged(data):
    flips = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    cuts = [data[:at] for at in range(0, len(data), 7)]
    return [*flips, *cuts, data + b"x", bytes(len(data))]


def test_a_file_with_any_damage_is_a_miss_and_removed(tmp_path):
    files = ChunkFiles(str(tmp_path), 1 << 20)
    files.write(name_of(0), DATA[:100])
    (path,) = chunk_files(tmp_path)
    whole = path.read_bytes()
    assert files.read(name_of(0)) == DATA[:100]
    for each in damaged(whole):
        path.write_bytes(each)
        with pytest.raises(BrokenChunkError):
            files.read(name_of(0))
        assert not path.exists()
        assert files.read(name_of(0)) is None
    files.write(name_of(0), DATA[:100])
    assert path.read_bytes() == whole


def test_the_file_is_as_documented(tmp_path):
    import xxhash

    name = ChunkName(ObjectVersion('["s3", "s3://b", []]', "a/ü", 250, 1_700_000_000_123_456), 100, 2)
    ChunkFiles(str(tmp_path), 1 << 20).write(name, b"x" * 50)
    (path,) = chunk_files(tmp_path)
    identity = b'["[\\"s3\\", \\"s3://b\\", []]", "a/\\u00fc", 250, 1700000000123456, 100, 2]'
    checksum = xxhash.xxh3_64_intdigest(identity + b"x" * 50)
    assert path.read_bytes() == (
        b"OFFCHNK1"
        + len(identity).to_bytes(8, "little")
        + (50).to_bytes(8, "little")
        + checksum.to_bytes(8, "little")
        + identity
        + b"x" * 50
    )
    digest = xxhash.xxh3_128_hexdigest(identity)
    assert path == tmp_path / LAYOUT / digest[:2] / f"{digest}.chunk"


def test_a_damaged_file_is_read_anew_and_counted(open_cache, root):
    open_cache().read("k", 0, 300)
    for path in chunk_files(root):
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    other = open_cache()
    assert other.read("k", 0, 300) == DATA[:300]
    assert (other.statistics.broken_files, other.statistics.misses) == (3, 3)
    assert other.read("k", 0, 300) == DATA[:300]
    assert (other.statistics.disk_hits, other.statistics.broken_files) == (3, 3)


def test_another_chunks_file_is_not_believed(tmp_path):
    files = ChunkFiles(str(tmp_path), 1 << 20)
    files.write(name_of(0), DATA[:100])
    (first,) = chunk_files(tmp_path)
    files.write(name_of(1), DATA[100:200])
    (second,) = set(chunk_files(tmp_path)) - {first}
    shutil.copy(first, second)
    with pytest.raises(BrokenChunkError):
        files.read(name_of(1))


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_is_a_miss(tmp_path, kind):
    files = ChunkFiles(str(tmp_path), 1 << 20)
    files.write(name_of(0), DATA[:100])
    (path,) = chunk_files(tmp_path)
    path.rename(tmp_path / "moved")
    if kind == "link":
        path.symlink_to(tmp_path / "moved")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(BrokenChunkError):
        files.read(name_of(0))
    assert path.exists() == (kind == "directory")
    files.write(name_of(0), DATA[:100])


def test_all_may_be_removed_at_any_time(open_cache, root):
    cached = open_cache()
    cached.read("k", 0, 300)
    shutil.rmtree(root)
    assert cached.read("k", 0, 300) == DATA[:300]
    assert cached.read("k", 300, 300) == DATA[300:600]
    assert cached.read("k", 600, 300) == DATA[600:900]
    assert chunk_files(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_disk_that_fails_is_logged_once_and_no_error(open_cache, root, caplog):
    cached = open_cache()
    root.joinpath("room").mkdir()
    assert cached.read("k", 0, 1000) == DATA[:1000]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["the block cache cannot keep a chunk: Is a directory"]


# --- room --------------------------------------------------------------------------------------


def test_the_oldest_go_first_and_a_use_makes_young(tmp_path, monkeypatch):
    files = ChunkFiles(str(tmp_path), 2000)
    for number in range(10):
        files.write(name_of(number), bytes(100))
        (path,) = [path for path in chunk_files(tmp_path) if path.stat().st_mtime > 1e9]
        os.utime(path, (number + 1, number + 1))
    assert size_of(tmp_path) <= 2000
    assert files.read(name_of(0)) is not None
    for number in range(100, 104):
        files.write(name_of(number), bytes(100))
    kept = [number for number in range(10) if files.read(name_of(number)) is not None]
    assert kept[0] == 0
    assert kept[1:] == list(range(10 - len(kept) + 1, 10))
    assert all(files.read(name_of(number)) is not None for number in range(100, 104))


def test_a_use_is_noted_once_a_minute(tmp_path):
    files = ChunkFiles(str(tmp_path), 2000)
    files.write(name_of(0), bytes(100))
    (path,) = chunk_files(tmp_path)
    lately = time.time() - 30
    os.utime(path, (lately, lately))
    files.read(name_of(0))
    assert path.stat().st_mtime == pytest.approx(lately)
    os.utime(path, (lately - 60, lately - 60))
    files.read(name_of(0))
    assert path.stat().st_mtime > lately


@pytest.mark.sampled(4)
@pytest.mark.parametrize("most_bytes", [1, 150, 500, 1999])
def test_there_is_never_more_than_allowed(tmp_path, most_bytes):
    files = ChunkFiles(str(tmp_path), most_bytes)
    dice = random.Random(3)
    for _ in range(200):
        files.write(name_of(dice.randrange(50)), bytes(dice.randrange(1, 300)))
        assert size_of(tmp_path) <= most_bytes


def test_a_chunk_larger_than_all_room_is_not_kept(tmp_path):
    files = ChunkFiles(str(tmp_path), 1000)
    files.write(name_of(0), bytes(100))
    files.write(name_of(1), bytes(1000))
    assert len(chunk_files(tmp_path)) == 1


def test_many_threads_keep_to_the_room(tmp_path):
    files = ChunkFiles(str(tmp_path), 5000)

    def work(start):
        for number in range(start, start + 25):
            files.write(name_of(number), bytes([number % 256]) * 100)
            assert size_of(tmp_path) <= 5000
            found = files.read(name_of(number))
            assert found in (None, bytes([number % 256]) * 100)

    together([lambda start=start: work(start) for start in range(0, 600, 100)], 60)
    assert len(chunk_files(tmp_path)) > 10


@pytest.mark.parametrize("content", [b"", b"torn", b"OFFROOM1" + bytes(16), b"\xff" * 24, b"x" * 1000])
def test_a_torn_count_is_made_anew(tmp_path, content):
    files = ChunkFiles(str(tmp_path), 2000)
    for number in range(5):
        files.write(name_of(number), bytes(100))
    (tmp_path / LAYOUT / "room").write_bytes(content)
    for number in range(5, 25):
        files.write(name_of(number), bytes(100))
        assert size_of(tmp_path) <= 2000
    assert len(chunk_files(tmp_path)) > 5


def test_a_count_that_is_too_high_is_corrected(tmp_path):
    files = ChunkFiles(str(tmp_path), 2000)
    for number in range(5):
        files.write(name_of(number), bytes(100))
        for path in chunk_files(tmp_path):
            path.unlink()
    for number in range(10):
        files.write(name_of(number), bytes(100))
    assert len(chunk_files(tmp_path)) == 10


def test_half_written_files_of_the_dead_are_removed_after_a_while(tmp_path):
    files = ChunkFiles(str(tmp_path), 2000)
    folder = tmp_path / LAYOUT / "writing"
    folder.mkdir(parents=True)
    old, young, foreign = (folder / name for name in ("a" * 32, "b" * 32, "notes.txt"))
    for path in (old, young):
        path.write_bytes(bytes(300))
    foreign.write_bytes(b"")
    os.utime(old, (1, 1))
    for number in range(20):
        files.write(name_of(number), bytes(100))
    assert (old.exists(), young.exists(), foreign.exists()) == (False, True, True)
    assert size_of(tmp_path) <= 2000


def test_while_others_hold_the_lock_nothing_is_kept_and_nobody_waits_long(tmp_path, open_cache, monkeypatch):
    import fcntl

    cached = open_cache()
    cached.read("k", 0, 1)
    with (tmp_path / "cache" / LAYOUT / "room").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cached.read("k", 500, 1) == DATA[500:501]
        assert cached.read("k", 0, 1) == DATA[:1]
        assert cached.statistics.disk_hits == 1
        assert len(chunk_files(tmp_path)) == 1
    assert cached.read("k", 500, 1) == DATA[500:501]
    assert len(chunk_files(tmp_path)) == 2


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    files = ChunkFiles(str(tmp_path), 1 << 20)

    def no_room_left(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(chunk_files_module.Path, "replace", no_room_left)
        files.write(name_of(0), bytes(100))
    assert size_of(tmp_path) == 0
    files.write(name_of(0), bytes(100))
    assert files.read(name_of(0)) == bytes(100)
