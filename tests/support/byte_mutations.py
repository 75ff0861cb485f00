"""Changes of bytes at a place: one bit, some bytes over others, some more, some fewer."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

SomeBytes = Callable[[bytes, Random], bytes]
"""Bytes to put into data, chosen with a look at it."""

Mutation = Callable[[bytes, int, Random], bytes]
"""Data, the place and the dice → the changed data."""


def mutations(some_bytes: SomeBytes) -> list[Mutation]:
    """The kinds of changes; `some_bytes` makes what is put in."""

    def overwrite(data: bytes, at: int, random: Random) -> bytes:
        new = some_bytes(data, random)[: len(data) - at]
        return data[:at] + new + data[at + len(new) :]

    def insert(data: bytes, at: int, random: Random) -> bytes:
        return data[:at] + some_bytes(data, random) + data[at:]

    return [flip, overwrite, insert, delete]


def flip(data: bytes, at: int, random: Random) -> bytes:
    """One bit of a byte."""
    out = bytearray(data)
    out[at] ^= 1 << random.randrange(8)
    return bytes(out)


def delete(data: bytes, at: int, random: Random) -> bytes:
    """Up to 24 bytes are gone."""
    return data[:at] + data[at + random.randint(1, 24) :]
