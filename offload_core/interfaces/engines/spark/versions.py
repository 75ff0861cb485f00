"""Compare the versions installed on Spark's driver and on its executors, before anything else crosses between them.

A reader travels as the driver's versions and some bytes. The bytes are unpickled only where the versions allow it: what
cannot work is an error that names both, what may is a warning. That Python itself is the same Spark checks before.
"""

from __future__ import annotations

import functools
import logging
import pickle
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata

import pyarrow as pa

from offload_core.storage.tier import registry
from offload_hooks.errors import VersionMismatchError

PYTHON = "Python"
OURS = "pulsar-offload"
MISSING = "not installed"

_ALWAYS = (OURS, "numba", "numpy", "pyarrow", "pyspark")
_SAME_MAJOR = ("numpy", "pyspark")
WorkerFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_log = logging.getLogger(__name__)


def installed_versions(driver: str | None = None) -> dict[str, str]:
    """The versions of Python and of the distributions that reading needs, those of a tier's driver among them."""
    names = {*_ALWAYS, *(() if driver is None else _distributions_of(driver))}
    return {PYTHON: _python(), **{name: _version(name) for name in sorted(names)}}


def check_versions(of_driver: Mapping[str, str]) -> None:
    """Compare what is installed here with what is on Spark's driver.

    Raises:
        VersionMismatchError: with another version of Python, of this package, or another major version of numpy or
            pyspark it cannot work. Other differences are a warning, once per process.
    """
    _check(tuple(of_driver.items()))


@contextmanager
def any_pandas() -> Iterator[None]:
    """Have PySpark not warn in the block of a pandas that it does not know: it asks for one, and we do not use it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def for_workers(work: WorkerFunction) -> WorkerFunction:
    """What `mapInArrow` shall run, so that a worker whose Python has not this package says so.

    Spark pickles a nested function by its code, without this module: it needs nothing but Python's own.
    """
    state, name, of_driver = (
        pickle.dumps(work),
        getattr(work, "__name__", type(work).__name__),
        sys.executable,
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            loaded = pickle.loads(state)  # noqa: S301 - from the application's driver
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"Spark's workers run {sys.executable}, which has no module {error.name!r}. Install pulsar-offload "
                "there, or set PYSPARK_PYTHON, before the session begins, to a Python that has it: "
                f"the driver's is {of_driver}"
            ) from error
        return loaded(batches)  # type: ignore[no-any-return]

    run.__name__ = name
    return run


@functools.cache
def _check(of_driver: tuple[tuple[str, str], ...]) -> None:
    different = [(name, there, here) for name, there in of_driver if (here := _version(name)) != there]
    if not different:
        return
    wrong = [each for each in different if _breaks(*each)]
    if wrong:
        raise VersionMismatchError(
            f"an executor of Spark has other versions than its driver, in Python {platform.python_version()}",
            expected=", ".join(f"{name} {there}" for name, there, _ in wrong),
            found=", ".join(f"{name} {here}" for name, _, here in wrong),
            hint="Install the same packages on the executors, and set PYSPARK_PYTHON to the Python that has them.",
        )
    _log.warning(
        "an executor of Spark has other versions than its driver: %s",
        ", ".join(f"{name} {here} (driver: {there})" for name, there, here in different),
    )


def _breaks(name: str, there: str, here: str) -> bool:
    if name in _SAME_MAJOR:
        return there.partition(".")[0] != here.partition(".")[0]
    return name in (PYTHON, OURS)


def _version(name: str) -> str:
    if name == PYTHON:
        return _python()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return MISSING


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _distributions_of(driver: str) -> Iterator[str]:
    """The distribution that offers a driver, and those that the entry point's extras name."""
    entry = registry.find(registry.DRIVERS, driver)
    if entry.dist is None:
        return
    yield entry.dist.name
    for requirement in entry.dist.requires or ():
        wanted = re.match(r"[\w.-]+", requirement)
        if wanted and any(re.search(rf"extra == ['\"]{extra}['\"]", requirement) for extra in entry.extras):
            yield wanted[0]
