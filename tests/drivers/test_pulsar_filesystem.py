"""Pulsar's driver name `filesystem`: its options, and its MapFiles on a local and on an HDFS root."""

from __future__ import annotations

import itertools
import os
import pickle

import pytest
from entries import pip17_object
from golden import COLUMNS, assert_topic_is_as_expected
from mapfiles import FILESYSTEM, FILESYSTEM_OBJECTS, FILESYSTEM_TOPICS, lay_out_golden
from scenes.moves import MovedTopic
from tiers import Names

from offload_core.maintenance.verify import Verification
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.storage.tier import open_store
from offload_drivers.hdfs import HdfsDriver
from offload_drivers.local import LocalDriver
from offload_drivers.pulsar_filesystem import FilesystemDriver
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, scan

_numbers = itertools.count()


def profile(folder, **properties):
    """A Hadoop configuration file with these properties, `_` for `.`; its path."""
    path = folder / f"profile-{next(_numbers)}.xml"
    lines = [
        f"<property><name>{name.replace('_', '.')}</name>\n<value> {value} </value></property>"
        for name, value in properties.items()
    ]
    path.write_text(f"<?xml version='1.0'?>\n<!-- a -->\n<configuration>{''.join(lines)}</configuration>")
    return str(path)


# --- options -----------------------------------------------------------------------------------


def location(**options):
    return open_store("filesystem", **options).describe().location


def test_a_file_url_is_a_directory_of_this_machine(tmp_path):
    assert location(fileSystemURI=f"file://{tmp_path}/a%20b") == f"file://{tmp_path}/a%20b"
    assert isinstance(FilesystemDriver(url="file:///tier"), LocalDriver)


def test_an_hdfs_url_is_a_directory_of_hdfs():
    assert location(fileSystemURI="hdfs://namenode:8020/tier") == "hdfs://namenode:8020/tier"
    assert isinstance(FilesystemDriver(url="hdfs://namenode:8020/tier", timeout_s="5"), HdfsDriver)


def test_a_url_goes_with_the_name_of_the_driver(tmp_path):
    with open_store(f"file://{tmp_path}", driver="filesystem") as store:
        assert store.describe().location == f"file://{tmp_path}"
        assert pickle.loads(pickle.dumps(store)).describe() == store.describe()


def test_of_a_profile_the_file_system_is_read(tmp_path):
    local = profile(tmp_path, fs_defaultFS="file:///tier", hadoop_tmp_dir="/elsewhere", dfs_replication="3")
    hdfs = profile(tmp_path, fs_defaultFS="hdfs://n:1/tier", hadoop_tmp_dir="pulsar")
    assert location(fileSystemProfilePath=local) == "file:///tier"
    assert location(fileSystemProfilePath=f"{local}, {hdfs}") == "hdfs://n:1/tier"
    assert location(fileSystemProfilePath=hdfs, fileSystemURI="file:///a") == "file:///a"


