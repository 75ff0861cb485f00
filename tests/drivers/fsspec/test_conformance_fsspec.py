"""The driver `fsspec` passes the suite: in memory, in a folder, on an SFTP server, and on S3 by an asynchronous one."""

from __future__ import annotations

import json

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from s3 import Boto, new_bucket
from servers.sftp import PASSWORD
from tiers import Folder

from offload_drivers.fsspec import FsspecDriver
from offload_hooks.testing import DriverConformance

OWN_KEYS = (".offload-uploads/x", "k.metadata.json", "a.metadata.json/b")


class _Memory:
    """Files in memory, with their metadata beside them."""

    def __init__(self, root):
        self._root = f"/{root}/"
        self._files = MemoryFileSystem(skip_instance_cache=True)

    def put(self, key, data, user_metadata, content_type):
        about = {"version": 1, "content_type": content_type, "user_metadata": dict(user_metadata)}
        self._files.pipe_file(f"{self._root}{key}.metadata.json", json.dumps(about).encode())
        self._files.pipe_file(self._root + key, data)

    def get(self, key):
        file = MemoryFileSystem.store.get(self._root + key)
        return None if file is None else file.getvalue()

    def keys(self):
        paths = list(MemoryFileSystem.store)
        return {path.removeprefix(self._root) for path in paths if path.startswith(self._root)}


class _Bucket(Boto):
    """Objects of a bucket, with their metadata beside them and of one part, as S3 is used by this driver."""

    part_sizes = None

    def put(self, key, data, user_metadata, content_type):
        about = {"version": 1, "content_type": content_type, "user_metadata": dict(user_metadata)}
        super().put(f"{key}.metadata.json", json.dumps(about).encode())
        super().put(key, data)


@pytest.mark.sampled(4)
class TestMemory(DriverConformance):
    own_keys = OWN_KEYS
    max_examples = 10

    @pytest.fixture
    def make_driver(self, memory):
        return lambda: FsspecDriver("memory", memory)

    @pytest.fixture
    def back_door(self, memory):
        return _Memory(memory)


@pytest.mark.sampled(10)
class TestFile(DriverConformance):
    own_keys = OWN_KEYS
    many_keys = 200
    max_examples = 5

    @pytest.fixture
    def make_driver(self, tmp_path):
        return lambda: FsspecDriver("file", str(tmp_path))

    @pytest.fixture
    def back_door(self, tmp_path):
        return Folder(tmp_path)


@pytest.mark.sampled(6)
class TestSftp(DriverConformance):
    own_keys = OWN_KEYS
    secrets = (PASSWORD,)
    many_keys = 200
    max_examples = 5

    @pytest.fixture
    def make_driver(self, sftp_server, sftp_root):
        return lambda: FsspecDriver("sftp", sftp_root, sftp_server.storage_options)

    @pytest.fixture
    def back_door(self, sftp_server, sftp_root):
        return Folder(sftp_server.files / sftp_root.partition("/")[2])


@pytest.mark.sampled(20)
class TestS3ByFsspec(DriverConformance):
    """An asynchronous file system that copies rather than renames; the driver `s3` is the one to use."""

    own_keys = OWN_KEYS
    secrets = ("root-secret-key",)
    many_keys = 200
    max_examples = 3

    @pytest.fixture
    def bucket(self, versitygw):
        return new_bucket(versitygw)

    @pytest.fixture
    def make_driver(self, versitygw, bucket):
        login = {"key": versitygw.root.access_key, "secret": versitygw.root.secret_key}
        options = {"endpoint_url": versitygw.endpoint, "client_kwargs": {"region_name": versitygw.region}}
        return lambda: FsspecDriver("s3", f"{bucket}/some/tier", login | options)

    @pytest.fixture
    def back_door(self, versitygw, bucket):
        boto = _Bucket(versitygw, bucket)
        yield boto
        boto.close()
