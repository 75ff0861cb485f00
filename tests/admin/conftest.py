"""Pulsar's distribution, and one service for the tests that leave nothing behind."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator

import pytest
from commands import COMMAND, Offload, Result
from required import need
from servers import install
from servers.toolchains import ToolchainMissing
from service import Service

_numbers = itertools.count()


@pytest.fixture(scope="session")
def distribution() -> None:
    """Pulsar's distribution, installed."""
    try:
        install.broker()
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise


@pytest.fixture
def offload() -> Offload:
    """Run the command as a process: `offload("serve")`."""

    def run(*arguments: object) -> Result:
        command = [str(COMMAND), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without tokens; each test has a namespace of its own."""
    settings = '[policies]\ndriver = "aws-s3"\ns3_credential_secret = "hunter2"\n'
    with Service(tmp_path_factory.mktemp("service"), settings) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    """The path of a namespace that says nothing yet."""
    return f"/admin/v2/namespaces/acme/n{next(_numbers)}"
