"""What tests of the driver `hdfs` share: a directory of their own, and WebHDFS, another client of its files."""

from __future__ import annotations

import itertools
import os

import pytest
from stores import WebHdfs

_numbers = itertools.count()


@pytest.fixture
def root():
    return f"/hdfs-tests-{os.getpid()}-{next(_numbers)}"  # others name theirs /tests-…


@pytest.fixture
def web(minihdfs, root):
    return WebHdfs(minihdfs.endpoint, root, minihdfs.superuser)
