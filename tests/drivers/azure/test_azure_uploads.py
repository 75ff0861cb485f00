from __future__ import annotations

import json
from dataclasses import replace

import pytest
from azure.storage.blob import BlobBlock
from network.fronts import NEVER_ANSWERED

from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError, UploadError


@pytest.fixture
def driver(azurite, open_driver):
    return open_driver(connection_string=azurite.connection_string)


def begun(driver, key="k", *blocks, metadata=()):
    upload = driver.begin_data(key, "text/plain", dict(metadata))
    receipts, offset = [], 0
    for part, block in enumerate(blocks or [b"abc", b"de"], 1):
        receipts.append(driver.write_block(upload, part, offset, block))
        offset += len(block)
    return upload, receipts


def names(container):
    return [blob.name for blob in container.list_blobs()]


def committed(container, key="k"):
    return [block.id for block in container.get_blob_client(key).get_block_list("committed")[0]]


def is_commit(request):
    return request.method == "PUT" and request.parameters.get("comp") == "blocklist"


# --- records and blocks ------------------------------------------------------------------------------------


def test_an_upload_is_a_record_and_blocks_that_nobody_sees(driver, container):
    upload, receipts = begun(driver, "t/1", metadata={"Role": "data"})
    record = f".offload-uploads/{upload.upload_id}.json"
    assert names(container) == [record]
    assert json.loads(container.download_blob(record).readall()) == {
        "version": 1,
        "key": "t/1",
        "content_type": "text/plain",
        "user_metadata": {"role": "data"},
    }
    _, uncommitted = container.get_blob_client("t/1").get_block_list("uncommitted")
    assert [block.id for block in uncommitted] == [receipt.tag for receipt in receipts]
    assert all(upload.upload_id in receipt.tag for receipt in receipts)
    driver.commit_data(upload, receipts, False)
    assert names(container) == ["t/1"]


def test_a_block_that_is_written_again_in_another_length_is_what_its_receipt_says(driver, container):
    upload, receipts = begun(driver, "k", b"a long one")
    short = driver.write_block(upload, 1, 0, b"short")
    assert driver.commit_data(upload, [short], False).size_bytes == 5
    blob = container.get_blob_client("k")
    blocks, left = blob.get_block_list("all")
    assert ([block.size for block in blocks], left) == ([5], [])
    assert blob.download_blob().readall() == b"short"
    assert receipts[0].tag != short.tag


def test_a_receipt_that_was_changed_is_refused(driver):
    upload, receipts = begun(driver, "k", b"abc")
    for wrong in (replace(receipts[0], length=2), replace(receipts[0], part_number=2)):
        with pytest.raises(UploadError):
            driver.commit_data(upload, [wrong], False)
    assert driver.commit_data(upload, receipts, False).size_bytes == 3


def test_a_commit_of_blocks_that_are_not_there_is_refused(driver, container):
    upload, receipts = begun(driver, "k", b"abc")
    blob, block = container.get_blob_client("k"), "x" * len(receipts[0].tag)
    blob.stage_block(block, b"by another program")
    blob.commit_block_list([BlobBlock(block)])  # which drops all other blocks
    with pytest.raises(UploadError, match="InvalidBlockList"):
        driver.commit_data(upload, receipts, False)
    assert container.download_blob("k").readall() == b"by another program"
    assert driver.abort_data(upload) is True


def test_blocks_of_another_program_in_the_way_are_told(driver, container):
    container.get_blob_client("k").stage_block("1", b"x")
    upload = driver.begin_data("k", "text/plain", {})
    with pytest.raises(UploadError, match="another program's blocks"):
        driver.write_block(upload, 1, 0, b"abc")


def test_many_stale_uploads_are_listed(driver, container):
    begun_ids = {driver.begin_data(f"a/{i % 3}", "text/plain", {}).upload_id for i in range(130)}
    container.upload_blob(".offload-uploads/readme.txt", b"not a record")
    assert {stale.upload.upload_id for stale in driver.list_uploads("")} == begun_ids
    assert len(list(driver.list_uploads("a/0"))) == 44
    assert list(driver.list_uploads("b")) == []


def test_a_record_that_is_none_does_not_hide_other_uploads(driver, container):
    upload = driver.begin_data("a/b", "text/plain", {})
    container.upload_blob(f".offload-uploads/{'0' * 32}.json", b"{")
    found = {stale.upload.upload_id: stale.upload.key for stale in driver.list_uploads("")}
    assert found == {"0" * 32: "", upload.upload_id: "a/b"}


