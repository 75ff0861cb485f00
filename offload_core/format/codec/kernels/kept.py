"""Payloads that are kept, copied behind one another, run by run; the twin is in `tests/filters/test_run.py`."""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.frames import are_borders
from offload_core.format.codec.kernels.intrinsics import copy_bytes
from offload_core.format.kernel import kernel


@kernel
def copy_kept(data, offsets, dropped, out, out_offsets):
    """Copy the payloads that are not `dropped` to `out`; answers how many.

    `data` uint8; `offsets` int64, one more than there are payloads, ascending and within `data`; `dropped` bool, of
    each. `out` has room for `offsets[-1] - offsets[0]` bytes; `out_offsets` (int64, as long as `offsets`) is filled
    up to one behind the answer.
    Bounds: payloads lie in `data`, by `are_borders`; all of them fit `out`, and `out_offsets` has one more than there
    are payloads, so that what is kept of them fits as well.
    """
    count = len(dropped)
    if (
        not are_borders(offsets, 0, count, len(data))
        or offsets[count] - offsets[0] > len(out)
        or count >= len(out_offsets)
    ):
        raise IndexError("payloads to be copied do not fit their offsets or the output")
    kept, place = 0, np.int64(0)
    run = offsets[0]  # what is kept from there on is still to be copied to `place`
    out_offsets[0] = 0
    for i in range(count):
        if dropped[i]:
            copy_bytes(out, place, data, run, offsets[i] - run)
            place += offsets[i] - run
            run = offsets[i + 1]
        else:
            kept += 1
            out_offsets[kept] = place + offsets[i + 1] - run
    copy_bytes(out, place, data, run, offsets[count] - run)
    return kept
