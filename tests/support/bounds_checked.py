"""Cases of fuzzing in child processes, whose kernels check each index: `NUMBA_BOUNDSCHECK` is read by numba's import.

A module of cases has `FAMILIES`: by name, a function that makes one case of a `Random` and raises if something is
wrong. A case is made anew by its family and seed: `python tests/support/bounds_checked.py MODULE FAMILY SEED`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Family = Callable[[Random], None]

OF_CHECKS = ("index is out of bounds", "bytes are out of bounds")
"""The errors of numba's checks, and of the kernels' own loads and copies."""

_CANARY = 0xC5
_MARGIN = 64


class OutOfBoundsError(AssertionError):
    """A kernel used an index that no check of its own had refused."""


def called(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a kernel; None if it refuses its arguments. Refusals by this run's checks only are faults."""
    try:
        return kernel(*arguments)
    except IndexError as error:
        if str(error) in OF_CHECKS:
            raise OutOfBoundsError(f"{kernel.__name__}: {error}") from error
        return None


class Guarded:
    """Arrays with margins around them, for what compiled C functions may write."""

    def __init__(self) -> None:
        self._whole: list[np.ndarray] = []

    def array(self, size: int, dtype: Any = np.uint8) -> np.ndarray:
        """A writable array of this size, with anything in it."""
        width = np.dtype(dtype).itemsize
        whole = np.full(2 * _MARGIN + size * width, _CANARY, dtype=np.uint8)
        self._whole.append(whole)
        return whole[_MARGIN : _MARGIN + size * width].view(dtype)

    def check(self) -> None:
        """Raise if something was written beside an array."""
        for whole in self._whole:
            if (whole[:_MARGIN] != _CANARY).any() or (whole[-_MARGIN:] != _CANARY).any():
                raise OutOfBoundsError("something was written beside an array")


def run_checked(module: Path, seed: int, cases: int, *, processes: int = 2, timeout_s: float = 600) -> None:
    """Run `cases` cases, the same number of each family, with bounds checks on.

    Raises:
        AssertionError: with the first case that failed, by its family and seed.
    """
    each = -(-cases // len(_families(module)) // processes)
    search_path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": search_path}
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(processes):
            place = Path(folder) / str(number)
            arguments = [str(module), "", str(seed + number * each), str(each), str(place)]
            child = subprocess.Popen(
                [sys.executable, __file__, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
            )
            children.append((place, child))
        try:
            for place, child in children:
                output, _ = child.communicate(timeout=timeout_s)
                if child.returncode:
                    case = place.read_text().strip() if place.exists() else "none"
                    raise AssertionError(f"case {case}, code {child.returncode}:\n{output}")
        finally:
            for _, child in children:
                child.kill()
                child.communicate()


def _families(module: Path) -> dict[str, Family]:
    spec = importlib.util.spec_from_file_location(module.stem, module)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded.FAMILIES


def _run_cases(module: Path, only: str, seed: int, cases: int, place: str) -> None:
    import numba

    assert numba.config.BOUNDSCHECK == 1
    faulthandler.enable()
    families = _families(module)
    chosen = [only] if only else list(families)
    known = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600) if place else None  # after a crash, too
    for family in chosen:
        make = families[family]
        for number in range(seed, seed + cases):
            if known is not None:
                os.pwrite(known, f"{family} {number}".ljust(60).encode(), 0)
            make(Random(f"{family} {number}"))


if __name__ == "__main__":
    path, family, seed, cases, place = [*sys.argv[1:], *["1", ""][len(sys.argv) - 4 :]]
    os.environ.setdefault("NUMBA_BOUNDSCHECK", "1")
    _run_cases(Path(path), family, int(seed), int(cases), place)
