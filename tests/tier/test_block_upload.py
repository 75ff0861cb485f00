"""Blocks on their way at once: bounded memory, exact parts, nothing left behind after a failure."""

from __future__ import annotations

import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from offload_core.storage.tier import MemoryBudget, Tier, upload_blocks
from offload_drivers.local import CAPABILITIES, LocalDriver
from offload_hooks import Capabilities, DriverDescription, hookimpl
from offload_hooks.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreTimeoutError,
    StoreUnavailableError,
)


class WatchedDriver(LocalDriver):
    """A local tier that notes what is on its way at once, and can fail or be slow."""

    def __init__(self, root, *, capabilities=CAPABILITIES, fail_part=None, together=0):
        super().__init__(str(root))
        self.capabilities = capabilities
        self.fail_part = fail_part
        self.together = threading.Barrier(together) if together else None
        self.lock = threading.Lock()
        self.in_flight, self.most_in_flight, self.written = 0, 0, []

    @hookimpl
    def describe(self):
        return DriverDescription(name="watched", location="watched:", capabilities=self.capabilities)

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        with self.lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.written.append((part_number, offset, len(data)))
        try:
            if self.together is not None:
                self.together.wait(timeout=30)
            if part_number == self.fail_part:
                raise StoreUnavailableError("the store broke", key=upload.key, block=part_number)
            return super().write_block(upload, part_number, offset, data)
        finally:
            with self.lock:
                self.in_flight -= 1


def some_blocks(count, size=100, last=7):
    return [random.Random(i).randbytes(size) for i in range(count - 1)] + [b"x" * last]


def send(driver, blocks, **options):
    tier = Tier(driver)
    options = {"block_bytes": 100, "budget": MemoryBudget(1000)} | options
    stat = upload_blocks(tier, "t/k", blocks, **options)
    assert options["budget"].taken_bytes == 0
    return tier, stat


@pytest.mark.parametrize("parts_in_flight", [1, 2, 8, 100])
@pytest.mark.parametrize("count", [1, 2, 23])
def test_the_object_is_its_blocks_in_order(tmp_path, count, parts_in_flight):
    blocks = some_blocks(count)
    driver = WatchedDriver(tmp_path)
    tier, stat = send(driver, iter(blocks), parts_in_flight=parts_in_flight, user_metadata={"a": "1"})
    whole = b"".join(blocks)
    assert (stat.size_bytes, stat.user_metadata) == (len(whole), {"a": "1"})
    assert bytes(tier.read_range("t/k", 0, len(whole))) == whole
    assert sorted(driver.written) == [(i + 1, 100 * i, len(block)) for i, block in enumerate(blocks)]
    assert not list(tier.list_uploads())


def test_an_ordered_driver_gets_its_blocks_in_order(tmp_path):
    driver = WatchedDriver(tmp_path, capabilities=Capabilities(ordered_parts=True))
    send(driver, some_blocks(20))
    assert driver.most_in_flight == 1
    assert driver.written == sorted(driver.written)


@pytest.mark.parametrize(
    ("budget", "parts", "together"), [(800, 8, 8), (399, 8, 3), (1000, 2, 2), (100, 8, 1)]
)
def test_as_many_parts_are_in_flight_as_budget_and_limit_allow(tmp_path, budget, parts, together):
    driver = WatchedDriver(tmp_path, together=together)
    send(driver, some_blocks(4 * together, last=100), budget=MemoryBudget(budget), parts_in_flight=parts)
    assert driver.most_in_flight == together


class Block(bytearray):
    """Bytes that can be watched."""


def test_a_slow_store_never_holds_more_than_the_budget(tmp_path):
    alive, most, lock = 0, 0, threading.Lock()

    def gone():
        nonlocal alive
        with lock:
            alive -= 1

    def made():
        nonlocal alive, most
        for _ in range(40):
            with lock:
                alive += 1
                most = max(most, alive)
            block = Block(100)
            weakref.finalize(block, gone)
            yield block
            del block

    driver = WatchedDriver(tmp_path, together=4)
    _, stat = send(driver, made(), budget=MemoryBudget(400), parts_in_flight=8)
    assert stat.size_bytes == 4000
    assert most <= 4
    assert alive == 0


def test_two_uploads_share_a_budget(tmp_path):
    budget = MemoryBudget(300)
    drivers = [WatchedDriver(tmp_path / name) for name in "ab"]

    def one(driver):
        return upload_blocks(Tier(driver), "k", some_blocks(50), block_bytes=100, budget=budget)

    with ThreadPoolExecutor(2) as pool:
        assert [stat.size_bytes for stat in pool.map(one, drivers)] == [4907, 4907]
    assert budget.taken_bytes == 0


