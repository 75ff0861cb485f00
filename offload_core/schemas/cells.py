"""The cells that a kernel fills → Arrow arrays.

Every column has a slot. A slot has cells (int64), and a byte for each that says whether it is there. A cell holds:

boolean, integer, time   the number
float, double            the bits of a double
text, bytes              a span: where the bytes are in the data or in a pool of constants, and how many
decimal                  a span of its big-endian bytes, or of an unsigned column its 64 bits
enum                     the symbol's place, or its number if the column lists `numbers`
list, map                where its items end, in the cells of the slots in it
struct                   nothing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.messages.arrays import Bytes, new_bytes, new_offsets
from offload_core.schemas.kernels import cells as kernels
from offload_core.schemas.kernels import operations as op
from offload_hooks.errors import BadLengthError

Numbers = npt.NDArray[np.int64]

Fill = Callable[[Numbers, Numbers, Numbers, Numbers, Numbers, Bytes, Bytes], int]
"""A kernel with its own arguments: answers the slot whose room does not do, below 0 when all is filled.

It gets `base`, `room`, `counts`, `items` (per slot), `cells`, `there` (of all slots) and `faults` (per row).
"""

_FIRST_ROOM = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that cells become.

    Attributes:
        data_type: its Arrow type.
        slot: its place in the kernel's tables; −1 for null, which has none.
        children: of a struct, a list (one), a map (key and value).
        symbols: of an enum, which is text.
        numbers: the symbols' numbers in ascending order, if cells have these; another one is text of its digits.
        is_unsigned: of a decimal: its cells are numbers of 64 bits.
        keeps_last_keys: of a map: a key that is there again replaces the first.
    """

    data_type: pa.DataType
    slot: int
    children: tuple[Column, ...] = ()
    symbols: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    is_unsigned: bool = False
    keeps_last_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What a kernel filled.

    Attributes:
        base, counts: per slot, its first cell and how many it has.
        cells, there: of all slots; `there` is 0 or 1.
        data, pool: what spans point into.
    """

    base: Numbers
    counts: Numbers
    cells: Numbers
    there: Bytes
    data: Bytes
    pool: Bytes

    def array(self, column: Column, count: int) -> pa.Array:
        """A column's array of `count` values.

        Raises:
            BadLengthError: it does not fit an Arrow array.
        """
        if column.slot < 0:
            return pa.nulls(count)
        cells, there = self._of(column.slot)
        validity, missing = _bitmap(there)
        data_type = column.data_type
        if pa.types.is_struct(data_type):
            children = [self.array(child, count) for child in column.children]
            return pa.Array.from_buffers(data_type, count, [validity], missing, children=children)
        if pa.types.is_list(data_type) or pa.types.is_map(data_type):
            return self._list(column, cells, there)
        if pa.types.is_decimal(data_type):
            buffer, words = new_bytes(16 * count)
            pairs = words.view(np.uint64).reshape(-1, 2)
            if column.is_unsigned:
                pairs[:, 0], pairs[:, 1] = cells.view(np.uint64), 0
            else:
                kernels.widen_decimals(self.data, self.pool, cells, there, pairs)
            return pa.Array.from_buffers(data_type, count, [validity, buffer], missing)
        if column.symbols:
            return _enum(column, cells, there)
        if pa.types.is_binary(data_type) or pa.types.is_string(data_type):
            return self._spans(data_type, cells, there)
        return pa.Array.from_buffers(data_type, count, [validity, _numbers(data_type, cells)], missing)

    def _of(self, slot: int) -> tuple[Numbers, Bytes]:
        begin, count = int(self.base[slot]), int(self.counts[slot])
        return self.cells[begin : begin + count], self.there[begin : begin + count]

    def _list(self, column: Column, ends: Numbers, there: Bytes) -> pa.Array:
        validity, missing = _bitmap(there)
        total = int(ends[-1]) if len(ends) else 0
        if total > op.LONGEST:
            raise BadLengthError("a batch's arrays have too many items", expected=f"at most {op.LONGEST}")
        children = [self.array(child, total) for child in column.children]
        if column.keeps_last_keys:
            ends, kept = _last_of_each_key(ends, children[0])
            children = [child.take(kept) for child in children] if kept is not None else children
        offsets_buffer, offsets = new_offsets(len(ends))
        offsets[0] = 0
        offsets[1:] = ends
        if pa.types.is_map(column.data_type):
            pair = pa.struct([column.data_type.key_field, column.data_type.item_field])
            children = [pa.Array.from_buffers(pair, len(children[0]), [None], 0, children=children)]
        return pa.Array.from_buffers(
            column.data_type, len(ends), [validity, offsets_buffer], missing, children=children
        )

    def _spans(self, data_type: pa.DataType, cells: Numbers, there: Bytes) -> pa.Array:
        validity, missing = _bitmap(there)
        total = kernels.spanned_bytes(cells, there)
        if total > op.LONGEST:
            raise BadLengthError("a batch's texts are too large", expected=f"at most {op.LONGEST} bytes")
        buffer, values = new_bytes(total)
        offsets_buffer, offsets = new_offsets(len(cells))
        kernels.gather_cells(self.data, self.pool, cells, there, values, offsets)
        return pa.Array.from_buffers(data_type, len(cells), [validity, offsets_buffer, buffer], missing)


class Room:
    """How many cells each slot gets: what one batch has needed, the next one has at once.

    `owners` (int64) has for each slot that of the list or map around it; below 0 for one that has a cell per row.
    """

    def __init__(self, owners: Numbers) -> None:
        self._owners = owners
        self._room = np.full(len(owners), _FIRST_ROOM, dtype=np.int64)

    def fill(self, fill: Fill, rows: int, *, data: Bytes, pool: Bytes) -> tuple[Cells, Bytes]:
        """Have a kernel fill the cells of `rows` values, again with more where they do not do; these, and the faults.

        The faults (uint8, per value) are as the kernel says; 0 for a value that is right.
        """
        faults = np.empty(rows, dtype=np.uint8)
        while True:
            sizes = np.where(self._owners < 0, rows, self._room[self._owners])
            base = np.cumsum(sizes) - sizes
            cells = np.empty(int(sizes.sum()) + 1, dtype=np.int64)
            there = np.empty(len(cells), dtype=np.uint8)
            counts, items = np.zeros_like(base), np.zeros_like(base)
            full = fill(base, self._room, counts, items, cells, there, faults)
            if full < 0:
                return Cells(base=base, counts=counts, cells=cells, there=there, data=data, pool=pool), faults
            self._room[full] *= 2


def _bitmap(there: Bytes) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity of bytes that are 0 or 1, and how many are 0."""
    missing = len(there) - int(np.count_nonzero(there))
    return (pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None), missing


