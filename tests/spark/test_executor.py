"""What Spark's executor says where Spark cannot do the work: an error of ours, with Spark's reason in one line."""

import os

import pytest

from offload_core.interfaces.spark.executor import SparkExecutor
from offload_hooks.errors import OffloadError

pytestmark = pytest.mark.spark


def test_a_worker_that_dies_is_an_error_of_ours(spark):
    with pytest.raises(OffloadError, match=r"Spark has not done the work.*Python worker exited") as raised:
        list(SparkExecutor(spark).run(os._exit, [1]))
    assert "\n" not in str(raised.value)


def test_what_work_should_not_raise_is_named(spark):
    with pytest.raises(OffloadError, match="ValueError: invalid literal") as raised:
        list(SparkExecutor(spark).run(int, ["7", "many"]))
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None
