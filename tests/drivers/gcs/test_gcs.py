from __future__ import annotations

import json

import pytest
from gcs import PREFIX, opened

from offload_drivers.gcs import CAPABILITIES
from offload_drivers.gcs import bucket as gcs_bucket
from offload_drivers.gcs.driver import MAX_OBJECT_BYTES
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import InvalidKeyError, ObjectNotFoundError, OptionError, UploadError


@pytest.fixture
def options(fake_gcs, bucket):
    return {"bucket": bucket, "prefix": PREFIX, "endpoint_url": fake_gcs.endpoint, "anonymous": True}


@pytest.fixture
def fronted(options, front):
    """A driver whose requests are seen."""
    with opened(**options | {"endpoint_url": front.url}) as driver:
        yield driver


def write(driver, upload, *blocks, offset=0):
    receipts = []
    for number, block in enumerate(blocks, 1):
        receipts.append(driver.write_block(upload, number, offset, block))
        offset += len(block)
    return receipts


# --- objects as other clients see and make them -------------------------------------------------------------


def test_blocks_are_staged_as_objects_of_exactly_their_size(driver, rest):
    upload = driver.begin_data("t/ledger-1", "x/y", {"Role": "dätä"})
    receipts = [
        driver.write_block(upload, 3, 5, memoryview(b"fghi")),
        driver.write_block(upload, 1, 0, b"ab"),
        driver.write_block(upload, 2, 2, bytearray(b"cde")),
    ]
    record = rest.get(f".offload-uploads/{upload.upload_id}.json")
    assert json.loads(record) == {
        "version": 1,
        "key": "t/ledger-1",
        "content_type": "x/y",
        "user_metadata": {"role": "dätä"},
    }
    assert rest.staged() == {
        f"{upload.upload_id}.json": len(record),
        f"{upload.upload_id}/00001": 2,
        f"{upload.upload_id}/00002": 3,
        f"{upload.upload_id}/00003": 4,
    }
    assert rest.get("t/ledger-1") is None
    stat = driver.commit_data(upload, sorted(receipts, key=lambda receipt: receipt.part_number), True)
    assert rest.keys() == {"t/ledger-1"}
    assert rest.get("t/ledger-1") == b"abcdefghi"
    resource = rest.resource("t/ledger-1")
    assert (resource["contentType"], resource["metadata"]) == ("x/y", {"role": "dätä"})
    assert stat == driver.stat("t/ledger-1")


def test_an_index_is_one_object_with_its_metadata(driver, rest):
    driver.write_index("i", memoryview(b"\x00--boundary\r\n"), "a/b", {"K": "v", "empty": ""}, True)
    assert rest.get("i") == b"\x00--boundary\r\n"
    resource = rest.resource("i")
    assert (resource["contentType"], resource["metadata"]) == ("a/b", {"k": "v", "empty": ""})
    assert rest.keys() == {"i"}


def test_new_objects_have_the_storage_class_that_is_asked_for(options, rest, front):
    with opened(**options | {"storage_class": "nearline", "endpoint_url": front.url}) as driver:
        upload = driver.begin_data("k", "a/b", {})
        driver.commit_data(upload, write(driver, upload, b"ab", b"c"), True)
        driver.write_index("i", b"", "a/b", {}, True)
    uploads = [request.body for request in front.requests if request.path.startswith("/upload/")]
    assert len(uploads) == 4
    assert all(b'"storageClass": "NEARLINE"' in body for body in uploads)


# --- composing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "requests"), [(1, 1), (32, 1), (33, 3), pytest.param(1025, 36, marks=pytest.mark.nightly)]
)
def test_many_blocks_are_composed_in_steps_of_32(fronted, front, rest, blocks, requests):
    upload = fronted.begin_data("k", "a/b", {"n": str(blocks)})
    parts = [f"{number},".encode() for number in range(blocks)]
    receipts, offset = [], 0
    for number, part in enumerate(parts, 1):
        tag = rest.put(f".offload-uploads/{upload.upload_id}/{number:05}", part)["crc32c"]
        receipts.append(BlockReceipt(part_number=number, offset=offset, length=len(part), tag=tag))
        offset += len(part)
    stat = fronted.commit_data(upload, receipts, True)
    assert stat.size_bytes == offset
    assert rest.get("k") == b"".join(parts)
    assert rest.keys() == {"k"}
    compositions = [request for request in front.requests if request.path.endswith("/compose")]
    assert len(compositions) == requests
    assert max(len(json.loads(request.body)["sourceObjects"]) for request in compositions) <= 32


