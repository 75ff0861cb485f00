"""Read JSON that others wrote, with limits: the one JSON reader of sidecars, records, definitions and requests.

`read_json` takes bytes or text and gives dicts, lists, strings, integers, floats, booleans and None. It refuses, with
the error that the caller names: text that is no JSON or no UTF-8, NaN and infinities, integers beyond 64 bits, floats
that overflow, strings that cannot be encoded again (lone surrogates), and nesting deeper than `MAX_DEPTH`. So what
comes back can be walked recursively, compared, encoded and stored without an error of Python's own.
Source: RFC 8259 sections 6, 8 and 9, which let a reader set such limits.
"""

from __future__ import annotations

import json
import math
from typing import Any

from offload_hooks.errors import FormatError, OffloadError

MAX_DEPTH = 100
"""How deep lists and objects may nest; a caller may ask for less."""

_INTEGERS = range(-(2**63), 2**64)


def read_json(
    text: bytes | str,
    document: str,
    *,
    error: type[OffloadError] = FormatError,
    key: str | None = None,
    offset: int | None = None,
    max_depth: int = MAX_DEPTH,
) -> Any:
    """Read one JSON document.

    Args:
        text: the document; bytes are UTF-8.
        document: what it is, for the error: "the metadata sidecar".
        error: the class of the error.
        key: the object that holds it, for the error.
        offset: the byte at which it begins there, for the error.
        max_depth: how deep lists and objects may nest.

    Raises:
        error: it is no JSON within the limits; `found` says why.
    """
    try:
        # Not json.loads(bytes), which also takes UTF-16 and UTF-32 and a document may then mean two things.
        decoded = text if isinstance(text, str) else str(text, "utf-8")
        value = json.loads(decoded, parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant)
        _check(value, max_depth)
    except RecursionError:
        found = f"lists or objects nested deeper than {max_depth}"
    except ValueError as cause:
        found = str(cause)
    else:
        return value
    raise error(f"{document} is not JSON", key=key, offset=offset, found=found)


def _integer(digits: str) -> int:
    # 20 digits hold any 64-bit integer. Longer ones are refused before they are converted, which takes quadratic time.
    if len(digits) <= 20 and (value := int(digits)) in _INTEGERS:
        return value
    raise ValueError(f"an integer of {len(digits)} digits that does not fit in 64 bits")


def _number(digits: str) -> float:
    if math.isfinite(value := float(digits)):
        return value
    raise ValueError("a number that overflows")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name}, which JSON does not have")


def _check(document: Any, max_depth: int) -> None:
    """Check how deep `document` nests, and that all of its strings can be encoded."""
    level = [document]
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, dict):
                below += value
                below += value.values()
        if not below:
            return
        level = below
    raise ValueError(f"lists or objects nested deeper than {max_depth}")
