"""Timing side by side: the two run in turn, A B A B …, and the ratio is taken pair by pair, so that it holds when the
machine's speed drifts. Medians are quoted."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line: figures as text with their units, and the ratio (rate of ours over the peer's, or as the name says).

    `limit` is what `ratio` must not pass: from below, or (`at_most`) from above; None if it is only shown.
    """

    name: str
    ours: str
    peer: str
    ratio: float
    limit: float | None = None
    at_most: bool = False

    @property
    def target(self) -> str:
        """The target as it is shown."""
        return "" if self.limit is None else f"{'≤' if self.at_most else '≥'} {self.limit:g}"

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.limit is None:
            return ""
        met = self.ratio <= self.limit if self.at_most else self.ratio >= self.limit
        return "met" if met else "missed"


def seconds_side_by_side(
    ours: Callable[[], object], peer: Callable[[], object], *, rounds: int
) -> tuple[float, float, float]:
    """Median seconds of each, and the median of peer/ours pair by pair; one round of each is not counted."""
    ours()
    peer()
    pairs = [(_seconds(ours), _seconds(peer)) for _ in range(rounds)]
    ratio = statistics.median(theirs / mine for mine, theirs in pairs)
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        ratio,
    )


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
