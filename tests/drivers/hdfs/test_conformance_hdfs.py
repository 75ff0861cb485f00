"""The driver `hdfs` passes the suite, on a mini cluster, with WebHDFS for a back door."""

from __future__ import annotations

import json

import pytest

from offload_drivers.hdfs import HdfsDriver
from offload_hooks.testing import DriverConformance


class RestBackDoor:
    """Files by WebHDFS, with their metadata beside them."""

    def __init__(self, web):
        self._web = web

    def put(self, key, data, user_metadata, content_type):
        if user_metadata or content_type != "application/octet-stream":
            about = {"version": 1, "content_type": content_type, "user_metadata": dict(user_metadata)}
            self._web.put(f"{key}.metadata.json", json.dumps(about).encode())
        else:
            self._web.operate("DELETE", f"{key}.metadata.json", op="DELETE")
        self._web.put(key, data)

    def get(self, key):
        return self._web.get(key)

    def keys(self):
        return self._web.files()


@pytest.mark.sampled(6)
class TestHdfs(DriverConformance):
    own_keys = (".offload-uploads/x", "k.metadata.json", "a.metadata.json/b", "a:b", "a/.snapshot/b")
    many_keys = 200  # a directory of more than a page is in test_hdfs_listing
    max_examples = 10

    @pytest.fixture
    def make_driver(self, minihdfs, root):
        return lambda: HdfsDriver(url=minihdfs.url + root, user=minihdfs.superuser)

    @pytest.fixture
    def back_door(self, web):
        return RestBackDoor(web)
