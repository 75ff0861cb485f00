"""What a fresh worker does before its first batch: it imports what reads the task, and compiles nothing again."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiers import lay_out_broker_objects

from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource

pytestmark = pytest.mark.long

WORKER = Path(__file__).with_name("worker_process.py")

NOT_NEEDED = (
    "adlfs",
    "aiohttp",
    "boto3",
    "cryptography",
    "deltalake",
    "fastavro",
    "fsspec",
    "gcsfs",
    "hdfs_native",
    "kazoo",
    "obstore",
    "offload_core.interfaces.cli",
    "offload_core.maintenance.doctor",
    "offload_core.reading.export",
    "offload_core.format.schemas.avro_program",
    "offload_core.format.schemas.decoders",
    "opentelemetry",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "pyiceberg",
    "rich",
    "s3fs",
    "stamina",
    "typer",
    "urllib3",
)


def read_in_a_process_of_its_own(tier, **options):
    """What the worker says of reading the first partition."""
    source = PulsarOffloadDataSource({"path": str(tier), **options})
    reader = source.reader(source.schema())
    work = pickle.dumps((reader, reader.partitions()[0]))
    done = subprocess.run([sys.executable, str(WORKER)], input=work, capture_output=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Of the second worker: the first one may compile kernels, and leaves them in the cache."""
    tier = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(tier, topics=["comp-lz4"])
    read_in_a_process_of_its_own(tier, topic="acme/cold/comp-lz4")
    return read_in_a_process_of_its_own(tier, topic="acme/cold/comp-lz4")


def test_a_worker_imports_nothing_that_it_does_not_need(said):
    needless = [
        module
        for module in said["modules"]
        if any(module == name or module.startswith(f"{name}.") for name in NOT_NEEDED)
    ]
    assert needless == []


def test_a_worker_compiles_nothing_that_another_has_compiled(said):
    assert said["rows"] > 0
    assert said["compiled"] == 0


def test_what_makes_typed_columns_is_imported_where_they_are_asked_for(said, tmp_path):
    lay_out_broker_objects(tmp_path, topics=["jstring"])
    schema = "literal:type=STRING"
    typed = read_in_a_process_of_its_own(tmp_path, topic="acme/cold/jstring", schemas=schema)
    assert "offload_core.format.schemas.decoders" in typed["modules"]
    assert "offload_core.format.schemas.decoders" not in said["modules"]
