"""Read JSON that others wrote, with limits: the one JSON reader of sidecars, records, definitions and requests.

`read_json` takes bytes or text and gives dicts, lists, strings, integers, floats, booleans and None. It refuses, with
the error that the caller names: text that is no JSON or no UTF-8, NaN and infinities, integers beyond 64 bits, floats
that overflow, strings that cannot be encoded again (lone surrogates), and nesting deeper than `MAX_DEPTH`. So what
comes back can be walked recursively, compared, encoded and stored without an error of Python's own. `JsonObject` takes
the fields of a document with their types and ranges.
Source: RFC 8259 sections 6, 8 and 9, which let a reader set such limits.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from offload_hooks.errors import FormatError, OffloadError, UnsupportedVersionError

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_DEPTH = 100
"""Most levels of nested lists and objects; a caller may ask for fewer."""

MAX_BYTES = 64 << 20
"""Longest document; a caller may ask for less or more. Read, it can take 30 times its length."""

_INTEGERS = range(-(2**63), 2**64)
_SHOWN = 100


def read_json(
    text: bytes | str,
    document: str,
    *,
    error: type[OffloadError] = FormatError,
    key: str | None = None,
    offset: int | None = None,
    max_depth: int = MAX_DEPTH,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read one JSON document.

    Args:
        text: the document; bytes are UTF-8.
        document: its name in the error: "the metadata sidecar".
        error: the class of the error.
        key: the object that holds it, for the error.
        offset: the byte at which it begins there, for the error.
        max_depth: most levels of nested lists and objects.
        max_bytes: greatest length in bytes, or in characters of a text.

    Raises:
        error: it is no JSON within the limits; `found` has the reason.
    """
    try:
        if len(text) > max_bytes:
            raise ValueError(f"{len(text)} bytes, of which there may be {max_bytes}")
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


WHOLE = range(2**63)
"""The default range of an integer field: 0 and more, in 64 bits with a sign."""

INT64 = range(-(2**63), 2**63)
"""All integers of 64 bits with a sign."""

_WHOLE = re.compile("-?[0-9]{1,20}")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_Choice = TypeVar("_Choice", bound=Enum)


def whole_number(text: str, within: range = WHOLE) -> int | None:
    """The integer that a text has in decimal; None if it is another text, or not in this range.

    As `int`, but without signs that are not a minus, white space, underscores and digits of other scripts, and without
    the error (and, before it, the time) that very long ones cost there.
    """
    if not _WHOLE.fullmatch(text) or (value := int(text)) not in within:
        return None
    return value


