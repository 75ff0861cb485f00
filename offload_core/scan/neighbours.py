"""What lies around each task, as far as messages in chunks may reach: other tasks' runs, and those outside the range.

The bound is in stored bytes, rounded up to whole blocks. What is found here is only planned: it is read when a message
turns out to need it (`chunk_search`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offload_core.scan.tasks import Neighbours, Run, ScanTask

RunsOf = Callable[[], Iterator[Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Runs of a topic outside of what is asked for: `before` it, the nearest first, and `after` it, in order."""

    before: RunsOf
    after: RunsOf


def add_neighbours(
    tasks: Sequence[ScanTask], outside: Mapping[str | None, Outside], most_bytes: int
) -> list[ScanTask]:
    """The tasks with their neighbours of up to `most_bytes` on either side."""
    places: dict[str | None, list[tuple[int, Run]]] = defaultdict(list)
    for number, task in enumerate(tasks):
        for run in task.runs:
            places[run.topic].append((number, run))
    around: list[dict[str | None, Neighbours]] = [{} for _ in tasks]
    for topic, runs in places.items():
        first = 0
        while first < len(runs):
            number = runs[first][0]
            last = first
            while last < len(runs) and runs[last][0] == number:
                last += 1
            before, is_all = _nearest(
                _chain((run for _, run in reversed(runs[:first])), outside[topic].before),
                most_bytes,
                last=True,
            )
            after, is_all_after = _nearest(
                _chain((run for _, run in runs[last:]), outside[topic].after), most_bytes, last=False
            )
            around[number][topic] = Neighbours(
                before=tuple(reversed(before)),
                reaches_beginning=is_all,
                after=tuple(after),
                reaches_end=is_all_after,
            )
            first = last
    return [replace(task, neighbours=near) for task, near in zip(tasks, around, strict=True)]


def _chain(inside: Iterable[Run], outside: RunsOf) -> Iterator[Run]:
    yield from inside
    yield from outside()


def _nearest(runs: Iterator[Run], most_bytes: int, *, last: bool) -> tuple[list[Run], bool]:
    """Runs in their order until they have so many bytes, and whether these are all; of the last one only blocks.

    With `last` the blocks at a run's end are the nearest, else those at its beginning.
    """
    taken: list[Run] = []
    left = most_bytes
    for run in runs:
        if left <= 0:
            return taken, False
        count = 0
        for block in reversed(run.blocks) if last else run.blocks:
            if left <= 0:
                break
            count += 1
            left -= block.length
        blocks = run.blocks[len(run.blocks) - count :] if last else run.blocks[:count]
        taken.append(replace(run, blocks=blocks))
        if count < len(run.blocks):
            return taken, False
    return taken, True
