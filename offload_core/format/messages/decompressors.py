"""Many payloads decompressed by one call that leaves the interpreter's lock to other threads.

It calls C functions by address: of LZ4 in the compiled module of the package `lz4`, of zstd in that of `zstandard`,
of libdeflate as `codec.kernels.c_functions` finds it. Where a build hides one, and for Snappy, which no package shows,
payloads are left to `compression.decompress_into`, one by one; so are those that a function refuses: it says why.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from importlib import import_module
from importlib.machinery import PathFinder

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.kernels.c_functions import Decompressor, function_address, inflate_address
from offload_core.format.messages.arrays import Bytes
from offload_core.format.messages.kernels import payloads as kernels

Numbers = npt.NDArray[np.int64]

LEFT_ALONE = -1
"""Stands for the codec of a payload that is not in the block."""


def decompress_payloads(
    block: Bytes,
    starts: Numbers,
    lengths: Numbers,
    codecs: Numbers,
    scratch: Bytes,
    places: Numbers,
    sizes: Numbers,
) -> Numbers:
    """Decompress payloads of `block` into `scratch` (uint8), as many as can be.

    Per payload: its bytes in `block`, its codec (`Compression`, or `LEFT_ALONE`), its place in `scratch`, and the bytes
    that it declares to become. Answers the indices of those that are left to the caller, in order.
    """
    left = np.empty(len(starts), dtype=np.int64)
    memory = _memory_of_thread()
    count = kernels.decompress(
        memory.functions, block, starts, lengths, codecs, scratch, places, sizes, memory.counts, left
    )
    return left[:count]


class _Memory:
    """The functions' addresses, and what they work in; for one thread at a time."""

    def __init__(self) -> None:
        self._inflater = Decompressor()
        self.counts = np.empty(2, dtype=np.uint64)
        self.functions = np.zeros(kernels.FUNCTIONS, dtype=np.uint64)
        self.functions[kernels.ZLIB_ADDRESS] = inflate_address()
        self.functions[kernels.ZLIB_STATE] = self._inflater.address
        if (lz4 := _lz4()) is not None:
            self.functions[kernels.LZ4_ADDRESS] = function_address(lz4.LZ4_decompress_safe)
        if (zstd := _zstd()) is not None and (state := zstd.ZSTD_createDCtx()):
            weakref.finalize(self, zstd.ZSTD_freeDCtx, state)
            self.functions[kernels.ZSTD_STATE] = state
            self.functions[kernels.ZSTD_ADDRESS] = function_address(zstd.ZSTD_decompressDCtx)


_threads = threading.local()


def _memory_of_thread() -> _Memory:
    memory: _Memory | None = getattr(_threads, "memory", None)
    if memory is None:
        memory = _threads.memory = _Memory()
    return memory


@functools.cache
def _lz4() -> ctypes.CDLL | None:
    return _library("lz4.block._block", "LZ4_decompress_safe")


@functools.cache
def _zstd() -> ctypes.CDLL | None:
    library = _library("zstandard._cffi", "ZSTD_decompressDCtx", "ZSTD_createDCtx", "ZSTD_freeDCtx")
    if library is not None:
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
    return library


def _library(module: str, *functions: str) -> ctypes.CDLL | None:
    """The compiled module of that name, if it shows all these functions.

    It is looked for in its package, and not among the modules that are there: another thread may be importing it.
    """
    try:
        package = import_module(module.rpartition(".")[0])
        found = PathFinder.find_spec(module, package.__path__)
        if found is None or found.origin is None:
            return None
        library = ctypes.CDLL(found.origin)
        for name in functions:
            getattr(library, name)
    except (ImportError, OSError, AttributeError):
        return None
    return library
