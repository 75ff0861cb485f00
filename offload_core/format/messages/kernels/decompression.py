"""Payloads that are compressed into the buffer that they are read from, all of a group in one call without the GIL."""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.c_functions import INFLATED
from offload_core.format.codec.kernels.intrinsics import address_of, call_inflate, call_lz4, call_zstd
from offload_core.format.kernel import kernel

LZ4, ZLIB, ZSTD = 1, 2, 3
"""`CompressionType` of Pulsar's message metadata, those that there are functions for."""

LZ4_ADDRESS, ZLIB_ADDRESS, ZLIB_STATE, ZSTD_ADDRESS, ZSTD_STATE, FUNCTIONS = 0, 1, 2, 3, 4, 5
"""Places in `functions`: a C function's address, 0 if there is none; and the address of its working memory."""

MOST_BYTES = 0x7E000000
"""`LZ4_MAX_INPUT_SIZE`: lengths up to this are an int everywhere."""


@kernel
def decompress(functions, block, starts, lengths, codecs, scratch, places, sizes, counts, left):
    """Decompress payload after payload; answers how many are left to others, whose indices are put into `left`.

    `functions` uint64, by the names above. Per payload int64: its bytes `starts[i]` … + `lengths[i]` of `block`
    (uint8), its codec (a `CompressionType`, or what is none), its place in `scratch` (uint8, output) and the bytes
    there that it must fill. `counts` is uint64 memory for two numbers; `left` int64, as many as there are payloads.
    Left are those of other codecs, and whatever a function refuses: `scratch` may hold anything in their place.
    Bounds: the arrays have as many as `starts`. Each payload is checked against `block`, and its place against
    `scratch`, before a function is called with these lengths; else it is left.
    """
    payloads = len(starts)
    if payloads > min(len(lengths), len(codecs), len(places), len(sizes), len(left)):
        raise IndexError("payloads do not fit the output")
    if len(functions) < FUNCTIONS or len(counts) < 2:
        raise IndexError("functions have no memory")
    count = 0
    for i in range(payloads):
        start, length, codec, place, size = starts[i], lengths[i], codecs[i], places[i], sizes[i]
        done = False
        fits = start >= 0 and 0 < length <= min(len(block) - start, MOST_BYTES)
        if fits and place >= 0 and 0 < size <= min(len(scratch) - place, MOST_BYTES):
            source, target = address_of(block, start, length), address_of(scratch, place, size)
            if codec == LZ4 and functions[LZ4_ADDRESS]:
                done = call_lz4(functions[LZ4_ADDRESS], source, target, length, size) == size
            elif codec == ZSTD and functions[ZSTD_ADDRESS]:
                made = call_zstd(
                    functions[ZSTD_ADDRESS],
                    functions[ZSTD_STATE],
                    target,
                    np.uint64(size),
                    source,
                    np.uint64(length),
                )
                done = made == np.uint64(size)
            elif codec == ZLIB and functions[ZLIB_ADDRESS]:
                answer = call_inflate(
                    functions[ZLIB_ADDRESS],
                    functions[ZLIB_STATE],
                    source,
                    np.uint64(length),
                    target,
                    np.uint64(size),
                    np.uint64(counts.ctypes.data),
                    np.uint64(counts.ctypes.data) + np.uint64(8),
                )
                done = answer == INFLATED and counts[1] == np.uint64(size)
        if not done:
            left[count] = i
            count += 1
    return count
