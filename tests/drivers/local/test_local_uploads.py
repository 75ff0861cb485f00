"""Uploads of the driver `local`: blocks in any order, from several processes, and what is refused."""

from __future__ import annotations

import pytest

from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import MetadataError, UploadError


def test_a_block_that_is_left_out_at_the_end_is_not_part_of_the_object(driver):
    upload = driver.begin_data("k", "x/y", {})
    first = driver.write_block(upload, 1, 0, b"abc")
    driver.write_block(upload, 2, 3, b"def")
    assert driver.commit_data(upload, [first], False).size_bytes == 3
    assert driver.stat("k").size_bytes == 3


@pytest.mark.parametrize(("part", "offset", "data"), [(0, 0, b"x"), (1, -1, b"x"), (1, 0, b"")])
def test_blocks_that_make_no_sense_are_refused(driver, part, offset, data):
    upload = driver.begin_data("k", "x/y", {})
    with pytest.raises(UploadError):
        driver.write_block(upload, part, offset, data)


@pytest.mark.parametrize("upload_id", ["", "../../etc/passwd", "A" * 32, "0" * 32 + "\n", "0" * 31, "0" * 32])
def test_an_upload_id_is_never_made_a_path(driver, upload_id):
    driver.write_index("k", b"0123456789", "text/plain", {}, False)
    upload = Upload(key="k", upload_id=upload_id)
    receipt = BlockReceipt(part_number=1, offset=0, length=1, tag=upload_id)
    with pytest.raises(UploadError):
        driver.write_block(upload, 1, 0, b"x")
    with pytest.raises(UploadError):
        driver.commit_data(upload, [receipt], False)
    assert driver.abort_data(upload) is False


def test_a_directory_without_uploads_lists_none(driver, root):
    root.mkdir()
    assert list(driver.list_uploads("")) == []


@pytest.mark.parametrize(
    "record",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"key": "../x"}',
        b'{"key": "k"}',
        b"[" * 100_000,
        b'{"key": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_damaged_record_ends_its_upload_and_does_not_hide_others(driver, root, record):
    bad, good = (driver.begin_data(key, "a/b", {}) for key in ("bad", "good"))
    root.joinpath(".offload-uploads", f"{bad.upload_id}.json").write_bytes(record)
    found = {stale.upload.upload_id: stale.upload.key for stale in driver.list_uploads("")}
    assert found == {bad.upload_id: "", good.upload_id: "good"}
    block = driver.write_block(bad, 1, 0, b"data")
    with pytest.raises((MetadataError, UploadError)):
        driver.commit_data(bad, [block], create_only=False)
    assert driver.abort_data(bad) is True
