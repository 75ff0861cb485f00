"""Read the index of one pair of objects from a tier, in any format.

A MapFile's index is not enough: the ledger's metadata is the first record of its data file, which is read as well.
"""

from __future__ import annotations

from offload_core.format.codec.block_checksums import BlockChecksums, parse_block_checksums
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import ObjectIndex
from offload_core.format.codec.mapfile.crc_files import verify_whole
from offload_core.format.codec.mapfile.index_file import parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import CutOffError
from offload_core.format.codec.object_format import ObjectKey
from offload_core.storage.tier import Tier
from offload_core.storage.tier.memory_budget import MemoryBudget
from offload_hooks import WholeObject
from offload_hooks.errors import BadLengthError, ObjectNotFoundError, RangeError, placed

MAX_INDEX_BYTES = 64 << 20
"""A larger index is refused: 64 MiB hold three million blocks."""

_BEGINNING_BYTES = 1 << 16

_SMALL_BYTES = 1 << 20
"""An index that may be read before its size is known; many are at once."""

_DECODED_BYTES = 4
"""The most bytes of memory for a byte of an index, while it is read and decoded."""

_UNDER_WAY = MemoryBudget(_DECODED_BYTES * MAX_INDEX_BYTES)
"""Memory for all indexes that are read at once, in all threads: one of the largest, or many small ones."""


def read_index(
    tier: Tier,
    key: ObjectKey,
    *,
    index_bytes: int,
    data_bytes: int | None,
    index_checksum_bytes: int | None = None,
    contents: bytes | None = None,
) -> ObjectIndex:
    """Read and decode the index of the objects under `key`, whose sizes are these.

    `data_bytes` is None if the data object is not there. `index_checksum_bytes` is the size of the index's `.crc` file,
    where there is one: the index is verified then. `contents` are the index's bytes, if they were read before.

    Raises:
        FormatError: a subclass, with the key and the byte.
        StoreError: the store fails, or a MapFile's data file is not there.
    """
    taken = _DECODED_BYTES * min(index_bytes, MAX_INDEX_BYTES)
    _UNDER_WAY.take(taken)
    try:
        index = read_index_bytes(tier, key, index_bytes) if contents is None else memoryview(contents)
        return decode_index(
            tier, key, index, data_bytes=data_bytes, index_checksum_bytes=index_checksum_bytes
        )
    finally:
        _UNDER_WAY.give_back(taken)


def read_index_bytes(tier: Tier, key: ObjectKey, index_bytes: int) -> memoryview:
    """The bytes of the index under `key`, as many as it has. Errors as `read_index`."""
    if index_bytes > MAX_INDEX_BYTES:
        raise BadLengthError(
            "an index is too large",
            key=key.index_key,
            expected=f"at most {MAX_INDEX_BYTES} bytes",
            found=index_bytes,
        )
    return _read(tier, key.index_key, index_bytes)


def read_whole_index(tier: Tier, key: ObjectKey, most_bytes: int = _SMALL_BYTES) -> WholeObject | None:
    """Read the index under `key` with its user metadata, where that is one request of the store.

    None where it is not, or the index is larger than `most_bytes`.

    Raises:
        ObjectNotFoundError: it is not there.
        StoreError: the store fails.
    """
    if not tier.reads_whole:
        return None
    try:
        return tier.read_object(key.index_key, most_bytes)
    except RangeError:
        return None


def decode_index(
    tier: Tier,
    key: ObjectKey,
    index: memoryview,
    *,
    data_bytes: int | None,
    index_checksum_bytes: int | None = None,
) -> ObjectIndex:
    """Decode the bytes of the index under `key`. Arguments and errors as `read_index`."""
    if not key.is_mapfile:
        return parse_index(index, key)
    if index_checksum_bytes is not None and key.checksum_keys is not None:
        with placed(key=key.index_key):
            verify_whole(index, _read(tier, key.checksum_keys[1], min(index_checksum_bytes, MAX_INDEX_BYTES)))
    if data_bytes is None:
        raise ObjectNotFoundError("a MapFile's index has no data file", key=key.data_key)
    if key.ledger_id is None:
        raise AssertionError("a MapFile is one ledger's")
    length = min(_BEGINNING_BYTES, data_bytes)
    while True:
        try:
            with placed(key=key.data_key, ledger_id=key.ledger_id):
                return parse_mapfile(index, _read(tier, key.data_key, length), data_bytes, key.ledger_id)
        except CutOffError as cut:
            if length == data_bytes:
                raise AssertionError("what is whole is not cut off") from cut
            length = min(max(cut.needed, 2 * length), data_bytes)


def read_block_checksums(tier: Tier, key: ObjectKey, length: int) -> BlockChecksums:
    """Read and decode the checksum file of the object `key`, of a given length.

    Raises:
        FormatError: a subclass, with the key.
        StoreError: the store fails, or they are not there.
    """
    with placed(key=key.block_checksums_key):
        if length > MAX_INDEX_BYTES:
            raise BadLengthError(
                "block checksums are too long", expected=f"at most {MAX_INDEX_BYTES} bytes", found=length
            )
        return parse_block_checksums(_read(tier, key.block_checksums_key, length))


def _read(tier: Tier, key: str, length: int) -> memoryview:
    return tier.read_range(key, 0, length) if length else memoryview(b"")
