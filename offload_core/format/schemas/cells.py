"""The cells that a kernel fills → Arrow arrays.

Every column has a slot. A slot has cells (int64), and a byte for each that shows whether it has a value. A cell holds:

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
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrow_arrays import Bytes, new_bytes, new_offsets
from offload_core.format.schemas.kernels import cell_arrays as kernels
from offload_core.format.schemas.kernels import operations as op
from offload_hooks.errors import BadLengthError, PayloadError

Numbers = npt.NDArray[np.int64]

MOST_CELLS = 1 << 22
"""Number of cells that a batch may have: rows × columns, and the same number again in lists. A batch
that would have more is split.

A cell takes 9 bytes here and up to 16 in its Arrow array. What one message has in lists cannot be split: it may have
this, or `CELLS_PER_BYTE` for each of its bytes if that is more.
"""
CELLS_PER_BYTE = 16
MOST_ARROW_BYTES = 16 * MOST_CELLS
"""Number of bytes that the arrays of a batch of several versions may have together; a batch that would have more is
split.

And how many bytes a batch's texts may have beyond those of the payloads: the texts of defaults and enums.
"""

Fill = Callable[[Numbers, int, Numbers, Numbers, Numbers, Numbers, Bytes, Bytes], int]
"""A kernel with its own arguments: answers below 0 when all is read, else the row where it stopped.

