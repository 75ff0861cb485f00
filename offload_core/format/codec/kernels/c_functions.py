"""C functions of libdeflate by address, for kernels: CRC-32, and zlib streams that are whole in memory.

The module of the package `deflate` has them loaded. Where its functions cannot be found (a build that hides them), a
callback into Python serves: right, but slow.
"""

from __future__ import annotations

import ctypes
import functools
import weakref

import deflate
from isal import isal_zlib

INFLATED, BAD_STREAM, _SHORT, OUT_OF_SPACE = 0, 1, 2, 3
"""Results of the function at `inflate_address` (`enum libdeflate_result`)."""

_Inflate = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Checksum = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)


def function_address(function: ctypes._FuncPointer) -> int:
    """The machine address of a C function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def crc32_address() -> int:
    """Address of the C function `uint32_t libdeflate_crc32(uint32_t, const void *, size_t)`."""
    library = _library()
    return function_address(_PYTHON_CRC32 if library is None else library.libdeflate_crc32)


@functools.cache
def inflate_address() -> int:
    """Address of the C function `libdeflate_zlib_decompress_ex`.

    Its arguments: the address of a `Decompressor`; the stream's address and its bytes; the address of what it is to
    become and the room there; where to write how many bytes were read, and how many written (`size_t *`). Answers
    `INFLATED`, `OUT_OF_SPACE`, or what is neither.
    """
    library = _library()
    return function_address(_PYTHON_INFLATE if library is None else library.libdeflate_zlib_decompress_ex)


class Decompressor:
    """A decompressor of libdeflate, at `address`. Not for two threads at once."""

    def __init__(self) -> None:
        library = _library()
        self.address = 0
        if library is not None:
            self.address = int(library.libdeflate_alloc_decompressor() or 0)
            if not self.address:
                raise MemoryError("libdeflate cannot make a decompressor")
            weakref.finalize(self, library.libdeflate_free_decompressor, self.address)


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(deflate._deflate.__file__)
        _ = library.libdeflate_crc32, library.libdeflate_zlib_decompress_ex
        library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
        library.libdeflate_free_decompressor.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library


def _python_crc32(crc: int, address: int, length: int) -> int:
    return int(isal_zlib.crc32(ctypes.string_at(address, length), crc))


def _python_inflate(
    decompressor: int | None,
    address: int,
    length: int,
    target: int,
    room: int,
    read: ctypes._Pointer[ctypes.c_size_t],
    written: ctypes._Pointer[ctypes.c_size_t],
) -> int:
    del decompressor
    inflater = isal_zlib.decompressobj()
    try:
        inflated = inflater.decompress(ctypes.string_at(address, length), room + 1)
    except isal_zlib.error:
        return BAD_STREAM
    if len(inflated) > room:
        return OUT_OF_SPACE
    if not inflater.eof:
        return _SHORT
    ctypes.memmove(target, inflated, len(inflated))
    read[0], written[0] = length - len(inflater.unused_data), len(inflated)
    return INFLATED


_PYTHON_CRC32 = _Checksum(_python_crc32)
_PYTHON_INFLATE = _Inflate(_python_inflate)
