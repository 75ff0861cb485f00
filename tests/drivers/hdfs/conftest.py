"""What tests of the driver `hdfs` share: WebHDFS, another client of the same files."""

from __future__ import annotations

import pytest
from webhdfs import WebHdfs


@pytest.fixture
def web(minihdfs, root):
    return WebHdfs(minihdfs.endpoint, root, minihdfs.superuser)
