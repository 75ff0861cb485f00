"""What readers keep stays within one budget, is shared, and no reader is disturbed by another."""

import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from layered import Gate
from scenes.copies import pip17_copy

from offload_core.format.codec.entry_directory import Anchors
from offload_core.reading.read_handles import ReadMemory, process_memory
from offload_hooks.errors import OptionError, StoreError

MIB = 1 << 20


def anchors_of(count):
    numbers = np.arange(count, dtype=np.int64)
    return Anchors(entry_ids=numbers, offsets=numbers * 100)


def view(length):
    return memoryview(bytes(length))


@pytest.mark.parametrize(
    ("count", "budget"), [(1_000, 16 * MIB), pytest.param(10_000, 64 * MIB, marks=pytest.mark.nightly)]
)
def test_thousands_of_open_readers_that_have_read_stay_within_the_budget(count, budget):
    payloads = [random.Random(i).randbytes(1000) for i in range(200)]
    copies = [pip17_copy(payloads, max_block_bytes=50_000, stride=16 << 10) for _ in range(4)]
    memory = ReadMemory(budget)
    openers = [copy.readers(memory=memory, read_buffer_bytes=32 << 10) for copy in copies]
    rng = random.Random(1)

    def open_and_read(i):
        reader = openers[i % 4].open(copies[i % 4].record)
        entry_id = rng.randrange(200)
        assert bytes(reader.read(entry_id, entry_id)[0]) == payloads[entry_id]
        return reader

    open_and_read(0).close()
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    readers = []
    for i in range(count):
        readers.append(open_and_read(i))
        for copy in copies:
            copy.driver.reads.clear()
    assert process.memory_info().rss - before <= budget
    assert memory.held_bytes <= budget
    pinned = memory.held_bytes
    for reader in readers:
        reader.close()
    assert memory.held_bytes < pinned - count * 1000


def test_what_is_held_never_passes_the_limit_and_what_was_used_last_stays():
    memory = ReadMemory(10_000)
    for number in range(20):
        assert memory.window(number, 2000, lambda: view(2000)) == view(2000)
        assert memory.held_bytes <= 10_000
    fetched = []
    memory.window(19, 2000, lambda: fetched.append(19) or view(2000))
    memory.window(0, 2000, lambda: fetched.append(0) or view(2000))
    assert fetched == [0]
    memory.window("huge", 50_000, lambda: view(50_000))
    assert memory.held_bytes <= 10_000


def test_anchors_outlast_windows_up_to_half_of_the_budget():
    memory = ReadMemory(20_000)
    memory.learn("a", anchors_of(100))
    for number in range(50):
        memory.window(number, 3000, lambda: view(3000))
    assert memory.anchors("a") is not None
    for number in range(20):
        memory.learn(number, anchors_of(100))
    assert memory.anchors("a") is None
    assert memory.anchors(19) is not None
    assert memory.held_bytes <= 20_000
    memory.pin(15_000)
    assert memory.held_bytes <= 20_000


def test_two_that_want_one_window_wait_for_one_request():
    memory, gate, calls = ReadMemory(), Gate(), []

    def slow():
        calls.append(1)
        gate.hold()
        return view(10)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memory.window, "w", 10, slow)
        gate.wait_for()
        second = pool.submit(memory.window, "w", 10, slow)
        memory.window("other", 10, lambda: view(10))
        gate.open()
        assert first.result() == second.result() == view(10)
    assert len(calls) == 1


def test_an_error_of_one_readers_request_is_not_anothers():
    memory, gate = ReadMemory(), Gate()

    def failing():
        gate.hold()
        raise StoreError("mine")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memory.window, "w", 10, failing)
        gate.wait_for()
        second = pool.submit(memory.window, "w", 10, lambda: view(10))
        gate.open()
        with pytest.raises(StoreError):
            first.result()
        assert second.result() == view(10)
    assert memory.window("w", 10, lambda: view(10)) == view(10)


def test_a_prefetch_that_fails_is_only_made_again_by_who_wants_it():
    memory, done = ReadMemory(), threading.Event()

    def failing():
        done.set()
        raise StoreError("gone")

    memory.prefetch("w", 10, failing)
    assert done.wait(30)
    memory.close()
    assert memory.window("w", 10, lambda: view(10)) == view(10)


def test_a_prefetch_that_waits_for_a_thread_is_taken_over():
    memory, go = ReadMemory(), threading.Event()

    def blocked():
        assert go.wait(30)
        return view(10)

    for number in range(20):
        memory.prefetch(number, 10, blocked)
    assert memory.window(19, 10, lambda: view(10)) == view(10)
    go.set()
    memory.close()


def test_threads_that_share_a_reader_or_have_their_own_read_right():
    payloads = [random.Random(i).randbytes(700) for i in range(400)]
    copy = pip17_copy(payloads, max_block_bytes=60_000)
    readers = copy.readers(memory=ReadMemory(100_000), read_buffer_bytes=7000)
    shared = readers.open(copy.record)

    def work(seed):
        rng = random.Random(seed)
        own = readers.open(copy.record)
        for _ in range(150):
            reader = rng.choice([shared, own])
            first = rng.randrange(400)
            last = min(399, first + rng.randrange(20))
            batch = reader.read(first, last, 5000)
            assert list(batch) == payloads[first : batch.stop_entry_id]
        own.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_the_process_has_one_memory():
    assert process_memory() is process_memory()
    with pytest.raises(OptionError):
        ReadMemory(0)


def test_a_window_can_be_fetched_ahead_while_the_memory_is_being_closed():
    memory, ended = ReadMemory(MIB), threading.Event()

    def close_again_and_again():
        while not ended.is_set():
            memory.close()

    closer = threading.Thread(target=close_again_and_again)
    closer.start()
    try:
        for key in range(3000):
            memory.prefetch(key, 100, lambda: view(100))
            assert memory.window(key, 100, lambda: view(100)).nbytes == 100
    finally:
        ended.set()
        closer.join()
    memory.close()
