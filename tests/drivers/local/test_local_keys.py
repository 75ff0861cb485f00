from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from effort import effort
from hypothesis import example, given
from hypothesis import strategies as st

from offload_drivers.local import LocalDriver
from offload_hooks.errors import InvalidKeyError, OffloadError, OptionError, StoreError

BAD = [".Offload-Uploads", ".offload-uploads/lock", "a\\b", "x" * 242, "ü" * 121, "x" * 256 + "/y"]
"""Keys that this driver refuses, beside those that every one does."""


@pytest.fixture
def root(tmp_path):
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


@pytest.mark.parametrize("key", BAD)
def test_what_is_no_key_is_refused_by_every_hook(driver, root, key):
    for attempt in attempts(driver, key).values():
        with pytest.raises(InvalidKeyError) as caught:
            attempt()
        str(caught.value).encode()
    assert list(root.iterdir()) == []


def test_the_longest_key_has_room_for_its_sidecar(driver, root):
    key = "y" * 255 + "/" + "x" * 241
    driver.write_index(key, b"x", "x/y", {"a": "b"}, False)
    assert driver.stat(key).user_metadata == {"a": "b"}
    assert [found.key for found in driver.list_objects("", "")] == [key]
    with pytest.raises(InvalidKeyError, match="too long"):
        driver.write_index("/".join(["x" * 200] * 30), b"x", "x/y", {}, False)


@pytest.mark.parametrize("target", ["..", "../secret", "/etc", "/", ".offload-uploads"])
def test_a_symbolic_link_does_not_lead_out_of_the_root(driver, root, target):
    driver.write_index("k", b"x", "x/y", {}, False)
    root.joinpath("link").symlink_to(target)
    before = root.parent.joinpath("secret").read_bytes()
    for key in ("link/secret", "link/passwd", "link/lock", "link/new/deep"):
        for attempt in attempts(driver, key).values():
            with pytest.raises(InvalidKeyError, match="symbolic link is in the way"):
                attempt()
    for name in ("read", "stat"):
        with pytest.raises(InvalidKeyError):
            attempts(driver, "link")[name]()
    assert root.parent.joinpath("secret").read_bytes() == before
    assert [found.key for found in driver.list_objects("", "")] == ["k"]
    assert driver.delete(["link"]) == 1
    assert root.parent.joinpath("secret").exists()
    link = root / "link"
    assert link.is_symlink() == link.is_dir()  # a link to a file goes


def test_writing_to_a_link_replaces_the_link(driver, root):
    root.joinpath("link").symlink_to("../secret")
    driver.write_index("link", b"new", "x/y", {"a": "b"}, False)
    assert not root.joinpath("link").is_symlink()
    assert driver.stat("link").user_metadata == {"a": "b"}
    assert root.parent.joinpath("secret").read_bytes() == b"secret"


def test_a_root_that_is_a_link_is_followed_and_below_it_none_is(root):
    outer = root.parent / "outer"
    outer.symlink_to(root)
    driver = LocalDriver(str(outer))
    driver.write_index("a/k", b"xyz", "x/y", {}, False)
    root.joinpath("b").symlink_to("a")
    root.joinpath("c").symlink_to("a/k")
    root.joinpath("a/loop").symlink_to("..")
    assert driver.read_range("a/k", 0, 3) == b"xyz"
    for key in ("b/k", "c", "a/loop/a/k"):
        for name in ("read", "stat"):
            with pytest.raises(InvalidKeyError, match="symbolic link is in the way"):
                attempts(driver, key)[name]()
    assert [found.key for found in driver.list_objects("", "")] == ["a/k"]


@pytest.mark.parametrize("planted", ["lock", "{note}.replaced", "{note}.replaced.tmp"])
@pytest.mark.parametrize("kind", ["file", "dangling", "pipe", "hard"])
def test_what_is_planted_among_the_uploads_is_not_written_through(driver, root, planted, kind):
    driver.write_index("k", b"old", "x/y", {"a": "b"}, False)
    note = hashlib.sha256(b"k").hexdigest()[:32]
    place = root / ".offload-uploads" / planted.format(note=note)
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "hard":
        place.hardlink_to(root.parent / "secret")
    else:
        place.symlink_to(root.parent / ("secret" if kind == "file" else "created"))
    with suppress(StoreError, InvalidKeyError):
        driver.write_index("k", b"new", "x/y", {"c": "d"}, False)
    assert root.parent.joinpath("secret").read_bytes() == b"secret"
    assert not root.parent.joinpath("created").exists()
    assert driver.read_range("k", 0, 3) in (b"old", b"new")


