"""An executor of picklable work on Spark, classic or Connect: each item is a Spark task.

Items go to Spark in waves of a few a core, so that results come back, and can be committed, while others run. A wave
is a range with a partition for each item, mapped by `mapInArrow` (ADR 0059). Nothing is shuffled, so that Spark repeats
tasks, whose attempts it counts, and never a stage.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offload_core.interfaces.engines.spark.versions import (
    any_pandas,
    check_versions,
    for_workers,
    installed_versions,
)
from offload_core.storage.executors import trying
from offload_hooks.errors import MissingExtraError, OffloadError, OptionError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_CONNECT_SCHEME = "sc://"
_ITEMS_A_CORE = 4
_MORE_THAN_CORES = 1_000_000
_ANSWERS_WITHIN_S = 30


class SparkExecutor:
    """Runs work on the executors of a Spark session, classic or Connect; they need this package in the same version."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def processes(self) -> int:
        """The cores there are now, each of which has a process; a small job asks for them.

        It is Spark's default parallelism, which a session of Spark Connect shows only by the partitions of a range.
        """
        partitions = self._session.range(_MORE_THAN_CORES).selectExpr("spark_partition_id() AS partition")
        with _errors_of_spark():
            (row,) = partitions.selectExpr("max(partition) AS last").collect()
        return int(row["last"]) + 1

    def run(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """See `Executor`; what Spark itself fails with is an `OffloadError` that has Spark's own as its cause."""
        call = functools.partial(_call_each, installed_versions(), pickle.dumps(work))
        rest = iter(items)
        size = self.processes * _ITEMS_A_CORE
        while wave := [pickle.dumps(item) for item in itertools.islice(rest, size)]:
            numbers = self._session.range(0, len(wave), 1, len(wave))
            with _errors_of_spark(), any_pandas():
                of_wave = for_workers(functools.partial(call, wave))
                results = numbers.mapInArrow(of_wave, "number long, result binary")
                rows = results.collect()
            for row in sorted(rows, key=lambda row: int(row["number"])):
                result = pickle.loads(row["result"])  # noqa: S301 - from a task of this application
                if isinstance(result, _Raised):
                    raise result.error
                yield result


@contextmanager
def _errors_of_spark() -> Iterator[None]:
    """Spark's own errors in the block as ours."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise OffloadError(
            "Spark has not done the work",
            found=_reason(error),
            hint="Its log has more, and --debug shows all of it. The command can be called again.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Raised:
    """An error that work raised; an error that it returns is a result."""

    error: OffloadError


def _reason(error: Exception) -> str:
    """The one line of Spark's text that has the reason: Java's message, or the last line of a worker's traceback."""
    lines = str(error).splitlines()
    before_javas_stack = itertools.takewhile(
        lambda line: not line.startswith(("\tat ", "JVM stacktrace")), lines
    )
    messages = [line for line in before_javas_stack if line[:1].strip()]
    return messages[-1].removeprefix(": ") if messages else type(error).__name__


def start_session(master: str) -> SparkSession:
    """A session at this master or Spark Connect server (`sc://host:port`), or the existing one.

    Raises:
        MissingExtraError: what a Spark Connect client needs is not installed.
        OptionError: the server's URL is none.
        OffloadError: the Spark Connect server does not answer.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with any_pandas():
        if master.startswith(_CONNECT_SCHEME):
            return _connect(master)
        return SparkSession.builder.master(master).appName("offload").getOrCreate()


def _connect(url: str) -> SparkSession:
    """A session at a server that answers: Spark's own client tries for ten minutes, and says nothing meanwhile."""
    try:
        import grpc  # type: ignore[import-untyped]
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise MissingExtraError(
            "this Python has no client of Spark Connect",
            found=str(error).partition("\n")[0],
            hint="Install it: pip install 'pulsar-offload[connect]'",
        ) from error
    try:
        builder = DefaultChannelBuilder(url)
    except PySparkException as error:  # it shows the URL, which may have a token
        raise OptionError(
            "this is no URL of a Spark Connect server",
            expected="sc://host:port, or sc://host:port/;name=value",
        ) from error
    try:
        with builder.toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=_ANSWERS_WITHIN_S)
    except grpc.FutureTimeoutError:
        raise OffloadError(
            "the Spark Connect server does not answer",
            found=f"no connection within {_ANSWERS_WITHIN_S} s",
            hint="Does it run there, and is the port right (sc://host:15002, unless it was given another)?",
        ) from None
    with _errors_of_spark():
        return SparkSession.builder.remote(url).getOrCreate()


def _call_each(
    versions: dict[str, str], work: bytes, wave: list[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The results for the numbers in a partition, each with its number: pickled, as the items of the wave are."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            result = pickle.dumps(_call(versions, work, wave[number]))
            columns = {"number": pa.array([number], pa.int64()), "result": pa.array([result], pa.binary())}
            yield pa.RecordBatch.from_pydict(columns)


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
