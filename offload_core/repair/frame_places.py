"""Where in a run of bytes the frames of entries may begin, by arrays: ids of at most 40 bits, and lengths of 31."""

from __future__ import annotations

import numpy as np

from offload_core.codec.frames import FRAME_HEADER_BYTES


def frames_in(
    window: bytes, lowest: int, highest: int, bound: bool, behind: int, *, may_be_empty: bool
) -> list[int]:
    """Where in a window frames may begin, of entries from `lowest` on.

    `behind` is how far the window is from the place that is searched from.
    """
    if len(window) < FRAME_HEADER_BYTES:
        return []
    array = np.frombuffer(window, dtype=np.uint8)
    count = len(array) - FRAME_HEADER_BYTES + 1
    small = (array[4 : 4 + count] == 0) & (array[5 : 5 + count] == 0) & (array[6 : 6 + count] == 0)
    may_be = small & (array[:count] < 0x80)
    if not may_be_empty:
        may_be &= np.any([array[place : place + count] for place in range(4)], axis=0)
    at = np.flatnonzero(may_be)
    ids = np.zeros(len(at), dtype=np.int64)
    for place in range(7, FRAME_HEADER_BYTES):
        ids = ids << 8 | array[at + place]
    most = highest + (at + behind) // FRAME_HEADER_BYTES if bound else np.full(len(at), highest)
    found: list[int] = at[(ids >= lowest) & (ids <= most)].tolist()
    return found
