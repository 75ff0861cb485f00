"""The machine instructions that numba has no name for: unaligned big-endian loads, memcpy, a call by address.

None checks bounds: a kernel checks every length against its buffer before it calls one of these.
A byte loop in place of `copy_bytes` is about seven times slower, byte-wise loads about twice.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    data = builder.bitcast(data, cgutils.voidptr_t)
    return builder.gep(data, [index])


def _big_endian_load(bits: int, result: Any, typing_context: Any, array: Any, index: Any) -> Any:
    del typing_context
    signature = result(array, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1])
        word = ir.IntType(bits)
        loaded = builder.load(builder.bitcast(address, word.as_pointer()), align=1)
        return builder.bswap(loaded)

    return signature, codegen


@intrinsic
def load_i32(typing_context, array, index):
    """Big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_load(32, types.int32, typing_context, array, index)


@intrinsic
def load_u32(typing_context, array, index):
    """Big-endian uint32 at byte `index` of a uint8 array."""
    return _big_endian_load(32, types.uint32, typing_context, array, index)


@intrinsic
def load_i64(typing_context, array, index):
    """Big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_load(64, types.int64, typing_context, array, index)


@intrinsic
def store_i32(typing_context, array, index, value):
    """Write a big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_store(32, array, types.int32)


@intrinsic
def store_i64(typing_context, array, index, value):
    """Write a big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_store(64, array, types.int64)


def _big_endian_store(bits: int, array: Any, value_type: Any) -> Any:
    signature = types.void(array, types.int64, value_type)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1])
        word = ir.IntType(bits)
        builder.store(builder.bswap(args[2]), builder.bitcast(address, word.as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_bytes(typing_context, target, target_index, source, source_index, length):
    """memcpy of `length` bytes between two uint8 arrays that do not overlap."""
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = _address(context, builder, sig.args[0], args[0], args[1])
        origin = _address(context, builder, sig.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def address_of(typing_context, array, index):
    """The machine address of byte `index` of a uint8 array, as uint64."""
    signature = types.uint64(array, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1])
        return builder.ptrtoint(address, ir.IntType(64))

    return signature, codegen


@intrinsic
def call_checksum(typing_context, function, seed, address, length):
    """Call the C function `uint32_t (uint32_t, const uint8_t *, size_t)` at the address `function`."""
    signature = types.uint32(types.uint64, types.uint32, types.uint64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word, size = ir.IntType(32), ir.IntType(64)
        function_type = ir.FunctionType(word, [word, size, size])
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(pointer, [args[1], args[2], args[3]])

    return signature, codegen


@intrinsic
def call_inflate(typing_context, function, decompressor, source, length, target, room, read, written):
    """Call `libdeflate_zlib_decompress_ex` at the address `function`; see `c_functions.inflate_address`.

    All arguments are uint64, answers an int32.
    """
    signature = types.int32(*[types.uint64] * 8)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = ir.IntType(64)
        function_type = ir.FunctionType(ir.IntType(32), [size] * 7)
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(pointer, args[1:])

    return signature, codegen


@intrinsic
def call_lz4(typing_context, function, source, target, length, room):
    """Call `int LZ4_decompress_safe(const char *, char *, int, int)` at the address `function`.

    `function`, `source` and `target` are uint64, the others int64 that fit into an int. Answers an int32.
    """
    signature = types.int32(types.uint64, types.uint64, types.uint64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word, size = ir.IntType(32), ir.IntType(64)
        function_type = ir.FunctionType(word, [size, size, word, word])
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        lengths = [builder.trunc(each, word) for each in args[3:]]
        return builder.call(pointer, [*args[1:3], *lengths])

    return signature, codegen


@intrinsic
def call_zstd(typing_context, function, decompressor, target, room, source, length):
    """Call `size_t ZSTD_decompressDCtx(ZSTD_DCtx *, void *, size_t, const void *, size_t)` at the address `function`.

    All arguments are uint64, and so is the answer.
    """
    signature = types.uint64(*[types.uint64] * 6)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = ir.IntType(64)
        function_type = ir.FunctionType(size, [size] * 5)
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(pointer, args[1:])

    return signature, codegen
