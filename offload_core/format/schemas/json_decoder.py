"""JSON payloads → Arrow columns of the schema's AVRO definition, and the tables that the kernel reads payloads by.

What the kernel leaves undecided, and schemas with decimals or unions of several types, are read by `json_reference`.
A field that a payload lacks is null. Source: docs/schemas.md, "JSON".
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrow_arrays import Bytes
from offload_core.format.schemas.avro_types import AvroColumns, AvroType, Target, make_layout
from offload_core.format.schemas.cells import (
    MOST_CELLS,
    Cells,
    Column,
    Numbers,
    Room,
    TooManyCells,
    most_cells_of,
    too_many_cells,
)
from offload_core.format.schemas.json_reference import (
    MOST_MILLIS,
    TIME_BOUNDS,
    NestedTooDeepError,
    read_value,
)
from offload_core.format.schemas.kernels import json_kinds as kinds
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels.json_payloads import read_objects
from offload_core.format.schemas.kernels.json_text import LEAST_POWER, MOST_POWER
from offload_core.format.schemas.payload_spans import Spans, binary_of
from offload_hooks.errors import BadLengthError, FormatError, PayloadError

_KINDS = {
    "record": kinds.RECORD,
    "array": kinds.LIST,
    "map": kinds.MAP,
    "string": kinds.TEXT,
    "enum": kinds.TEXT,
    "bytes": kinds.BYTES,
    "fixed": kinds.BYTES,
    "int": kinds.WHOLE,
    "long": kinds.WHOLE,
    "float": kinds.DOUBLE,
    "double": kinds.DOUBLE,
    "boolean": kinds.BOOLEAN,
    "null": kinds.NULL,
}
_LONGEST = 2**63 - 1
FEW = 1_000
"""Fewer payloads than this are read by the reference: the kernel's first call on a machine compiles for seconds."""

_ROOM = 8
"""Bytes that a text without its escapes may need beyond its own."""
_LEAST_EXACT = -27
"""5 to more than its negative does not fit 64 bits."""
_TO_MICROSECONDS = ("timestamp-millis", "local-timestamp-millis")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTables:
    """The tables of a record.

    Attributes:
        root: the column of whole values; an enum is any text.
        targets: int64 (values × `json_kinds.PARTS`), the first is the whole.
        levels: int64, slots in ranges that those name.
        names: uint8, the names of fields.
        owners: int64 per slot: the slot of the list or map around it, −1 for none.
    """

    root: Column
    targets: Numbers
    levels: Numbers
    names: Bytes
    owners: Numbers


def make_tables(layout: AvroColumns) -> JsonTables | None:
    """The tables of a layout; None if it is no record, or has what the kernel does not read."""
    root = layout.root
    if root.avro.kind != "record" or not _is_read(root):
        return None
    rows: list[list[int]] = [[]]
    levels: list[int] = []
    names = bytearray()
    waiting: list[tuple[int, Target, bytes]] = [(0, root, b"")]
    for place, target, name in waiting:
        first = len(rows)
        is_list = target.avro.kind in ("array", "map")
        level = (
            root.level
            if place == 0
            else [slot for child in target.children for slot in child.level] * is_list
        )
        rows[place] = [
            _KINDS[target.avro.kind], target.slot, first, len(target.children),
            len(levels), len(level), len(names), len(name), *_word(name), *_bounds(target),
        ]  # fmt: skip
        levels += level
        names += name
        for child, of_child in zip(target.children, target.names, strict=True):
            waiting.append((len(rows), child, of_child.encode()))
            rows.append([])
    return JsonTables(
        root=_with_any_symbols(root),
        targets=np.array(rows, dtype=np.int64),
        levels=np.array([*levels, 0], dtype=np.int64),
        names=np.frombuffer(bytes(names) or b"\0", dtype=np.uint8),
        owners=np.array(layout.owners, dtype=np.int64),
    )


def _is_read(target: Target) -> bool:
    if target.avro.logical == "decimal" or target.avro.kind == "union":
        return False
    return all(map(_is_read, target.children))


def _word(name: bytes) -> tuple[int, int]:
    """The first eight bytes of a name with its quote as a word, and the bits of it that are none of theirs."""
    known = (name + b'"')[:8]
    return int.from_bytes(known.ljust(8, b"\0"), "big", signed=True), 64 - 8 * len(known)


