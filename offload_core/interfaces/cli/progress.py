"""A bar on a terminal: how many bytes are done, of how many, how fast, and how long the rest takes.

Progress comes in lumps, a file at a time. So the rate is the mean since the bar began, not that of the last seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from offload_core.interfaces.cli.shared import err


def byte_bar(*, shown: bool = True) -> Progress:
    """Bars of bytes on the standard error, while it is a terminal; gone in the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        _Rate(),
        console=err,
        disable=not (shown and err.is_terminal),
        transient=True,
    )


@contextmanager
def count_bar(what: str) -> Iterator[Callable[[int], None]]:
    """A line on the standard error that says how many there are by now, while it is a terminal; gone in the end."""
    columns = (TextColumn("{task.completed:,} {task.description}"),)
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.update(task, completed=count)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Rate and time left, once something is done."""
        seconds = task.finished_time or task.elapsed
        if not seconds or not task.completed:
            return Text("")
        rate = task.completed / seconds
        text = f"{decimal(int(rate))}/s"
        if task.remaining:
            text += f", {timedelta(seconds=round(task.remaining / rate))} left"
        return Text(text, style="progress.remaining")
