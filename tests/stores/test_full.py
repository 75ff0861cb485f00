"""A store with no room left: the job ends with a named error, nothing half written is seen, and room makes it go on."""

from __future__ import annotations

import json
import subprocess

import full_disk
import pytest
from required import need
from stores import WebHdfs, new_store

from offload_core.storage.tier import upload_blocks
from offload_hooks.errors import ObjectNotFoundError, StoreFullError

pytestmark = pytest.mark.sampled(6)

MIB = 1 << 20
HDFS_BLOCK_BYTES = 128 * MIB


def test_a_full_disk(tmp_path):
    need(
        "unshare",
        full_disk.is_possible(),
        "a disk of the test's own needs Linux's user and mount name spaces",
    )
    done = subprocess.run(
        full_disk.command(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "error": "StoreFullError",
        "key": "large",
        "listed": ["kept-index"],
        "aborted": 0,  # a job that fails cleans up
        "free_bytes": pytest.approx(full_disk.DISK_BYTES, rel=0.05),
        "kept": "was there before",
        "listed_at_last": ["kept-index", "small", "small-index"],
    }


@pytest.fixture
def hdfs(minihdfs, tmp_path):
    """An empty tier on HDFS."""
    return new_store("hdfs", lambda _: minihdfs, tmp_path)


def test_a_quota_that_is_used_up(minihdfs, hdfs):
    root = hdfs.url.removeprefix(minihdfs.url)
    web = WebHdfs(minihdfs.endpoint, root, minihdfs.superuser)
    blocks = [bytes([i]) * (5 * MIB) for i in range(4)]
    with hdfs.open() as tier:
        tier.write_index("kept-index", b"was there before")
        room = HDFS_BLOCK_BYTES  # a file takes a whole HDFS block from the quota as long as it is written
        web.operate("PUT", "", op="SETQUOTA", storagespacequota=str(room), namespacequota="1000")
        with pytest.raises(StoreFullError) as caught:
            upload_blocks(tier, "t/ledger-1", iter(blocks), block_bytes=5 * MIB)
        assert caught.value.key == "t/ledger-1"
        with pytest.raises(ObjectNotFoundError):
            tier.stat("t/ledger-1")
        assert not list(tier.list_uploads())
        web.operate("PUT", "", op="SETQUOTA", storagespacequota=str(4 * room), namespacequota="1000")
        upload_blocks(tier, "t/ledger-1", iter(blocks), block_bytes=5 * MIB)
        assert bytes(tier.read_range("t/ledger-1", 0, 20 * MIB)) == b"".join(blocks)
        assert [found.key for found in tier.list_objects()] == ["kept-index", "t/ledger-1"]
