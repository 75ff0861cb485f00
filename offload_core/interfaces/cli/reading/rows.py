"""Record batches as a table for people, JSON lines, or a Parquet file.

In JSON, binary is base64, a time is ISO 8601 in UTC, a map an object (of a key that is there twice the last value
counts, as in Pulsar's clients). A file appears under its name when it is whole.
"""

from __future__ import annotations

import base64
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from offload_core.interfaces.cli.shared import err, out, output_file, printable

_SHOWN_CHARACTERS = 60
_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x80, 0xA0)}
"""What JSON leaves as it is and a terminal may obey."""


def print_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: int) -> None:
    """Print at most `limit` rows; says so if there are more."""
    table = Table(*schema.names, box=None, pad_edge=False)
    for count, row in enumerate(_rows(batches)):
        if count == limit:
            out.print(table)
            err.print(
                f"{limit} rows are shown; there are more. Ask with --limit, or write all with --format."
            )
            return
        table.add_row(*(Text(_shown(row[name])) for name in schema.names))
    out.print(table)


def write_jsonl(batches: Iterable[pa.RecordBatch], output: Path | None) -> None:
    """Write one JSON object a line, to `output` or the standard output."""
    lines = (_line(_to_json(row)) for row in _rows(batches))
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
        return
    with output_file(output) as file:
        file.writelines(line.encode() for line in lines)


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output: Path) -> None:
    """Write a Parquet file (zstd)."""
    with output_file(output) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        arrays = [_times(array) if pa.types.is_timestamp(array.type) else array for array in batch.columns]
        named = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        with warnings.catch_warnings(action="ignore"):
            rows = named.to_pylist(maps_as_pydicts="lossy")
        yield from rows


def _times(array: pa.Array) -> pa.Array:
    """Times as text; Python's own end with the year 9999."""
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy().astype("datetime64[us]")
    text = np.datetime_as_string(numbers, unit="ms", timezone="UTC")
    return pa.array(text, mask=array.is_null().to_numpy(zero_copy_only=False))


def _line(row: Any) -> str:
    line = json.dumps(row, ensure_ascii=False) + "\n"
    return line if line.isascii() else line.translate(_CONTROLS)


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bytes):
        value = _text_of(value)
    elif isinstance(value, dict | list):
        value = json.dumps(_to_json(value), ensure_ascii=False)
    text = printable(str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _text_of(data: bytes) -> str:
    try:
        text = " ".join(data[: 4 * _SHOWN_CHARACTERS].decode().split())
    except UnicodeDecodeError:
        return data[:_SHOWN_CHARACTERS].hex()
    return text if text.isprintable() else data[:_SHOWN_CHARACTERS].hex()
