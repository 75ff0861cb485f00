"""The command in this process, fast, and as a process of its own, real."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Offload, as_a_process, in_this_process
from tiers import lay_out_broker_objects


@pytest.fixture
def offload(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Offload:
    """Run the command in this process: `offload("ls", root)`."""
    return in_this_process(capsys, monkeypatch)


@pytest.fixture
def offload_process() -> Offload:
    """Run the installed command as a process: `offload_process("ls", root)`."""
    return as_a_process


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tier of what a broker offloaded."""
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    return root
