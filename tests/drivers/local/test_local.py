from __future__ import annotations

import errno
import json
import os

import pytest
from tiers import Folder

from offload_hooks import Upload
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    MetadataError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    StoreError,
    StoreFullError,
    UnsupportedVersionError,
)


def put(driver, key="k", data=b"0123456789", metadata=(), create_only=False, content_type="text/plain"):
    return driver.write_index(key, data, content_type, dict(metadata), create_only)


# --- objects and what lies beside them -------------------------------------------------------------


def test_an_object_is_a_file_and_its_metadata_a_sidecar(driver, root):
    upload = driver.begin_data("public/ledger-1", "x/y", {"Role": "data", "managedledgername": "a/ü"})
    receipts = [driver.write_block(upload, 1, 0, b"abc"), driver.write_block(upload, 2, 3, memoryview(b"de"))]
    assert Folder(root).keys() - {".offload-uploads/lock"} == {
        f".offload-uploads/{upload.upload_id}.data",
        f".offload-uploads/{upload.upload_id}.json",
    }
    driver.commit_data(upload, receipts, False)
    assert Folder(root).keys() == {
        ".offload-uploads/lock",
        "public/ledger-1",
        "public/ledger-1.metadata.json",
    }
    assert root.joinpath("public/ledger-1").read_bytes() == b"abcde"
    assert json.loads(root.joinpath("public/ledger-1.metadata.json").read_bytes()) == {
        "version": 1,
        "content_type": "x/y",
        "user_metadata": {"role": "data", "managedledgername": "a/ü"},
    }


def test_a_plain_file_without_sidecar_is_an_object(driver, root):
    root.mkdir()
    root.joinpath("plain").write_bytes(b"xyz")
    stat = driver.stat("plain")
    assert (stat.size_bytes, stat.content_type, stat.user_metadata) == (3, "application/octet-stream", {})
    assert driver.read_range("plain", 1, 2) == b"yz"
    assert driver.delete(["plain"]) == 1
    assert not root.joinpath("plain").exists()


def test_create_only_does_not_overwrite_a_plain_file_or_a_dangling_link(driver, root):
    root.mkdir()
    root.joinpath("plain").write_bytes(b"x")
    root.joinpath("dangling").symlink_to("nowhere")
    for key in ("plain", "dangling"):
        with pytest.raises(ObjectExistsError):
            put(driver, key, create_only=True)


def test_deleting_many_with_a_bad_key_deletes_none(driver):
    put(driver)
    with pytest.raises(InvalidKeyError):
        driver.delete(["k", "../x"])
    assert driver.stat("k")


# --- sidecars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sidecar", "error"),
    [
        (b'{"version": 2, "content_type": "x", "user_metadata": {}, "more": 1}', UnsupportedVersionError),
        (b"", MetadataError),
        (b"{", MetadataError),
        (b"[]", MetadataError),
        (b"\xff\xfe", MetadataError),
        (b"[" * 100_000, MetadataError),
        (b'{"content_type": "x", "user_metadata": {}}', MetadataError),
        (b'{"version": "1", "content_type": "x", "user_metadata": {}}', MetadataError),
        (b'{"version": true, "content_type": "x", "user_metadata": {}}', MetadataError),
        (b'{"version": 0, "content_type": "x", "user_metadata": {}}', MetadataError),
        (b'{"version": 1, "content_type": null, "user_metadata": {}}', MetadataError),
        (b'{"version": 1, "content_type": "x", "user_metadata": []}', MetadataError),
        (b'{"version": 1, "content_type": "x", "user_metadata": {"a": 1}}', MetadataError),
        (b'{"version": 1, "content_type": "x", "user_metadata": {"a": "\\ud800"}}', MetadataError),
    ],
)
def test_a_sidecar_that_is_not_one_is_an_error_but_the_bytes_are_there(driver, root, sidecar, error):
    put(driver)
    root.joinpath("k.metadata.json").write_bytes(sidecar)
    with pytest.raises(error) as caught:
        driver.stat("k")
    assert caught.value.key == "k"
    assert driver.read_range("k", 0, 10) == b"0123456789"
    put(driver, metadata={"repaired": "yes"})
    assert driver.stat("k").user_metadata == {"repaired": "yes"}


def test_a_sidecar_truncated_anywhere_is_an_error(driver, root):
    put(driver, metadata={"name": "välue"})
    sidecar = root.joinpath("k.metadata.json")
    whole = sidecar.read_bytes()
    for length in range(len(whole)):
        sidecar.write_bytes(whole[:length])
        with pytest.raises(MetadataError):
            driver.stat("k")


