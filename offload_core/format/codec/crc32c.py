"""CRC-32C (Castagnoli) of Pulsar entries, by google-crc32c; for kernels, the address of its C function."""

from __future__ import annotations

import ctypes
import functools

import google_crc32c

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.kernels.c_functions import function_address


def crc32c(data: bytes | bytearray | memoryview | Bytes, crc: int = 0) -> int:
    """The CRC-32C of contiguous bytes, which are not copied; where `crc` is that of the bytes before them, of all."""
    return int(google_crc32c.extend(crc, data if isinstance(data, bytes) else read_only(data)))


@functools.cache
def crc32c_address() -> int:
    """Address of the C function `uint32_t crc32c_extend(uint32_t, const uint8_t *, size_t)`.

    google-crc32c's own compiled module has it loaded. Where that module is not there (a build without the C
    library), a callback into Python serves: right, but slow.
    """
    try:
        from google_crc32c import _crc32c

        return function_address(ctypes.CDLL(_crc32c.__file__).crc32c_extend)
    except (ImportError, OSError, AttributeError):
        return function_address(_PYTHON_CRC32C)


def _python_crc32c(crc: int, address: int, length: int) -> int:
    return int(google_crc32c.extend(crc, ctypes.string_at(address, length)))


_PYTHON_CRC32C = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)(
    _python_crc32c
)
