"""Versions of Spark and Python other than the suite's, classic and Connect: the same rows in each way to read."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from commands import install_into
from required import skipped_without_toolchain
from servers import install
from servers.spark_connect import SparkConnect
from servers.toolchains import python_of
from tiers import lay_out_broker_objects

from offload_core.interfaces.engines.spark.versions import for_workers
from pulsar_offload import SparkExecutor, open_tier, scan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("other-sparks")]  # of processes of their own

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ("__topic", "__ledgerId", "__entryId", "__batchIndex")


def rows(path):
    with pa.memory_map(str(path)) as file:
        found = pa.ipc.open_file(file).read_all().to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: [row[name] for name in PLACE])


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "is_connect"),
    [
        *((version, False) for version in install.OTHER_SPARKS),
        # from 4.0 on PySpark has the server
        *((version, True) for version in install.OTHER_SPARKS if version >= "4"),
    ],
)
def test_each_version_reads_the_same_rows(version, is_connect, java, start_server, tmp_path):
    site = install.pyspark(version)
    servers = [start_server(SparkConnect(site)).endpoint] if is_connect else []
    check(version, tmp_path, sys.executable, site, *servers)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_oldest_python_and_the_lowest_versions_of_all_dependencies_read_the_same_rows(java, tmp_path):
    with skipped_without_toolchain():
        python = install.lowest()
    install_into(tmp_path / "site", ROOT, ROOT / "hooks")
    check("3.5.9", tmp_path, str(python), tmp_path / "site")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_newer_pythons_with_the_versions_of_the_suite_read_the_same_rows(version, java, tmp_path):
    with skipped_without_toolchain():
        newer = python_of(version)
    subprocess.run([newer, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *constraints, f"{ROOT}[spark]"], check=True)
    check(pyspark.__version__, tmp_path, str(python), "")


def check(version, tmp_path, python, site, *servers):
    """Read a tier by a Python with what lies in `site`; compare the rows with those of this process."""
    lay_out_broker_objects(tmp_path / "tier")
    done = subprocess.run(
        [python, str(HERE / "versions_job.py"), str(tmp_path / "tier"), str(tmp_path), *servers],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [version, version]
    with open_tier(tmp_path / "tier") as tier:
        expected = scan(tier).to_table().to_pylist(maps_as_pydicts="strict")
    expected.sort(key=lambda row: [row[name] for name in PLACE])
    ways = ("frame", "batch", "stream", "table") if version >= "4" else ("frame",)
    assert {path.stem for path in tmp_path.glob("*.arrow")} == set(ways)
    for way in ways:
        assert rows(tmp_path / f"{way}.arrow") == expected, way


BEFORE_LIMITS = """
import sys
import pyspark.sql.datasource as datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
parent = datasource.Filter
for name, each in [*vars(datasource).items()]:
    if isinstance(each, type) and issubclass(each, parent):
        delattr(datasource, name)
del datasource.DataSourceReader.pushFilters
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
options = {"path": sys.argv[1]}
source = PulsarOffloadDataSource(options)
stream = source.streamReader(source.schema())
offset = stream.latestOffset()
rows = [batch.num_rows for part in stream.partitions({}, offset) for batch in stream.read(part)]
print(sum(rows), stream.latestOffset() == offset, len(source.reader(source.schema()).partitions()) > 0)
try:
    PulsarOffloadDataSource(options | {"maxbytespertrigger": "5"}).streamReader(source.schema())
except Exception as error:
    print(type(error).__name__, error)
"""


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_what_newer_versions_have_topics_are_read_and_limits_refused(tmp_path):
    lay_out_broker_objects(tmp_path, topics=["jstring"])
    counts, refusal = run(BEFORE_LIMITS, str(tmp_path))
    assert counts == "100 True True"
    assert refusal.startswith("OptionError this Spark has no limits of micro-batches of Python sources")


WITHOUT_THE_PACKAGE = """
import sys
from pathlib import Path
from pyspark import cloudpickle
sys.modules["offload_core"] = None
work = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
try:
    work([])
except ModuleNotFoundError as error:
    print(error)
"""


def test_workers_that_have_not_the_package_say_which_python_they_and_the_driver_run(tmp_path):
    work = for_workers(SparkExecutor.run)  # anything that only this package has
    assert work.__name__ == "run"
    (tmp_path / "work").write_bytes(pyspark.cloudpickle.dumps(work))
    (told,) = run(WITHOUT_THE_PACKAGE, str(tmp_path / "work"))
    assert told.startswith(f"Spark's workers run {sys.executable}, which has no module 'offload_core")
    assert told.endswith(f"to a Python that has it: the driver's is {sys.executable}")


BROKEN = """
import sys
sys.modules["offload_core.interfaces.engines.spark.source"] = None
from pyspark_pulsar_offload import DefaultSource
print(DefaultSource.name())
try:
    DefaultSource({})
except ImportError as error:
    print(error)
"""


def test_a_source_that_cannot_be_imported_says_so_where_it_is_used_and_hides_no_other():
    name, reason = run(BROKEN)
    assert name == "pulsar_offload"
    assert reason.startswith("the data source pulsar_offload cannot be imported: ")