@pytest.mark.parametrize("suffix", [".data", ".json", ".json.tmp", ".metadata.json", ".metadata.json.tmp"])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_place_of_an_upload_s_file_is_not_written_through(driver, root, suffix, link):
    upload = driver.begin_data("k", "x/y", {"a": "b"})
    place = root / ".offload-uploads" / f"{upload.upload_id}{suffix}"
    place.unlink(missing_ok=True)
    link(place, root.parent / "secret")
    with suppress(OffloadError):
        receipt = driver.write_block(upload, 1, 0, b"new")
        driver.commit_data(upload, [receipt], False)
    assert root.parent.joinpath("secret").read_bytes() == b"secret"


def test_uploads_are_not_written_to_a_directory_that_a_link_leads_to(driver, root):
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    root.joinpath(".offload-uploads").symlink_to(elsewhere)
    for name, attempt in attempts(driver, "k").items():
        with suppress(OffloadError):
            attempt()
        assert list(elsewhere.iterdir()) == [], name
    with pytest.raises(InvalidKeyError, match="symbolic link is in the way"):
        driver.write_index("k", b"x", "x/y", {}, False)


def test_a_directory_that_becomes_a_link_while_an_object_is_written_leads_nowhere(driver, root, monkeypatch):
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    driver.write_index("d/k", b"old", "x/y", {}, False)
    flock = fcntl.flock

    def planting(descriptor, operation):
        flock(descriptor, operation)
        if operation == fcntl.LOCK_EX and not (root / "d").is_symlink():
            (root / "d").rename(root / "moved")
            (root / "d").symlink_to(elsewhere)

    monkeypatch.setattr(fcntl, "flock", planting)
    driver.write_index("d/k", b"new", "x/y", {"a": "b"}, False)
    assert list(elsewhere.iterdir()) == []
    assert (root / "moved/k").read_bytes() == b"new"


def test_pipes_in_place_of_objects_and_sidecars_are_not_waited_for(driver, root):
    driver.write_index("k", b"x", "x/y", {}, False)
    (root / "k.metadata.json").unlink()
    os.mkfifo(root / "k.metadata.json")
    os.mkfifo(root / "pipe")
    assert driver.stat("k").user_metadata == {}
    driver.write_index("pipe", b"x", "x/y", {"a": "b"}, False)
    assert driver.stat("pipe").user_metadata == {"a": "b"}


@pytest.mark.parametrize("mode", ["0600", "0640", "644", "0660"])
def test_files_have_the_mode_of_the_option_and_directories_let_search_whom_it_lets_read(root, mode):
    below = root / "a" / "tier"
    driver = LocalDriver(str(below), mode=mode)
    umask = os.umask(0)
    try:
        driver.write_index("d/k", b"x", "x/y", {"a": "b"}, False)
        driver.begin_data("d/l", "x/y", {})
    finally:
        os.umask(umask)
    files = {stat.S_IMODE(path.stat().st_mode) for path in below.rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (root / "a").rglob("*") if path.is_dir()}
    read = int(mode, 8) & 0o444
    assert files == {int(mode, 8)}
    assert folders == {int(mode, 8) | read >> 2}


@pytest.mark.parametrize("mode", [640, "0400", "0777", "rw-------", "", "06400", "1640"])
def test_a_mode_that_makes_no_sense_is_refused(root, mode):
    with pytest.raises(OptionError, match="'mode'"):
        LocalDriver(str(root), mode=mode)


PARTS = st.sampled_from(
    ["..", ".", "", "a", "b", ".offload-uploads", "x.metadata.json", "a\0", "\\", "~", "...", "..a"]
)
KEYS = st.lists(PARTS, min_size=0, max_size=6).map("/".join) | st.text(max_size=12)


@effort(0.4)
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


@effort(0.4)
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
