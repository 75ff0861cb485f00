"""Spark's executor, classic and Connect: tasks, their order, and Spark's errors as ours, the reason in one line."""

import os

import pytest

from offload_core.interfaces.engines.spark.executor import SparkExecutor
from offload_hooks.errors import OffloadError

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def test_each_item_is_a_task_of_its_own(session):
    task = "__import__('pyspark').TaskContext.get().partitionId()"
    assert list(SparkExecutor(session).run(eval, [task] * 8)) == [*range(8)]


def test_results_come_in_order_and_items_are_drawn_wave_by_wave(session):
    """The first items take the longest; a wave has four for each of two cores."""
    drawn = []
    seconds = (drawn.append(each) or each / 10 for each in range(10, 0, -1))
    executor = SparkExecutor(session)
    results = executor.run(eval, (f"__import__('time').sleep({each}) or {each}" for each in seconds))
    assert (next(results), len(drawn), executor.processes) == (1.0, 8, 2)
    assert list(results) == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


def test_a_worker_that_dies_is_an_error_of_ours(session):
    with pytest.raises(OffloadError, match=r"Spark has not done the work.*Python worker exited") as raised:
        list(SparkExecutor(session).run(os._exit, [1]))
    assert "\n" not in str(raised.value)


def test_what_work_should_not_raise_is_named(session):
    with pytest.raises(OffloadError, match="ValueError: invalid literal") as raised:
        list(SparkExecutor(session).run(int, ["7", "many"]))
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None