It gets `base` (per slot and one more), the most cells in lists, `counts`, `items`, `need` (per slot), `cells`, `there`
(of all slots) and `faults` (per row).
"""

_FIRST_ROOM = 1024


class TooManyCells(Exception):  # noqa: N818 - no error: the batch is to be split
    """The rows would have more than `MOST_CELLS` cells in lists, or too much text: decode them in two parts."""


def most_cells_of(payload_bytes: int) -> int:
    """Number of cells that one message may have in its lists."""
    return max(MOST_CELLS, CELLS_PER_BYTE * payload_bytes)


def too_many_cells(payload: bytes) -> PayloadError:
    """The error of a payload that has more than `most_cells_of` its bytes."""
    return PayloadError(
        "a message has too many values in its lists for its bytes",
        expected=f"at most {most_cells_of(len(payload))} in {len(payload)} bytes",
    )


def count_cells(data_type: pa.DataType) -> int:
    """Number of cells that each value of a type has outside of lists: its own, and those of a struct's children."""
    if not pa.types.is_struct(data_type):
        return 1
    return 1 + sum(count_cells(each.type) for each in data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """An enum's symbols; `numbers` are theirs in ascending order (int64), None if cells have their places."""

    texts: tuple[str, ...]
    numbers: Numbers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that cells become.

    Attributes:
        data_type: its Arrow type.
        slot: its place in the kernel's tables; −1 for null, which has none.
        children: of a struct, a list (one), a map (key and value).
        symbols: of an enum, which is text; a number that has none is text of its digits.
        is_unsigned: of a decimal: its cells are numbers of 64 bits.
        keeps_last_keys: of a map: a key that is there again replaces the first.
    """

    data_type: pa.DataType
    slot: int
    children: tuple[Column, ...] = ()
    symbols: Symbols | None = None
    is_unsigned: bool = False
    keeps_last_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells that a kernel filled.

    Attributes:
        base, counts: per slot, its first cell (and in the end the last one's end) and how many it has.
        cells, there: of all slots; `there` is 0 or 1.
        data, pool: what spans point into.
    """

    base: Numbers
    counts: Numbers
    cells: Numbers
    there: Bytes
    data: Bytes
    pool: Bytes
    _text_bytes: list[int] = field(default_factory=lambda: [0])

    def array(self, column: Column, count: int) -> pa.Array:
        """A column's array of `count` values.

        Raises:
            BadLengthError: it does not fit an Arrow array.
            TooManyCells: its texts, with those of the columns before, are too large.
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
                if not kernels.widen_decimals(self.data, self.pool, cells, there, pairs):
                    raise AssertionError("a cell names bytes that are not there")
            return pa.Array.from_buffers(data_type, count, [validity, buffer], missing)
        if column.symbols is not None:
            return self._enum(column.symbols, cells, there)
        if pa.types.is_binary(data_type) or pa.types.is_string(data_type):
            return self._spans(data_type, cells, there)
        return pa.Array.from_buffers(data_type, count, [validity, _numbers(data_type, cells)], missing)

    def array_of_rows(self, root: Column, faults: Bytes) -> pa.Array:
        """The array of the column of whole values; a single one with too much text is null, and gets that fault.

        Raises:
            BadLengthError, TooManyCells: as `array`.
        """
        try:
            return self.array(root, len(faults))
        except TooManyCells:
            if len(faults) > 1:
                raise
            faults[0] = op.TOO_MANY_CELLS
            return pa.nulls(1, root.data_type)

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
        self._take_text(total)
        if total > op.LONGEST:
            raise BadLengthError("a batch's texts are too large", expected=f"at most {op.LONGEST} bytes")
        buffer, values = new_bytes(total)
        offsets_buffer, offsets = new_offsets(len(cells))
        if not kernels.gather_cells(self.data, self.pool, cells, there, values, offsets):
            raise AssertionError("a cell names bytes that are not there")
        return pa.Array.from_buffers(data_type, len(cells), [validity, offsets_buffer, buffer], missing)

    def _take_text(self, count: int) -> None:
        """Count the bytes of texts, before they are copied: those of payloads are there once, others for each cell."""
        self._text_bytes[0] += count
        if self._text_bytes[0] > len(self.data) + MOST_ARROW_BYTES:
            raise TooManyCells

    def _enum(self, symbols: Symbols, cells: Numbers, there: Bytes) -> pa.Array:
        """The texts of an enum's cells; of more symbols than there are cells only those that come."""
        validity, missing = _bitmap(there)
        texts, places = symbols.texts, cells
        more: list[str] = []
        if symbols.numbers is not None:
            places = np.searchsorted(symbols.numbers, cells)
            is_known = places < len(texts)
            is_known[is_known] = symbols.numbers[places[is_known]] == cells[is_known]
            unknown = np.flatnonzero(~is_known & (there != 0))
            if len(unknown):
                others, which = np.unique(cells[unknown], return_inverse=True)
                places[unknown] = len(texts) + which
                more = [str(number) for number in others]
        if len(texts) > len(cells):
            used, places = np.unique(np.where(there != 0, places, 0), return_inverse=True)
            chosen = [texts[at] if at < len(texts) else more[at - len(texts)] for at in used.tolist()]
        else:
            chosen = [*texts, *more]
        buffer = pa.py_buffer(places.astype(np.int32))
        indices = pa.Array.from_buffers(pa.int32(), len(cells), [validity, buffer], missing)
        sizes = np.array([len(text.encode()) for text in chosen] or [0], dtype=np.int64)
        self._take_text(int(sizes[places[there != 0]].sum()))
        shown = pa.array(chosen, type=pa.string())
        return pa.DictionaryArray.from_arrays(indices, shown, safe=False).dictionary_decode()


class Room:
    """Number of cells of each slot; the next batch begins with as many as the last one needed.

    `owners` (int64) has for each slot that of the list or map around it; below 0 for one that has a cell per row.
    """

    def __init__(self, owners: Numbers) -> None:
        self._owners = owners
        self._room = self._first_room()

    def fill(self, fill: Fill, lengths: Numbers, *, data: Bytes, pool: Bytes) -> tuple[Cells, Bytes]:
        """Have a kernel fill the cells of values of these lengths in bytes; return cells and faults.

        The faults (uint8, per value) are the kernel's; 0 for a value that is right. If the room is too small, the
        kernel has counted the room it needs, and is run once more.

        Raises:
            TooManyCells: several values have more than `MOST_CELLS` in lists.
        """
        rows = len(lengths)
        most_cells = most_cells_of(int(lengths[0])) if rows == 1 else MOST_CELLS
        faults = np.empty(rows, dtype=np.uint8)
        if self._nested_cells(self._room) > 2 * most_cells:
            self._room = self._first_room()
        while True:
            sizes = np.where(self._owners < 0, rows, self._room[self._owners])
            base = np.concatenate(([0], np.cumsum(sizes)))
            cells = np.empty(int(base[-1]) + 1, dtype=np.int64)
            there = np.empty(len(cells), dtype=np.uint8)
            counts, items, need = (np.zeros_like(sizes) for _ in range(3))
            if fill(base, most_cells, counts, items, need, cells, there, faults) >= 0:
                raise TooManyCells
            if (need <= self._room).all():
                return Cells(base=base, counts=counts, cells=cells, there=there, data=data, pool=pool), faults
            self._room = np.maximum(self._room, need)

    def _first_room(self) -> Numbers:
        return np.full(len(self._owners), _FIRST_ROOM, dtype=np.int64)

    def _nested_cells(self, room: Numbers) -> int:
        nested = self._owners[self._owners >= 0]
        return int(room[nested].sum())


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


def _last_of_each_key(ends: Numbers, keys: pa.Array) -> tuple[Numbers, pa.Array | None]:
    """The place where maps end of which each key is there once, and the entries that are kept; None for all."""
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    owners = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    ids = owners * (len(keys) + 1) + codes
    _, places = np.unique(ids[::-1], return_index=True)
    if len(places) == len(keys):
        return ends, None
    kept = np.sort(len(keys) - 1 - places)
    return np.cumsum(np.bincount(owners[kept], minlength=len(ends))), pa.array(kept)
