"""The options that say who looks at objects: what is told stays the same, and what they cannot do is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Offload
from scenes.lookers import lay_out_world, world, write_record

from offload_core.metadata.stores import open_metadata_store

COMMANDS = [
    ("ls", "--json"),
    ("du", "--json"),
    ("cost", "--json", "--no-scan"),
    ("verify", "--json"),
    ("gc", "--json", "--records"),
    ("recover", "--json"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tier"
    lay_out_world(root)
    open_metadata_store(f"sqlite:{tmp_path / 'records.db'}", {"create": "true"}).close()
    return root


def of(root: Path, command: tuple[str, ...]) -> list[object]:
    """The arguments of a command."""
    name, *options = command
    given = [f"sqlite:{root.parent / 'records.db'}"] if "--records" in options else []
    return [name, root, *options, *given]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_workers_tell_the_same(offload: Offload, root: Path, command: tuple[str, ...]) -> None:
    alone, by_workers = offload(*of(root, command)), offload(*of(root, command), "--workers", "3")
    assert json.loads(alone.out)
    assert by_workers == alone


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_spark_decides_how_much_runs_at_once(offload: Offload, root: Path, command: tuple[str, ...]) -> None:
    result = offload(*of(root, command), "--master", "local[1]", "--processes")
    assert (result.code, "Spark decides how much runs at once" in result.err) == (2, True)


def test_processes_are_started(offload_process: Offload, root: Path) -> None:
    alone, by_processes = (
        offload_process("verify", root, "--json", *more) for more in ((), ("--processes", "--workers", "1"))
    )
    assert alone.code == 1
    assert by_processes == alone


@pytest.mark.parametrize("command", ["ls", "du", "cost"])
def test_workers_tell_the_same_by_records(offload: Offload, root: Path, command: str) -> None:
    url = f"sqlite:{root.parent / 'more.db'}"
    store = open_metadata_store(url, {"create": "true"})
    write_record(world(root), store)
    store.close()
    given = (command, root, "--records", url, "--json")
    alone, by_workers = offload(*given), offload(*given, "--workers", "2")
    assert (alone.code, "acme" in alone.out) == (0, True)
    assert by_workers == alone
