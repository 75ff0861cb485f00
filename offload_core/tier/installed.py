"""Entry points of the installed distributions, whose metadata is read once for as long as nothing is installed.

To read it takes about 10 ms where a hundred distributions are installed, and opening a tier asks several times.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

_Places = tuple[tuple[str, int], ...]


def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, of all distributions on `sys.path` as it is now, importing nothing."""
    return _read(group, tuple((place, _changed_ns(place)) for place in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, places: _Places) -> tuple[EntryPoint, ...]:
    del places  # installing and removing changes them, and so asks anew
    return tuple(entry_points(group=group))


def _changed_ns(place: str) -> int:
    """When something was last added to a directory, or an archive was written; 0 where nothing is."""
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0
