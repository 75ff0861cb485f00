"""Pulsar's distribution, and one service for the tests that leave nothing behind."""

import itertools

import pytest
import structlog
from commands import in_this_process
from required import need
from servers import install
from servers.toolchains import ToolchainMissing
from service import Service

_numbers = itertools.count()


@pytest.fixture(scope="session")
def distribution():
    """Pulsar's distribution, installed."""
    try:
        install.broker()
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise


@pytest.fixture
def offload(capsys, monkeypatch):
    """Run the command in this process, beside the service: `offload("ls", root)`."""
    yield in_this_process(capsys, monkeypatch)
    structlog.reset_defaults()  # a service logs to the standard error that this test had


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service without tokens; each test has a namespace of its own."""
    settings = '[policies]\ndriver = "aws-s3"\ns3_credential_secret = "hunter2"\n'
    with Service(tmp_path_factory.mktemp("service"), settings) as running:
        yield running


@pytest.fixture
def namespace():
    """The path of a namespace that says nothing yet."""
    return f"/admin/v2/namespaces/acme/n{next(_numbers)}"
