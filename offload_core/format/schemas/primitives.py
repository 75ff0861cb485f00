"""Pulsar's primitive schemas: numbers, times and texts as its Java client writes them, all big-endian.

Source: docs/schemas.md, "Primitive types".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.schemas.payload_spans import Spans, binary_of
from offload_hooks.errors import FormatError, PayloadError

_DAY_MS = 86_400_000
_DAY_NS = _DAY_MS * 1_000_000

Raw = npt.NDArray[np.void]
Columns = tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]
"""Numbers as the column stores them, and which of them it can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """A type of one size: how its bytes are laid out, and how they become the column's numbers."""

    data_type: pa.DataType
    layout: np.dtype[np.void]
    convert: Callable[[Raw], Columns]


class FixedValues:
    """Decodes payloads of a type of one size."""

    def __init__(self, kind: str) -> None:
        self._kind, self._fixed = kind, _FIXED[kind]
        self.data_type: pa.DataType = self._fixed.data_type

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        size = self._fixed.layout.itemsize
        right = spans.lengths == size
        raw = np.zeros((len(spans), size), dtype=np.uint8)
        raw[right] = spans.data[spans.offsets[right, None] + np.arange(size)]
        numbers, holds = self._fixed.convert(raw.reshape(-1).view(self._fixed.layout))
        array = pa.array(np.ascontiguousarray(numbers), mask=~(right & holds))
        if array.type != self.data_type:
            array = array.view(self.data_type)
        return array, (spans.lengths >= 0) & ~right

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        return PayloadError(
            f"a value of the type {self._kind} has another size",
            expected=f"{self._fixed.layout.itemsize} bytes",
            found=f"{len(payload)} bytes",
        )


class TextValues:
    """Decodes UTF-8 text."""

    data_type = pa.string()

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        binary = binary_of(spans)
        faults = np.zeros(len(spans), dtype=np.bool_)
        try:
            return binary.cast(pa.string()), faults
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for row, payload in enumerate(binary.to_pylist()):
                try:
                    texts.append(None if payload is None else payload.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    faults[row] = True
            return pa.array(texts, type=pa.string()), faults

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        del payload
        return PayloadError("a text is not UTF-8")


class BinaryValues:
    """Passes bytes on."""

    data_type = pa.binary()

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        return binary_of(spans), np.zeros(len(spans), dtype=np.bool_)

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        raise AssertionError(f"all bytes are right, these {len(payload)} as well")


def _plain(code: str, data_type: pa.DataType) -> _Fixed:
    layout = np.dtype([("value", f">{code}")])

    def convert(raw: Raw) -> Columns:
        return raw["value"].astype(code), np.ones(len(raw), dtype=np.bool_)

    return _Fixed(data_type=data_type, layout=layout, convert=convert)


def _bounded(numbers: npt.NDArray[np.int64], least: int, most: int) -> npt.NDArray[np.bool_]:
    return (numbers >= least) & (numbers <= most)


def _boolean(raw: Raw) -> Columns:
    return raw["value"] != 0, np.ones(len(raw), dtype=np.bool_)


def _instant_ms(raw: Raw) -> Columns:
    numbers = raw["value"].astype("i8")
    holds = _bounded(numbers, -(2**63) // 1000 + 1, 2**63 // 1000 - 1)
    return np.where(holds, numbers, 0) * 1000, holds


def _time_of_day_ms(raw: Raw) -> Columns:
    return (raw["value"].astype("i8") % _DAY_MS).astype("i4"), np.ones(len(raw), dtype=np.bool_)


def _instant(raw: Raw) -> Columns:
    seconds, nanoseconds = raw["seconds"].astype("i8"), raw["nanoseconds"].astype("i8")
    holds = _bounded(seconds, -(2**63) // 10**6 + 1, 2**63 // 10**6 - 2) & _bounded(nanoseconds, 0, 10**9 - 1)
    return np.where(holds, seconds, 0) * 10**6 + np.where(holds, nanoseconds, 0) // 1000, holds


def _date(raw: Raw) -> Columns:
    days = raw["value"].astype("i8")
    holds = _bounded(days, -(2**31), 2**31 - 1)
    return np.where(holds, days, 0).astype("i4"), holds


def _time_of_day_ns(raw: Raw) -> Columns:
    numbers = raw["value"].astype("i8")
    holds = _bounded(numbers, 0, _DAY_NS - 1)
    return np.where(holds, numbers, 0), holds


def _date_time(raw: Raw) -> Columns:
    days, nanoseconds = raw["days"].astype("i8"), raw["nanoseconds"].astype("i8")
    most = 2**63 // (_DAY_MS * 1000) - 1
    holds = _bounded(days, -most, most) & _bounded(nanoseconds, 0, _DAY_NS - 1)
    us = np.where(holds, days, 0) * (_DAY_MS * 1000) + np.where(holds, nanoseconds, 0) // 1000
    return us, holds


def _special(fields: str, data_type: pa.DataType, convert: Callable[[Raw], Columns]) -> _Fixed:
    layout = np.dtype([(name, f">{code}") for name, code in (each.split(":") for each in fields.split())])
    return _Fixed(data_type=data_type, layout=layout, convert=convert)


_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")

_FIXED: dict[str, _Fixed] = {
    "BOOLEAN": _special("value:u1", pa.bool_(), _boolean),
    "INT8": _plain("i1", pa.int8()),
    "INT16": _plain("i2", pa.int16()),
    "INT32": _plain("i4", pa.int32()),
    "INT64": _plain("i8", pa.int64()),
    "FLOAT": _plain("f4", pa.float32()),
    "DOUBLE": _plain("f8", pa.float64()),
    "DATE": _special("value:i8", _UTC, _instant_ms),
    "TIME": _special("value:i8", pa.time32("ms"), _time_of_day_ms),
    "TIMESTAMP": _special("value:i8", _UTC, _instant_ms),
    "INSTANT": _special("seconds:i8 nanoseconds:i4", _UTC, _instant),
    "LOCAL_DATE": _special("value:i8", pa.date32(), _date),
    "LOCAL_TIME": _special("value:i8", pa.time64("ns"), _time_of_day_ns),
    "LOCAL_DATE_TIME": _special("days:i8 nanoseconds:i8", _LOCAL, _date_time),
}

PRIMITIVE_TYPES: dict[str, Callable[[], FixedValues | TextValues | BinaryValues]] = {
    "NONE": BinaryValues,
    "BYTES": BinaryValues,
    "STRING": TextValues,
    **{kind: lambda kind=kind: FixedValues(kind) for kind in _FIXED},  # type: ignore[misc]
}
"""How payloads of each of Pulsar's primitive types are decoded, by its name."""
