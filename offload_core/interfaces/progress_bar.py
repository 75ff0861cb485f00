"""A bar of the bytes that are read, of the whole, in a terminal or a notebook: a listener of exports and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from offload_core.reading.scan import ReadProgress
from offload_hooks.errors import MissingExtraError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from typing_extensions import Self


def byte_bar(console: Console | None = None, **settings: Any) -> Progress:
    """Bars of bytes, with their rate and the time that is left, on this console or the standard output."""
    from rich import progress
    from rich.text import Text

    class Of(progress.ProgressColumn):
        """A column, while it has something to show."""

        def __init__(self, column: progress.ProgressColumn, shown: Callable[[progress.Task], Any]) -> None:
            super().__init__()
            self._column = column
            self._shown = shown

        def render(self, task: progress.Task) -> Any:
            return self._column(task) if self._shown(task) else Text()

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        Of(progress.BarColumn(), lambda task: task.total),
        Of(progress.DownloadColumn(), lambda task: task.total),
        Of(progress.FileSizeColumn(), lambda task: task.completed and not task.total),
        Of(progress.TransferSpeedColumn(), lambda task: task.finished_speed or task.speed),
        Of(progress.TimeRemainingColumn(), lambda task: task.time_remaining),
        console=console,
        **settings,
    )


class ProgressBar:
    """Shows what an export or a measured read has done, from `with` to its end; to be given as their `listener`.

    Args:
        what: stands before the bar.
        bar: the bar of a command; None for one in this terminal or notebook (which needs ipywidgets).

    Raises:
        MissingExtraError: the library that draws it is not installed.
    """

    def __init__(self, what: str = "reading", bar: Progress | None = None) -> None:
        try:
            self._bar = byte_bar() if bar is None else bar
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"a bar needs the module {error.name!r}, which is not installed",
                hint="Install it: pip install 'pulsar-offload[cli]'",
            ) from error
        self._what = what
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, now: ReadProgress) -> None:
        """Show this; a round of an export that follows begins anew."""
        if not now.done_bytes:
            self._bar.reset(self._task)
        self._bar.update(
            self._task,
            completed=now.done_bytes,
            total=now.total_bytes or None,
            description=f"{self._what} {now.rows:,} rows",
        )
