"""JSON payloads → Arrow columns of the schema's AVRO definition, by pyarrow's reader.

What that reader has no words for (maps, bytes, decimals, times, unions of several types) and a batch in which it finds
something wrong are decoded by Python's `json`, by the rules of `_Plain`, which also say what is wrong with a payload.
A field that a payload lacks is null. Source: docs/schemas.md, "JSON".
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import reprlib
from collections import Counter
from collections.abc import Collection
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from offload_core.format.schemas.avro_types import AvroType, Target, make_layout
from offload_core.format.schemas.cells import MOST_CELLS, TooManyCells, most_cells_of, too_many_cells
from offload_core.format.schemas.payload_spans import Spans, binary_of
from offload_hooks.errors import FormatError, PayloadError

_BETWEEN = b"\n{}\n"
"""Stands between payloads: only whole objects can stand before and after it, so no payload reaches over it."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100

_MOST_DIGITS = 400
"""More than any number of a schema's types has."""
_EXACT = Context(prec=2 * _MOST_DIGITS)

_FAST = ("boolean", "int", "long", "float", "double", "string", "enum")


class JsonValues:
    """Decodes JSON objects of a record; `fields` are those to read, None for all."""

    def __init__(self, reader: AvroType, fields: Collection[str] | None = None) -> None:
        layout = make_layout(reader, fields)
        self._target = layout.root
        in_lists = Counter(owner for owner in layout.owners if owner >= 0)
        self._most_item_cells = max(in_lists.values(), default=0)
        self.data_type: pa.DataType = self._target.data_type
        self._is_fast = reader.kind == "record" and bool(self._target.children) and _is_fast(self._target)

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        fast = self._by_reader(spans) if self._is_fast else None
        return self._plainly(spans) if fast is None else fast

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        try:
            _value(payload, self._target, most_cells_of(len(payload)))
        except (PayloadError, TooManyCells) as error:
            return error if isinstance(error, PayloadError) else too_many_cells(payload)
        raise AssertionError("the payload is right")

    def _by_reader(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]] | None:
        """All payloads at once; None if something is wrong with one of them."""
        there = np.flatnonzero(spans.lengths >= 0)
        if len(there) == 0:
            return pa.nulls(len(spans), self.data_type), np.zeros(len(spans), dtype=np.bool_)
        chosen = spans.take(there)
        if self._most_item_cells and not self._fits(chosen):
            return None
        if (chosen.lengths == 0).any() or (chosen.data[chosen.offsets] != ord("{")).any():
            return None
        payloads = binary_of(chosen)
        try:
            payloads.cast(pa.string())  # the reader does not check the texts that it ignores
        except pa.ArrowInvalid:
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(payloads)], payloads), _BETWEEN)[0]
        buffer = joined.as_buffer()
        try:
            table = pj.read_json(
                pa.BufferReader(buffer),
                read_options=pj.ReadOptions(use_threads=False, block_size=max(buffer.size + 1, 1 << 16)),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema(list(self.data_type)),
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != 2 * len(there) - 1:
            return None
        places = np.full(len(spans), -1, dtype=np.int64)
        places[there] = np.arange(0, table.num_rows, 2)
        indices = pa.array(places, mask=places < 0)
        columns = [table.column(name).combine_chunks().take(indices) for name in table.schema.names]
        array = pa.StructArray.from_arrays(columns, fields=list(self.data_type), mask=pa.array(places < 0))
        return array, np.zeros(len(spans), dtype=np.bool_)

    def _fits(self, spans: Spans) -> bool:
        """True if payloads that are there cannot have too many cells in lists: each item follows a bracket or a comma.

        Raises:
            TooManyCells: several could have.
        """
        data = spans.data[int(spans.offsets.min()) : int((spans.offsets + spans.lengths).max())]
        items = int(np.count_nonzero(data == ord(","))) + int(np.count_nonzero(data == ord("[")))
        most = most_cells_of(len(data)) if len(spans) == 1 else MOST_CELLS
        if items * self._most_item_cells <= most:
            return True
        if len(spans) > 1:
            raise TooManyCells
        return False

    def _plainly(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        values: list[Any] = []
        faults = np.zeros(len(spans), dtype=np.bool_)
        left = MOST_CELLS
        for row, payload in enumerate(binary_of(spans).to_pylist()):
            try:
                most = left if len(spans) > 1 else most_cells_of(len(payload or b""))
                value, used = (None, 0) if payload is None else _value(payload, self._target, most)
                values.append(value)
                left -= used
            except _TooDeepError:
                value = self._ignoring_depth(spans.take(np.array([row])))
                values.append(value)
                faults[row] = value is None
            except PayloadError:
                values.append(None)
                faults[row] = True
            except TooManyCells:
                if len(spans) > 1:
                    raise
                values.append(None)
                faults[row] = True
        return pa.array(values, type=self.data_type), faults

    def _ignoring_depth(self, one: Spans) -> Any:
        """The value of a payload in which fields that are ignored nest deep, as in a batch that is right; or None."""
        fast = self._by_reader(one) if self._is_fast else None
        return None if fast is None else fast[0][0].as_py()


class _TooDeepError(PayloadError):
    """Python's own reader has no stack left; pyarrow's, which takes none, may accept the payload."""


def _is_fast(target: Target) -> bool:
    if target.avro.logical:
        return False
    if target.avro.kind in ("record", "array"):
        return bool(target.children) and all(_is_fast(child) for child in target.children)
    return target.avro.kind in _FAST


def _value(payload: bytes, target: Target, most_cells: int) -> tuple[Any, int]:
    """A payload as Arrow takes it for the target's type, and how many cells it has in lists.

    Raises:
        PayloadError: it is not right.
        TooManyCells: it has more than `most_cells` in lists.
    """
    try:
        parsed = _parsed(payload.decode())
        plain = _Plain(most_cells)
        value = plain.value(parsed, target, "")
    except UnicodeDecodeError as error:
        raise PayloadError(f"a JSON payload is not UTF-8: {error.reason}") from error
    except ValueError as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(f"a payload is not JSON: {error}") from error
    except RecursionError as error:
        raise _TooDeepError("a JSON payload is nested too deep") from error
    return value, most_cells - plain.left


def _parsed(text: str) -> Any:
    # Not `read_json`: it takes 1.3 to 4.5 times as long, the more the smaller the payload or the more its numbers, and
    # refuses what Pulsar's other readers accept.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of too many digits: fewer of them are as much beyond any type
        return json.loads(text, parse_int=lambda digits: int(digits[:_MOST_DIGITS]))


class _Plain:
    """The rules for one value; `path` is for errors. `left` counts down the cells in lists."""

    def __init__(self, most_cells: int) -> None:
        self.left = most_cells

    def value(self, value: Any, target: Target, path: str) -> Any:
        kind = target.avro.kind
        if value is None or kind == "null":
            if value is not None:
                raise _wrong(path, "null", value)
            return None
        if kind == "union":
            return self._member(value, target, path)
        if kind == "record":
            if not isinstance(value, dict):
                raise _wrong(path, "an object", value)
            return {
                name: self.value(value.get(name), child, f"{path}.{name}")
                for name, child in zip(target.names, target.children, strict=True)
            }
        if kind == "array":
            if not isinstance(value, list):
                raise _wrong(path, "an array", value)
            self._take_items(len(value), target)
            return [self.value(item, target.children[0], f"{path}[]") for item in value]
        if kind == "map":
            if not isinstance(value, dict):
                raise _wrong(path, "an object", value)
            self._take_items(len(value), target)
            for key in value:
                _check_text(key, path)
            return [
                (key, self.value(item, target.children[1], f"{path}.{key}")) for key, item in value.items()
            ]
        return self._scalar(value, target, path)

    def _take_items(self, count: int, target: Target) -> None:
        """Count the items of a list, before they are read; those of a union's branch that fails as well."""
        self.left -= count * sum(len(child.level) for child in target.children)
        if self.left < 0:
            raise TooManyCells

    def _member(self, value: Any, target: Target, path: str) -> dict[str, Any]:
        for name, child in zip(target.names, target.children, strict=True):
            try:
                return {name: self.value(value, child, path)}
            except PayloadError:
                continue
        raise _wrong(path, "one of the union's types", value)

    def _scalar(self, value: Any, target: Target, path: str) -> Any:
        kind, logical = target.avro.kind, target.avro.logical
        if logical == "decimal":
            return self._decimal(value, target, path)
        if kind == "boolean":
            if not isinstance(value, bool):
                raise _wrong(path, "true or false", value)
            return value
        if kind in ("int", "long"):
            limit = 1 << (31 if kind == "int" else 63)
            if type(value) is not int or not -limit <= value < limit:
                raise _wrong(path, f"an integer of {32 if kind == 'int' else 64} bits", value)
            return self._time(value, logical)
        if kind in ("float", "double"):
            return self._float(value, path)
        if not isinstance(value, str):
            raise _wrong(path, "a text", value)
        _check_text(value, path)
        if kind in ("bytes", "fixed"):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error as error:
                raise _wrong(path, "bytes as base64", value) from error
        return value

    def _time(self, value: int, logical: str) -> int | None:
        if logical in ("timestamp-millis", "local-timestamp-millis"):
            return value * 1000 if abs(value) < 2**63 // 1000 else None
        bounds = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
        return None if logical in bounds and not 0 <= value < bounds[logical] else value

    def _float(self, value: Any, path: str) -> float:
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            return float(value)  # as Jackson writes them
        if type(value) not in (int, float):
            raise _wrong(path, "a number", value)
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf  # as pyarrow's reader, and as 1e999

    def _decimal(self, value: Any, target: Target, path: str) -> Decimal:
        avro = target.avro
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _wrong(path, "a decimal number", value)
        try:
            number = Decimal(str(value)).quantize(Decimal(1).scaleb(-avro.scale), context=_EXACT)
        except InvalidOperation as error:
            raise _wrong(path, f"decimal({avro.precision}, {avro.scale})", value) from error
        if number != Decimal(str(value)) or number.copy_abs() >= Decimal(10) ** (avro.precision - avro.scale):
            raise _wrong(path, f"decimal({avro.precision}, {avro.scale})", value)
        return number


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(f"a text of {path or 'the payload'} is half a surrogate pair") from error


def _wrong(path: str, expected: str, value: object) -> PayloadError:
    return PayloadError(
        f"{path.lstrip('.') or 'a payload'} has another type than its schema says",
        expected=expected,
        found=_SHORT.repr(value),
    )
