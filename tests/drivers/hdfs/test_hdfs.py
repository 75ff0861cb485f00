"""Objects in HDFS as other clients see them, and what other programs leave there."""

from __future__ import annotations

import itertools
import json
import pickle

import pytest
from commit_races import race_of_processes
from hdfs_native import Client, WriteOptions

from offload_core.storage.tier import open_store
from offload_drivers.hdfs import HdfsDriver
from offload_hooks import ByteRange
from offload_hooks.errors import (
    InvalidKeyError,
    MetadataError,
    ObjectExistsError,
    OptionError,
    RangeError,
    StoreUnavailableError,
)


def write(driver, key, *blocks, create_only=True, **about):
    """A data object of these blocks."""
    upload = driver.begin_data(key, "a/b", about)
    receipts, offset = [], 0
    for number, block in enumerate(blocks, 1):
        receipts.append(driver.write_block(upload, number, offset, block))
        offset += len(block)
    return driver.commit_data(upload, receipts, create_only)


# --- seen by others ------------------------------------------------------------------------------------------------


def test_an_object_is_a_file_with_its_metadata_in_a_sidecar(driver, web):
    write(driver, "d/k", b"first,", b"second", who="we", place="ä")
    driver.write_index("d/i", memoryview(b"index"), "a/b", {"who": "we"}, True)
    assert web.files() == {"d/k", "d/k.metadata.json", "d/i", "d/i.metadata.json"}
    assert (web.get("d/k"), web.get("d/i")) == (b"first,second", b"index")
    assert json.loads(web.get("d/i.metadata.json"))["user_metadata"] == {"who": "we"}
    about = json.loads(web.get("d/k.metadata.json"))
    assert (about["version"], about["content_type"]) == (1, "a/b")
    assert about["user_metadata"] == {"who": "we", "place": "ä"}


def test_files_have_as_many_copies_as_was_asked_for(open_driver, web):
    write(open_driver(replication="1"), "one", b"abc")
    write(open_driver(replication=2), "two", b"abc")
    assert [web.status(name)["replication"] for name in ("one", "two", "one.metadata.json")] == [1, 2, 1]


# --- left by others ------------------------------------------------------------------------------------------------


def test_a_file_without_a_sidecar_is_an_object_without_metadata(driver, web):
    web.put("from/elsewhere", b"0123456789")
    stat = driver.stat("from/elsewhere")
    assert (stat.size_bytes, stat.content_type) == (10, "application/octet-stream")
    assert stat.user_metadata == {}
    with pytest.raises(ObjectExistsError):
        driver.write_index("from/elsewhere", b"x", "a/b", {}, True)
    assert driver.delete(["from/elsewhere"]) == 1
    assert web.files() == set()


def test_a_sidecar_that_is_none_hinders_stat_but_neither_reading_nor_replacing(driver, web):
    web.put("k", b"abc")
    web.put("k.metadata.json", b"{")
    with pytest.raises(MetadataError) as caught:
        driver.stat("k")
    assert caught.value.key == "k"
    assert driver.read_range("k", 0, 3) == b"abc"
    driver.write_index("k", b"new", "a/b", {"who": "we"}, False)
    assert driver.stat("k").user_metadata == {"who": "we"}


def test_a_sidecar_without_an_object_is_nobodys(driver, web):
    about = {"version": 1, "content_type": "c/d", "user_metadata": {"who": "they"}}
    web.put("k.metadata.json", json.dumps(about).encode())
    assert list(driver.list_objects("", "")) == []
    write(driver, "k", b"abc")
    assert driver.stat("k").user_metadata == {}
    assert driver.delete(["k"]) == 1
    assert web.files() == set()


def test_a_file_that_is_still_being_written_has_no_end_yet(driver, minihdfs, root, monkeypatch):
    monkeypatch.setattr("offload_drivers.hdfs.client.REPORT_S", 0.1)
    writer = Client(minihdfs.url).create(f"{root}/k", WriteOptions(create_parent=True))
    writer.write(b"0123456789")
    writer.hsync()
    with pytest.raises(StoreUnavailableError) as caught:
        driver.read_range("k", 5, 5)
    assert caught.value.key == "k"
    writer.close()
    assert driver.read_range("k", 5, 5) == b"56789"


def test_a_directory_keeps_its_name(driver, web):
    web.put("d/k", b"abc")
    for key in ("d", "d/k/below"):
        with pytest.raises(InvalidKeyError):
            driver.write_index(key, b"x", "a/b", {}, False)
        with pytest.raises(InvalidKeyError):
            write(driver, key, b"x", create_only=False)
    driver.delete(["d", "d/k/below"])
    assert web.get("d/k") == b"abc"


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def unreached():
    """A driver whose every request would fail."""
    return HdfsDriver(url="hdfs://127.0.0.1:1/tier")


