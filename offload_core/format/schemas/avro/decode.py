"""Datums of one writer's schema → Arrow columns of the reader's, a batch at a time.

The rules are those of `avro.plain`, which also says what is wrong with a datum.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrays import Bytes
from offload_core.format.schemas.avro.program import compile_program
from offload_core.format.schemas.avro.targets import Layout, make_layout
from offload_core.format.schemas.avro.types import AvroType
from offload_core.format.schemas.cells import Cells, Room
from offload_core.format.schemas.kernels import avro as kernels
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.spans import spans_of_one
from offload_hooks.errors import BadLengthError

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
        self._top_level = np.flatnonzero(owners < 0)
        self._nested = np.flatnonzero(owners >= 0)
        self._room = Room(owners)

    def decode(
        self, data: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """One value per datum, and which datums are not right; theirs, and those of length −1, are null.

        `data` uint8; `offsets`, `lengths` int64, per datum.

        Raises:
            BadLengthError: the data, or what is made of it, does not fit an Arrow array.
            TooManyCells: the datums have to be decoded in two parts.
        """
        if len(data) > op.LONGEST:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST} bytes")
        cells, faults = self._read(data, offsets, lengths, check_text=False)
        array = cells.array_of_rows(self.layout.root, faults)
        if not _is_text(array):
            cells, faults = self._read(data, offsets, lengths, check_text=True)
            array = cells.array_of_rows(self.layout.root, faults)
        return array, faults != 0

    def has_too_many_cells(self, datum: bytes) -> bool:
        """Whether a datum is not right because it has more values in lists than one may have."""
        one = spans_of_one(datum)
        cells, faults = self._read(one.data, one.offsets, one.lengths, check_text=False)
        cells.array_of_rows(self.layout.root, faults)
        return bool(faults[0] == op.TOO_MANY_CELLS)

    def _read(
        self,
        data: Bytes,
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        *,
        check_text: bool,
    ) -> tuple[Cells, npt.NDArray[np.uint8]]:
        program = self._program
        return self._room.fill(
            lambda base, most_cells, counts, items, need, cells, there, faults: kernels.read_datums(
                data if len(data) else _NO_BYTES,
                offsets,
                lengths,
                program.instructions,
                program.numbers,
                program.most_depth,
                self._top_level,
                self._nested,
                check_text,
                base,
                most_cells,
                counts,
                items,
                need,
                cells,
                cells.view(np.float64),
                there,
                faults,
            ),
            lengths,
            data=data,
            pool=program.pool,
        )


def _is_text(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
