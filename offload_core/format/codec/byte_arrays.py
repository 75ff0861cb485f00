"""Bytes as arrays, as the kernels take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def read_only(data: bytes | bytearray | memoryview) -> Bytes:
    """The bytes as uint8, read only: one compiled signature, whatever the buffer was."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array
