from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from offload_core.storage.tier import Tier
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import StoreUnavailableError, UploadError

LIMIT_S = 30


class Ordered(LocalDriver):
    """A driver that takes blocks in order only, one at a time, and fails the parts that it is told to."""

    def __init__(self, root):
        super().__init__(root)
        self.written, self.failing, self.busy = [], set(), threading.Lock()
        self.reached = threading.Event()

    @hookimpl
    def describe(self):
        described = LocalDriver.describe(self)
        return replace(described, capabilities=replace(described.capabilities, ordered_parts=True))

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        assert self.busy.acquire(blocking=False), "two blocks at once"
        try:
            if part_number in self.failing:
                self.failing.remove(part_number)
                raise StoreUnavailableError("try again", key=upload.key, block=part_number)
            self.written.append(part_number)
            return LocalDriver.write_block(self, upload, part_number, offset, data)
        finally:
            self.busy.release()


@pytest.fixture
def driver(tmp_path):
    return Ordered(str(tmp_path / "root"))


@pytest.fixture
def tier(driver):
    return Tier(driver)


def test_blocks_that_come_in_any_order_are_written_in_order(driver, tier):
    upload = tier.begin_data("k")
    parts = list(range(1, 17))
    random.Random(7).shuffle(parts)
    with ThreadPoolExecutor(len(parts)) as pool:
        receipts = list(
            pool.map(lambda part: tier.write_block(upload, part, part - 1, b"%x" % (part - 1)), parts)
        )
    assert driver.written == list(range(1, 17))
    tier.commit_data(upload, receipts)
    assert bytes(tier.read_range("k", 0, 16)) == b"0123456789abcdef"


def test_uploads_do_not_wait_for_each_other(tier):
    one, two = tier.begin_data("one"), tier.begin_data("two")
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(tier.write_block, one, 2, 1, b"b")
        tier.write_block(two, 1, 0, b"a")
        assert not early.done()
        tier.write_block(one, 1, 0, b"a")
        assert early.result(LIMIT_S).part_number == 2


def test_a_block_may_be_written_again(driver, tier):
    upload = tier.begin_data("k")
    for part, data in [(1, b"x"), (2, b"b"), (1, b"a"), (3, b"c")]:
        tier.write_block(upload, part, part - 1, data)
    assert driver.written == [1, 2, 1, 3]


def test_a_failed_block_fails_those_that_wait_for_it_and_can_be_written_again(driver, tier):
    upload = tier.begin_data("k")
    driver.failing = {1}
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(tier.write_block, upload, part, part - 1, b"x") for part in (2, 3)]
        with pytest.raises(StoreUnavailableError):
            tier.write_block(upload, 1, 0, b"a")
        for future in waiting:
            with pytest.raises(UploadError, match="block 1 failed"):
                future.result(LIMIT_S)
    for part in (1, 2, 3):
        tier.write_block(upload, part, part - 1, b"x")
    assert driver.written == [1, 2, 3]


def test_ending_an_upload_wakes_those_that_wait(tier):
    upload = tier.begin_data("k")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tier.write_block, upload, 2, 1, b"b")
        tier.abort_data(upload)
        with pytest.raises(UploadError):
            waiting.result(LIMIT_S)


def test_an_upload_begun_elsewhere_goes_straight_to_the_driver(driver, tier):
    upload = Tier(driver).begin_data("k")
    tier.write_block(upload, 5, 40, b"e")
    assert driver.written == [5]
