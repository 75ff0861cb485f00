"""Who runs an export's tasks: results in order, errors in their place, no item drawn that nobody is free for."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from scenes.exports import ORDERS, parquet_rows, scanned, two_partitions

from offload_core.storage.executors import ProcessExecutor, ThreadExecutor
from offload_hooks.errors import DataLossError, OptionError
from pulsar_offload import export, open_tier

pytestmark = pytest.mark.sampled(6)


def squared(number):
    if number == 99:
        raise DataLossError("the 99 is lost", ledger_id=99)
    return number * number, os.getpid()


@pytest.mark.parametrize(
    "executor", [ThreadExecutor(1), ThreadExecutor(3), ThreadExecutor(), ProcessExecutor(2)]
)
def test_results_come_in_the_order_of_the_items(executor):
    results = list(executor.run(squared, range(20)))
    assert [result for result, _ in results] == [number * number for number in range(20)]
    assert (os.getpid() in {process for _, process in results}) is isinstance(executor, ThreadExecutor)


@pytest.mark.parametrize("executor", [ThreadExecutor(2), ProcessExecutor(2)])
def test_an_error_comes_at_its_place_as_it_was_raised(executor):
    results = executor.run(squared, [1, 2, 99, 3])
    assert [next(results)[0], next(results)[0]] == [1, 4]
    with pytest.raises(DataLossError) as caught:
        next(results)
    assert caught.value.ledger_id == 99


def test_no_more_items_are_drawn_than_are_under_way():
    drawn = []

    def items():
        for number in range(100):
            drawn.append(number)
            yield number

    results = ThreadExecutor(2).run(squared, items())
    next(results)
    assert len(drawn) <= 3
    results.close()


def test_results_that_nobody_ended_may_be_collected_by_a_thread_of_the_pool():
    """As when an error's traceback holds them until garbage is collected, wherever that happens."""
    given, ended = threading.Event(), threading.Event()
    held: list[Any] = []

    def drop(number):
        if number:
            given.wait(10)
            held.clear()
            ended.set()
        return number

    held.append(ThreadExecutor(1).run(drop, range(9)))
    assert next(held[0]) == 0
    given.set()
    assert ended.wait(10)


def test_workers_are_one_or_more():
    for make in (ThreadExecutor, ProcessExecutor):
        with pytest.raises(OptionError, match="without a worker"):
            make(0)


def test_processes_export_as_threads_do(tmp_path):
    tier = two_partitions(tmp_path / "tier")
    with open_tier(tier) as reader:
        export(reader, tmp_path / "out", ORDERS, file_bytes=4096, executor=ProcessExecutor(2))
    assert parquet_rows(tmp_path / "out") == scanned(tier)
