"""Which entry each frame of a stretch is: by its own id, where that fits its place; else by its place, where one fits.

An id has no checksum. It is believed where it follows, or is followed by, one that is right; runs that hang on the
block's header or its end come first, and others must fit between them. So a piece of an offloaded object that lies
inside a message is not taken for entries of this one. Pure: no bytes are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from offload_core.repair.evidence import Verdict
from offload_core.repair.frames_found import FoundFrame

_KEPT = (Verdict.SOUND, Verdict.PLAIN)


@dataclass(slots=True)
class _Run:
    """Frames that follow one another in bytes, with ids that do as well."""

    frames: list[FoundFrame]
    first: int

    @property
    def last(self) -> int:
        return self.frames[-1].entry_id


def identify(
    frames: Sequence[FoundFrame], first: int | None, stop: int | None, *, ends_well: bool, gaps: bool
) -> list[FoundFrame]:
    """The frames of a stretch whose entries are known, in the order of their ids, with these ids.

    Args:
        first: the entry that the stretch begins with, where that is said.
        stop: the entry that follows the stretch, where that is known.
        ends_well: a right end follows the last frame.
        gaps: ids may be missing on purpose; then each is taken as long as they ascend.

    Entries whose bytes are damaged are among them: only their ids are known.
    """
    if not frames:
        return []
    if gaps:
        return _ascending(frames, stop)
    runs = _runs(frames)
    at_begin = first is not None and frames[0].is_linked and runs[0].first == first
    at_end = ends_well and (len(runs[-1].frames) > 1 or runs[-1].last + 1 == stop)
    if len(runs) == 1 and (at_begin or at_end or len(frames) > 1):
        return runs[0].frames
    left = runs[0] if at_begin else None
    right = runs[-1] if at_end and (left is None or runs[-1].first > left.last) else None
    middle = runs[left is not None : len(runs) - (right is not None)]
    lowest = left.last + 1 if left is not None else first
    if right is not None:
        stop = right.first
    between = _between(middle, lowest, stop, ends_well=ends_well)
    return [*(left.frames if left else []), *between, *(right.frames if right else [])]


def _ascending(frames: Sequence[FoundFrame], stop: int | None) -> list[FoundFrame]:
    """Those below `stop` whose ids ascend: of two that do not, nobody knows which is wrong."""
    found = [frame for frame in frames if frame.entry_id >= 0 and (stop is None or frame.entry_id < stop)]
    while wrong := {i for i, (one, two) in enumerate(pairwise(found)) if two.entry_id <= one.entry_id}:
        found = [frame for i, frame in enumerate(found) if i not in wrong and i - 1 not in wrong]
    return found


def _runs(frames: Sequence[FoundFrame]) -> list[_Run]:
    runs = [_Run([frames[0]], frames[0].entry_id)]
    for before, frame in pairwise(frames):
        if frame.is_linked and before.entry_id >= 0 and frame.entry_id == before.entry_id + 1:
            runs[-1].frames.append(frame)
        else:
            runs.append(_Run([frame], frame.entry_id))
    return runs


def _between(
    runs: Sequence[_Run], lowest: int | None, stop: int | None, *, ends_well: bool
) -> list[FoundFrame]:
    """Those of the frames whose entries are known, where all of them lie from `lowest` on and below `stop`."""
    frames = [frame for run in runs for frame in run.frames]
    if lowest is not None and all(frame.is_linked for frame in frames):
        if stop is not None and len(frames) == stop - lowest:
            return _in_place(frames, range(lowest, stop))
        natural = range(lowest, lowest + len(frames))
        if stop is None and ends_well and [frame.entry_id for frame in frames] == list(natural):
            return frames
    chosen: list[_Run] = []
    for run in sorted(runs, key=lambda run: -len(run.frames)):
        if run.first < (lowest or 0) or (stop is not None and run.last >= stop):
            continue
        if len(run.frames) == 1 and (stop is None or lowest is None):
            continue  # nothing bears its id out
        if all(_in_order(run, other) for other in chosen):
            chosen.append(run)
    chosen.sort(key=lambda run: run.first)
    return [frame for run in chosen for frame in run.frames]


def _in_order(run: _Run, other: _Run) -> bool:
    """Whether two runs have their ids in the order of their bytes."""
    is_behind = run.frames[0].offset > other.frames[0].offset
    return run.first > other.last if is_behind else run.last < other.first


def _in_place(frames: Sequence[FoundFrame], ids: range) -> list[FoundFrame]:
    """As many frames as there are entries: they are these, in another order, or one of them has a damaged id."""
    found = [frame.entry_id for frame in frames]
    if sorted(found) == list(ids):
        return sorted(frames, key=lambda frame: frame.entry_id)
    wrong = [
        i for i, (frame, entry_id) in enumerate(zip(frames, ids, strict=True)) if frame.entry_id != entry_id
    ]
    if len(wrong) == 1:
        return [replace(frame, entry_id=entry_id) for frame, entry_id in zip(frames, ids, strict=True)]
    return [frame for frame, entry_id in zip(frames, ids, strict=True) if frame.entry_id == entry_id]


def is_kept(frame: FoundFrame) -> bool:
    """Whether an entry's bytes are taken for those that were written."""
    return frame.verdict in _KEPT
