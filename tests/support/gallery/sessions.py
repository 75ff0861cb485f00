"""Pages of the gallery: the blocks of their commands, run anew.

A block begins with a command, and may have more. Its title has the width of the terminal, and the last exit code if
that is not 0. Where a wider terminal shows something else, a second block follows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gallery.examples import Examples
from gallery.terminal import run, screen_of
from gallery.world import make_world

FOLDER = Path(__file__).parents[3] / "docs" / "gallery"

_NARROW, _WIDE = 80, 160
_SHOWN_AS = "/srv/operator"
"""The folder of a session on its page: as long as the name of a temporary one, so that lines break where they did."""

_BLOCKS = re.compile(
    rf'```text title="{_NARROW} columns.*?"\n(.*?)```\n(?:\n```text title="{_WIDE} columns.*?```\n)?',
    re.DOTALL,
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)


def commands_of(page: str) -> list[list[str]]:
    """The words of all commands that a page shows."""
    lines = (line for block in _BLOCKS.finditer(page) for line in _COMMAND.findall(block[1]))
    return [shlex.split(_joined(line)) for line in lines]


def _joined(line: str) -> str:
    return line.replace("\\\n", " ")


def record(pages: Iterable[Path], target: Path) -> None:
    """Run the commands of pages, each page in the same world, and write the pages into a folder."""
    os.umask(0o022)
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="") as folder,
        tempfile.TemporaryDirectory(prefix="gallery-") as kept,
    ):
        session = _Session(Path(folder), Path(kept))
        for path in pages:
            session.begin()
            text = _BLOCKS.sub(lambda block: session.record(_COMMAND.findall(block[1])), path.read_text())
            (target / path.name).write_text(text)


class _Session:
    """Commands, one after another, in a folder.

    Args:
        folder: where they run.
        kept: where copies of it are kept.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        assert len(str(folder)) == len(_SHOWN_AS), folder
        self._folder, self._world, self._before = folder, kept / "world", kept / "before"
        os.environ |= _made(folder, kept / "settings")
        shutil.copytree(folder, self._world, symlinks=True)

    def begin(self) -> None:
        """Begin a page."""
        self._examples = Examples()
        self._restore(self._world)

    def record(self, lines: Sequence[str]) -> str:
        """The blocks of these commands: on a narrow terminal, and on a wide one if that shows something else."""
        shutil.copytree(self._folder, self._before, symlinks=True)
        wide = self._block(lines, _WIDE)
        self._restore(self._before)
        shutil.rmtree(self._before)
        narrow = self._block(lines, _NARROW)
        return narrow if wide.partition("\n")[2] == narrow.partition("\n")[2] else f"{narrow}\n{wide}"

    def _block(self, lines: Sequence[str], columns: int) -> str:
        shown, code = [], 0
        for line in lines:
            code, printed = run(_joined(line), self._folder, columns)
            printed = self._examples.of_names(printed.replace(str(self._folder), _SHOWN_AS))
            shown += [f"$ {line}", *self._examples.of_numbers(screen_of(printed, columns))]
        ended = f", exit code {code}" if code else ""
        return "\n".join([f'```text title="{columns} columns{ended}"', *shown, "```\n"])

    def _restore(self, copy: Path) -> None:
        for path in self._folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(copy, self._folder, symlinks=True, dirs_exist_ok=True)


def _made(folder: Path, settings: Path) -> dict[str, str]:
    """Make the world in a process that ends, so that this one has no threads when it forks; the user's settings."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            settings.write_text(json.dumps(make_world(folder)))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0, "there is no world"
    return json.loads(settings.read_text())
