"""Uploads of the driver `local`: blocks in any order, from several processes, and what is refused."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest

from offload_drivers.local import LocalDriver
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import (
    MetadataError,
    ObjectNotFoundError,
    UploadError,
)


def test_blocks_may_come_in_any_order_again_and_from_another_process(driver, root):
    upload = driver.begin_data("k", "x/y", {})
    elsewhere = pickle.loads(pickle.dumps(driver))
    last = elsewhere.write_block(upload, 3, 6, b"ghi")
    driver.write_block(upload, 1, 0, b"XXX")
    first = driver.write_block(upload, 1, 0, b"abc")
    middle = driver.write_block(upload, 2, 3, b"def")
    assert elsewhere.commit_data(upload, [first, middle, last], False).size_bytes == 9
    assert driver.read_range("k", 0, 9) == b"abcdefghi"


def test_blocks_written_concurrently_make_the_whole(driver):
    upload = driver.begin_data("k", "x/y", {})
    receipts = {}

    def write(part):
        receipts[part] = driver.write_block(upload, part, (part - 1) * 1000, bytes([part]) * 1000)

    threads = [threading.Thread(target=write, args=(part,)) for part in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    driver.commit_data(upload, [receipts[part] for part in sorted(receipts)], False)
    assert driver.read_range("k", 0, 16000) == b"".join(bytes([part]) * 1000 for part in range(1, 17))


def test_a_block_that_is_left_out_at_the_end_is_not_part_of_the_object(driver):
    upload = driver.begin_data("k", "x/y", {})
    first = driver.write_block(upload, 1, 0, b"abc")
    driver.write_block(upload, 2, 3, b"def")
    assert driver.commit_data(upload, [first], False).size_bytes == 3
    assert driver.stat("k").size_bytes == 3


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [(1, 1, 2)],
        [(1, 0, 3), (2, 4, 2)],
        [(1, 0, 3), (2, 2, 4)],
        [(2, 0, 3), (1, 3, 3)],
        [(1, 0, 3), (1, 3, 3)],
        [(1, 0, 7)],
    ],
)
def test_receipts_must_cover_the_object_in_order(driver, blocks):
    upload = driver.begin_data("k", "x/y", {})
    driver.write_block(upload, 1, 0, b"abcdef")
    receipts = [BlockReceipt(part_number=p, offset=o, length=n, tag=upload.upload_id) for p, o, n in blocks]
    with pytest.raises(UploadError):
        driver.commit_data(upload, receipts, False)
    with pytest.raises(ObjectNotFoundError):
        driver.stat("k")


def test_receipts_of_another_upload_are_refused(driver):
    one, two = driver.begin_data("k", "x/y", {}), driver.begin_data("k", "x/y", {})
    driver.write_block(one, 1, 0, b"abc")
    receipt = driver.write_block(two, 1, 0, b"abc")
    with pytest.raises(UploadError, match="not of this upload"):
        driver.commit_data(one, [receipt], False)


def test_an_upload_belongs_to_its_key(driver):
    upload = driver.begin_data("k", "x/y", {})
    receipt = driver.write_block(upload, 1, 0, b"abc")
    with pytest.raises(UploadError, match="another key"):
        driver.commit_data(Upload(key="other", upload_id=upload.upload_id), [receipt], False)


@pytest.mark.parametrize(("part", "offset", "data"), [(0, 0, b"x"), (1, -1, b"x"), (1, 0, b"")])
def test_blocks_that_make_no_sense_are_refused(driver, part, offset, data):
    upload = driver.begin_data("k", "x/y", {})
    with pytest.raises(UploadError):
        driver.write_block(upload, part, offset, data)


def test_an_upload_that_is_gone_cannot_be_written_or_committed(driver):
    aborted, committed = driver.begin_data("a", "x/y", {}), driver.begin_data("b", "x/y", {})
    receipts = {upload: [driver.write_block(upload, 1, 0, b"abc")] for upload in (aborted, committed)}
    assert [driver.abort_data(aborted), driver.abort_data(aborted)] == [True, False]
    driver.commit_data(committed, receipts[committed], False)
    for upload in (aborted, committed):
        with pytest.raises(UploadError, match="no such upload"):
            driver.write_block(upload, 2, 3, b"x")
        with pytest.raises(UploadError, match="no such upload"):
            driver.commit_data(upload, receipts[upload], False)
    assert driver.abort_data(committed) is False
    assert driver.read_range("b", 0, 3) == b"abc"


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


def test_uploads_of_another_process_are_listed_and_can_be_dropped(driver, root):
    first, second = driver.begin_data("a/1", "x/y", {}), driver.begin_data("b/1", "x/y", {})
    driver.write_block(first, 1, 0, b"abc")
    other = LocalDriver(str(root))
    assert {stale.upload for stale in other.list_uploads("")} == {first, second}
    [stale] = other.list_uploads("a/")
    assert stale.upload == first
    assert abs(stale.started_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert other.abort_data(stale.upload) is True
    assert [stale.upload for stale in driver.list_uploads("")] == [second]


def test_a_directory_without_uploads_lists_none(driver, root):
    root.mkdir()
    assert list(driver.list_uploads("")) == []


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"key": "../x"}', b'{"key": "k"}'])
def test_with_a_damaged_record_nothing_goes_on_with_an_upload(driver, root, record):
    upload = driver.begin_data("k", "x/y", {})
    root.joinpath(".offload-uploads", f"{upload.upload_id}.json").write_bytes(record)
    assert [stale.upload.key for stale in driver.list_uploads("")] == [""]
    block = driver.write_block(upload, 1, 0, b"data")
    with pytest.raises((MetadataError, UploadError)):
        driver.commit_data(upload, [block], create_only=False)
    assert driver.abort_data(upload) is True


@pytest.mark.parametrize("record", [b"{", b"[" * 100_000, b'{"key": ' + b"1" * 5000 + b"}", b"[]", b"\xff"])
def test_a_record_that_cannot_be_read_does_not_hide_other_uploads(driver, root, record):
    bad, good = (driver.begin_data(key=key, content_type="a/b", user_metadata={}) for key in ("bad", "good"))
    root.joinpath(".offload-uploads", f"{bad.upload_id}.json").write_bytes(record)
    found = {stale.upload.upload_id: stale.upload.key for stale in driver.list_uploads(prefix="")}
    assert found == {bad.upload_id: "", good.upload_id: "good"}