@pytest.mark.parametrize(
    "key", ["a:b", "a/.snapshot/b", ".reserved", "ä" * 121, "d/" + "x" * 242, "k.metadata.json", "../k"]
)
def test_a_key_that_hdfs_cannot_name_is_refused_before_the_first_request(unreached, key):
    for call in (
        lambda: unreached.begin_data(key, "a/b", {}),
        lambda: unreached.write_index(key, b"x", "a/b", {}, False),
        lambda: unreached.read_range(key, 0, 1),
        lambda: unreached.stat(key),
        lambda: unreached.delete([key]),
    ):
        with pytest.raises(InvalidKeyError):
            call()


def test_metadata_and_ranges_that_cannot_be_are_refused_before_the_first_request(unreached):
    with pytest.raises(OptionError, match="case"):
        unreached.begin_data("k", "a/b", {"who": "a", "WHO": "b"})
    with pytest.raises(OptionError, match="text"):
        unreached.write_index("k", b"x", "a/b", {"who": 1}, False)
    with pytest.raises(RangeError):
        unreached.read_ranges([ByteRange(key="k", offset=-1, length=2)])


def test_the_longest_key_part_has_an_object_and_a_sidecar(driver, web):
    key = "x" * (255 - len(".metadata.json"))
    write(driver, key, b"abc", who="we")
    assert driver.stat(key).user_metadata == {"who": "we"}
    assert web.files() == {key, f"{key}.metadata.json"}


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_forked_child_works_and_ends_while_its_parent_is_in_the_middle_of_an_upload(
    run_program, minihdfs, root
):
    program = """
        import os, sys
        from offload_drivers.hdfs import HdfsDriver

        driver = HdfsDriver(url=sys.argv[1], user=sys.argv[2])
        upload = driver.begin_data("k", "a/b", {})
        receipts = [driver.write_block(upload, 1, 0, b"first,")]
        child = os.fork()
        if not child:
            driver.write_index("i", b"abc", "a/b", {}, True)
            assert driver.read_range("i", 0, 3) == b"abc"
            driver.close()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        receipts.append(driver.write_block(upload, 2, 6, b"second"))
        driver.commit_data(upload, receipts, True)
        print(driver.read_range("k", 0, 12), driver.read_range("i", 0, 3))
        driver.close()
    """
    assert run_program(program, minihdfs.url + root, minihdfs.superuser) == "b'first,second' b'abc'\n"


def test_a_forked_child_and_its_parent_do_not_read_each_others_answers(run_program, minihdfs, root):
    """Neither closes its driver; both end without a complaint."""
    program = """
        import os, sys
        from offload_drivers.hdfs import HdfsDriver

        driver = HdfsDriver(url=sys.argv[1], user=sys.argv[2])
        for name in "abcdefgh":
            driver.write_index(name, name.encode() * 1000, "a/b", {}, True)
        driver.read_range("a", 0, 1000)
        child = os.fork()
        for name in "abcdefgh"[:: 1 if child else -1]:
            assert driver.read_range(name, 0, 1000) == name.encode() * 1000
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_program(program, minihdfs.url + root, minihdfs.superuser) == "0\n"


def test_a_pickled_tier_works_in_another_process(run_program, minihdfs, root, tmp_path):
    with open_store(minihdfs.url + root, user=minihdfs.superuser) as tier:
        tier.write_index("k", b"abc", user_metadata={"who": "we"})
        (tmp_path / "tier").write_bytes(pickle.dumps(tier))
    program = """
        import pathlib, pickle, sys

        with pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()) as tier:
            print(bytes(tier.read_range("k", 0, 3)), dict(tier.stat("k").user_metadata))
    """
    assert run_program(program, str(tmp_path / "tier")) == "b'abc' {'who': 'we'}\n"


def test_of_racing_create_only_commits_of_processes_exactly_one_wins_and_its_metadata_stands(
    driver, minihdfs, root, web
):
    rounds, names = 6, "abcd"
    options = {"url": minihdfs.url + root, "user": minihdfs.superuser}
    won = race_of_processes(HdfsDriver, options, names, rounds)
    assert sorted(itertools.chain(*won.values())) == list(range(rounds))
    for name, numbers in won.items():
        for number in numbers:
            stat = driver.stat(f"d{number}/k")
            assert (stat.user_metadata, stat.content_type) == ({"who": name}, f"type/{name}")
            assert driver.read_range(f"d{number}/k", 0, 1000) == name.encode() * 1000
    assert list(driver.list_uploads("")) == []
    assert len(web.files()) == 2 * rounds