def test_a_strangers_sidecar_is_read_with_lower_case_keys(driver, root):
    root.mkdir()
    root.joinpath("k").write_bytes(b"x")
    document = {"user_metadata": {"Role": "X"}, "content_type": "a/b", "version": 1, "comment": "ours"}
    root.joinpath("k.metadata.json").write_text(json.dumps(document, indent=2))
    assert driver.stat("k").user_metadata == {"role": "X"}


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, {"a": None}, {"A": "1", "a": "2"}, {"a": "\ud800"}])
def test_metadata_that_is_not_text_is_refused_before_anything_is_written(driver, root, metadata):
    with pytest.raises(OptionError):
        driver.begin_data("k", "x/y", metadata)
    with pytest.raises(OptionError):
        put(driver, metadata=metadata)
    assert not root.exists()


# --- reading ------------------------------------------------------------------------------------------


def test_short_reads_of_the_operating_system_are_continued(driver, monkeypatch):
    put(driver)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, rooms, offset: preadv(fd, [rooms[0][:3]], offset))
    assert driver.read_range("k", 1, 9) == b"123456789"


def test_an_object_that_is_cut_while_it_is_read_is_an_error(driver, monkeypatch):
    put(driver)
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda fd, rooms, offset: preadv(fd, [rooms[0][: max(0, 4 - offset)]], offset)
    )
    with pytest.raises(RangeError, match="4, where it ends"):
        driver.read_range("k", 0, 10)


def test_memory_of_large_reads_is_used_again_only_when_nobody_looks_at_it(driver):
    driver.write_index("one", b"1" * (1 << 20), "x/y", {}, True)
    driver.write_index("two", b"2" * (1 << 20), "x/y", {}, True)
    kept = driver.read_range("one", 0, 1 << 20)[100:200]
    views = [driver.read_range("two", 0, 1 << 20) for _ in range(10)]
    assert bytes(kept) == b"1" * 100
    assert all(bytes(view) == b"2" * (1 << 20) for view in views)
    del views, kept
    assert bytes(driver.read_range("one", 5, 300_000)) == b"1" * 300_000


def test_short_writes_of_the_operating_system_are_continued(driver, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    put(driver)
    assert driver.read_range("k", 0, 10) == b"0123456789"


def test_what_is_not_a_file_is_no_object(driver, root):
    put(driver, "dir/k")
    os.mkfifo(root / "fifo")
    for key in ("nosuch", "dir", "fifo", "dir/k/below", "dir/nosuch"):
        with pytest.raises(ObjectNotFoundError) as caught:
            driver.stat(key)
        assert caught.value.key == key
        with pytest.raises(FileNotFoundError):
            driver.read_range(key, 0, 1)
    assert [found.key for found in driver.list_objects("", "")] == ["dir/k"]


def test_a_missing_root_is_named_by_reading_and_made_by_writing(driver, root):
    attempts = [
        lambda: driver.stat("k"),
        lambda: driver.read_range("k", 0, 1),
        lambda: driver.list_objects("", ""),
        lambda: driver.list_uploads(""),
    ]
    for attempt in attempts:
        with pytest.raises(ObjectNotFoundError, match=f"the directory {root} does not exist"):
            attempt()
    assert driver.delete(["k"]) == 1
    assert driver.abort_data(Upload(key="k", upload_id="0" * 32)) is False
    assert not root.exists()
    put(driver)
    assert driver.stat("k")


# --- errors of the operating system -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EACCES, AccessDeniedError),
        (errno.EPERM, AccessDeniedError),
        (errno.EROFS, AccessDeniedError),
        (errno.EIO, StoreError),
        (errno.ENAMETOOLONG, InvalidKeyError),
    ],
)
def test_errors_of_the_operating_system_are_translated(driver, monkeypatch, number, kind):
    put(driver)
    upload = driver.begin_data("k", "x/y", {})

    def fail(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    for attempt in (lambda: driver.write_block(upload, 1, 0, b"x"), lambda: put(driver)):
        with pytest.raises(kind) as caught:
            attempt()
        assert type(caught.value) is kind
        assert caught.value.key == "k"
        assert isinstance(caught.value.__cause__, OSError)
    assert len(list(driver.list_uploads(""))) == 1
    assert driver.read_range("k", 0, 10) == b"0123456789"


def test_an_object_cannot_be_a_directory_as_well(driver):
    put(driver, "a/b")
    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(InvalidKeyError):
            put(driver, key)
    assert list(driver.list_uploads("")) == []
    assert driver.stat("a/b").size_bytes == 10
    assert [found.key for found in driver.list_objects("", "")] == ["a/b"]


def test_a_file_system_that_cannot_sync_directories_is_good_enough(driver, monkeypatch):
    fsync = os.fsync

    def files_only(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    put(driver, "a/b")
    assert driver.stat("a/b")


def test_the_driver_says_who_it_is_without_touching_the_store(driver, root):
    described = driver.describe()
    assert (described.name, described.location) == ("local", root.as_uri())
    assert described.capabilities.create_only
    assert described.capabilities.stale_uploads
    assert described.capabilities.user_metadata == "sidecar"
    assert not root.exists()
