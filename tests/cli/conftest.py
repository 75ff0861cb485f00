"""The command in this process, fast, and as a process of its own, real."""

import pytest
from commands import as_a_process, in_this_process
from tiers import lay_out_broker_objects


@pytest.fixture
def offload(capsys, monkeypatch):
    """Run the command in this process: `offload("ls", root)`."""
    return in_this_process(capsys, monkeypatch)


@pytest.fixture
def offload_process():
    """Run the installed command as a process: `offload_process("ls", root)`."""
    return as_a_process


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A tier of what a broker offloaded."""
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    return root