def test_a_block_that_was_written_again_counts_once_and_its_old_receipt_no_more(driver, rest):
    upload = driver.begin_data("k", "a/b", {})
    old = driver.write_block(upload, 1, 0, b"old")
    new = driver.write_block(upload, 1, 0, b"new")
    with pytest.raises(UploadError, match="not that of its receipt"):
        driver.commit_data(upload, [old], True)
    assert rest.get("k") is None
    driver.commit_data(upload, [new], True)
    assert rest.get("k") == b"new"


def test_a_part_that_vanished_is_an_upload_error_and_nothing_is_visible(driver, rest):
    upload = driver.begin_data("k", "a/b", {})
    receipts = write(driver, upload, b"ab", b"c")
    rest.delete(f".offload-uploads/{upload.upload_id}/00002")
    with pytest.raises(UploadError, match="not in the upload") as caught:
        driver.commit_data(upload, receipts, True)
    assert caught.value.block == 2
    assert rest.get("k") is None


def test_a_part_that_is_replaced_during_the_commit_is_not_composed(fronted, front, rest):
    upload = fronted.begin_data("k", "a/b", {})
    receipts = write(fronted, upload, b"ab", b"c")

    def replace(request):
        if request.path.endswith("/compose"):
            rest.put(f".offload-uploads/{upload.upload_id}/00002", b"d")

    front.rule = replace
    with pytest.raises(UploadError, match="vanished or was replaced"):
        fronted.commit_data(upload, receipts, True)
    assert rest.get("k") is None


# --- uploads of other processes -----------------------------------------------------------------------------


def test_a_block_for_an_upload_that_is_gone_is_refused_and_leaves_nothing(driver, rest):
    upload = driver.begin_data("k", "a/b", {})
    driver.abort_data(upload)
    with pytest.raises(UploadError, match="no such upload"):
        driver.write_block(upload, 1, 0, b"late")
    assert rest.keys() == set()


def test_no_text_that_is_no_upload_id_becomes_a_name(driver, rest):
    rest.put("precious", b"x")
    for upload_id in ("../precious", "x", "", "A" * 32, "0" * 32 + "/"):
        upload = Upload(key="k", upload_id=upload_id)
        with pytest.raises(UploadError):
            driver.write_block(upload, 1, 0, b"x")
        with pytest.raises(UploadError):
            driver.commit_data(upload, [BlockReceipt(part_number=1, offset=0, length=1)], True)
        assert driver.abort_data(upload) is False
    assert rest.keys() == {"precious"}


# --- limits, before the first byte --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "user_metadata"),
    [
        ("a/b", {"k": "v" * 8192}),
        ("a/b", {f"k{number}": "ä" * 40 for number in range(100)}),
        ("a/b", {"": "v"}),
        ("a/b", {" k": "v"}),
        ("a/b", {"k\n": "v"}),
        ("a/b", {"k": "one\r\ntwo"}),
        ("a/b", {"k": "v", "K": "w"}),
        ("", {}),
        ("a/b\n", {}),
        ("ä/b", {}),
    ],
)
def test_metadata_that_the_store_would_not_keep_is_refused_unsent(
    fronted, front, content_type, user_metadata
):
    with pytest.raises(OptionError):
        fronted.begin_data("k", content_type, user_metadata)
    with pytest.raises(OptionError):
        fronted.write_index("k", b"x", content_type, user_metadata, True)
    assert front.requests == []


def test_the_most_metadata_that_is_allowed_is_kept(driver, rest):
    metadata = {"k" * 92: "v" * 100, "ä": "ö" * 3999}
    assert sum(len(text.encode()) for pair in metadata.items() for text in pair) == 8192
    driver.write_index("k", b"", "a/b", metadata, True)
    assert rest.resource("k")["metadata"] == metadata
    assert driver.stat("k").user_metadata == metadata


