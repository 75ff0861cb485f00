"""What is particular to the driver `s3`: its objects as boto3 sees and makes them, limits, other's uploads."""

from __future__ import annotations

import mmap

import pytest
from s3 import PREFIX, opened

from offload_drivers.s3 import CAPABILITIES
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import OptionError, UploadError

MIB = 1 << 20


# --- objects as other clients see and make them ---------------------------------------------------


def test_content_type_and_user_metadata_are_the_objects_own(driver, boto):
    metadata = {"Role": "data", "empty": "", "odd.name_1": 'a = b; c, "d"'}
    upload = driver.begin_data("data", "x/y", metadata)
    driver.commit_data(upload, [driver.write_block(upload, 1, 0, memoryview(b"ab"))], False)
    driver.write_index("index", memoryview(b"\x00--boundary\r\n"), "a/b", metadata, True)
    for key, content_type in (("data", "x/y"), ("index", "a/b")):
        head = boto.head(key)
        assert head["ContentType"] == content_type
        assert head["Metadata"] == {"role": "data", "empty": "", "odd.name_1": 'a = b; c, "d"'}
        assert driver.stat(key).user_metadata == head["Metadata"]
    assert boto.get("index") == b"\x00--boundary\r\n"
    assert boto.keys() == {"data", "index"}


def test_names_outside_of_the_prefix_are_not_the_tiers(driver, boto):
    boto.client.put_object(Bucket=boto.bucket, Key=f"{PREFIX}-2/k", Body=b"x")
    boto.client.put_object(Bucket=boto.bucket, Key="k", Body=b"x")
    boto.put(".offload-uploads/x", b"x")
    assert list(driver.list_objects("", "")) == []


def test_properties_of_new_objects_are_asked_for(given, front):
    properties = {"server_side_encryption": "aws:kms", "kms_key_id": "a-key", "storage_class": "STANDARD_IA"}
    with opened(**given | properties | {"endpoint_url": front.url}) as driver:
        upload = driver.begin_data("k", "a/b", {})
        driver.write_block(upload, 1, 0, b"x")
        driver.write_index("i", b"", "a/b", {}, True)
    begun, part, index = (request.headers for request in front.requests[:3])
    for headers in (begun, index):
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "a-key"
        assert headers["x-amz-storage-class"] == "STANDARD_IA"
    assert "x-amz-storage-class" not in part


def test_the_bytes_that_are_sent_are_covered_by_the_signature(fronted, front):
    upload = fronted.begin_data("k", "a/b", {})
    fronted.write_block(upload, 1, 0, b"abc")
    fronted.write_index("i", b"abc", "a/b", {}, True)
    puts = [request.headers for request in front.requests if request.method == "PUT"]
    assert [headers["x-amz-content-sha256"] for headers in puts] == [
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    ] * 2


# --- create only ----------------------------------------------------------------------------------


def test_create_only_is_the_stores_own_condition(fronted, front):
    for create_only in (True, False):
        front.requests.clear()
        upload = fronted.begin_data("k", "a/b", {})
        receipts = [fronted.write_block(upload, 1, 0, b"x")]
        fronted.commit_data(upload, receipts, create_only)
        fronted.write_index("i", b"x", "a/b", {}, create_only)
        conditions = [request.headers.get("if-none-match") for request in front.requests]
        assert [condition for condition in conditions if condition] == ["*", "*"] * create_only


# --- uploads of other processes -------------------------------------------------------------------


def test_an_upload_of_another_client_is_listed_and_aborted(driver, boto):
    boto.client.create_multipart_upload(Bucket=boto.bucket, Key=f"{PREFIX}/k")
    boto.client.create_multipart_upload(Bucket=boto.bucket, Key="outside/k")
    (stale,) = driver.list_uploads("")
    assert stale.upload.key == "k"
    assert driver.abort_data(stale.upload) is True
    assert boto.uploads() == ["outside/k"]


def test_a_block_that_was_written_again_counts_once_and_its_old_receipt_no_more(driver, boto):
    upload = driver.begin_data("k", "a/b", {})
    old = driver.write_block(upload, 1, 0, b"old")
    new = driver.write_block(upload, 1, 0, b"new")
    with pytest.raises(UploadError):
        driver.commit_data(upload, [old], True)
    assert boto.get("k") is None
    driver.commit_data(upload, [new], True)
    assert boto.get("k") == b"new"


def test_no_text_that_is_no_upload_id_does_anything(driver, boto):
    boto.put("k", b"precious")
    receipts = [BlockReceipt(part_number=1, offset=0, length=1, tag="x")]
    for upload_id in ("", "../k", "x", "A" * 32):
        upload = Upload(key="k", upload_id=upload_id)
        with pytest.raises(UploadError):
            driver.write_block(upload, 1, 0, b"x")
        with pytest.raises(UploadError):
            driver.commit_data(upload, receipts, False)
        assert driver.abort_data(upload) is False
    assert boto.get("k") == b"precious"


# --- limits, before the first byte ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "user_metadata"),
    [
        ("a/b", {"k": "v" * 2048}),
        ("a/b", {f"k{number}": "v" * 100 for number in range(20)}),
        ("a/b", {"": "v"}),
        ("a/b", {"a key": "v"}),
        ("a/b", {"k:": "v"}),
        ("a/b", {"ä": "v"}),
        ("a/b", {"k": "ä"}),
        ("a/b", {"k": " v"}),
        ("a/b", {"k": "v "}),
        ("a/b", {"k": "one\r\ntwo: x"}),
        ("a/b", {"k": "=?utf-8?B?eA==?="}),
        ("a/b", {"k": "v", "K": "w"}),
        ("", {}),
        ("a/b\n", {}),
        ("ä/b", {}),
    ],
    ids=repr,
)
def test_metadata_that_the_store_would_not_keep_is_refused_unsent(
    fronted, front, content_type, user_metadata
):
    with pytest.raises(OptionError):
        fronted.begin_data("k", content_type, user_metadata)
    with pytest.raises(OptionError):
        fronted.write_index("k", b"x", content_type, user_metadata, True)
    assert front.requests == []


def test_the_most_metadata_that_is_allowed_is_kept(driver, boto):
    metadata = {"k" * 48: "v" * 1000, "j": "w" * 999}
    assert sum(map(len, [*metadata, *metadata.values()])) == 2048
    driver.write_index("k", b"", "a/b", metadata, True)
    assert boto.head("k")["Metadata"] == metadata


def test_blocks_beyond_the_stores_limits_are_refused_unsent(fronted, front):
    upload = Upload(key="k", upload_id="an-id")
    with pytest.raises(UploadError, match="no more than 10,000 blocks"):
        fronted.write_block(upload, CAPABILITIES.max_blocks + 1, 0, b"x")
    no_memory = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, "prot": mmap.PROT_READ}
    with mmap.mmap(-1, CAPABILITIES.max_block_bytes + 1, **no_memory) as huge, memoryview(huge) as block:
        with pytest.raises(UploadError, match="no block of more than 5,368,709,120 bytes") as caught:
            fronted.write_block(upload, 1, 0, block)
        del caught
    small = [
        BlockReceipt(part_number=1, offset=0, length=5 * MIB - 1, tag="x"),
        BlockReceipt(part_number=2, offset=5 * MIB - 1, length=1, tag="x"),
    ]
    with pytest.raises(UploadError, match="no block this small"):
        fronted.commit_data(upload, small, True)
    assert front.requests == []
