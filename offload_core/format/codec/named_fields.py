"""Fixed fields that follow one another, each with its name: what packs and parses them, and says which is where."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes that mean something: where they begin, how many they are, what they are called, and their value as text."""

    offset: int
    length: int
    name: str
    value: str = ""
    is_wrong: bool = False

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.offset + self.length


class NamedFields:
    """Big-endian fields; `struct` packs and parses all of them.

    Args:
        fields: each name with its code in `struct`; a name that begins with `magic` is shown in hexadecimal.
    """

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.struct = struct.Struct(">" + "".join(code for _, code in fields))
        self._fields = fields

    def spans(self, data: bytes | memoryview, position: int, *, base: int = 0) -> Iterator[Span]:
        """The fields at `data[position:]`, as far as there are bytes; `base` is the place of `data` in its object."""
        for name, code in self._fields:
            size = struct.calcsize(f">{code}")
            if position + size > len(data):
                return
            (value,) = struct.unpack_from(f">{code}", data, position)
            yield Span(
                base + position, size, name, f"{value:08X}" if name.startswith("magic") else str(value)
            )
            position += size