def _numbers(data_type: pa.DataType, cells: Numbers) -> pa.Buffer:
    if pa.types.is_boolean(data_type):
        return pa.py_buffer(np.packbits(cells.astype(np.uint8), bitorder="little"))
    if pa.types.is_floating(data_type):
        doubles = cells.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return pa.py_buffer(doubles.astype(np.float32) if data_type.bit_width == 32 else doubles)
    return pa.py_buffer(cells.astype(np.int32) if data_type.bit_width == 32 else cells)


def _enum(column: Column, cells: Numbers, there: Bytes) -> pa.Array:
    validity, missing = _bitmap(there)
    symbols, places = list(column.symbols), cells
    if column.numbers:
        numbers = np.array(column.numbers, dtype=np.int64)
        places = np.minimum(np.searchsorted(numbers, cells), len(numbers) - 1)
        unknown = np.flatnonzero((numbers[places] != cells) & (there != 0))
        if len(unknown):
            others, which = np.unique(cells[unknown], return_inverse=True)
            places[unknown] = len(symbols) + which
            symbols += [str(number) for number in others]
    buffer = pa.py_buffer(places.astype(np.int32))
    indices = pa.Array.from_buffers(pa.int32(), len(cells), [validity, buffer], missing)
    texts = pa.array(symbols, type=pa.string())
    return pa.DictionaryArray.from_arrays(indices, texts, safe=False).dictionary_decode()


def _last_of_each_key(ends: Numbers, keys: pa.Array) -> tuple[Numbers, pa.Array | None]:
    """Where maps end of which each key is there once, and the entries that are kept; None for all."""
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    owners = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    ids = owners * (len(keys) + 1) + codes
    _, places = np.unique(ids[::-1], return_index=True)
    if len(places) == len(keys):
        return ends, None
    kept = np.sort(len(keys) - 1 - places)
    return np.cumsum(np.bincount(owners[kept], minlength=len(ends))), pa.array(kept)
