"""What tests of the driver `hdfs` share: a directory of their own, and WebHDFS, another client of its files."""

from __future__ import annotations

import itertools
import os

import pytest
from stores import WebHdfs

from offload_drivers.hdfs import HdfsDriver

_numbers = itertools.count()


@pytest.fixture
def root():
    return f"/hdfs-tests-{os.getpid()}-{next(_numbers)}"  # others name theirs /tests-…


@pytest.fixture
def web(minihdfs, root):
    return WebHdfs(minihdfs.endpoint, root, minihdfs.superuser)


@pytest.fixture
def open_driver(minihdfs, root):
    """Makes drivers of that directory, as its superuser, and closes them in the end."""
    opened = []

    def open_one(**options):
        opened.append(HdfsDriver(**{"url": minihdfs.url, "root": root, "user": minihdfs.superuser} | options))
        return opened[-1]

    yield open_one
    for driver in opened:
        driver.close()


@pytest.fixture
def driver(open_driver):
    return open_driver()
