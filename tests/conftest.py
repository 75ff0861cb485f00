"""What all tests share: what may be skipped where a part is missing, and one Spark session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REQUIRED = frozenset(filter(None, os.environ.get("OFFLOAD_REQUIRE", "").split(",")))


def need(part: str, there: bool, how: str) -> None:
    """Skip where `part` is missing and `OFFLOAD_REQUIRE` does not name it; fail where it does."""
    if there:
        return
    if part in REQUIRED:
        pytest.fail(f"{part} is required here and missing: {how}")
    pytest.skip(f"{part} is missing: {how}")


@pytest.fixture(scope="session")
def java() -> str:
    """The path of `java`."""
    found = shutil.which("java")
    need("java", found is not None, "install Java 17 or newer")
    return str(found)


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One Spark session, `local[2]`, for all tests that need one."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pulsar-offload tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
