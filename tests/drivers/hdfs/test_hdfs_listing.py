"""Listing in HDFS: in the order of UTF-8 bytes, lazily, page by page, one directory at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hdfs_native import Client, WriteOptions

from offload_drivers.hdfs.client import PAGE, HdfsClient
from offload_hooks.errors import ObjectNotFoundError


@pytest.fixture
def fill(minihdfs, root):
    """Make empty files, which need no DataNode."""
    client = Client(minihdfs.url)

    def make(key):
        client.create(f"{root}/{key}", WriteOptions(create_parent=True)).close()

    def fill(keys):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(make, keys))

    return fill


@pytest.fixture
def looked_into(monkeypatch, root):
    """The directories that were listed, relative to the root."""
    paths = []
    listing = HdfsClient.listing

    def noted(self, path):
        paths.append(path.removeprefix(root).lstrip("/"))
        return listing(self, path)

    monkeypatch.setattr(HdfsClient, "listing", noted)
    return paths


def keys(driver, prefix="", start_after=""):
    return [found.key for found in driver.list_objects(prefix, start_after)]


def in_order(names):
    return sorted(names, key=str.encode)


def test_a_directory_of_more_than_a_page_is_listed_whole_and_from_any_place(driver, fill):
    names = [f"d/{number:05}" for number in range(PAGE + 5)]
    fill([*names, "d.before", "e"])
    assert keys(driver) == ["d.before", *names, "e"]
    for place in (0, 7, PAGE - 1, PAGE, PAGE + 4):
        assert keys(driver, "d/", names[place]) == names[place + 1 :]


def test_keys_come_in_the_order_of_their_utf_8_bytes_whatever_the_namenodes_is(driver, fill, minihdfs, root):
    names = ["z", "~", "\uffee", "\U0001f600", "a-b", "a/b", "a0", "\u00e9/x", "a/\U0001f600/y"]
    fill(names)
    assert keys(driver) == in_order(names)
    for place in names:
        assert keys(driver, "", place) == [name for name in in_order(names) if name.encode() > place.encode()]
    namenodes = [status.path.rpartition("/")[2] for status in Client(minihdfs.url).list_status(root)]
    assert namenodes != in_order(namenodes), (
        "the order of bytes as signed numbers, for which the driver sorts"
    )


def test_directories_that_hold_no_wanted_key_are_not_looked_into(driver, fill, looked_into):
    fill([f"{letter}/{number}/k" for letter in "abc" for number in "123"])
    assert keys(driver, "b/2", "") == ["b/2/k"]
    assert looked_into == ["b", "b/2"]
    looked_into.clear()
    assert keys(driver, "", "b/3") == ["b/3/k", "c/1/k", "c/2/k", "c/3/k"]
    assert looked_into == ["", "b", "b/3", "c", "c/1", "c/2", "c/3"]


def test_a_listing_looks_no_further_than_it_is_read(driver, fill, looked_into):
    fill([f"{letter}/k" for letter in "abc"])
    assert next(driver.list_objects("", "")).key == "a/k"
    assert looked_into == ["", "a"]


def test_sidecars_uploads_and_what_is_no_key_are_not_listed(driver, fill):
    fill(["k", "back\\slash", "d/.offload-uploads/k"])
    driver.write_index("k", b"abc", "a/b", {"who": "we"}, False)
    upload = driver.begin_data("k", "a/b", {})
    assert keys(driver) == ["d/.offload-uploads/k", "k"]
    assert driver.abort_data(upload)


def test_what_vanishes_during_a_listing_is_left_out(driver, fill):
    fill(["a/k", "b/k", "c/k"])
    listing = driver.list_objects("", "")
    assert next(listing).key == "a/k"
    driver._connections.get().remove_all(f"{driver._paths.base}b")
    assert [found.key for found in listing] == ["c/k"]


def test_a_deep_tree_is_listed(driver, fill):
    key = "/".join(["d"] * 200 + ["k"])
    fill([key])
    assert keys(driver) == [key]
    assert keys(driver, "d/d/", "d/d/d") == [key]


def test_a_root_that_is_not_there_is_said_at_the_call_with_its_url(driver, minihdfs, root):
    with pytest.raises(ObjectNotFoundError, match=minihdfs.url + root):
        driver.list_objects("", "")
    assert list(driver.list_uploads("")) == []


def test_an_empty_root_is_an_empty_listing(driver, minihdfs, root):
    Client(minihdfs.url).mkdirs(root)
    assert keys(driver) == []
