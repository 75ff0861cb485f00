"""Completion in shells: options, values and topics, without the import of a command, and never an error."""

import os
import subprocess
import sys

import pytest
from commands import COMMAND

from offload_core.interfaces.cli.commands import COMMANDS
from offload_core.interfaces.cli.completion import outline

EXAMPLES = ["example:aws-s3", "example:azure-blob", "example:google-cloud-storage"]


@pytest.fixture
def completed():
    """What bash offers for the last of these words, and that nothing else is printed."""

    def run(*words, program=(COMMAND,)):
        asked = {
            "_OFFLOAD_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["offload", *map(str, words)]),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            program, env=os.environ | asked, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return run


def leaves(name, command):
    inner = getattr(command, "commands", {})
    yield name, {(*each.opts, *each.secondary_opts) for each in command.params if each.name != "help"}
    for each, sub in inner.items():
        yield from leaves(f"{name} {each}", sub)


def option_names(name, command):
    return {
        path: {each for each in names if each[0].startswith("-")} for path, names in leaves(name, command)
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_the_options_are_those_of_the_command_itself(command):
    assert option_names(command.name, outline(command.name)) == option_names(command.name, command.load())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["verify", "x", "--fail-on", ""], ["warning", "error"]),
        (["cat", "x", "--mode", "P"], ["PERMISSIVE"]),
        (["cat", "x", "--trans"], ["--transaction-timeout", "--transaction-search-bytes"]),
        (["cat", "x", "--no-f"], ["--no-fail-on-data-loss"]),
        (["cost", "x", "--prices", ""], EXAMPLES),
        (["topics", "offload", "--si"], ["--size-threshold"]),
        (["schemas", ""], ["pull", "show"]),
        (["wr"], []),
        (["wrong", "--x"], []),
    ],
)
def test_options_and_fixed_values_are_offered(completed, words, offered):
    assert completed(*words) == offered


def test_topics_of_a_local_tier_are_offered(completed, broker):
    assert completed("cat", broker, "--topic", "acme/cold/b") == ["acme/cold/batch", "acme/cold/big"]
    assert completed("history", broker.as_uri(), "acme/cold/tx") == ["acme/cold/txn"]
    assert completed("inspect", broker, "acme/cold/tx") == ["acme/cold/txn"]


def test_the_names_of_tiers_are_offered_and_topics_of_the_local_ones(
    completed, broker, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pulsar-offload.toml").write_text(
        f'[tiers]\nprod.url = "s3://bucket"\nprobe.url = "{broker}"\nother.url = "{broker.as_uri()}"'
    )
    assert completed("ls", "pro") == ["probe", "prod"]
    assert completed("relocate", "prod", "--to", "o") == ["other"]
    assert completed("cat", "prod", "--also-tier", "prob") == ["probe"]
    for name in ("probe", "other"):
        assert completed("cat", name, "--topic", "acme/cold/tx") == ["acme/cold/txn"]
    assert completed("cat", "prod", "--topic", "") == []
    (tmp_path / "pulsar-offload.toml").write_text("[")
    assert completed("ls", "pro") == []


def test_damaged_and_remote_tiers_offer_nothing_and_no_error(completed, tmp_path):
    (tmp_path / "x.metadata.json").write_bytes(b"\xff{")
    for tier in (tmp_path, tmp_path / "none", "s3://bucket", "--wrong"):
        assert completed("cat", tier, "--topic", "") == []


def test_no_command_is_imported_for_it(completed):
    program = """
import atexit, sys
heavy = {"numpy", "pyarrow", "numba", "offload_core.metadata.catalogue", "offload_core.interfaces.cli.cat"}
atexit.register(lambda: print(*heavy & set(sys.modules)))
from offload_core.interfaces.cli.main import main
main()
"""
    assert completed("cat", "x", "--topi", program=(sys.executable, "-c", program)) == [
        "--topic",
        "--topics-pattern",
    ]
