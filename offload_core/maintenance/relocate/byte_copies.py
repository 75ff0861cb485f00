"""One attempt's objects → another tier, byte by byte: read by parts, some ahead, written by parts, read back, compared.

The bytes that were read of the source have a CRC-32C for each part; the target's must have the same. User metadata goes
along. The index comes last, so a copy without one was broken off. Memory is bounded by parts, however large an object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.messages.checksum import crc32c
from offload_core.storage.tier import Tier, upload_blocks
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import DataLossError, ObjectNotFoundError
from offload_hooks.values import ObjectStat

PART_BYTES = 8 << 20
"""The least part that all stores take, but for an object's last, is 5 MiB."""

PARTS_AT_ONCE = 4
"""Parts that are read, and parts that are written, at once."""

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

Check = Callable[[int], None]
"""Told of each part's bytes as it is read; if it raises, the copy is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytes:
    """Result of a byte copy: objects and their bytes, as they are in the target by now."""

    objects: int
    size_bytes: int


def copy_attempt(
    source: Tier,
    key: ObjectKey,
    target: Tier,
    new_key: ObjectKey,
    check: Check,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> CopiedBytes:
    """Copy an attempt's data, what lies beside it, and its index, and compare them.

    Args:
        marks: user metadata of new objects, beside that of the old ones; a MapFile has none.

    Raises:
        ObjectNotFoundError: data or index is not there.
        DataLossError: what was written is not what was read.
        StoreError: of either tier; nothing that could be taken for a whole copy is left of it.
    """
    index = source.stat(key.index_key)  # of an attempt without one nothing is copied
    pairs = [(key.data_key, new_key.data_key)]
    pairs += zip(key.companion_keys, new_key.companion_keys, strict=True)
    marks = {} if new_key.is_mapfile else marks
    copied = size_bytes = 0
    for old, new in pairs:
        try:
            stat = source.stat(old)
        except ObjectNotFoundError:
            if old == key.data_key:
                raise
            continue  # few have all of them
        _copy_object(source, stat, target, new, {**stat.user_metadata, **marks}, check)
        copied, size_bytes = copied + 1, size_bytes + stat.size_bytes
    data = bytes(source.read_range(index.key, 0, index.size_bytes)) if index.size_bytes else b""
    check(len(data))
    target.write_index(new_key.index_key, data, user_metadata={**index.user_metadata, **marks})
    _compare(target, new_key.index_key, 0, len(data), crc32c(data))
    return CopiedBytes(objects=copied + 1, size_bytes=size_bytes + len(data))


def same_objects(source: Tier, target: Tier, key: str) -> bool:
    """Return whether two tiers have the same bytes and user metadata under a key, all of which are read.

    Raises:
        ObjectNotFoundError: one has no such object.
        StoreError: of either tier.
    """
    here, there = source.stat(key), target.stat(key)
    if (here.size_bytes, dict(here.user_metadata)) != (there.size_bytes, dict(there.user_metadata)):
        return False
    parts = _parts(here.size_bytes, PART_BYTES)
    return all(
        source.read_range(key, offset, length) == target.read_range(key, offset, length)
        for offset, length in parts
    )


def _copy_object(
    source: Tier, stat: ObjectStat, target: Tier, key: str, user_metadata: Mapping[str, str], check: Check
) -> None:
    if not stat.size_bytes:
        target.write_index(key, b"", user_metadata=user_metadata)
        return
    part_bytes = _part_bytes(target, stat.size_bytes)
    checksums: list[int] = []
    with closing(_read(source, stat, part_bytes, checksums, check)) as parts:
        upload_blocks(
            target,
            key,
            parts,
            block_bytes=min(part_bytes, stat.size_bytes),
            total_bytes=stat.size_bytes,
            user_metadata=user_metadata,
            parts_in_flight=PARTS_AT_ONCE,
        )
    ranges = zip(_parts(stat.size_bytes, part_bytes), checksums, strict=True)
    for _ in _map_parts(lambda part: _compare(target, key, *part[0], part[1]), ranges):
        pass


def _compare(target: Tier, key: str, offset: int, length: int, checksum: int) -> None:
    found = crc32c(bytes(target.read_range(key, offset, length))) if length else crc32c(b"")
    if found != checksum:
        raise DataLossError(
            "what was copied is not what was read",
            key=key,
            offset=offset,
            expected=f"the CRC-32C {checksum:08x} of {length} bytes",
            found=f"{found:08x}",
        )


def _read(
    source: Tier, stat: ObjectStat, part_bytes: int, checksums: list[int], check: Check
) -> Generator[memoryview, None, None]:
    """The parts of an object, some of which are read ahead."""
    read = _map_parts(lambda part: source.read_range(stat.key, *part), _parts(stat.size_bytes, part_bytes))
    with closing(read):
        for part in read:
            checksums.append(crc32c(bytes(part)))
            check(len(part))
            yield part


def _map_parts(work: Callable[[_Part], _Result], parts: Iterable[_Part]) -> Generator[_Result, None, None]:
    return bounded_map(work, parts, at_once=PARTS_AT_ONCE, ahead=PARTS_AT_ONCE, name="offload-relocate")


def _part_bytes(target: Tier, size_bytes: int) -> int:
    takes = target.describe().capabilities
    return max(PART_BYTES, takes.min_block_bytes, -(-size_bytes // takes.max_blocks))


def _parts(size_bytes: int, part_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size_bytes, part_bytes):
        yield offset, min(part_bytes, size_bytes - offset)