def shortened(value: object) -> str:
    """A value as an error shows it: no longer than a line, however large it is."""
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object of a foreign document: its fields, each taken with a type and a range.

    A field that is missing, null, or of another kind is an `error` that names the document and the field. A boolean is
    no integer. Other fields are ignored.

    Attributes:
        values: the fields, as `read_json` gives them.
        document, error, key, offset: as of `read_json`.
        path: place of the object in the document; empty for the whole of it.
    """

    values: dict[str, Any]
    document: str
    error: type[OffloadError] = FormatError
    key: str | None = None
    offset: int | None = None
    path: str = ""

    @classmethod
    def read(
        cls,
        text: bytes | str,
        document: str,
        *,
        error: type[OffloadError] = FormatError,
        key: str | None = None,
        offset: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Self:
        """The object that a document is. Arguments and errors as of `read_json`."""
        value = read_json(text, document, error=error, key=key, offset=offset, max_bytes=max_bytes)
        return cls.of(value, document, error=error, key=key, offset=offset)

    @classmethod
    def of(
        cls,
        value: object,
        document: str,
        *,
        error: type[OffloadError] = FormatError,
        key: str | None = None,
        offset: int | None = None,
    ) -> Self:
        """The same of a value that `read_json` gave."""
        if not isinstance(value, dict):
            raise error(f"{document} is not a JSON object", key=key, offset=offset, found=shortened(value))
        return cls(values=value, document=document, error=error, key=key, offset=offset)

    def wrong(self, name: str, expected: str) -> OffloadError:
        """The error for a field of another kind."""
        return self.error(
            f"{self.document} has no right field {self.path + name!r}",
            key=self.key,
            offset=self.offset,
            expected=expected,
            found=shortened(self.values[name]) if name in self.values else "no such field",
        )

    def check_version(self, known: int) -> None:
        """Check that `version` is one that this program knows: 1 to `known`.

        Raises:
            UnsupportedVersionError: a newer one.
        """
        version = self.values.get("version")
        if type(version) is not int or version < 1:
            raise self.wrong("version", f"a version from 1 to {known}")
        if version > known:
            raise UnsupportedVersionError(
                f"{self.document} is of a newer version than this program knows",
                key=self.key,
                offset=self.offset,
                expected=f"{known} or less",
                found=version,
                hint="Upgrade pulsar-offload.",
            )

    def text(self, name: str) -> str:
        """A text."""
        value: str = self._typed(name, str, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text; None if the field is null or not there."""
        return None if self.values.get(name) is None else self.text(name)

    def integer(self, name: str, within: range = WHOLE) -> int:
        """An integer in this range."""
        value = self.values.get(name)
        if type(value) is not int or value not in within:
            raise self.wrong(name, f"a whole number from {within[0]} to {within[-1]}")
        return value

    def optional_integer(self, name: str, within: range = WHOLE) -> int | None:
        """An integer; None if the field is null or not there."""
        return None if self.values.get(name) is None else self.integer(name, within)

    def uuid(self, name: str) -> UUID:
        """A UUID, as text with its four hyphens."""
        return self._uuid(name, self.values.get(name))

    def optional_uuid(self, name: str) -> UUID | None:
        """A UUID; None if the field is null or not there."""
        return None if self.values.get(name) is None else self.uuid(name)

    def uuids(self, name: str) -> tuple[UUID, ...]:
        """A list of UUIDs."""
        return tuple(self._uuid(name, each) for each in self.array(name))

    def choice(self, name: str, kind: type[_Choice]) -> _Choice:
        """One of the values of an enumeration of texts."""
        value = self.values.get(name)
        found = next((each for each in kind if each.value == value), None) if isinstance(value, str) else None
        if found is None:
            raise self.wrong(name, f"one of {', '.join(each.value for each in kind)}")
        return found

    def array(self, name: str) -> list[Any]:
        """A list, of anything."""
        value: list[Any] = self._typed(name, list, "a list")
        return value

    def integers(self, name: str, *, length: int | None = None, within: range = WHOLE) -> tuple[int, ...]:
        """A list of integers in this range; of exactly `length`, if that is given."""
        values = self.array(name)
        right = all(type(each) is int and each in within for each in values)
        if not right or (length is not None and len(values) != length):
            count = "" if length is None else f"{length} "
            raise self.wrong(name, f"a list of {count}whole numbers from {within[0]} to {within[-1]}")
        return tuple(values)

    def nested(self, name: str) -> JsonObject:
        """An object in it."""
        return self._inner(f"{self.path}{name}.", self._typed(name, dict, "an object"))

    def nested_objects(self, name: str) -> Iterator[JsonObject]:
        """A list of objects."""
        for number, each in enumerate(self.array(name)):
            if not isinstance(each, dict):
                raise self.wrong(name, "a list of objects")
            yield self._inner(f"{self.path}{name}[{number}].", each)

    def texts(self, name: str) -> dict[str, str]:
        """An object that maps text to text."""
        values: dict[str, str] = self._typed(name, dict, "an object of texts")
        if not all(isinstance(each, str) for each in values.values()):
            raise self.wrong(name, "an object of texts")
        return values

    def _inner(self, path: str, values: dict[str, Any]) -> JsonObject:
        return replace(self, values=values, path=path)

    def _uuid(self, name: str, value: object) -> UUID:
        if not isinstance(value, str) or not _UUID.fullmatch(value):
            raise self.wrong(name, "a UUID as text")
        return UUID(value)

    def _typed(self, name: str, kind: type[Any], expected: str) -> Any:
        value = self.values.get(name)
        if type(value) is not kind:
            raise self.wrong(name, expected)
        return value
