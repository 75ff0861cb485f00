"""The servers themselves: each answers its real client, keeps its data over a restart, and is gone when stopped."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from servers.azurite import Azurite
from servers.fake_gcs import FakeGcs
from servers.minihdfs import MiniHdfs
from servers.process import Child, ServerError
from servers.versitygw import Versitygw

# Google's libraries announce on import, years ahead, which version of Python they will cease to support.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a Python version:FutureWarning")


def s3(server, user=Versitygw.root):
    from s3fs import S3FileSystem

    return S3FileSystem(
        key=user.access_key,
        secret=user.secret_key,
        endpoint_url=server.endpoint,
        client_kwargs={"region_name": server.region},
        skip_instance_cache=True,
        use_listings_cache=False,
    )


def gcs(server):
    from gcsfs import GCSFileSystem

    return GCSFileSystem(token="anon", endpoint_url=server.endpoint, skip_instance_cache=True)


def azure(server):
    from adlfs import AzureBlobFileSystem

    return AzureBlobFileSystem(connection_string=server.connection_string, skip_instance_cache=True)


def hdfs(server):
    from hdfs_native.fsspec import HdfsFileSystem

    class OneCopy(HdfsFileSystem):
        """Of one copy of each file: of several, one may be closed before its end can be read."""

        def _open(self, path, mode="rb", **more):
            return super()._open(path, mode, replication=1, **more)

    return OneCopy(host=server.host, port=server.port, skip_instance_cache=True)


def make_folder(server):
    """A bucket, a container or an HDFS folder."""
    if isinstance(server, MiniHdfs):
        hdfs(server).makedirs("/its-own")
        return "/its-own"
    return str((server.make_container if isinstance(server, Azurite) else server.make_bucket)("its-own"))


SERVERS = [
    pytest.param(Versitygw, s3, id="versitygw"),
    pytest.param(lambda: FakeGcs(on_disk=True), gcs, id="fake-gcs-server"),
    pytest.param(lambda: Azurite(on_disk=True), azure, id="azurite"),
    pytest.param(MiniHdfs, hdfs, id="minihdfs"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("make", "client"), SERVERS)
def test_a_server_keeps_its_data_over_a_restart_and_is_gone_when_stopped(make, client, start_server):
    server = start_server(make())
    first, path = server.pid, f"{make_folder(server)}/folder/object"
    client(server).pipe_file(path, b"0123456789")
    assert client(server).cat_file(path, start=2, end=5) == b"234"

    server.restart()
    second = server.pid
    assert not psutil.pid_exists(first)
    assert client(server).cat_file(path) == b"0123456789"

    server.stop()
    assert not psutil.pid_exists(second)
    with pytest.raises(ServerError, match="is not running"):
        _ = server.pid


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("make", "client"), [param for param in SERVERS if param.id != "azurite"]
)  # Azurite writes its tables every five seconds only
def test_a_killed_server_comes_back_with_its_data(make, client, start_server):
    server = start_server(make())
    path, endpoint = f"{make_folder(server)}/object", server.endpoint
    client(server).pipe_file(path, b"abc")
    killed = server.pid
    server.kill()
    assert not psutil.pid_exists(killed)
    server.restart()
    assert server.endpoint == endpoint
    assert client(server).cat_file(path) == b"abc"


def test_an_added_s3_user_is_denied_what_no_policy_grants(versitygw):
    bucket = versitygw.make_bucket("policies")
    s3(versitygw).pipe_file(f"{bucket}/object", b"abc")
    user = versitygw.add_user("user-without-rights")
    with pytest.raises(PermissionError):
        s3(versitygw, user).cat_file(f"{bucket}/object")
    with pytest.raises(PermissionError):
        s3(versitygw, user).pipe_file(f"{bucket}/other", b"abc")


def test_azurite_and_fake_gcs_serve_from_memory_too(azurite, fake_gcs):
    container, bucket = azurite.make_container("in-memory"), fake_gcs.make_bucket("in-memory")
    azure(azurite).pipe_file(f"{container}/a", b"abc")
    gcs(fake_gcs).pipe_file(f"{bucket}/a", b"abc")
    assert azure(azurite).cat_file(f"{container}/a") == gcs(fake_gcs).cat_file(f"{bucket}/a") == b"abc"
    assert not [*azurite.folder.glob("blobs"), *fake_gcs.folder.glob("buckets")]


def test_minihdfs_checks_permissions(minihdfs, monkeypatch):
    from hdfs_native import Client

    Client(minihdfs.url).mkdirs("/private", permission=0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    with pytest.raises(RuntimeError, match="AccessControlException"):
        list(Client(minihdfs.url).list_status("/private"))


def test_a_server_that_ends_before_it_is_ready_shows_its_log(tmp_path):
    child = Child([sys.executable, "-c", "print('no disk'); raise SystemExit(3)"], tmp_path / "log")
    with pytest.raises(ServerError, match=r"ended with 3 before it was ready(.|\n)*no disk"):
        child.wait_until(lambda: False)


def test_a_server_that_is_not_ready_in_time_is_killed(tmp_path):
    child = Child([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    with pytest.raises(ServerError, match="not ready within 0 s"):
        child.wait_until(lambda: False, within_s=0)
    assert not psutil.pid_exists(child.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_server_dies_with_a_parent_that_is_killed(tmp_path):
    program = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from servers.process import Child
program = "print('up', flush=True); import time; time.sleep(600)"
child = Child([sys.executable, "-c", program], Path({str(tmp_path / "log")!r}))
child.wait_until(lambda: "up" in child.log_tail())
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(timeout=60)  # raises when it is there for that long
