"""Payloads of key and value, taken apart. The reference implementation is `schemas.decoders.explain_inline`."""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import load_i32
from offload_core.format.kernel import kernel


@kernel
def split_key_values(data, offsets, lengths, keys, values, faults):
    """Where key and value of each payload are: int64 offsets and lengths (2 × payloads), the length −1 for null.

    data uint8; offsets, lengths int64; faults bool (output): payloads that are not right.

    Bounds: the lengths of the arrays are checked first, each payload's span against `data`, and each read against the
    payload's end.
    """
    rows = len(offsets)
    if len(lengths) != rows or keys.shape != (2, rows) or values.shape != (2, rows) or len(faults) != rows:
        raise IndexError("the arrays of keys and values do not fit together")
    for row in range(len(offsets)):
        keys[0, row] = values[0, row] = offsets[row]
        keys[1, row] = values[1, row] = -1
        faults[row] = False
        if lengths[row] < 0:
            continue
        position = offsets[row]
        faults[row] = True
        # Compiled, a sum that overflows may be anything: it is not made before it is known to fit.
        if lengths[row] < 8 or not 0 <= position <= len(data) - lengths[row]:
            continue
        end = position + lengths[row]
        key = np.int64(load_i32(data, position))
        position += 4
        if key < -1 or key > end - position - 4:
            continue
        at = position
        position += max(key, 0)
        value = np.int64(load_i32(data, position))
        position += 4
        if value < -1 or max(value, 0) != end - position:
            continue
        faults[row] = False
        keys[0, row], keys[1, row] = at, key
        values[0, row], values[1, row] = position, value
