"""Fixtures for all tests: one Spark session, servers, skips where a toolchain is missing."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bookkeeper_cluster import BookKeeperCluster
from chromium import Chromium
from crash_points import close_what_is_left
from oracle import Oracle
from required import need, skipped_without_toolchain
from servers.azurite import Azurite
from servers.broker import Broker
from servers.fake_gcs import FakeGcs
from servers.minihdfs import MiniHdfs
from servers.once import BuildError
from servers.server import AnyServer, Server, StartServer
from servers.sftp import SftpServer
from servers.spark_connect import SparkConnect
from servers.toolchains import ToolchainMissing
from servers.versitygw import Versitygw
from servers.zookeeper import ZooKeeper

from offload_core.metadata.catalogue.catalogue_cache import FOLDER_VARIABLE

# Read when gcsfs is imported; otherwise it asks the server for an API that only Google has, for minutes.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# Every JVM of the tests lives for seconds: it starts in half the CPU time without Java's optimising compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# No test reads what another kept of a tier, in this user's own folder.
if FOLDER_VARIABLE not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="offload-cache-")
    os.environ[FOLDER_VARIABLE] = _CACHE.name

pytest_plugins = ["effort", "crash_matrix", "pytester"]

_GROUPS = {
    "spark": "spark",
    "spark_connect": "spark",
    "broker": "broker",
    "zookeeper": "broker",
    "bookkeeper": "broker",
    "zookeeper_broker": "broker",
    "live_broker": "broker",
    "oracle": "spark",
    "fake_gcs": "stores",
    "azurite": "stores",
    "minihdfs": "stores",
    "servers": "stores",
    "stores": "stores",
    "test_on_servers": "stores",
    "test_retry_on_servers": "stores",
    "airflow": "airflow",
    "test_code_blocks": "spark",
    "test_soak": "waits",
    "test_live_soak": "live-soak",
    "versitygw": "",
    "sftp_server": "",
    "chromium": "",
    "start_server": "",
}
"""By fixture, or by folder or file where tests choose servers as they run: the group that shares costly processes."""


_LONGEST_NAME = 60


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: one waits for a server most of the time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts a server, and group files so that one worker of pytest-xdist starts a server for all."""
    used_by: dict[Path, set[str]] = defaultdict(set)
    for item in items:
        given = getattr(item, "callspec", None)
        names = {*getattr(item, "fixturenames", ())}.difference(given.params if given else ())
        names |= {item.path.parent.name, item.path.stem}
        used = names.intersection(_GROUPS)
        if used - {"spark"}:
            item.add_marker("server")
        if item.get_closest_marker("spark"):
            used.add("spark")
        used_by[item.path] |= {_GROUPS[name] for name in used}
    if hasattr(config, "workerinput"):
        groups = {path: min(filter(None, groups), default="") for path, groups in used_by.items()}
        for item in items:
            if groups[item.path] and not _group_of(item):
                item.add_marker(pytest.mark.xdist_group(groups[item.path]))
        items.sort(key=lambda item: _group_of(item) or "~")  # the longest work first


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut long names of cases: the name is in the environment of each process that a test starts."""
    if isinstance(val, (str, bytes)) and len(val) > _LONGEST_NAME:
        return f"{ascii(val[:_LONGEST_NAME])[1:-1]}..."
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest with which pytest-xdist does not group, silently: each worker would start all servers."""
    if session.config.getoption("loadgroup", False):
        scattered = [each.nodeid for each in session.items if _group_of(each) and "@" not in each.nodeid]
        if scattered:
            raise pytest.UsageError(f"pytest-xdist does not keep the groups of {len(scattered)} tests")