def test_objects_and_blocks_beyond_the_stores_limits_are_refused_unsent(fronted, front):
    upload = Upload(key="k", upload_id="0" * 32)
    with pytest.raises(UploadError, match="no more than 10,000 blocks"):
        fronted.write_block(upload, CAPABILITIES.max_blocks + 1, 0, b"x")
    with pytest.raises(UploadError, match="no object this large"):
        fronted.write_block(upload, 1, MAX_OBJECT_BYTES, b"x")
    receipt = BlockReceipt(part_number=1, offset=0, length=MAX_OBJECT_BYTES + 1)
    with pytest.raises(UploadError, match="no object this large"):
        fronted.commit_data(upload, [receipt], True)
    assert front.requests == []


def test_names_that_the_store_reserves_are_no_keys(options):
    with opened(**options | {"prefix": ""}) as driver, pytest.raises(InvalidKeyError):
        driver.stat(".well-known/acme-challenge/x")


# --- listing ------------------------------------------------------------------------------------------------


def test_a_listing_goes_on_over_pages_and_the_store_skips_what_came_before(fronted, front, rest, monkeypatch):
    monkeypatch.setattr(gcs_bucket, "PAGE", 3)
    keys = sorted(
        [f"t/{number}" for number in range(10)] + ["t/ä", "t/\U0001f600", "t/\uffee"], key=str.encode
    )
    for key in keys:
        rest.put(key, b"")
    assert [found.key for found in fronted.list_objects("t/", "")] == keys
    assert len(front.requests) == 5
    front.requests.clear()
    assert [found.key for found in fronted.list_objects("t/", keys[8])] == keys[9:]
    assert front.requests[0].parameters["startOffset"] == f"{PREFIX}/{keys[8]}"
    assert len(front.requests) == 2
    assert [found.key for found in fronted.list_objects("t/", "t/\ud800")] == ["t/\uffee", "t/\U0001f600"]
    assert list(fronted.list_objects("t/\ud800", "")) == []


def test_a_listing_is_lazy(fronted, front, rest, monkeypatch):
    monkeypatch.setattr(gcs_bucket, "PAGE", 2)
    for key in "abcd":
        rest.put(key, b"")
    listed = fronted.list_objects("", "")
    assert [next(listed).key, next(listed).key] == ["a", "b"]
    assert len(front.requests) == 1
    assert next(listed).key == "c"
    assert len(front.requests) == 2


def test_a_listing_does_not_page_through_what_is_staged(fronted, front, rest, monkeypatch):
    monkeypatch.setattr(gcs_bucket, "PAGE", 4)
    rest.put("!first", b"")
    rest.put(".offload-uploads-not", b"")
    rest.put("last", b"")
    upload = fronted.begin_data("k", "a/b", {})
    write(fronted, upload, *[b"x"] * 30)
    front.requests.clear()
    assert [found.key for found in fronted.list_objects("", "")] == ["!first", ".offload-uploads-not", "last"]
    assert len(front.requests) == 2
    assert list(fronted.list_objects(".offload-uploads/", "")) == []
    assert list(fronted.list_objects(upload.upload_id, "")) == []


def test_a_missing_bucket_is_named_by_the_call(options):
    with opened(**options | {"bucket": "not-there"}) as driver:
        for call in (
            lambda: driver.list_objects("", ""),
            lambda: driver.list_uploads(""),
            lambda: driver.begin_data("k", "a/b", {}),
            lambda: driver.write_index("k", b"", "a/b", {}, True),
        ):
            with pytest.raises(ObjectNotFoundError, match="there is no bucket 'not-there'"):
                call()


def test_deleting_more_keys_than_are_asked_for_at_once(driver, rest):
    keys = [f"k{number}" for number in range(100)]
    for key in keys[::2]:
        rest.put(key, b"")
    rest.put("kept", b"")
    assert driver.delete([*keys, keys[0]]) == 101
    assert rest.keys() == {"kept"}
