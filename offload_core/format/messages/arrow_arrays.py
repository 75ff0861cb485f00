"""Arrow arrays from the kernels' tables: spans to binary and string, numbers, times, constants."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.codec.kernels.frames import INT32_MAX
from offload_core.format.messages.kernels import column_spans as kernels
from offload_hooks.errors import BadLengthError, MetadataError

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def new_bytes(size: int) -> tuple[pa.Buffer, Bytes]:
    """`size` bytes from Arrow's pool, which hands out warm memory again, and a writable uint8 view of them."""
    buffer = pa.allocate_buffer(size)
    return buffer, np.frombuffer(buffer, dtype=np.uint8)


def new_offsets(count: int) -> tuple[pa.Buffer, npt.NDArray[np.int32]]:
    """Room for `count` + 1 offsets from Arrow's pool, and a writable int32 view."""
    buffer = pa.allocate_buffer(4 * (count + 1))
    return buffer, np.frombuffer(buffer, dtype=np.int32)


def spans_to_array(
    block: Bytes,
    scratch: Bytes,
    flags: Table,
    scratch_flag: int,
    offsets: Table,
    lengths: Table,
    data_type: pa.DataType,
) -> pa.Array:
    """A binary or string array with one span per row; null where the length is −1.

    All int64, one per row; a row's bytes are in `scratch` if its `flags` have `scratch_flag`, else in `block`.

    Raises:
        BadLengthError: more bytes than a column's offsets can address.
        MetadataError: text that is not UTF-8.
    """
    rows = len(offsets)
    total = kernels.span_bytes(lengths)
    if total < 0:
        return nulls(data_type).rows(rows)
    if total > INT32_MAX:
        raise BadLengthError("a column is too long", expected=f"at most {INT32_MAX} bytes", found=int(total))
    values_buffer, values = new_bytes(total)
    offsets_buffer, value_offsets = new_offsets(rows)
    validity_buffer, validity = new_bytes((rows + 7) // 8)
    validity[:] = 0
    missing = kernels.gather_spans(
        block, scratch, flags, scratch_flag, offsets, lengths, values, value_offsets, validity
    )
    buffers = [validity_buffer if missing else None, offsets_buffer, values_buffer]
    array = pa.Array.from_buffers(data_type, rows, buffers, null_count=missing)
    return checked_text(array) if pa.types.is_string(data_type) else array


def checked_text(array: pa.Array) -> pa.Array:
    """The string array itself, once all of it is known to be UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise MetadataError(f"a name or property is not UTF-8 text: {error}") from error
    return array


def times_to_array(times_ms: Table, absent: int) -> pa.Array:
    """Timestamps (µs, UTC) from int64 milliseconds; null where they are `absent`, and where no timestamp reaches."""
    rows = len(times_ms)
    buffer = pa.allocate_buffer(8 * rows)
    validity_buffer, validity = new_bytes((rows + 7) // 8)
    validity[:] = 0
    missing = kernels.scale_times(times_ms, absent, np.frombuffer(buffer, dtype=np.int64), validity)
    if missing == rows:
        return nulls(_TIMESTAMP).rows(rows)
    buffers = [validity_buffer if missing else None, buffer]
    return pa.Array.from_buffers(_TIMESTAMP, rows, buffers, null_count=missing)


def numbers_to_array(
    numbers: Table, data_type: pa.DataType, absent: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Integers of the given type; null where `absent`."""
    narrowed = numbers.astype(data_type.to_pandas_dtype())
    return pa.array(np.ascontiguousarray(narrowed), type=data_type, mask=absent)


class Constant:
    """A column of one value, made once and sliced for each batch."""

    def __init__(self, scalar: pa.Scalar) -> None:
        self._scalar = scalar
        self._array = self._last = pa.repeat(scalar, 1024)

    def rows(self, count: int) -> pa.Array:
        """`count` rows of it."""
        last, array = self._last, self._array
        if len(last) == count:  # batches of a topic often have the same number of rows
            return last
        if count > len(array):
            array = self._array = pa.repeat(self._scalar, max(count, 2 * len(array)))
        self._last = last = array[:count]
        return last


@functools.cache
def nulls(data_type: pa.DataType) -> Constant:
    """A column of nothing but nulls."""
    return Constant(pa.scalar(None, type=data_type))
