"""Payloads as spans of one buffer, and their decoders: one Arrow value each, and a mark where that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrow_arrays import Bytes, spans_to_array
from offload_hooks.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Payloads: `data` uint8; `offsets`, `lengths` int64 per payload, the length −1 for null."""

    data: Bytes
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, rows: npt.NDArray[np.int64]) -> Spans:
        """Some of them; nothing is copied but their places."""
        return Spans(data=self.data, offsets=self.offsets[rows], lengths=self.lengths[rows])

    def bytes_of(self, row: int) -> bytes | None:
        """One payload."""
        start, length = int(self.offsets[row]), int(self.lengths[row])
        return None if length < 0 else self.data[start : start + length].tobytes()


class ValueDecoder(Protocol):
    """Decodes the payloads of one version of a schema."""

    data_type: pa.DataType

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """A value per payload, and which payloads are not right; theirs and null ones are null."""

    def explain(self, payload: bytes) -> FormatError:
        """The error of a payload that `decode` marked."""


def spans_of(array: pa.Array) -> Spans:
    """The spans of a binary column."""
    rows = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    narrow = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset : array.offset + rows + 1]
    bounds = narrow.astype(np.int64)
    lengths = np.diff(bounds)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    has_data = data_buffer is not None and data_buffer.size
    data = np.frombuffer(data_buffer, dtype=np.uint8) if has_data else np.zeros(1, dtype=np.uint8)
    return Spans(data=data, offsets=bounds[:-1], lengths=lengths)


def spans_of_one(payload: bytes) -> Spans:
    """One payload as spans."""
    return Spans(
        data=np.frombuffer(payload or b"\0", dtype=np.uint8),
        offsets=np.zeros(1, dtype=np.int64),
        lengths=np.full(1, len(payload), dtype=np.int64),
    )


def binary_of(spans: Spans) -> pa.Array:
    """The payloads as a binary column."""
    return spans_to_array(spans.data, spans.data, spans.offsets, 0, spans.offsets, spans.lengths, pa.binary())
