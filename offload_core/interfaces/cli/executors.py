"""Who does the work of commands that have much of it: threads, processes, or Spark; their options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from offload_core.storage.executors import Executor, ProcessExecutor, ThreadExecutor
from offload_hooks.errors import MissingExtraError, OptionError

Master = Annotated[str | None, typer.Option(help="A Spark master, whose executors do the work.")]
Workers = Annotated[int | None, typer.Option(min=1, help="So many at once; one a core by default.")]
Lookers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="So many batches of objects at once, of which each has up to 128 requests under way; one by default, with "
        "--processes one a core.",
    ),
]
Processes = Annotated[bool, typer.Option("--processes", help="Processes instead of threads.")]


@contextmanager
def looking(master: str | None, workers: int | None, processes: bool) -> Iterator[Executor | None]:
    """Who looks at objects; None for this process, with many requests at once, if nobody was asked for.

    Raises:
        OptionError, MissingExtraError.
    """
    if master is None and workers is None and not processes:
        yield None
        return
    with executing(master, workers, processes) as executor:
        yield executor


@contextmanager
def executing(master: str | None, workers: int | None, processes: bool) -> Iterator[Executor]:
    """Who does the work that was asked for: Spark's executors, processes, or threads.

    Raises:
        OptionError, MissingExtraError.
    """
    if master is not None and (processes or workers is not None):
        raise OptionError(
            "Spark decides how much runs at once", expected="--master without --workers, --processes"
        )
    if master is None:
        yield ProcessExecutor(workers) if processes else ThreadExecutor(workers)
        return
    try:
        from offload_core.interfaces.spark.executor import SparkExecutor, start_session
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"--master needs the module {error.name!r}, which is not installed",
            hint="Install it: pip install 'pulsar-offload[spark]'",
        ) from error
    session = start_session(master)
    try:
        yield SparkExecutor(session)
    finally:
        session.stop()
