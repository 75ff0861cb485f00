"""What is cached: aligned chunks of one version of one object, and the names that they go by.

An object's version is its tier, key, size and time of change. Objects are never changed in place, so the bytes of a
version are always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import xxhash

from offload_hooks import ByteRange, ObjectStat


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """An object as long as nobody replaces it. `tier` tells tiers apart; the time is in microseconds since 1970."""

    tier: str
    key: str
    size_bytes: int
    modified_us: int


@dataclass(frozen=True, slots=True)
class ChunkName:
    """Chunk `number` (from 0) of an object that is cut every `chunk_bytes`; the last one is as long as is left."""

    version: ObjectVersion
    chunk_bytes: int
    number: int

    @property
    def offset(self) -> int:
        """Where it begins in its object."""
        return self.number * self.chunk_bytes

    @property
    def length(self) -> int:
        """How many bytes it has."""
        return min(self.chunk_bytes, self.version.size_bytes - self.offset)

    def identity(self) -> bytes:
        """All of the above as text: equal only for equal chunks."""
        version = self.version
        fields = [version.tier, version.key, version.size_bytes, version.modified_us]
        return json.dumps([*fields, self.chunk_bytes, self.number]).encode()


def version_of(tier: str, stat: ObjectStat) -> ObjectVersion:
    """The version of an object that a stat shows."""
    modified_us = round(stat.modified_at.timestamp() * 1_000_000)
    return ObjectVersion(tier, stat.key, stat.size_bytes, modified_us)


def chunks_of(version: ObjectVersion, wanted: ByteRange, chunk_bytes: int) -> Iterator[ChunkName]:
    """The chunks that a range lies in, in order."""
    for number in range(wanted.offset // chunk_bytes, (wanted.end - 1) // chunk_bytes + 1):
        yield ChunkName(version, chunk_bytes, number)


def file_name(identity: bytes) -> str:
    """A name of 32 hexadecimal digits for a chunk's file; the file repeats the identity, so a clash does no harm."""
    return xxhash.xxh3_128_hexdigest(identity)
