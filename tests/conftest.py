"""What all tests share: what may be skipped where a part is missing, one Spark session, and the storage servers."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from chromium import Chromium
from crash_points import close_what_is_left
from oracle import Oracle
from required import need
from servers.azurite import Azurite
from servers.broker import Broker
from servers.fake_gcs import FakeGcs
from servers.libhdfs import libhdfs as build_libhdfs
from servers.minihdfs import MiniHdfs
from servers.once import BuildError
from servers.server import AnyServer, StartServer
from servers.toolchains import ToolchainMissing
from servers.versitygw import Versitygw
from servers.zookeeper import ZooKeeper

# Read when gcsfs is imported; otherwise it asks the server for an API that only Google has, for minutes.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# Every JVM of the tests lives for seconds: it starts in half the CPU time without Java's optimising compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

pytest_plugins = ["effort", "crash_matrix", "pytester"]

_GROUPS = {
    "spark": "pulsar",
    "broker": "pulsar",
    "zookeeper": "pulsar",
    "zookeeper_broker": "pulsar",
    "oracle": "pulsar",
    "fake_gcs": "stores",
    "azurite": "stores",
    "minihdfs": "stores",
    "libhdfs": "stores",
    "servers": "stores",
    "stores": "stores",
    "test_on_servers": "stores",
    "test_retry_on_servers": "stores",
    "test_provider": "pulsar",
    "test_progress": "pulsar",
    "test_code_blocks": "pulsar",
    "versitygw": "",
    "chromium": "",
    "start_server": "",
}
"""By fixture, or by folder or file where tests choose servers as they run: the group that shares costly processes."""


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
            if groups[item.path]:
                item.add_marker(pytest.mark.xdist_group(groups[item.path]))
        items.sort(key=lambda item: (not groups[item.path], groups[item.path]))  # the longest work first


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
    """What scenes leave open is closed when their test ends."""
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


def started(server: AnyServer, folders: pytest.TempPathFactory) -> AnyServer:
    """Install and start `server`; skip where its toolchain or its client is missing, and only there."""
    need(server.part, find_spec(server.client) is not None, f"pip install 'pulsar-offload[{server.extra}]'")
    try:
        return server.start(folders.mktemp(server.name))
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise


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


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versitygw]:
    """One S3 service for all tests; each test makes its own bucket."""
    with started(Versitygw(), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """One Google Cloud Storage service, in memory, for all tests; each test makes its own bucket."""
    with started(FakeGcs(), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """One Azure blob service, in memory, for all tests; each test makes its own container."""
    with started(Azurite(), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def minihdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """One HDFS file system for all tests; each test makes its own folder."""
    with started(MiniHdfs(), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def broker(versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Pulsar broker for all tests; each test makes its own namespace."""
    with started(Broker(versitygw), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session", params=[False, True], ids=["bare entries", "broker entry metadata"])
def transactional_broker(
    request: pytest.FixtureRequest, versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A Pulsar broker that takes transactions, and then one that puts metadata before entries, too."""
    broker = Broker(versitygw, transactions=True, entry_metadata=request.param)
    with started(broker, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One ZooKeeper for all tests; each test has a path of its own."""
    with started(ZooKeeper(), tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_broker(
    versitygw: Versitygw, zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A Pulsar broker that takes transactions, and whose metadata is in a ZooKeeper."""
    broker = Broker(versitygw, transactions=True, metadata_url=zookeeper.make_root("/pulsar"))
    with started(broker, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def libhdfs() -> dict[str, str]:
    """The environment of a process that reads HDFS by pyarrow."""
    try:
        return os.environ | build_libhdfs()
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise


@pytest.fixture(scope="session")
def oracle(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """One JVM with Pulsar's own offloaders for all tests."""
    try:
        started = Oracle(tmp_path_factory.mktemp("oracle"))
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise
    with started:
        yield started


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
