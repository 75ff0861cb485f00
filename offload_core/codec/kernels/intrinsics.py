"""The machine instructions that numba has no name for: unaligned big-endian loads, memcpy, a call by address.

None checks bounds: a kernel checks every length against its buffer before it calls one of these. With
`NUMBA_BOUNDSCHECK=1` they do, as numba's own indexing does: what would be outside is an `IndexError`.
A byte loop in place of `copy_bytes` is about seven times slower, byte-wise loads about twice.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic


def _check_types(*arrays: Any) -> None:
    """Only where bytes lie one after another is byte `index` at the array's address plus `index`."""
    for array in arrays:
        if not isinstance(array, types.Array) or (array.dtype, array.layout) != (types.uint8, "C"):
            raise TypingError(f"not a contiguous array of uint8: {array}")


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, length: Any) -> Any:
    """The address of byte `index`, of which `length` bytes are to be used."""
    view = context.make_array(array_type)(context, builder, array)
    if context.enable_boundscheck:
        zero = ir.Constant(ir.IntType(64), 0)
        behind = builder.icmp_signed(">", length, builder.sub(view.nitems, index))
        for wrong in (builder.icmp_signed("<", index, zero), builder.icmp_signed("<", length, zero), behind):
            with cgutils.if_unlikely(builder, wrong):
                context.call_conv.return_user_exc(builder, IndexError, ("bytes are out of bounds",))
    return builder.gep(builder.bitcast(view.data, cgutils.voidptr_t), [index])


def _word_address(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any, word: ir.IntType
) -> Any:
    size = ir.Constant(ir.IntType(64), word.width // 8)
    address = _address(context, builder, array_type, array, index, size)
    return builder.bitcast(address, word.as_pointer())


def _big_endian_load(bits: int, result: Any, array: Any) -> Any:
    _check_types(array)
    signature = result(array, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _word_address(context, builder, sig.args[0], args[0], args[1], ir.IntType(bits))
        return builder.bswap(builder.load(address, align=1))

    return signature, codegen


@intrinsic
def load_i32(typing_context, array, index):
    """Big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_load(32, types.int32, array)


@intrinsic
def load_u32(typing_context, array, index):
    """Big-endian uint32 at byte `index` of a uint8 array."""
    return _big_endian_load(32, types.uint32, array)


@intrinsic
def load_i64(typing_context, array, index):
    """Big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_load(64, types.int64, array)


@intrinsic
def store_i32(typing_context, array, index, value):
    """Write a big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_store(32, array, types.int32)


@intrinsic
def store_i64(typing_context, array, index, value):
    """Write a big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_store(64, array, types.int64)


def _big_endian_store(bits: int, array: Any, value_type: Any) -> Any:
    _check_types(array)
    signature = types.void(array, types.int64, value_type)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _word_address(context, builder, sig.args[0], args[0], args[1], ir.IntType(bits))
        builder.store(builder.bswap(args[2]), address, align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_bytes(typing_context, target, target_index, source, source_index, length):
    """memcpy of `length` bytes between two uint8 arrays that do not overlap."""
    _check_types(target, source)
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = _address(context, builder, sig.args[0], args[0], args[1], args[4])
        origin = _address(context, builder, sig.args[2], args[2], args[3], args[4])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def address_of(typing_context, array, index, length):
    """The machine address of byte `index` of a uint8 array, as uint64, of which `length` bytes are to be used."""
    _check_types(array)
    signature = types.uint64(array, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], *args)
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
