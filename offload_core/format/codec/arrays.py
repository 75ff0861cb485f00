"""Arrays as the kernels take them: bytes, and numbers of 64 bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


def read_only(data: bytes | bytearray | memoryview) -> Bytes:
    """The bytes as uint8, read only: one compiled signature, whatever the buffer was."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array
