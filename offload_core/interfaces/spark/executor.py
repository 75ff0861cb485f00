"""An executor of picklable work on Spark: each item is a Spark task.

Items go to Spark in waves of a few a core, so that results come back, and can be committed, while others run.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offload_core.interfaces.spark.versions import check_versions, installed_versions
from offload_core.storage.executors import trying
from offload_hooks.errors import OffloadError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_ITEMS_A_CORE = 4


class SparkExecutor:
    """Runs work on the executors of a classic Spark session, which need this package in the same version."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    @property
    def processes(self) -> int:
        """The cores there are now, each of which has a process."""
        return max(1, int(self._context.defaultParallelism))

    def run(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """See `Executor`; what Spark itself fails with is an `OffloadError` that has Spark's own as its cause."""
        call = functools.partial(_call, installed_versions(), pickle.dumps(work))
        rest = iter(items)
        size = self.processes * _ITEMS_A_CORE
        while wave := [pickle.dumps(item) for item in itertools.islice(rest, size)]:
            try:
                results = self._context.parallelize(wave, len(wave)).map(call).collect()
            except (Py4JError, PySparkException) as error:
                raise OffloadError(
                    "Spark has not done the work",
                    found=_reason(error),
                    hint="Its log has more, and --debug shows all of it. The command can be called again.",
                ) from error
            for result in results:
                if isinstance(result, _Raised):
                    raise result.error
                yield result


@dataclass(frozen=True, slots=True)
class _Raised:
    """An error that work raised; an error that it returns is a result."""

    error: OffloadError


def _reason(error: Exception) -> str:
    """The one line of Spark's text that has the reason: Java's message, or the last line of a worker's traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    of_java = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return next(of_java, lines[-1] if lines else type(error).__name__)


def start_session(master: str) -> SparkSession:
    """A session at this master, or the existing one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.master(master).appName("offload").getOrCreate()


def _call(versions: dict[str, str], work: bytes, item: bytes) -> Any:
    """Errors come back as values: Spark would try again what cannot succeed, and hand over their text only."""
    try:
        check_versions(versions)
        with trying(_was_tried()):
            return _work_of_process(os.getpid(), work)(pickle.loads(item))  # noqa: S301 - from the driver
    except OffloadError as error:
        if error.retryable:
            raise
        return _Raised(error)


def _was_tried() -> bool:
    """True if this task is another attempt at one that failed, was lost, or is slow."""
    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


@functools.lru_cache(maxsize=4)
def _work_of_process(process_id: int, work: bytes) -> Callable[[Any], Any]:
    """The work of this process: made after the fork, kept for the items that follow: its tier is opened once."""
    del process_id
    made: Callable[[Any], Any] = pickle.loads(work)  # noqa: S301 - from the driver of the same application
    return made
