"""The second look at a tier needs its listing only, and what it gives is what the first one would."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from records import closed, copied, managed_ledger
from tiers import TOPIC, MemoryDriver, Names, numbered, uuid_of

from offload_core.metadata.catalogue import catalogue_cache as module
from offload_core.metadata.catalogue import list_catalogue
from offload_core.metadata.catalogue.catalogue_cache import CachedPair, CatalogueCache, cache_folder
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.reading.scan import read_task
from offload_core.storage.tier import Tier
from offload_hooks import hookimpl
from pulsar_offload import TierReader, open_tier, scan

OBJECTS = [
    *(pip17_object([b"one", b"", b"three"], ledger_id=ledger_id) for ledger_id in (1, 2, 3)),
    streaming_object([LedgerPart(ledger_id=4, blocks=[[b"f"]]), LedgerPart(ledger_id=5, blocks=[[b"g"]])]),
]


class VersionedDriver(MemoryDriver):
    """Objects with versions, as an object store has them; each call is counted."""

    written_at: datetime | None = None

    def __init__(self, *written):
        super().__init__(numbered(*(written or OBJECTS)), metadata=Names().as_metadata("data"))
        self.versions: dict[str, str | None] = {}
        self.stats: list[str] = []

    @hookimpl
    def list_objects(self, prefix, start_after):
        return (self._versioned(each) for each in list(super().list_objects(prefix, start_after)))

    @hookimpl
    def stat(self, key):
        self.stats.append(key)
        return self._versioned(super().stat(key))

    @property
    def requests(self):
        return len(self.stats) + len(self.reads)

    def _versioned(self, each):
        version = self.versions.get(each.key, sha256(self.objects[each.key]).hexdigest())
        return replace(each, version=version, modified_at=self.written_at or each.modified_at)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(module.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "catalogues"


def look(driver, **options):
    return list_catalogue(Tier(driver), cached=True, **options)


def second_look(driver, **options):
    """The catalogue of a second look, equal to one that is not cached, and the requests that it took."""
    before = driver.requests
    found = look(driver, **options)
    taken = driver.requests - before
    assert found == list_catalogue(Tier(driver), **options)
    return taken


# --- what it saves -----------------------------------------------------------------------------


def test_a_second_look_asks_for_nothing_but_the_listing():
    driver = VersionedDriver()
    first = look(driver)
    assert driver.requests == 2 * len(OBJECTS)
    assert second_look(driver) == 0
    assert [len(topic.ledgers) for topic in first.topics] == [5]


def test_a_survey_fills_the_cache_and_is_filled_by_it():
    driver = VersionedDriver()
    found = []
    for expected in (2 * len(OBJECTS), 0):
        before = driver.requests
        with LedgerSurvey() as survey:
            survey.fill(Tier(driver), cached=True)
            found.append(list(survey.ledgers()))
        assert driver.requests - before == expected
    assert found[0] == found[1]
    assert second_look(driver) == 0


def test_executors_ask_for_no_index_that_the_plan_has():
    driver = VersionedDriver()
    with TierReader(Tier(driver), catalogue_cache=True) as tier:
        tier.catalogue()
        driver.stats.clear(), driver.reads.clear()
        planned = scan(tier, level="entries", isolation="uncommitted")
        assert driver.requests == 0
        tasks = pickle.loads(pickle.dumps(planned.tasks))
        rows = [batch for task in tasks for batch in read_task(tier.store, task, planned.options)]
    assert sum(each.num_rows for each in rows) == 3 * 3 + 2
    assert {key for key, *_ in driver.reads} == {key for key in driver.objects if "index" not in key}


def test_a_plan_alone_keeps_what_it_read():
    driver = VersionedDriver()
    with TierReader(Tier(driver), catalogue_cache=True) as tier:
        for expected in (len(OBJECTS) + 1, 0):  # the index of a streaming object names its ledgers
            before = driver.requests
            assert scan(tier, isolation="uncommitted").tasks
            assert driver.requests - before == expected


def test_copies_that_records_name_are_looked_up_and_their_indexes_kept():
    driver = VersionedDriver()
    records = {TOPIC: managed_ledger(*(closed(n, 3, copied(uuid_of(n - 1))) for n in (1, 2, 3)))}
    with TierReader(Tier(driver), catalogue_cache=True) as tier:
        found = []
        for gets in (3, 0):
            driver.stats.clear(), driver.reads.clear()
            found.append(tier.catalogue(records=records))
            assert (len(driver.reads), len(driver.stats)) == (gets, 6)
    assert found[0] == found[1]
    assert all(ledger.extents for ledger in found[0].topics[0].ledgers)


@pytest.mark.parametrize("has_records", [False, True], ids=["listing", "records"])
def test_what_is_kept_already_is_not_written_again(folder, has_records):
    records = {TOPIC: managed_ledger(*(closed(n, 3, copied(uuid_of(n - 1))) for n in (1, 2, 3)))}
    written = []
    with TierReader(Tier(VersionedDriver()), catalogue_cache=True) as tier:
        for _ in range(2):
            tier.catalogue(records=records if has_records else None)
            written.append(file_of(folder).read_bytes())
    assert written[0] == written[1]


def test_large_indexes_are_not_kept(monkeypatch):
    monkeypatch.setattr("offload_core.metadata.catalogue.listing.MOST_INDEX_BYTES", 10)
    driver = VersionedDriver()
    look(driver)
    assert second_look(driver) == len(OBJECTS)


# --- what it never trusts ----------------------------------------------------------------------


def _rewritten(driver, key):
    driver.objects[key] = driver.objects[key][:-1] + b"\xff"


def _longer(driver, key):
    driver.objects[key] += b"\0"


def _other_version(driver, key):
    driver.versions[key] = "other"


def _later(driver, _):
    driver.written_at = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("suffix", ["", "-index"], ids=["data", "index"])
@pytest.mark.parametrize("change", [_rewritten, _longer, _other_version, _later])
def test_what_changed_is_read_again(change, suffix):
    driver = VersionedDriver()
    look(driver)
    change(driver, f"{uuid_of(0)}-ledger-1{suffix}")
    assert second_look(driver) == (2 * len(OBJECTS) if change is _later else 2)
    assert second_look(driver) == 0


@pytest.mark.parametrize("which", ["", "-index"])
def test_where_a_store_has_no_versions_nothing_is_kept(which):
    driver = VersionedDriver(OBJECTS[0])
    driver.versions[f"{uuid_of(0)}-ledger-1{which}"] = None
    look(driver)
    assert second_look(driver) == 2


def test_an_object_that_was_just_written_is_not_kept(monkeypatch):
    driver = VersionedDriver()
    driver.written_at = datetime.now(UTC)
    look(driver)
    assert second_look(driver) == 2 * len(OBJECTS)
    driver.written_at -= timedelta(seconds=3)
    look(driver)
    assert second_look(driver) == 0


def test_incomplete_pairs_and_deleted_ones_are_seen():
    driver = VersionedDriver()
    look(driver)
    del driver.objects[f"{uuid_of(0)}-ledger-1-index"]
    del driver.objects[f"{uuid_of(1)}-ledger-2"]
    for key in [key for key in driver.objects if "ledger-3" in key]:
        del driver.objects[key]
    assert {stored.problem.value for stored in look(driver).problems} == {"no-index", "no-data"}
    second_look(driver)


def test_broken_indexes_stay_broken():
    driver = VersionedDriver()
    key = f"{uuid_of(0)}-ledger-1-index"
    driver.objects[key] = b"\0" * len(driver.objects[key])
    look(driver)
    assert second_look(driver) == 0
    assert [stored.problem.value for stored in look(driver).problems] == ["broken-index"]


class _Elsewhere(VersionedDriver):
    """Another service with a bucket of the same name."""

    @hookimpl
    def describe(self):
        return replace(super().describe(), driver_metadata={"serviceEndpoint": "http://other"})


def test_two_services_with_a_bucket_of_one_name_are_two(folder):
    look(VersionedDriver())
    assert second_look(_Elsewhere()) == 2 * len(OBJECTS)
    assert len(list(folder.iterdir())) == 2


# --- when something is wrong with the file -----------------------------------------------------


def file_of(folder):
    (file,) = folder.glob("*.sqlite")
    return file


def test_only_this_user_may_read_it(folder):
    look(VersionedDriver())
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    {
        "page": lambda data: data[:4096] + bytes(4096) + data[8192:],
        "half": lambda data: data[: len(data) // 2],
        "empty": lambda _: b"",
        "text": lambda _: b"no database at all" * 100,
    }.items(),
    ids=lambda each: each[0],
)
def test_a_damaged_file_is_dropped_and_made_again(folder, damage):
    driver = VersionedDriver()
    look(driver)
    file = file_of(folder)
    file.write_bytes(damage[1](file.read_bytes()))
    assert second_look(driver) == 2 * len(OBJECTS)
    look(driver)
    assert second_look(driver) == 0


@pytest.mark.parametrize("place", range(0, 8192, 128))
def test_damage_anywhere_changes_no_answer(folder, place):
    driver = VersionedDriver()
    look(driver)
    file = file_of(folder)
    data = bytearray(file.read_bytes())
    for at in range(place, len(data), 8192):
        data[at : at + 16] = os.urandom(16)
    file.write_bytes(data)
    for _ in range(3):
        assert second_look(driver) <= 2 * len(OBJECTS)


def test_each_byte_of_a_row_is_checked(folder):
    """SQLite itself notices no change of a value."""
    driver = VersionedDriver()
    look(driver)
    for column, value in (
        ("fingerprint", "'x'"),
        ("contents", "x'00'"),
        ("contents", "NULL"),
        ("metadata", "99"),
    ):
        with closing(sqlite3.connect(file_of(folder))) as file, file:
            file.execute(f"UPDATE pairs SET {column} = {value}")
        second_look(driver)
        look(driver)
        assert second_look(driver) == 0


def test_a_file_of_another_version_of_this_program_is_made_anew(folder):
    driver = VersionedDriver()
    look(driver)
    with closing(sqlite3.connect(file_of(folder))) as file, file:
        file.execute("PRAGMA user_version = 99")
    assert second_look(driver) == 2 * len(OBJECTS)
    look(driver)
    assert second_look(driver) == 0


def test_a_file_that_another_process_holds_is_passed_over(folder, monkeypatch):
    monkeypatch.setattr(module, "_BUSY_S", 0.05)
    driver = VersionedDriver()
    look(driver)
    with closing(sqlite3.connect(file_of(folder), isolation_level=None)) as file:
        file.execute("BEGIN EXCLUSIVE")
        assert second_look(driver) == 2 * len(OBJECTS)
    assert second_look(driver) == 0


def test_without_a_folder_there_is_no_cache(tmp_path, monkeypatch):
    for path in ("off", "relative", tmp_path / "file" / "below", tmp_path / "shared"):
        monkeypatch.setenv(module.FOLDER_VARIABLE, str(path))
        (tmp_path / "file").touch()
        (tmp_path / "shared" / "catalogues").mkdir(parents=True, exist_ok=True)
        (tmp_path / "shared" / "catalogues").chmod(0o777)
        assert cache_folder() is None
        driver = VersionedDriver()
        look(driver)
        assert second_look(driver) == 2 * len(OBJECTS)


def test_it_is_off_by_an_option(folder, tmp_path):
    driver = VersionedDriver()
    with TierReader(Tier(driver)) as tier:
        tier.catalogue()
    assert not folder.exists()
    with open_tier(tmp_path) as tier, open_tier(tmp_path, catalogue_cache=False) as without:
        assert (tier.catalogue_cache, without.catalogue_cache) == (True, False)


# --- its size ----------------------------------------------------------------------------------


def pairs(count, size=1000):
    return [CachedPair(f"k{i}", f"f{i}", {"a": "b"}, os.urandom(size)) for i in range(count)]


def test_a_full_file_takes_nothing_more_and_is_begun_anew(tmp_path):
    path = tmp_path / "one.sqlite"
    with closing(CatalogueCache(path, most_bytes=100_000)) as cache:
        cache.keep(pairs(200))
        cache.keep([CachedPair("late", "f", {}, b"")])
        assert len(cache.find([f"k{i}" for i in range(200)])) == 200
        assert cache.find(["late"]) == {}
    assert not path.exists()


def test_files_that_were_not_used_for_longest_make_room(tmp_path):
    for number in range(4):
        path = tmp_path / f"{number}.sqlite"
        with closing(CatalogueCache(path)) as cache:
            cache.keep(pairs(50))
        os.utime(path, (number, number))
    with closing(CatalogueCache(tmp_path / "new.sqlite", most_bytes=3 * path.stat().st_size)) as cache:
        cache.keep(pairs(50))
    assert {path.name for path in tmp_path.iterdir()} == {"2.sqlite", "3.sqlite", "new.sqlite"}


# --- beside other processes --------------------------------------------------------------------


PROGRAM = """
import sys
from pathlib import Path
from offload_core.metadata.catalogue.catalogue_cache import CachedPair, CatalogueCache
path, begin = Path(sys.argv[1]), int(sys.argv[2])
cache = CatalogueCache(path)
print("begun", flush=True)
for number in range(begin, begin + 2000, 20):
    some = range(number, number + 20)
    cache.keep([CachedPair(f"k{i}", f"f{i}", {"n": str(i % 7)}, str(i).encode() * 50) for i in some])
