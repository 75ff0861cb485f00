from __future__ import annotations

import base64
import gzip
import mmap
import os

import pytest
from azure.storage.blob import ContentSettings

from offload_drivers.azure import CAPABILITIES
from offload_drivers.azure.driver import is_folder
from offload_hooks import ByteRange
from offload_hooks.errors import (
    InvalidKeyError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    StoreError,
    UploadError,
)

MIB = 1 << 20


@pytest.fixture
def driver(azurite, open_driver):
    return open_driver(prefix="cold", connection_string=azurite.connection_string)


def put(driver, key="k", data=b"0123456789", metadata=(), create_only=False, content_type="text/plain"):
    return driver.write_index(key, data, content_type, dict(metadata), create_only)


def put_blocks(driver, key, *blocks, metadata=(), create_only=False):
    upload = driver.begin_data(key, "application/unknown", dict(metadata))
    receipts, offset = [], 0
    for part, block in enumerate(blocks, 1):
        receipts.append(driver.write_block(upload, part, offset, block))
        offset += len(block)
    return driver.commit_data(upload, receipts, create_only)


def names(container):
    return [blob.name for blob in container.list_blobs()]


# --- what is stored, seen by the SDK itself ----------------------------------------------------------------


def test_an_object_is_a_blob_of_exactly_our_blocks(driver, container):
    sizes = [3 * MIB + 7, 1, 2 * MIB, 300_000]
    blocks = [os.urandom(size) for size in sizes]
    put_blocks(driver, "t/ledger-1", *blocks, metadata={"Role": "data"})
    blob = container.get_blob_client("cold/t/ledger-1")
    committed, uncommitted = blob.get_block_list("all")
    assert [block.size for block in committed] == sizes
    assert uncommitted == []
    assert len({len(block.id) for block in committed}) == 1
    assert blob.download_blob().readall() == b"".join(blocks)
    properties = blob.get_blob_properties()
    assert properties.metadata == {"role": "data"}
    assert properties.content_settings.content_type == "application/unknown"
    assert properties.blob_type == "BlockBlob"
    assert names(container) == ["cold/t/ledger-1"]


def test_a_large_index_is_stored_whole_by_one_request(driver, container):
    data = os.urandom(5 * MIB + 1)
    put(driver, "i", memoryview(data), {"a": "1"}, create_only=True)
    blob = container.get_blob_client("cold/i")
    assert blob.download_blob().readall() == data
    assert blob.get_blob_properties().metadata == {"a": "1"}
    assert bytes(driver.read_range("i", 0, len(data))) == data


def test_objects_of_other_clients_are_read_as_they_are_stored(driver, container):
    packed = gzip.compress(b"x" * 1000)
    settings = ContentSettings(content_type="text/x", content_encoding="gzip")
    container.upload_blob(
        "cold/packed", packed, metadata={"ManagedLedgerName": "t"}, content_settings=settings
    )
    stat = driver.stat("packed")
    assert (stat.size_bytes, stat.content_type) == (len(packed), "text/x")
    assert stat.user_metadata == {"managedledgername": "t"}
    assert driver.read_range("packed", 0, len(packed)) == packed
    assert driver.read_range("packed", 3, 5) == packed[3:8]


def test_a_blob_with_all_the_metadata_that_azure_takes_is_read(driver, container):
    container.upload_blob("cold/k", b"x", metadata={"a": "v" * 8191})
    assert driver.stat("k").user_metadata == {"a": "v" * 8191}
    assert driver.read_range("k", 0, 1) == b"x"
    assert [found.key for found in driver.list_objects("", "")] == ["k"]


def test_an_object_with_snapshots_is_deleted_with_them(driver, container):
    put(driver)
    container.get_blob_client("cold/k").create_snapshot()
    assert driver.delete(["k", "nothing"]) == 2
    assert list(container.list_blobs(include=["snapshots"])) == []


def test_folders_of_a_hierarchical_namespace_are_no_objects(driver, container):
    container.upload_blob("cold/folder", b"", metadata={"hdi_isfolder": "true"})
    put(driver, "folder/k")
    assert [found.key for found in driver.list_objects("", "")] == ["folder/k"]
    with pytest.raises(ObjectNotFoundError):
        driver.stat("folder")
    assert not is_folder({"hdi_isfolder": "false"})
    with pytest.raises(OptionError):
        put(driver, metadata={"hdi_isfolder": "true"})


# --- ranges ------------------------------------------------------------------------------------------------


def test_a_range_past_the_end_tells_the_size(driver):
    put(driver)
    with pytest.raises(RangeError, match="byte 10, where it ends"):
        driver.read_range("k", 5, 6)


