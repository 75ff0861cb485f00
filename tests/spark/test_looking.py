"""Commands for which Spark's executors look at objects: they tell what they tell without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from scenes.lookers import COMMANDS, Command, assert_same, lay_out_world, ls, outcome, verify, world

from offload_core.interfaces.spark.executor import SparkExecutor
from offload_core.metadata.catalogue import concurrency
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.testing import MemoryDriver

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tier, and batches that are small enough for several."""
    monkeypatch.setattr(concurrency, "AT_ONCE_BY_OTHERS", 5)
    root = tmp_path / "tier"
    lay_out_world(root)
    return root


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_spark_tells_what_this_process_tells(spark: SparkSession, command: Command, root: Path) -> None:
    assert_same(command, SparkExecutor(spark), root)


@pytest.mark.parametrize("command", [ls, verify])
def test_what_fails_fails_as_in_this_process(spark: SparkSession, command: Command, root: Path) -> None:
    """Also what may succeed when it is tried again, which Spark is not to try: the tier's own layers do."""
    tier = world(root, layers=[("fault-plan", {"faults": "fail-before stat 100%"})])
    assert outcome(command, tier, SparkExecutor(spark)) == outcome(command, tier, None)


def test_a_tier_of_an_object_cannot_be_taken_along(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match="made of a driver object"):
        ls(Tier(MemoryDriver()), SparkExecutor(spark))