# --- create-only -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("create_only", [True, False])
def test_a_commit_whose_answer_is_lost_succeeds_when_it_is_made_again(fronted, front, container, create_only):
    upload, receipts = begun(fronted, metadata={"a": "1"})
    front.rule = lambda request: NEVER_ANSWERED if is_commit(request) else None
    with pytest.raises(StoreUnavailableError):
        fronted.commit_data(upload, receipts, create_only)
    front.rule = lambda _: None
    assert committed(container) == [receipt.tag for receipt in receipts]  # it had taken effect
    stat = fronted.commit_data(upload, receipts, create_only)
    assert (stat.size_bytes, stat.user_metadata) == (5, {"a": "1"})
    assert replace(fronted.stat("k"), storage_class=None, version=None) == stat
    assert list(fronted.list_uploads("")) == []


def test_a_create_only_commit_that_the_client_library_makes_twice_is_no_failure(fronted, front, container):
    """aiohttp sends a PUT again by itself when a connection that it had kept breaks."""
    upload, receipts = begun(fronted)
    lost = []

    def lose_first(request):
        if is_commit(request) and not lost:
            lost.append(request)
            return NEVER_ANSWERED
        return None

    front.rule = lose_first
    try:
        fronted.commit_data(upload, receipts, True)
    except StoreUnavailableError:  # it was not made twice this time: then it is by us
        fronted.commit_data(upload, receipts, True)
    assert lost
    assert committed(container) == [receipt.tag for receipt in receipts]


def test_a_lost_create_only_commit_of_another_object_is_not_taken_for_ours(driver, container):
    upload, receipts = begun(driver, "k", b"same bytes")
    container.get_blob_client("k").upload_blob(b"same bytes", overwrite=True)
    with pytest.raises(ObjectExistsError):
        driver.commit_data(upload, receipts, True)
    assert driver.abort_data(upload) is True


def test_a_create_only_index_whose_answer_is_lost_is_never_sent_twice(fronted, front, container):
    with pytest.raises(ObjectNotFoundError):
        fronted.stat("k")  # a connection is kept
    front.rule = lambda request: NEVER_ANSWERED if request.method == "PUT" else None
    with pytest.raises(StoreUnavailableError):
        fronted.write_index("k", b"x", "text/plain", {}, True)
    assert len([request for request in front.requests if request.method == "PUT"]) == 1
    assert container.download_blob("k").readall() == b"x"


@pytest.mark.parametrize("data", [b"", b"index"])
def test_an_index_is_created_though_blocks_are_staged_under_its_key(driver, container, data):
    """Azurite answers here that the blob exists, which it does not."""
    begun(driver, "k")
    stat = driver.write_index("k", data, "text/plain", {"a": "1"}, True)
    assert replace(driver.stat("k"), storage_class=None, version=None) == stat
    assert (stat.size_bytes, stat.content_type, stat.user_metadata) == (len(data), "text/plain", {"a": "1"})
    assert container.download_blob("k").readall() == data
    with pytest.raises(ObjectExistsError):
        driver.write_index("k", b"other", "text/plain", {}, True)


def test_a_record_that_cannot_be_deleted_after_the_commit_is_no_failure(driver, fronted, front, caplog):
    upload, receipts = begun(fronted)
    front.rule = lambda request: NEVER_ANSWERED if request.method == "DELETE" else None
    assert fronted.commit_data(upload, receipts, True).size_bytes == 5
    assert upload.upload_id in caplog.text
    assert driver.read_range("k", 0, 5) == b"abcde"
    assert [stale.upload for stale in driver.list_uploads("")] in ([], [upload])  # the loss was of the answer
    driver.abort_data(upload)
    assert driver.read_range("k", 0, 5) == b"abcde"


def test_a_commit_leaves_no_block_but_its_own(driver, container):
    one, two = begun(driver, "k", b"one"), begun(driver, "k", b"two")
    driver.commit_data(*two, False)
    blocks, left = container.get_blob_client("k").get_block_list("all")
    assert ([block.id for block in blocks], left) == ([two[1][0].tag], [])
    with pytest.raises(UploadError):
        driver.commit_data(*one, False)
    assert [stale.upload for stale in driver.list_uploads("")] == [one[0]]
    assert isinstance(blocks[0], BlobBlock)
