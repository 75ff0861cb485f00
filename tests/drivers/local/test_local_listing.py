from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_drivers.local import LocalDriver
from offload_hooks.errors import AccessDeniedError

# Characters around the slash, which sorts before digits and letters but after "-" and ".".
NAMES = st.text(alphabet="!-.0aB_~é\U0001f600\uffff", min_size=1, max_size=3).filter(
    lambda name: name not in (".", "..")
)
KEYS = st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12)


def compatible(keys):
    """Those of the keys that can be files at once: no key is a directory of another."""
    return {key for key in keys if not any(other.startswith(key + "/") for other in keys)}


def write_plain(root, key):
    path = os.path.join(root, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(key.encode())


def listed(driver, prefix="", start_after=""):
    return [found.key for found in driver.list_objects(prefix, start_after)]


@given(
    keys=KEYS.map(compatible),
    prefix=st.text("!-.0aB_/é", max_size=4),
    start_after=st.text("!-.0aB_/é~", max_size=5),
)
def test_a_listing_is_what_sorting_and_filtering_all_keys_gives(keys, prefix, start_after):
    with tempfile.TemporaryDirectory() as root:
        for key in keys:
            write_plain(root, key)
        driver = LocalDriver(root)
        in_order = sorted(keys, key=str.encode)
        assert listed(driver) == in_order
        assert listed(driver, prefix) == [key for key in in_order if key.startswith(prefix)]
        wanted = [k for k in in_order if k.startswith(prefix) and k.encode() > start_after.encode()]
        assert listed(driver, prefix, start_after) == wanted
        for key in keys:
            assert listed(driver, "", key) == in_order[in_order.index(key) + 1 :]
            assert key in listed(driver, key)


def test_a_listing_gives_sizes_and_times_and_nothing_of_the_drivers_own(tmp_path):
    driver = LocalDriver(str(tmp_path))
    stat = driver.write_index("a/k", b"0123456789", "x/y", {"a": "b"}, False)
    driver.begin_data("a/l", "x/y", {})
    tmp_path.joinpath("b.metadata.json").write_text("{}")
    tmp_path.joinpath(os.fsdecode(b"not-utf8-\xff")).write_text("")
    tmp_path.joinpath("back\\slash").write_text("")
    [found] = driver.list_objects("", "")
    assert (found.key, found.size_bytes, found.modified_at) == ("a/k", 10, stat.modified_at)


def path_of(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


@pytest.fixture
def years(tmp_path):
    for year in ("2023", "2024", "2025"):
        for month in ("01", "02"):
            write_plain(tmp_path, f"t/{year}/{month}/k")
    return tmp_path


@pytest.fixture
def scanned(years, monkeypatch):
    """The directories that were read."""
    seen = []
    scandir = os.scandir

    def watching(descriptor):
        seen.append(os.path.relpath(path_of(descriptor), years))
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", watching)
    return seen


def test_directories_that_cannot_match_the_prefix_are_not_walked(years, scanned):
    assert listed(LocalDriver(str(years)), "t/2024/0") == ["t/2024/01/k", "t/2024/02/k"]
    assert scanned == ["t/2024", "t/2024/01", "t/2024/02"]


def test_directories_before_the_start_are_not_walked(years, scanned):
    found = listed(LocalDriver(str(years)), "", "t/2024/01/k")
    assert found == ["t/2024/02/k", "t/2025/01/k", "t/2025/02/k"]
    assert not [path for path in scanned if path.startswith("t/2023")]


def test_a_listing_is_lazy(years, scanned):
    listing = LocalDriver(str(years)).list_objects("", "")
    assert next(listing).key == "t/2023/01/k"
    assert scanned == [".", "t", "t/2023", "t/2023/01"]


@pytest.mark.parametrize(
    "prefix", ["../", "/", "..", "a/../", "/etc/", ".offload-uploads/", "\0/", "t//", "\ud800/"]
)
def test_a_prefix_that_no_key_has_lists_nothing(years, prefix):
    LocalDriver(str(years)).begin_data("k", "x/y", {})
    assert listed(LocalDriver(str(years)), prefix) == []


def test_a_prefix_or_start_of_any_text_is_taken(years):
    assert listed(LocalDriver(str(years)), "nosuch/x/y") == []
    assert listed(LocalDriver(str(years)), "t/2023/01/k/below") == []
    assert listed(LocalDriver(str(years)), "", "\ud800") == []
    assert len(listed(LocalDriver(str(years)), "", "../..")) == 6


def test_what_vanishes_during_the_walk_is_left_out(years):
    listing = LocalDriver(str(years)).list_objects("", "")
    assert next(listing).key == "t/2023/01/k"
    shutil.rmtree(years / "t/2024")
    assert [found.key for found in listing] == ["t/2023/02/k", "t/2025/01/k", "t/2025/02/k"]


def test_dangling_links_are_left_out(tmp_path):
    write_plain(tmp_path, "k")
    tmp_path.joinpath("dangling").symlink_to("nowhere")
    tmp_path.joinpath("self").symlink_to("self")
    assert listed(LocalDriver(str(tmp_path))) == ["k"]


def test_directories_may_be_deeper_than_the_interpreter_recurses(tmp_path):
    key = "d/" * 200 + "k"
    write_plain(tmp_path, "d/k")
    driver = LocalDriver(str(tmp_path))
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        driver.write_index(key, b"x", "x/y", {}, False)
        found = listed(driver)
    finally:
        sys.setrecursionlimit(usual)
    assert found == [key, "d/k"]


def test_a_directory_that_refuses_to_be_read_is_an_error(years, monkeypatch):
    scandir = os.scandir

    def refusing(descriptor):
        if path_of(descriptor).endswith("2024"):
            raise PermissionError(13, "Permission denied")
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(AccessDeniedError):
        listed(LocalDriver(str(years)))


def test_a_link_to_a_directory_above_is_not_gone_through_whatever_the_prefix(years):
    years.joinpath("t/2024/up").symlink_to("../..")
    years.joinpath("t/2024/here").symlink_to(".")
    driver = LocalDriver(str(years))
    for prefix in ("", "t/", "t/2024/", "t/2024/0"):
        assert [key for key in listed(driver, prefix) if "2024" in key] == ["t/2024/01/k", "t/2024/02/k"]
    for prefix in ("t/2024/u", "t/2024/up/", "t/2024/up/t/", "t/2024/here/01/"):
        assert listed(driver, prefix) == []
