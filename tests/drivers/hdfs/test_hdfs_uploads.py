"""Uploads to HDFS: blocks in runs, several processes at one upload, and what a process leaves that died."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import hdfs_native
import pytest

from offload_drivers.hdfs import CAPABILITIES
from offload_drivers.hdfs import commit as hdfs_commit
from offload_drivers.hdfs.client import HdfsClient
from offload_hooks import Upload
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, UploadError

pytestmark = pytest.mark.sampled(6)


@pytest.fixture
def copied(monkeypatch):
    """How many bytes were read in commits."""
    counts = []
    read_ranges = HdfsClient.read_ranges

    def noted(self, ranges, at_once):
        counts.extend(length for _, _, length in ranges)
        return read_ranges(self, ranges, at_once)

    monkeypatch.setattr(HdfsClient, "read_ranges", noted)
    return counts


def write_on(driver, upload, receipts, data):
    """One block more, and the commit."""
    last = receipts[-1]
    more = driver.write_block(upload, last.part_number + 1, last.offset + last.length, data)
    driver.commit_data(upload, [*receipts, more], False)


def uploads(driver, prefix=""):
    return [stale.upload for stale in driver.list_uploads(prefix)]


# --- runs ------------------------------------------------------------------------------------------------------------


def test_blocks_in_order_are_committed_without_copying_a_byte(driver, web, copied):
    upload = driver.begin_data("k", "a/b", {})
    receipts = [driver.write_block(upload, n, 4 * (n - 1), b"%04d" % n) for n in range(1, 10)]
    assert len(web.files(".offload-uploads")) == 2, "one file for all blocks, and the metadata"
    driver.commit_data(upload, receipts, True)
    assert copied == []
    assert CAPABILITIES.ordered_parts, "so that this is how they come"
    assert web.get("k") == b"".join(b"%04d" % n for n in range(1, 10))
    assert web.files() == {"k", "k.metadata.json"}


def test_blocks_in_any_order_and_many_at_once_become_one_object(driver, web):
    upload = driver.begin_data("k", "a/b", {})
    blocks = {number: b"%04d" % number * 100 for number in range(1, 13)}

    def write(number):
        return driver.write_block(upload, number, 400 * (number - 1), blocks[number])

    with ThreadPoolExecutor(6) as threads:
        receipts = list(threads.map(write, reversed(blocks)))
    driver.commit_data(upload, receipts[::-1], True)
    assert web.get("k") == b"".join(blocks.values())
    assert web.files() == {"k", "k.metadata.json"}


def test_blocks_cross_the_borders_of_hdfs_blocks(driver, web):
    block_bytes = 128 << 20  # the server's default
    piece = bytes(range(256)) * (block_bytes // 256 // 2 + 1000)  # a little more than half of one
    upload = driver.begin_data("k", "a/b", {})
    receipts = [driver.write_block(upload, n, len(piece) * (n - 1), piece) for n in (1, 2)]
    stat = driver.commit_data(upload, receipts, True)
    assert stat.size_bytes == 2 * len(piece) > block_bytes == web.status("k")["blockSize"]
    start = block_bytes - 1000
    assert driver.read_range("k", start, 2000) == (piece + piece)[start : start + 2000]
    driver.delete(["k"])


# --- several processes -----------------------------------------------------------------------------------------------


def test_who_did_not_write_the_blocks_commits_them_while_their_writer_is_still_there(open_driver, web):
    writer, committer = open_driver(), open_driver()
    upload = writer.begin_data("k", "a/b", {"who": "we"})
    receipts = [writer.write_block(upload, 1, 0, b"first,"), writer.write_block(upload, 2, 6, b"second")]
    stat = committer.commit_data(upload, receipts, True)
    assert (stat.size_bytes, stat.user_metadata) == (12, {"who": "we"})
    assert web.get("k") == b"first,second"
    with pytest.raises(UploadError):
        write_on(writer, upload, receipts, b"late")
    assert web.get("k") == b"first,second"


def test_blocks_of_several_writers_become_one_object(open_driver, web):
    drivers = [open_driver() for _ in range(3)]
    upload = drivers[0].begin_data("k", "a/b", {})
    receipts = [
        drivers[(number - 1) % 3].write_block(upload, number, 4 * (number - 1), b"%04d" % number)
        for number in range(1, 8)
    ]
    drivers[1].commit_data(upload, receipts, True)
    assert web.get("k") == b"".join(b"%04d" % number for number in range(1, 8))
    assert web.files() == {"k", "k.metadata.json"}


WRITER = """
    import sys
    from offload_drivers.hdfs import HdfsDriver

    driver = HdfsDriver(url=sys.argv[1], user=sys.argv[2])
    upload = driver.begin_data("d/k", "a/b", {"who": "the dead"})
    receipt = driver.write_block(upload, 1, 0, b"first,")
    print(upload.upload_id, receipt.tag, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def dead_writers_upload(minihdfs, root):
    """An upload of a process that was killed after its first block, and the block's tag."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), minihdfs.url + root, minihdfs.superuser]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        upload_id, tag = writer.stdout.readline().split()
        writer.send_signal(signal.SIGKILL)
        writer.stdin.close()
    return Upload(key="d/k", upload_id=upload_id), tag


def test_the_upload_of_a_dead_process_is_listed_with_its_time_and_aborted(dead_writers_upload, driver, web):
    upload, _ = dead_writers_upload
    (stale,) = driver.list_uploads("d/")
    assert stale.upload == upload
    assert abs(datetime.now(UTC) - stale.started_at) < timedelta(minutes=5)
    assert uploads(driver, "e") == []
    assert driver.abort_data(upload) is True
    assert driver.abort_data(upload) is False
    assert uploads(driver) == []
    assert web.files() == set()


def test_another_process_goes_on_with_the_upload_of_a_dead_one(dead_writers_upload, driver, web):
    upload, tag = dead_writers_upload
    second = driver.write_block(upload, 2, 6, b"second")
    first = type(second)(part_number=1, offset=0, length=6, tag=tag)
    stat = driver.commit_data(upload, [first, second], True)
    assert stat.user_metadata == {"who": "the dead"}
    assert web.get("d/k") == b"first,second"
    assert web.files() == {"d/k", "d/k.metadata.json"}


# --- uploads that end otherwise --------------------------------------------------------------------------------------


def test_an_upload_that_is_aborted_by_another_takes_no_more_blocks(open_driver, web):
    writer, other = open_driver(), open_driver()
    upload = writer.begin_data("k", "a/b", {})
    receipts = [writer.write_block(upload, 1, 0, b"abc")]
    assert other.abort_data(upload)
    with pytest.raises(UploadError):
        write_on(writer, upload, receipts, b"def")
    with pytest.raises(ObjectNotFoundError):
        writer.stat("k")
    assert web.files() == set()


def test_a_receipt_that_says_more_than_was_written_is_refused(driver):
    upload = driver.begin_data("k", "a/b", {})
    receipt = driver.write_block(upload, 1, 0, b"abc")
    lie = type(receipt)(part_number=1, offset=0, length=4, tag=receipt.tag)
    with pytest.raises(UploadError, match="fewer bytes"):
        driver.commit_data(upload, [lie], True)
    with pytest.raises(ObjectNotFoundError):
        driver.stat("k")
    driver.commit_data(upload, [receipt], True)
    assert (driver.stat("k").size_bytes, driver.read_range("k", 0, 3)) == (3, b"abc")


@pytest.mark.parametrize("tag", ["", "run-1:0", "copy:0", f"run-{'0' * 32}:-1", f"../{'0' * 32}:0"])
def test_a_receipt_of_something_else_is_refused(driver, tag):
    upload = driver.begin_data("k", "a/b", {})
    receipt = driver.write_block(upload, 1, 0, b"abc")
    with pytest.raises(UploadError):
        driver.commit_data(upload, [type(receipt)(part_number=1, offset=0, length=3, tag=tag)], True)
    assert driver.abort_data(upload)


@pytest.mark.parametrize("upload_id", ["", "..", "x" * 32, "0" * 31, "0" * 32, "../" + "0" * 32])
def test_an_upload_that_nobody_began_is_none(driver, upload_id):
    upload = Upload(key="k", upload_id=upload_id)
    assert driver.abort_data(upload) is False
    with pytest.raises(UploadError):
        driver.write_block(upload, 1, 0, b"abc")


def test_a_refused_create_only_commit_keeps_the_upload_which_may_then_replace_the_object(driver, web):
    driver.write_index("k", b"old", "a/b", {"which": "old"}, True)
    upload = driver.begin_data("k", "a/b", {"which": "new"})
    receipts = [driver.write_block(upload, 1, 0, b"new")]
    with pytest.raises(ObjectExistsError):
        driver.commit_data(upload, receipts, True)
    assert (web.get("k"), uploads(driver)) == (b"old", [upload])
    driver.commit_data(upload, receipts, False)
    assert (web.get("k"), uploads(driver)) == (b"new", [])
    assert driver.stat("k").user_metadata == {"which": "new"}


# --- turns -----------------------------------------------------------------------------------------------------------


def test_who_has_the_turn_for_too_long_loses_it_and_can_do_no_harm_then(open_driver, monkeypatch, web):
    monkeypatch.setattr(hdfs_commit, "PATIENCE_S", 0.2)
    slow, quick = open_driver(), open_driver()
    upload = slow.begin_data("k", "a/b", {"who": "slow"})
    receipts = [slow.write_block(upload, 1, 0, b"slow")]
    rename, overtaken = HdfsClient.rename, []

    def overtake(self, source, target, **how):
        # The slow one is about to put its data in place: the quick one ends its turn and is done before.
        if not overtaken and target.endswith("/k"):
            overtaken.append(True)
            quick.write_index("k", b"quick", "a/b", {"who": "quick"}, False)
        return rename(self, source, target, **how)

    monkeypatch.setattr(HdfsClient, "rename", overtake)
    slow.commit_data(upload, receipts, False)
    assert overtaken
    assert (web.get("k"), slow.stat("k").user_metadata) == (b"slow", {"who": "slow"})
    assert web.files() == {"k", "k.metadata.json"}
    assert uploads(slow) == []


def test_a_writer_that_is_freed_asks_nothing_of_hdfs(driver, minihdfs, root):
    driver.delete("nothing")  # makes HDFS' user that of this process
    client = HdfsClient(hdfs_native.Client(minihdfs.url, {}), minihdfs.url, 10.0, None)
    client.make_directory(root)
    writer = client.writer(f"{root}/left-open")
    client.write(writer, memoryview(b"bytes"))
    del writer
    gc.collect()
    assert client.status(f"{root}/left-open").length == 0  # nobody has closed it