def _bounds(target: Target) -> tuple[int, int, int, int]:
    """Of an integer: the largest of its type, the least and largest of its column, and the factor."""
    limit = 2**31 - 1 if target.avro.kind == "int" else _LONGEST
    logical = target.avro.logical
    if logical in _TO_MICROSECONDS:
        return limit, -MOST_MILLIS, MOST_MILLIS, 1000
    if logical in TIME_BOUNDS:
        return limit, 0, TIME_BOUNDS[logical] - 1, 1
    return limit, -_LONGEST - 1, _LONGEST, 1


def _with_any_symbols(target: Target) -> Target:
    return replace(target, symbols=None, children=tuple(map(_with_any_symbols, target.children)))


@functools.cache
def powers_of_five() -> npt.NDArray[np.uint64]:
    """The upper 128 bits, as two words, of 5 to each power from `LEAST_POWER` to `MOST_POWER`, as the algorithm wants
    them: cut off, or rounded up where the product is exact then."""
    words = []
    for power in range(LEAST_POWER, MOST_POWER + 1):
        number = 5 ** abs(power)
        if power >= 0:
            shift = number.bit_length() - 128
            number = number >> shift if shift >= 0 else number << -shift
        else:
            number = (1 << (number.bit_length() + 127)) // number + (power >= _LEAST_EXACT)
        words += [number >> 64, number & (1 << 64) - 1]
    return np.array(words, dtype=np.uint64)


class JsonValues:
    """Decodes JSON objects of a record; `fields` are those to read, None for all."""

    def __init__(self, reader: AvroType, fields: Collection[str] | None = None) -> None:
        layout = make_layout(reader, fields)
        self._target = layout.root
        self.data_type: pa.DataType = self._target.data_type
        self._tables = make_tables(layout)
        self._room = Room(np.array(layout.owners, dtype=np.int64))

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        if self._tables is None or len(spans) < FEW:
            return self._plainly(spans)
        cells, faults = self._read(spans, self._tables)
        array = cells.array_of_rows(self._tables.root, faults)
        undecided = np.flatnonzero(faults == 1)
        if len(undecided):
            plain, is_wrong = self._plainly(spans.take(undecided))
            places = np.arange(len(spans))
            places[undecided] = len(spans) + np.arange(len(undecided))
            array = pa.concat_arrays([array, plain]).take(pa.array(places))
            faults[undecided] = is_wrong
        return array, faults != 0

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        try:
            read_value(payload, self._target, most_cells_of(len(payload)))
        except (PayloadError, TooManyCells) as error:
            return error if isinstance(error, PayloadError) else too_many_cells(payload)
        raise AssertionError("the payload is right")

    def _read(self, spans: Spans, tables: JsonTables) -> tuple[Cells, npt.NDArray[np.uint8]]:
        lengths = np.maximum(spans.lengths, 0)
        most = int(lengths.sum())
        if max(most, len(spans.data)) > op.LONGEST - _ROOM:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST - _ROOM} bytes")
        pool = np.empty(most + _ROOM, dtype=np.uint8)
        read = functools.partial(
            read_objects,
            spans.data,
            spans.offsets,
            spans.lengths,
            tables.targets,
            tables.levels,
            tables.names,
            powers_of_five(),
            tables.owners,
            np.empty(int(lengths.max(initial=1)), dtype=np.uint8),
            pool,
        )
        return self._room.fill(read, spans.lengths, data=spans.data, pool=pool)

    def _plainly(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        values: list[Any] = []
        faults = np.zeros(len(spans), dtype=np.bool_)
        left = MOST_CELLS
        for row, payload in enumerate(binary_of(spans).to_pylist()):
            try:
                most = left if len(spans) > 1 else most_cells_of(len(payload or b""))
                value, used = (None, 0) if payload is None else read_value(payload, self._target, most)
                values.append(value)
                left -= used
            except NestedTooDeepError:
                values.append(self._deep(spans.take(np.array([row]))))
                faults[row] = values[-1] is None
            except PayloadError:
                values.append(None)
                faults[row] = True
            except TooManyCells:
                if len(spans) > 1:
                    raise
                values.append(None)
                faults[row] = True
        return pa.array(values, type=self.data_type), faults

    def _deep(self, one: Spans) -> Any:
        """The value of a payload in which fields without a column nest deeper than Python's stack; or None."""
        if self._tables is None:
            return None
        cells, faults = self._read(one, self._tables)
        return cells.array_of_rows(self._tables.root, faults)[0].as_py()
