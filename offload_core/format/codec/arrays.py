"""Arrays as the kernels take them: bytes, numbers of 64 bits, and the places of entries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


class LocatedEntries(NamedTuple):
    """Entries in order, ids ascending: the payload of the i-th is `array[offsets[i] : offsets[i] + lengths[i]]`.

    `base` is the place of `array` (uint8) in the data object; None if its bytes are not the object's, but inflated.
    `entry_ids`, `offsets` and `lengths` are int64.
    """

    array: Bytes
    base: int | None
    entry_ids: Longs
    offsets: Longs
    lengths: Longs


def read_only(data: bytes | bytearray | memoryview | Bytes) -> Bytes:
    """The bytes as uint8, read only: one compiled signature, whatever the buffer was."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array