def _group_of(item: pytest.Item) -> str:
    """The group that has a worker of its own, or an empty text."""
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing of what is collected becomes garbage: do not look for any, neither here nor later."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """What is frozen at the end looks like a leak to libraries that count their objects."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out groups and whole files: fixtures of a file are made once."""
    from xdist.scheduler import LoadGroupScheduling

    class Files(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    return Files(config, log)


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    """Close what scenes left open."""
    yield
    close_what_is_left()


@pytest.fixture(autouse=True)
def leases_are_believed() -> Iterator[None]:
    """A test in which this process lost an attempt does not have the next one watch leases (ADR 0051)."""
    yield
    attempts = sys.modules.get("offload_core.writing.offload.running_attempt")
    if attempts is not None:
        attempts.THIS_PROCESS.watches = False


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

    from offload_core.interfaces.engines.spark.versions import any_pandas

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder: Path = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pulsar-offload tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    with any_pandas():  # an error here would have PySpark take pandas, and so Spark Connect, for missing
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connected(spark_connect: SparkConnect) -> Iterator[object]:
    """One session of Spark Connect, beside the classic one: it is made without PySpark's switch between the two."""
    from offload_core.interfaces.engines.spark.versions import any_pandas

    with any_pandas():
        from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(spark_connect.endpoint).create()
    yield session
    session.stop()


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest) -> object:
    """Each kind of Spark session."""
    return request.getfixturevalue("spark" if request.param == "classic" else "connected")


def started(server: AnyServer, folders: pytest.TempPathFactory) -> AnyServer:
    """Install and start `server`; skip where its toolchain or its client is missing, and only there."""
    need(server.part, find_spec(server.client) is not None, f"pip install 'pulsar-offload[{server.extra}]'")
    with skipped_without_toolchain():
        return server.start(folders.mktemp(server.name))


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers of the test's own, which it may kill and restart: `start_server(Azurite(on_disk=True))`."""
    with ExitStack() as stack:

        def start(server: AnyServer) -> AnyServer:
            return stack.enter_context(started(server, tmp_path_factory))

        yield start


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One headless browser with one page, which tests take in turn."""
    try:
        browser = Chromium(tmp_path_factory.mktemp("chromium"))
    except (ToolchainMissing, BuildError) as missing:
        need("chromium", False, str(missing))
        raise
    with browser:
        yield browser


def for_all_tests(make: Callable[[pytest.FixtureRequest], Server], **options: Any) -> Any:
    """A fixture: the server that `make` returns, started once for all tests; `options` are those of the fixture."""

    @pytest.fixture(scope="session", **options)
    def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        with started(make(request), tmp_path_factory) as running:
            yield running

    return server


def broker_of(request: pytest.FixtureRequest, **options: Any) -> Broker:
    """A broker that offloads to the S3 service."""
    return Broker(request.getfixturevalue("versitygw"), **options)


# Each test makes its own bucket, container, folder, namespace or path.
versitygw = for_all_tests(lambda _: Versitygw())
sftp_server = for_all_tests(lambda _: SftpServer())
fake_gcs = for_all_tests(lambda _: FakeGcs())
azurite = for_all_tests(lambda _: Azurite())
minihdfs = for_all_tests(lambda _: MiniHdfs())
zookeeper = for_all_tests(lambda _: ZooKeeper())
spark_connect = for_all_tests(lambda request: request.getfixturevalue("java") and SparkConnect())
broker = for_all_tests(broker_of)
transactional_broker = for_all_tests(
    lambda request: broker_of(request, transactions=True, entry_metadata=request.param),
    params=[False, True],
    ids=["bare entries", "broker entry metadata"],
)
zookeeper_broker = for_all_tests(
    lambda request: broker_of(
        request, transactions=True, metadata_url=request.getfixturevalue("zookeeper").make_root("/pulsar")
    )
)


@pytest.fixture(scope="session")
def oracle(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """One JVM with Pulsar's own offloaders for all tests."""
    with skipped_without_toolchain():
        started = Oracle(tmp_path_factory.mktemp("oracle"))
    with started:
        yield started


@pytest.fixture(scope="session")
def bookkeeper(
    zookeeper: ZooKeeper, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BookKeeperCluster]:
    """One cluster of three bookies for all tests."""
    cluster = BookKeeperCluster(zookeeper, oracle)
    yield cluster.start(tmp_path_factory.mktemp)
    cluster.stop()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that were made durable so far, in order."""
    paths: list[Path] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def watching(descriptor: int) -> None:
            real(descriptor)
            paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        monkeypatch.setattr(os, name, watching)

    watch("fsync")
    watch("fdatasync")
    return paths
