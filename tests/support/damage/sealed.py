"""Checksums beside the objects of a scene, put together here as docs/formats/block-checksums.md has them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import google_crc32c

from offload_core.format.codec.object_format import ObjectKey

if TYPE_CHECKING:
    from damage.scenes import Scene


def checksums(index: bytes, blocks: Sequence[bytes], version: int = 1) -> bytes:
    """The checksums of an index and of blocks."""
    head = (sum(map(len, blocks)), len(index), google_crc32c.value(index), len(blocks))
    lines = b"".join(struct.pack(">qI", len(block), google_crc32c.value(block)) for block in blocks)
    body = struct.pack(">4sIqqII", b"POCS", version, *head) + lines
    return body + struct.pack(">I", google_crc32c.value(body))


def blocks_of(data: bytes, key: ObjectKey) -> list[bytes]:
    """The blocks of a data object, as their headers have them."""
    blocks, begin = [], 0
    while begin < len(data):
        end = begin + 1000  # not as long as the stretches that `--seal` makes
        if not key.is_mapfile:
            end = begin + struct.unpack_from(">q", data, begin + 12)[0]
        blocks.append(data[begin:end])
        begin = end
    return blocks


def checksums_key(key: ObjectKey) -> str:
    """The key of an object's checksum file."""
    return key.data_key.removesuffix("data") + "_checksums" if key.is_mapfile else f"{key.data_key}-checksums"


def sealed(scene: Scene) -> Scene:
    """The scene with checksums beside all its objects."""
    for written in scene.written:
        data, index = (scene.objects[name].data for name in (written.key.data_key, written.key.index_key))
        scene.put(checksums_key(written.key), checksums(index, blocks_of(data, written.key)))
    return scene