@pytest.mark.parametrize("fail_part", [1, 2, 9, 10])
def test_a_failed_part_ends_the_upload_and_nothing_is_left(tmp_path, fail_part):
    driver = WatchedDriver(tmp_path, fail_part=fail_part)
    budget = MemoryBudget(300)
    pulled = []
    with pytest.raises(StoreUnavailableError, match=f"block {fail_part}"):
        send(driver, (pulled.append(1) or block for block in some_blocks(10)), budget=budget)
    tier = Tier(driver)
    with pytest.raises(ObjectNotFoundError):
        tier.stat("t/k")
    assert not list(tier.list_uploads())
    assert len(pulled) <= fail_part + 3
    assert budget.taken_bytes == 0


def test_an_error_of_the_blocks_ends_the_upload(tmp_path):
    def broken():
        yield b"x" * 100
        raise ZeroDivisionError

    driver, budget = WatchedDriver(tmp_path), MemoryBudget(300)
    with pytest.raises(ZeroDivisionError):
        send(driver, broken(), budget=budget)
    assert not list(Tier(driver).list_uploads())
    assert budget.taken_bytes == 0


def test_a_failed_commit_drops_the_upload(tmp_path):
    class Failing(WatchedDriver):
        @hookimpl
        def commit_data(self):
            raise StoreTimeoutError("no answer", key="t/k")

    driver = Failing(tmp_path)
    with pytest.raises(StoreTimeoutError):
        send(driver, some_blocks(3))
    assert not list(Tier(driver).list_uploads())


def test_create_only_leaves_what_is_there(tmp_path):
    driver = WatchedDriver(tmp_path)
    send(driver, [b"first"])
    with pytest.raises(ObjectExistsError):
        send(driver, [b"second"], create_only=True)
    assert bytes(Tier(driver).read_range("t/k", 0, 5)) == b"first"
    assert not list(Tier(driver).list_uploads())


LIMITS = Capabilities(min_block_bytes=50, max_block_bytes=500, max_blocks=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_bytes": 49}, "smaller than this store takes.*50 bytes or more"),
        ({"block_bytes": 49, "total_bytes": 50}, "smaller than this store takes"),
        ({"block_bytes": 501}, "larger than this store takes.*500 bytes or less"),
        ({"block_bytes": 100, "total_bytes": 1001}, "10 blocks or less, found 11. Use blocks of 101 bytes"),
        ({"block_bytes": 0}, "at least one byte"),
        ({"parts_in_flight": 0}, "at least one part"),
        ({"budget": MemoryBudget(99)}, "one block is larger than the whole memory budget"),
    ],
)
def test_limits_are_found_before_the_first_byte_is_sent(tmp_path, options, message):
    driver = WatchedDriver(tmp_path / "never", capabilities=LIMITS)
    with pytest.raises(OptionError, match=message):
        send(driver, some_blocks(3), **options)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("options", [{"total_bytes": 1000}, {"block_bytes": 49, "total_bytes": 49}])
def test_what_is_just_within_the_limits_is_sent(tmp_path, options):
    driver = WatchedDriver(tmp_path, capabilities=LIMITS)
    send(driver, some_blocks(1), **options)


def test_a_block_larger_than_announced_is_refused(tmp_path):
    with pytest.raises(OptionError, match="larger than was announced"):
        send(WatchedDriver(tmp_path), [b"x" * 101])


def test_whoever_asked_first_gets_the_budget_first():
    budget, order = MemoryBudget(10), []
    budget.take(10)
    waiting = []
    for name, count in (("large", 9), ("small", 1)):
        thread = threading.Thread(
            target=lambda name=name, count=count: (budget.take(count), order.append(name))
        )
        thread.start()
        waiting.append(thread)
        while len(budget._queue) < len(waiting):
            pass
    budget.give_back(5)
    assert not order
    budget.give_back(4)
    waiting[0].join(timeout=30)
    assert order == ["large"]
    budget.give_back(1)
    waiting[1].join(timeout=30)
    assert order == ["large", "small"]
    with pytest.raises(OptionError, match="larger than the whole memory budget"):
        budget.take(11)
    with pytest.raises(OptionError):
        MemoryBudget(0)


def test_who_does_not_wait_takes_what_is_left_and_passes_nobody_who_waits():
    budget = MemoryBudget(10)
    assert budget.try_take(6)
    assert not budget.try_take(5)
    waiting = threading.Thread(target=budget.take, args=(5,))
    waiting.start()
    while not budget._queue:
        pass
    assert not budget.try_take(1)
    budget.give_back(6)
    waiting.join(timeout=30)
    assert budget.try_take(5)
    assert budget.taken_bytes == 10
