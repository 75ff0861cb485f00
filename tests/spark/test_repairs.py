"""Repairs whose verifying, judging and counting Spark's executors do: the same plan as with threads."""

import pytest
from scenes.repairs import lay_out_damage, planned

from offload_core.interfaces.engines.spark.executor import SparkExecutor
from offload_core.maintenance.repair import Action
from offload_core.storage.executors import ThreadExecutor

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_spark_plans_what_threads_plan(session, tmp_path):
    lay_out_damage(tmp_path)
    by_spark = planned(tmp_path, SparkExecutor(session))
    assert by_spark == planned(tmp_path, ThreadExecutor(2))
    assert Action.CORRECT_COUNTS in {each.choice.action for each in by_spark}