cache.close()
"""


def started(path, begin):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path, str(begin)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def assert_right(path, most):
    with closing(CatalogueCache(path)) as cache:
        found = cache.find(f"k{i}" for i in range(most))
        for key, pair in found.items():
            i = int(key[1:])
            assert pair == CachedPair(key, f"f{i}", {"n": str(i % 7)}, str(i).encode() * 50)
        cache.keep([CachedPair("more", "f", {}, None)])
        assert cache.find(["more"])
    return len(found)


@pytest.mark.long
def test_processes_write_one_file_at_once(tmp_path):
    path = tmp_path / "one.sqlite"
    running = [started(path, begin) for begin in (0, 2000, 2000)]
    for each in running:
        assert each.communicate(timeout=120)[1] == b""
        assert not each.returncode
    assert assert_right(path, 4000) > 2000


@pytest.mark.long
@pytest.mark.parametrize("after_s", [0, 0.002, 0.01, 0.03, 0.1])
def test_a_process_that_is_killed_leaves_a_right_file(tmp_path, after_s):
    path = tmp_path / "one.sqlite"
    writing = started(path, 0)
    assert writing.stdout.readline() == b"begun\n"
    time.sleep(after_s)
    writing.send_signal(signal.SIGKILL)
    writing.communicate()
    assert_right(path, 2000)