def test_many_large_ranges_come_at_once_each_by_one_request(driver):
    data = os.urandom(40 * MIB)
    put(driver, data=data)
    ranges = [ByteRange(key="k", offset=offset, length=8 * MIB) for offset in range(0, 40 * MIB, 8 * MIB)]
    assert b"".join(driver.read_ranges(ranges)) == data
    assert driver.read_range("k", 1, 40 * MIB - 1) == data[1:]


# --- what Azure cannot keep is refused before the first byte -----------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {"with-dash": "x"},
        {"1st": "x"},
        {"": "x"},
        {"ü": "x"},
        {"a": ""},
        {"a": " x"},
        {"a": "x\t"},
        {"a": "ü"},
        {"a": "x\ny"},
        {"a": "x" * 8192},
        {"A": "1", "a": "2"},
    ],
)
def test_metadata_that_would_not_come_back_is_refused(driver, container, metadata):
    with pytest.raises(OptionError):
        put(driver, metadata=metadata)
    with pytest.raises(OptionError):
        driver.begin_data("k", "text/plain", metadata)
    assert names(container) == []


@pytest.mark.parametrize("content_type", ["", " ", " text/plain", "tëxt", "x" * 1025, "a\nb"])
def test_a_content_type_that_would_not_come_back_is_refused(driver, container, content_type):
    with pytest.raises(OptionError):
        put(driver, content_type=content_type)
    with pytest.raises(OptionError):
        driver.begin_data("k", content_type, {})
    assert names(container) == []


def test_all_that_azure_takes_comes_back(driver):
    metadata = {"_": "!", "a_1": "x  y", "sign": "~=%;,\"'", "long": "v" * 8000}
    put(driver, metadata=metadata, content_type='text/plain; charset="utf-8"')
    stat = driver.stat("k")
    assert stat.user_metadata == metadata
    assert stat.content_type == 'text/plain; charset="utf-8"'


@pytest.mark.parametrize("key", ["a.", "a./b", "...", "a/b..", "c1\x85", "a/" * 253 + "a", "x" * 1020])
def test_a_key_that_azure_cannot_name_is_refused(driver, container, key):
    with pytest.raises(InvalidKeyError):
        put(driver, key)
    assert names(container) == []


@pytest.mark.parametrize(
    "key", ["a b", "a%20b", "a+b", "a?b#c", "~", "ü/日本/\U0001f600", ".a", "a.b", "a&b=c'd"]
)
def test_a_key_is_kept_as_it_is(driver, container, key):
    put_blocks(driver, key, b"abc")
    assert names(container) == [f"cold/{key}"]
    assert driver.read_range(key, 1, 1) == b"b"
    assert [found.key for found in driver.list_objects("", "")] == [key]
    assert driver.delete([key]) == 1
    assert names(container) == []


def test_the_limits_are_azures_and_checked_before_a_byte_is_sent(driver, container):
    assert (CAPABILITIES.max_blocks, CAPABILITIES.max_block_bytes) == (50_000, 4000 * MIB)
    assert CAPABILITIES.exclusive_uploads
    upload = driver.begin_data("k", "text/plain", {})
    for part in (0, 50_001):
        with pytest.raises(UploadError):
            driver.write_block(upload, part, 0, b"x")
    with pytest.raises(UploadError):
        driver.write_block(upload, 1, 0, b"")
    with pytest.raises(UploadError):
        driver.write_block(upload, 1, 0, _huge(4000 * MIB + 1))
    with pytest.raises(StoreError):
        put(driver, data=_huge(5000 * MIB + 1))
    assert driver.abort_data(upload) is True
    assert list(container.list_blobs(include=["uncommittedblobs"])) == []


def _huge(size):
    """So many bytes of address space, none of it used."""
    return memoryview(mmap.mmap(-1, size))


# --- processes ---------------------------------------------------------------------------------------------


def test_a_forked_child_that_ends_as_programs_do_neither_hangs_nor_complains(run_program, azurite, container):
    program = """
        import os, sys
        from offload_drivers.azure import AzureDriver

        driver = AzureDriver(container=sys.argv[1], connection_string=sys.argv[2])
        driver.write_index("k", b"x", "text/plain", {}, False)
        child = os.fork()
        if not child:
            assert driver.read_range("k", 0, 1) == b"x"
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert driver.read_range("k", 0, 1) == b"x"
    """
    assert run_program(program, container.container_name, azurite.connection_string) == ""


def test_block_ids_are_no_longer_than_azure_allows(driver):
    upload = driver.begin_data("k", "text/plain", {})
    receipt = driver.write_block(upload, 50_000, 0, b"x")
    assert len(receipt.tag) <= 64
    assert len(base64.b64encode(receipt.tag.encode())) <= 88
    assert driver.abort_data(upload) is True
