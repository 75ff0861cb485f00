"""Protobuf messages → Arrow columns, a batch at a time.

The rules are those of `protobuf.plain`, which also says what is wrong with a payload.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrays import Bytes
from offload_core.format.schemas.cells import Room, too_many_cells
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels.protobuf import read_messages
from offload_core.format.schemas.protobuf.layout import make_layout
from offload_core.format.schemas.protobuf.plain import read_message
from offload_core.format.schemas.protobuf.types import MessageType
from offload_core.format.schemas.spans import Spans, spans_of_one
from offload_hooks.errors import BadLengthError, FormatError


class ProtobufValues:
    """Decodes messages of a type; `fields` are those that are wanted, None for all."""

    def __init__(self, message: MessageType, fields: Collection[str] | None = None) -> None:
        self._message, self._fields = message, fields
        self._layout = make_layout(message, fields)
        self.data_type: pa.DataType = self._layout.root.data_type
        self._room = Room(self._layout.owners)

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        if len(spans.data) > op.LONGEST:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST} bytes")
        array, faults = self._read(spans)
        return array, faults != 0

    def _read(self, spans: Spans) -> tuple[pa.Array, Bytes]:
        layout = self._layout
        read = functools.partial(
            read_messages,
            spans.data,
            spans.offsets,
            spans.lengths,
            layout.messages,
            layout.fields,
            layout.numbers,
            layout.owners,
            layout.is_list,
            layout.initial,
            layout.initially_there,
        )
        cells, faults = self._room.fill(read, spans.lengths, data=spans.data, pool=layout.pool)
        return cells.array_of_rows(layout.root, faults), faults

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        if self._read(spans_of_one(payload))[1][0] == op.TOO_MANY_CELLS:
            return too_many_cells(payload)
        try:
            read_message(payload, self._message, self._fields)
        except FormatError as error:
            return error
        raise AssertionError("the message is right")
