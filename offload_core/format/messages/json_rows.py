"""Rows as JSON: bytes are base64, times ISO 8601 with microseconds where there are any, maps are objects.

Of a name that a map has twice the last value counts. A number that JSON lacks (NaN, infinity) is null, and a decimal
is text.
"""

from __future__ import annotations

import base64
import json
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa

_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x80, 0xA0)}
"""Escapes of characters that JSON leaves as they are and a terminal may obey."""


def _named(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_named).encode


def json_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Each row as an object on a line of its own."""
    for batch in batches:
        names = batch.schema.names
        for row in zip(*map(_json_values, batch.columns), strict=True):
            yield _text(dict(zip(names, row, strict=True))) + "\n"


def flat_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without nested and binary columns: JSON text, and base64; times are text."""
    columns = [_flat(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def python_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Rows as Python's values, with times as text and maps as dictionaries."""
    for batch in batches:
        names = batch.schema.names
        for row in zip(*map(_python_values, batch.columns), strict=True):
            yield dict(zip(names, row, strict=True))


def json_text(value: Any) -> str:
    """A value of `python_rows` as JSON."""
    return _text(_plain(value))


def _text(value: Any) -> str:
    text = _encode(value)
    return text if text.isascii() else text.translate(_CONTROLS)


def _flat(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _times(array)
    if _is_binary(kind):
        return pa.array(_json_values(array), pa.string())
    if pa.types.is_nested(kind):
        texts = [None if value is None else _text(value) for value in _json_values(array)]
        return pa.array(texts, pa.string())
    return array


def _json_values(array: pa.Array) -> list[Any]:
    kind = array.type
    values = _python_values(array)
    if _is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return list(map(_plain, values))
    return values


def _python_values(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        array = _times(array)
    if not pa.types.is_nested(array.type):
        return array.to_pylist()  # type: ignore[no-any-return]
    with warnings.catch_warnings(action="ignore"):
        return array.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def _times(array: pa.Array) -> pa.Array:
    """Times as text; Python's own end with the year 9999."""
    micros = array.cast(pa.int64()).fill_null(0).to_numpy()
    unit: Literal["us", "ms"] = "us" if np.any(micros % 1000) else "ms"
    zone: Literal["UTC", "naive"] = "naive" if array.type.tz is None else "UTC"
    text = np.datetime_as_string(micros.astype("datetime64[us]"), unit=unit, timezone=zone)
    return pa.array(text, pa.string(), mask=array.is_null().to_numpy(zero_copy_only=False))


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