@pytest.mark.parametrize(
    ("url", "default", "message"),
    [
        ("", "", "fileSystemURI"),
        ("", "s3://bucket", "file: and hdfs: only"),
        ("s3://bucket", "file:///a", "file: and hdfs: only"),
        ("/a/path", "", "file: and hdfs: only"),
        ("file://elsewhere/tier", "", "file URL"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path, url, default, message):
    with pytest.raises(OptionError, match=message):
        open_store(
            "filesystem", fileSystemURI=url, fileSystemProfilePath=profile(tmp_path, fs_defaultFS=default)
        )


@pytest.mark.parametrize("text", ["", "no xml", "<conf></conf>", "<configuration>", "\xff"])
def test_a_profile_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "profile.xml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match="fileSystemProfilePath"):
        open_store("filesystem", fileSystemURI="file:///tier", fileSystemProfilePath=str(path))
    with pytest.raises(OptionError, match="fileSystemProfilePath"):
        open_store("filesystem", fileSystemURI="file:///tier", fileSystemProfilePath=str(tmp_path / "none"))


def test_the_mode_of_files_is_of_this_machine_only(tmp_path):
    driver = FilesystemDriver(url=f"file://{tmp_path}/tier", mode="0640")
    umask = os.umask(0)
    try:
        driver.write_index("k", b"x", "x/y", {}, False)
    finally:
        os.umask(umask)
    assert (tmp_path / "tier" / "k").stat().st_mode & 0o777 == 0o640
    with pytest.raises(OptionError, match="'mode' is for this machine"):
        FilesystemDriver(url="hdfs://127.0.0.1:1/x", mode="0640")


def test_options_of_hdfs_are_refused_for_this_machine():
    with pytest.raises(OptionError, match="'user' is for HDFS"):
        open_store("filesystem", fileSystemURI="file:///tier", user="hdfs")
    with pytest.raises(OptionError, match="takes no option 'bucket'"):
        open_store("filesystem", fileSystemURI="file:///tier", bucket="b")


# --- objects -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
def test_what_a_broker_offloaded_is_read_from_a_file_url(tmp_path, topic):
    lay_out_golden(tmp_path)
    with open_tier("filesystem", fileSystemURI=f"file://{tmp_path}") as tier:
        rows = scan(tier, f"acme/cold/{topic}", columns=COLUMNS).to_table().to_pylist()
    assert_topic_is_as_expected(rows, topic, FILESYSTEM)


@pytest.fixture
def hdfs_url(minihdfs):
    """A folder of a real HDFS with the golden MapFiles, as Pulsar leaves them there: without `.crc` files."""
    url = f"{minihdfs.url}/filesystem-{os.getpid()}-{next(_numbers)}"
    with open_store(url, user=minihdfs.superuser) as store:
        for path in sorted(FILESYSTEM_OBJECTS.rglob("*")):
            if path.name in ("data", "index"):
                store.write_index(str(path.relative_to(FILESYSTEM_OBJECTS)), path.read_bytes())
    return url


@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
def test_what_a_broker_offloaded_is_read_from_hdfs(minihdfs, hdfs_url, topic):
    with open_tier("filesystem", fileSystemURI=hdfs_url, user=minihdfs.superuser) as tier:
        rows = scan(tier, f"acme/cold/{topic}", columns=COLUMNS).to_table().to_pylist()
    assert_topic_is_as_expected(rows, topic, FILESYSTEM)


def test_an_hdfs_url_alone_reads_them_too_beside_other_objects(minihdfs, hdfs_url):
    other = pip17_object([b"entry"], ledger_id=3)
    metadata = Names(managed_ledger="acme/cold/persistent/batch", cluster=None).as_metadata("data")
    with open_tier(hdfs_url, user=minihdfs.superuser) as tier:
        for key, data in ((other.key.data_key, other.data), (other.key.index_key, other.index)):
            tier.store.write_index(key, data, user_metadata=metadata)
        (topic,) = (t for t in tier.catalogue().topics if t.label.endswith("/batch"))
        assert [[known.value for known in ledger.formats] for ledger in topic.ledgers] == [
            ["pip17"],
            ["mapfile"],
        ]
        places = scan(tier, "acme/cold/batch", level="entries").to_table()
    assert places["__ledgerId"].to_pylist() == [3] + [13] * 139


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [None, *FilterMode])
def test_ledgers_are_offloaded_to_hdfs_as_mapfiles(minihdfs, tmp_path, mode):
    world, folder = MovedTopic.make(tmp_path), f"/offloaded-{os.getpid()}-{next(_numbers)}"
    world.source = open_store("filesystem", fileSystemURI=f"{minihdfs.url}{folder}", user=minihdfs.superuser)
    ledger_id = world.add_ledger(300)
    if mode is None:
        world.offload(ledger_id)
    else:
        world.offload(ledger_id, drops=lambda payload: int(payload[-1] % 3 == 0), mode=mode)
    driver = world.info.ledger(ledger_id).context.driver
    assert (driver.name, driver.get("storageBasePath")) == ("filesystem", folder)
    assert [key.rpartition("/")[2] for key in world.keys(world.source)] == [
        *(".data.crc", ".index.crc", "data", "index")
    ]
    assert {at: each for at, each in world.read_all().items() if at in world.entries} == world.entries
    assert list(Verification(world.source, deep=True)) == []
