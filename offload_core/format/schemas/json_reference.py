"""One JSON payload → its value, by Python's `json` and the rules of `_Plain`: the reference of the kernel.

The kernel leaves to it what it does not decide, and schemas with decimals or unions of several types. It also says what
is wrong with a payload. Source: docs/schemas.md, "JSON".
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import reprlib
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from offload_core.format.schemas.avro_types import Target
from offload_core.format.schemas.cells import TooManyCells
from offload_hooks.errors import PayloadError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100

_MOST_DIGITS = 400
"""More than any number of a schema's types has."""
_EXACT = Context(prec=2 * _MOST_DIGITS)

TIME_BOUNDS = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""The first time of day that there is none of, by logical type."""
MOST_MILLIS = 2**63 // 1000 - 1
"""The largest number of milliseconds of which int64 holds the microseconds."""


class NestedTooDeepError(PayloadError):
    """Python's reader has no stack left; the kernel, which takes none, may read the payload."""


def read_value(payload: bytes, target: Target, most_cells: int) -> tuple[Any, int]:
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
        raise NestedTooDeepError("a JSON payload is nested too deep") from error
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
            return value * 1000 if abs(value) <= MOST_MILLIS else None
        return None if logical in TIME_BOUNDS and not 0 <= value < TIME_BOUNDS[logical] else value

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
