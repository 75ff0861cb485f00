"""Payloads that are kept, copied behind one another, run by run; the twin is in `tests/filters/test_run.py`."""

from __future__ import annotations

import numpy as np

from offload_core.codec.kernels.intrinsics import copy_bytes
from offload_core.kernel import kernel


@kernel
def copy_kept(data, offsets, dropped, out, out_offsets):
    """Copy the payloads that are not `dropped` to `out`; answers how many.

    `data` uint8; `offsets` int64, one more than there are payloads, ascending and within `data`; `dropped` bool, of
    each. `out` has room for `offsets[-1] - offsets[0]` bytes; `out_offsets` (int64, as long as `offsets`) is filled
    up to one behind the answer.
    """
    kept, place, run = (
        0,
        np.int64(0),
        offsets[0],
    )  # what is kept from `run` on is still to be copied to `place`
    out_offsets[0] = 0
    for i in range(len(dropped)):
        if dropped[i]:
            copy_bytes(out, place, data, run, offsets[i] - run)
            place += offsets[i] - run
            run = offsets[i + 1]
        else:
            kept += 1
            out_offsets[kept] = place + offsets[i + 1] - run
    copy_bytes(out, place, data, run, offsets[-1] - run)
    return kept
