from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offload_drivers.local import LocalDriver
from offload_hooks.errors import InvalidKeyError, OffloadError

OWN = [
    ".offload-uploads",
    ".Offload-Uploads",
    ".offload-uploads/lock",
    "k.metadata.json",
    "a.metadata.json/k",
]
BAD = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../x",
    "a/..",
    ".",
    "./x",
    "a/.",
    "a//b",
    "a/",
    "a\0b",
    "a\\b",
    "\ud800",
]
LONG = ["x" * 242, "ü" * 121, "x" * 256 + "/y"]


@pytest.fixture
def tier_dir(tmp_path):
    inside = tmp_path / "root"
    inside.mkdir()
    tmp_path.joinpath("secret").write_bytes(b"secret")
    return inside


def attempts(driver, key):
    return {
        "begin": lambda: driver.begin_data(key, "x/y", {}),
        "write": lambda: driver.write_index(key, b"evil", "x/y", {}, False),
        "read": lambda: driver.read_range(key, 0, 1),
        "stat": lambda: driver.stat(key),
        "delete": lambda: driver.delete([key]),
    }


@pytest.mark.parametrize("key", BAD + OWN + LONG)
def test_what_is_no_key_is_refused_by_every_hook(tier_dir, key):
    driver = LocalDriver(str(tier_dir))
    for attempt in attempts(driver, key).values():
        with pytest.raises(InvalidKeyError) as caught:
            attempt()
        str(caught.value).encode()
    assert list(tier_dir.iterdir()) == []


def test_the_longest_key_has_room_for_its_sidecar(tier_dir):
    driver = LocalDriver(str(tier_dir))
    key = "y" * 200 + "/" + "x" * 241
    driver.write_index(key, b"x", "x/y", {"a": "b"}, False)
    assert driver.stat(key).user_metadata == {"a": "b"}
    with pytest.raises(InvalidKeyError, match="too long"):
        driver.write_index("/".join(["x" * 200] * 30), b"x", "x/y", {}, False)


@pytest.mark.parametrize("target", ["..", "../secret", "/etc", "/", ".offload-uploads"])
def test_a_symbolic_link_does_not_lead_out_of_the_root(tier_dir, target):
    driver = LocalDriver(str(tier_dir))
    driver.write_index("k", b"x", "x/y", {}, False)
    tier_dir.joinpath("link").symlink_to(target)
    before = tier_dir.parent.joinpath("secret").read_bytes()
    for key in ("link/secret", "link/passwd", "link/lock", "link/new/deep"):
        for attempt in attempts(driver, key).values():
            with pytest.raises(InvalidKeyError, match="link leads out"):
                attempt()
    for name in ("read", "stat"):
        with pytest.raises(InvalidKeyError):
            attempts(driver, "link")[name]()
    assert tier_dir.parent.joinpath("secret").read_bytes() == before
    assert [found.key for found in driver.list_objects("", "")] == ["k"]
    assert driver.delete(["link"]) == 1
    assert tier_dir.parent.joinpath("secret").exists()
    assert (
        tier_dir.joinpath("link").is_symlink() == tier_dir.joinpath("link").is_dir()
    )  # a link to a file goes


def test_writing_to_a_link_replaces_the_link(tier_dir):
    driver = LocalDriver(str(tier_dir))
    tier_dir.joinpath("link").symlink_to("../secret")
    driver.write_index("link", b"new", "x/y", {"a": "b"}, False)
    assert not tier_dir.joinpath("link").is_symlink()
    assert driver.stat("link").user_metadata == {"a": "b"}
    assert tier_dir.parent.joinpath("secret").read_bytes() == b"secret"


def test_links_inside_the_root_and_a_root_that_is_a_link_are_followed(tier_dir):
    outer = tier_dir.parent / "outer"
    outer.symlink_to(tier_dir)
    driver = LocalDriver(str(outer))
    driver.write_index("a/k", b"xyz", "x/y", {}, False)
    tier_dir.joinpath("b").symlink_to("a")
    tier_dir.joinpath("c").symlink_to("a/k")
    tier_dir.joinpath("a/loop").symlink_to("..")
    assert driver.read_range("b/k", 0, 3) == driver.read_range("c", 0, 3) == b"xyz"
    assert [found.key for found in driver.list_objects("", "")] == ["a/k", "b/k", "c"]


PARTS = st.sampled_from(
    ["..", ".", "", "a", "b", ".offload-uploads", "x.metadata.json", "a\0", "\\", "~", "...", "..a"]
)
KEYS = st.lists(PARTS, min_size=0, max_size=6).map("/".join) | st.text(max_size=12)


@given(key=KEYS)
@example(key="a/../../secret")
@example(key="~/x")
@example(key="-")
def test_no_key_at_all_touches_anything_outside_the_root(key):
    with tempfile.TemporaryDirectory() as directory:
        outside = Path(directory)
        root = outside / "root"
        root.mkdir()
        outside.joinpath("secret").write_bytes(b"secret")
        driver = LocalDriver(str(root))
        for attempt in attempts(driver, key).values():
            try:
                attempt()
            except OffloadError:
                continue
        assert sorted(os.listdir(outside)) == ["root", "secret"]
        assert outside.joinpath("secret").read_bytes() == b"secret"
        own = [name for name in os.listdir(root) if name != ".offload-uploads"]
        assert all(name == key.split("/")[0] or name == f"{key}.metadata.json" for name in own)


@given(key=KEYS)
def test_a_key_that_is_written_is_read_and_listed_under_the_same_name(key):
    with tempfile.TemporaryDirectory() as directory:
        driver = LocalDriver(directory)
        try:
            driver.write_index(key, b"data", "x/y", {}, True)
        except InvalidKeyError:
            return
        assert driver.read_range(key, 0, 4) == b"data"
        assert [found.key for found in driver.list_objects("", "")] == [key]
