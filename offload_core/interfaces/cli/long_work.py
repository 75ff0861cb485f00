"""Long work shows itself: a bar on a terminal, elsewhere lines if they are wanted; Ctrl-C says how far it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TextIO

from offload_core.interfaces.cli.interruption import ENDS_WITHIN_S, when_interrupted
from offload_core.interfaces.cli.terminal import duration, err, print_note, printable, size
from offload_hooks.counts import StoreCounts, counted
from offload_hooks.errors import OffloadError

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 10.0
"""The time between lines where there is no terminal."""

_DRAWN_EVERY_S = 0.2
_LEAST_S = 1.0
"""A rate is shown after that."""

_LONG_S = 10.0
"""What takes longer says at its end how long it took."""


class LongWork:
    """Progress of a command. Calls may come from many threads at once, as often as there is something new.

    Args:
        doing: what is done, as in `moving`.
        counts: of the store; their bytes are shown where the work does not say how many are done.
    """

    def __init__(self, doing: str, counts: StoreCounts) -> None:
        self._doing = doing
        self._counts = counts
        self._what = ""
        self._bytes = 0
        self._whole_bytes = 0
        self._lock = threading.Lock()
        self._began = monotonic()
        self._is_broken_off = False

    def begin(self, doing: str) -> None:
        """Begin another part of the work."""
        with self._lock:
            self._doing, self._what, self._bytes, self._whole_bytes = doing, "", 0, 0

    def advance(self, size_bytes: int) -> None:
        """Add bytes that are done.

        Raises:
            OffloadError: the work was broken off.
        """
        if self._is_broken_off:
            raise OffloadError("it was broken off")
        with self._lock:
            self._bytes += size_bytes

    def update(
        self, what: str | None = None, *, done_bytes: int | None = None, whole_bytes: int | None = None
    ) -> None:
        """Set what is done in words (`12 of 23 copies`) and in bytes, and the bytes of the whole; None leaves each."""
        with self._lock:
            self._what = self._what if what is None else what
            self._bytes = self._bytes if done_bytes is None else done_bytes
            self._whole_bytes = self._whole_bytes if whole_bytes is None else whole_bytes

    def state(self) -> str:
        """How far it is, since when, and how long the rest takes at this rate."""
        parts, done, seconds = [self._what] if self._what else [], self.done_bytes, monotonic() - self._began
        if self._whole_bytes:
            parts.append(f"{size(done)} of {size(self._whole_bytes)}")
        elif done:
            parts.append(f"{size(done)} read")
        if done and seconds >= _LEAST_S:
            parts.append(f"{size(int(done / seconds))}/s")
        parts.append(duration(seconds))
        if 0 < done < self._whole_bytes and seconds >= _LEAST_S:
            parts.append(f"{duration(seconds * (self._whole_bytes / done - 1))} left")
        return f"{self._doing}: {', '.join(parts)}"

    @property
    def done_bytes(self) -> int:
        """Bytes that are done, or were read."""
        return self._bytes or self._counts.bytes

    @property
    def is_long(self) -> bool:
        """True if it took so long that its end is worth a line."""
        return monotonic() - self._began >= _LONG_S

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Show it in the block: a bar on a terminal, elsewhere lines."""
        ended = threading.Event()
        show = self._draw if err.is_terminal else self._log
        showing = threading.Thread(target=show, args=(ended,), name="offload-progress", daemon=True)
        showing.start()
        try:
            yield
        finally:
            ended.set()
            showing.join()

    def _log(self, ended: threading.Event) -> None:
        while not ended.wait(LINE_EVERY_S) and not self._is_broken_off:
            print_note(f"offload: {self.state()}")

    def _draw(self, ended: threading.Event) -> None:
        if ended.wait(_DRAWN_EVERY_S):
            return
        from offload_core.interfaces.progress_bar import byte_bar

        bar = byte_bar(err, transient=True, redirect_stdout=False)
        task = bar.add_task(self._doing, total=None)
        with _giving_way(bar) as draw:
            while not (ended.is_set() or self._is_broken_off):
                if self.done_bytes < bar.tasks[0].completed:
                    bar.reset(task)
                words = f"{self._doing}: {self._what}" if self._what else self._doing
                whole_bytes = self._whole_bytes or None
                bar.update(task, description=printable(words), completed=self.done_bytes, total=whole_bytes)
                draw()
                ended.wait(_DRAWN_EVERY_S)

    def break_off(self, go_on: str) -> None:
        """Say how far it is, and have other threads end."""
        self._is_broken_off = True
        if err.is_terminal:
            sleep(2 * _DRAWN_EVERY_S)  # until the bar is gone
        print_note(f"offload: broken off. {self.state()}{f'. {go_on}' if go_on else ''}")


@contextmanager
def long_work(
    doing: str, *, go_on: str = "", within_s: float = ENDS_WITHIN_S, shown: bool = True, logs: bool = False
) -> Iterator[LongWork]:
    """Show work while the block runs.

    Args:
        doing: what is done, as in `moving`.
        go_on: how to go on after it was broken off, as a sentence.
        within_s: how long it may take to end after Ctrl-C.
        shown: False where results would be mixed with it.
        logs: print lines where there is no terminal, and at the end how long it took, if that was long.
    """
    counts = StoreCounts()
    work = LongWork(doing, counts)
    if within_s > ENDS_WITHIN_S:
        go_on = f"It ends when it has cleaned up; Ctrl-C again ends it at once. {go_on}".rstrip()
    with (
        counted(counts),
        when_interrupted(lambda: work.break_off(go_on), within_s),
        work.drawn() if shown and (logs or err.is_terminal) else nullcontext(),
    ):
        yield work
    if logs and work.is_long:
        print_note(f"offload: {work.state()}")


@contextmanager
def _giving_way(bar: Progress) -> Iterator[Callable[[], None]]:
    """Take the bar away before results are printed on the same terminal; what is yielded draws it again."""
    stdout, lock = sys.stdout, threading.Lock()
    is_drawn, written_at, is_line_open = False, 0.0, False

    def draw() -> None:
        nonlocal is_drawn
        with lock:
            if not (is_drawn or is_line_open) and monotonic() - written_at > _DRAWN_EVERY_S:
                is_drawn = True
                bar.start()

    def give_way(text: str = "") -> None:
        nonlocal is_drawn, written_at, is_line_open
        with lock:
            written_at, is_line_open = monotonic(), not text.endswith("\n")
            if is_drawn:
                is_drawn = False
                bar.stop()

    if stdout.isatty():
        sys.stdout = _Told(stdout, give_way)
    try:
        yield draw
    finally:
        if isinstance(sys.stdout, _Told):
            sys.stdout = stdout
        give_way()


class _Told:
    """A stream that tells before it is written to."""

    def __init__(self, stream: TextIO, tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell = tell

    def write(self, text: str) -> int:
        self._tell(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
