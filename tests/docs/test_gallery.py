"""The gallery shows every command, and its pages are what the commands print now (`make reference`)."""

import os
import subprocess
import sys

import pytest
from gallery.sessions import FOLDER, commands_of
from reference.commands import leaves

from offload_core.interfaces.cli.commands import COMMANDS

PAGES = sorted(FOLDER.glob("*.md"))


def test_every_command_is_shown():
    shown = [" ".join(words) for page in PAGES for words in commands_of(page.read_text())]
    commands = [name for each in COMMANDS for name, _ in leaves(f"offload {each.name}", each.load())]
    assert [name for name in commands if not any(f"{line} ".startswith(f"{name} ") for line in shown)] == []


@pytest.mark.long
@pytest.mark.sampled(5)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_the_commands_print(page, tmp_path):
    env = os.environ | {"PYTHONPATH": str(FOLDER.parents[1] / "tests" / "support")}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        env.pop(name, None)
    command = [sys.executable, "-m", "gallery", str(tmp_path), page.name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert page.read_text() == (tmp_path / page.name).read_text(), "make reference"
