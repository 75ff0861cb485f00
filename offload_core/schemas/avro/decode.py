"""Datums of one writer's schema → Arrow columns of the reader's, a batch at a time.

The rules are the plain twin's (`avro.plain`), which also says what is wrong with a datum.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.messages.arrays import Bytes, new_bytes, new_offsets
from offload_core.schemas.avro.program import compile_program
from offload_core.schemas.avro.targets import Layout, Target, make_layout
from offload_core.schemas.avro.types import AvroType
from offload_core.schemas.kernels import avro as kernels
from offload_core.schemas.kernels import operations as op
from offload_hooks.errors import BadLengthError

_FIRST_ROOM = 1024
_NO_BYTES = np.zeros(1, dtype=np.uint8)


class AvroDecoder:
    """Reads what `writer` wrote as `reader` says; `fields` are those of a record that are wanted, None for all.

    Raises:
        SchemaError: the two schemas do not go together.
    """

    def __init__(self, writer: AvroType, reader: AvroType, fields: Collection[str] | None = None) -> None:
        self.layout: Layout = make_layout(reader, fields)
        self.data_type: pa.DataType = self.layout.root.data_type
        self._program = compile_program(writer, reader, self.layout)
        owners = np.array(self.layout.owners, dtype=np.int64)
        self._owners = owners
        self._top_level = np.flatnonzero(owners < 0)
        self._nested = np.flatnonzero(owners >= 0)
        self._room = np.full(len(owners), _FIRST_ROOM, dtype=np.int64)

    def decode(
        self, data: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """One value per datum, and which datums are not right; theirs, and those of length −1, are null.

        `data` uint8; `offsets`, `lengths` int64, per datum.

        Raises:
            BadLengthError: the data, or what is made of it, does not fit an Arrow array.
        """
        if len(data) > op.LONGEST:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST} bytes")
        cells, faults = self._read(data, offsets, lengths, check_text=False)
        array = self._array(self.layout.root, len(offsets), cells, data)
        if not _is_text(array):
            cells, faults = self._read(data, offsets, lengths, check_text=True)
            array = self._array(self.layout.root, len(offsets), cells, data)
        return array, faults != 0

    def _read(
        self,
        data: Bytes,
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        *,
        check_text: bool,
    ) -> tuple[_Cells, npt.NDArray[np.uint8]]:
        rows, slots = len(offsets), len(self._owners)
        faults = np.empty(rows, dtype=np.uint8)
        while True:
            sizes = np.where(self._owners < 0, rows, self._room[self._owners])
            base = np.cumsum(sizes) - sizes
            cells = np.empty(int(sizes.sum()) + 1, dtype=np.int64)
            there = np.empty(len(cells), dtype=np.uint8)
            counts, items = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
            full = kernels.read_datums(
                data if len(data) else _NO_BYTES,
                offsets,
                lengths,
                self._program.instructions,
                self._program.numbers,
                self._top_level,
                self._nested,
                check_text,
                base,
                self._room,
                counts,
                items,
                cells,
                cells.view(np.float64),
                there,
                faults,
            )
            if full < 0:
                return _Cells(base, counts, cells, there), faults
            self._room[full] *= 2

    def _array(self, target: Target, count: int, table: _Cells, data: Bytes) -> pa.Array:
        if target.slot < 0:
            return pa.nulls(count)
        cells, there = table.of(target.slot)
        validity, missing = _bitmap(there)
        kind, data_type = target.avro.kind, target.data_type
        if kind in ("record", "union"):
            children = [self._array(child, count, table, data) for child in target.children]
            return pa.Array.from_buffers(data_type, count, [validity], missing, children=children)
        if kind in ("array", "map"):
            return self._list(target, table, data)
        if target.avro.logical == "decimal":
            buffer, words = new_bytes(16 * count)
            kernels.widen_decimals(
                data, self._program.pool, cells, there, words.view(np.uint64).reshape(-1, 2)
            )
            return pa.Array.from_buffers(data_type, count, [validity, buffer], missing)
        if kind in ("bytes", "string", "fixed"):
            return self._spans(data_type, cells, there, data)
        if kind == "enum":
            indices = pa.Array.from_buffers(
                pa.int32(), count, [validity, pa.py_buffer(cells.astype(np.int32))], missing
            )
            symbols = pa.array(target.avro.symbols, type=pa.string())
            return pa.DictionaryArray.from_arrays(indices, symbols, safe=False).dictionary_decode()
        return pa.Array.from_buffers(data_type, count, [validity, _numbers(target, cells)], missing)

    def _list(self, target: Target, table: _Cells, data: Bytes) -> pa.Array:
        ends, there = table.of(target.slot)
        validity, missing = _bitmap(there)
        total = int(ends[-1]) if len(ends) else 0
        if total > op.LONGEST:
            raise BadLengthError("a batch's arrays have too many items", expected=f"at most {op.LONGEST}")
        offsets_buffer, offsets = new_offsets(len(ends))
        offsets[0] = 0
        offsets[1:] = ends
        children = [self._array(child, total, table, data) for child in target.children]
        if target.avro.kind == "map":
            pair = pa.struct([target.data_type.key_field, target.data_type.item_field])
            children = [pa.Array.from_buffers(pair, total, [None], 0, children=children)]
        return pa.Array.from_buffers(
            target.data_type, len(ends), [validity, offsets_buffer], missing, children=children
        )

    def _spans(
        self, data_type: pa.DataType, cells: npt.NDArray[np.int64], there: Bytes, data: Bytes
    ) -> pa.Array:
        validity, missing = _bitmap(there)
        total = kernels.spanned_bytes(cells, there)
        if total > op.LONGEST:
            raise BadLengthError("a batch's texts are too large", expected=f"at most {op.LONGEST} bytes")
        buffer, values = new_bytes(total)
        offsets_buffer, offsets = new_offsets(len(cells))
        kernels.gather_cells(data, self._program.pool, cells, there, values, offsets)
        return pa.Array.from_buffers(data_type, len(cells), [validity, offsets_buffer, buffer], missing)


class _Cells:
    """The kernel's output, by slot."""

    def __init__(
        self,
        base: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        cells: npt.NDArray[np.int64],
        there: Bytes,
    ) -> None:
        self._base, self._counts, self._cells, self._there = base, counts, cells, there

    def of(self, slot: int) -> tuple[npt.NDArray[np.int64], Bytes]:
        begin, count = int(self._base[slot]), int(self._counts[slot])
        return self._cells[begin : begin + count], self._there[begin : begin + count]


def _bitmap(there: Bytes) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity of bytes that are 0 or 1, and how many are 0."""
    missing = len(there) - int(np.count_nonzero(there))
    return (pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None), missing


def _numbers(target: Target, cells: npt.NDArray[np.int64]) -> pa.Buffer:
    kind = target.avro.kind
    if kind == "boolean":
        return pa.py_buffer(np.packbits(cells.astype(np.uint8), bitorder="little"))
    if kind in ("float", "double"):
        doubles = cells.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return pa.py_buffer(doubles.astype(np.float32) if kind == "float" else doubles)
    return pa.py_buffer(cells.astype(np.int32) if target.data_type.bit_width == 32 else cells)


def _is_text(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
