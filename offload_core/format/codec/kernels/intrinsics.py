"""The machine instructions that numba has no name for: unaligned big-endian loads, memcpy, a call by address.

None checks bounds: a kernel checks every length against its buffer before it calls one of these. With
`NUMBA_BOUNDSCHECK=1` they do, as numba's own indexing does: what would be outside is an `IndexError`.
A byte loop in place of `copy_bytes` is about seven times slower, byte-wise loads about twice.
"""

from __future__ import annotations

from typing import Any

from offload_core.format.kernel import intrinsic


def _check_types(*arrays: Any) -> None:
    """Only where bytes lie one after another is byte `index` at the array's address plus `index`."""
    from numba.core import types
    from numba.core.errors import TypingError

    for array in arrays:
        if not isinstance(array, types.Array) or (array.dtype, array.layout) != (types.uint8, "C"):
            raise TypingError(f"not a contiguous array of uint8: {array}")


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, length: Any) -> Any:
    """The address of byte `index`, of which `length` bytes are to be used."""
    from numba.core import cgutils

    view = context.make_array(array_type)(context, builder, array)
    if context.enable_boundscheck:
        zero = index.type(0)
        too_long = builder.icmp_signed(">", length, builder.sub(view.nitems, index))
        for wrong in (
            builder.icmp_signed("<", index, zero),
            builder.icmp_signed("<", length, zero),
            too_long,
        ):
            with cgutils.if_unlikely(builder, wrong):
                context.call_conv.return_user_exc(builder, IndexError, ("bytes are out of bounds",))
    return builder.gep(builder.bitcast(view.data, cgutils.voidptr_t), [index])


def _word_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, word: Any) -> Any:
    address = _address(context, builder, array_type, array, index, index.type(word.width // 8))
    return builder.bitcast(address, word.as_pointer())


def _big_endian_load(name: str, array: Any) -> Any:
    from numba.core import types

    _check_types(array)
    signature = getattr(types, name)(array, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = context.get_value_type(sig.return_type)
        address = _word_address(context, builder, sig.args[0], args[0], args[1], word)
        return builder.bswap(builder.load(address, align=1))

    return signature, codegen


@intrinsic
def load_i32(typing_context, array, index):
    """Big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_load("int32", array)


@intrinsic
def load_u32(typing_context, array, index):
    """Big-endian uint32 at byte `index` of a uint8 array."""
    return _big_endian_load("uint32", array)


@intrinsic
def load_i64(typing_context, array, index):
    """Big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_load("int64", array)


@intrinsic
def store_i32(typing_context, array, index, value):
    """Write a big-endian int32 at byte `index` of a uint8 array."""
    return _big_endian_store("int32", array)


@intrinsic
def store_i64(typing_context, array, index, value):
    """Write a big-endian int64 at byte `index` of a uint8 array."""
    return _big_endian_store("int64", array)


def _big_endian_store(name: str, array: Any) -> Any:
    from numba.core import types

    _check_types(array)
    signature = types.void(array, types.int64, getattr(types, name))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _word_address(context, builder, sig.args[0], args[0], args[1], args[2].type)
        builder.store(builder.bswap(args[2]), address, align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_bytes(typing_context, target, target_index, source, source_index, length):
    """memcpy of `length` bytes between two uint8 arrays that do not overlap."""
    from numba.core import cgutils, types

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
    from numba.core import types

    _check_types(array)
    signature = types.uint64(array, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], *args)
        return builder.ptrtoint(address, context.get_value_type(sig.return_type))

    return signature, codegen


@intrinsic
def call_checksum(typing_context, function, seed, address, length):
    """Call the C function `uint32_t (uint32_t, const uint8_t *, size_t)` at the address `function`."""
    return _c_call("uint32", "uint32", "uint64", "int64")


@intrinsic
def call_inflate(typing_context, function, decompressor, source, length, target, room, read, written):
    """Call `libdeflate_zlib_decompress_ex` at the address `function`; see `c_functions.inflate_address`.

    All arguments are uint64, answers an int32.
    """
    return _c_call("int32", *["uint64"] * 7)


@intrinsic
def call_lz4(typing_context, function, source, target, length, room):
    """Call `int LZ4_decompress_safe(const char *, char *, int, int)` at the address `function`.

    `function`, `source` and `target` are uint64, the others int64 that fit into an int. Answers an int32.
    """
    return _c_call("int32", "uint64", "uint64", "int32", "int32")


@intrinsic
def call_zstd(typing_context, function, decompressor, target, room, source, length):
    """Call `size_t ZSTD_decompressDCtx(ZSTD_DCtx *, void *, size_t, const void *, size_t)` at the address `function`.

    All arguments are uint64, and so is the answer.
    """
    return _c_call("uint64", *["uint64"] * 5)


def _c_call(result: str, *parameters: str) -> Any:
    """A call of the function at the address that is the first argument; pointers are uint64."""
    from llvmlite import ir
    from numba.core import types

    signature = getattr(types, result)(types.uint64, *[getattr(types, name) for name in parameters])

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        answer, *given = map(context.get_value_type, [sig.return_type, *sig.args[1:]])
        pointer = builder.inttoptr(args[0], ir.FunctionType(answer, given).as_pointer())
        return builder.call(pointer, args[1:])

    return signature, codegen


@intrinsic
def leading_zeros(typing_context, word):
    """Number of zero bits above the highest one of a uint64; 64 if there is none."""
    from llvmlite import ir
    from numba.core import types

    signature = types.uint64(types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return signature, codegen


@intrinsic
def bits_of(typing_context, number):
    """The bits of a float64, as int64."""
    from numba.core import types

    signature = types.int64(types.float64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(sig.return_type))

    return signature, codegen
