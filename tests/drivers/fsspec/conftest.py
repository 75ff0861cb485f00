"""What tests of the driver `fsspec` share: a directory on an SFTP server, and a place in memory."""

from __future__ import annotations

import itertools
import os

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from offload_drivers.fsspec import FsspecDriver

_numbers = itertools.count()


@pytest.fixture
def unique():
    return f"fsspec-tests-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def memory(unique):
    """A root in the memory that all file systems of this process share; emptied in the end."""
    yield unique
    for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{unique}/")]:
        del MemoryFileSystem.store[path]


@pytest.fixture
def open_driver():
    """Makes drivers, and closes them in the end."""
    opened = []

    def open_one(*given, **options):
        opened.append(FsspecDriver(*given, **options))
        return opened[-1]

    yield open_one
    for driver in opened:
        driver.close()


@pytest.fixture
def sftp_root(sftp_server, unique):
    """The root of a tier on the SFTP server, which is there."""
    (sftp_server.files / unique).mkdir()
    return f"{sftp_server.host}:{sftp_server.port}/{unique}"


@pytest.fixture
def on_sftp(sftp_server, sftp_root, open_driver):
    return open_driver("sftp", sftp_root, sftp_server.storage_options)


@pytest.fixture
def on_file(tmp_path, open_driver):
    return open_driver("file", str(tmp_path / "tier"))
