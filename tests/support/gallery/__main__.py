"""Run sessions anew, and write their pages: `python -m gallery [FOLDER [PAGE]]`, all pages where none is named."""

import sys
from multiprocessing import get_context
from pathlib import Path

from gallery.terminal import import_commands

import_commands()  # before anything else imports one of their modules

from gallery.sessions import FOLDER, record  # noqa: E402

_AT_ONCE = 2

target = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
pages = sorted(FOLDER.glob(sys.argv[2] if sys.argv[2:] else "*.md"), key=lambda path: -path.stat().st_size)
context = get_context("fork")
parts = [part for each in range(_AT_ONCE) if (part := pages[each::_AT_ONCE])]
running = [context.Process(target=record, args=(part, target)) for part in parts]
for each in running:
    each.start()
for each in running:
    each.join()
sys.exit(max(abs(each.exitcode or 0) for each in running))
