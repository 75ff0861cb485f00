"""A ledger's entries → a MapFile, as Pulsar's offloader `filesystem` leaves it: data, `.crc` files, then the index.

Values are compressed in blocks, as Pulsar's documentation configures it. A MapFile has no user metadata, so only a
ledger of which nothing is left out goes into one. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from tempfile import SpooledTemporaryFile

from offload_core.codec.mapfile.checksums import CHUNK_BYTES, HEAD_BYTES, make_checksums
from offload_core.codec.mapfile.header import SYNC_BYTES, FileCompression
from offload_core.codec.mapfile.writer import MapFileWriter
from offload_core.codec.object_format import ObjectKey
from offload_core.offload.attempt_objects import ledger_metadata
from offload_core.relocate.kept_entries import READ_BYTES, KeptLedger
from offload_core.tier import MemoryBudget, Tier, upload_blocks

_HELD_CHECKSUMS_BYTES = 16 << 20
"""More checksums than these, of 2 GiB, wait in a temporary file until the data is stored."""


def write_mapfile(
    target: Tier, key: ObjectKey, ledger: KeptLedger, *, block_bytes: int, budget: MemoryBudget
) -> int:
    """Write a ledger of which no entry is left out as a MapFile under `key`; the bytes of its data file.

    Args:
        block_bytes: of a file, what is written at once.
        budget: what that takes.

    Raises:
        OptionError: an entry is too long for the format; nothing is visible.
        StoreError, FormatError: of either side.
    """
    assert key.checksum_keys is not None
    data_checksums_key, index_checksums_key = key.checksum_keys

    def upload(name: str, pieces: Iterable[bytes]) -> int:
        blocks = _cut(pieces, block_bytes)
        return upload_blocks(target, name, blocks, block_bytes=block_bytes, budget=budget).size_bytes

    with SpooledTemporaryFile(_HELD_CHECKSUMS_BYTES) as checksums:
        packed = _Packed(ledger)
        checksums.write(make_checksums(b""))
        size_bytes = upload(key.data_key, _summed(packed, checksums.write))
        checksums.seek(0)
        upload(data_checksums_key, iter(lambda: checksums.read(READ_BYTES), b""))
    target.write_index(index_checksums_key, make_checksums(packed.index))
    target.write_index(key.index_key, packed.index)
    return size_bytes


class _Packed:
    """The data file of a ledger, piece by piece; its index file when all were taken."""

    def __init__(self, ledger: KeptLedger) -> None:
        self._ledger = ledger
        self.index = b""

    def __iter__(self) -> Iterator[bytes]:
        status = self._ledger.status()
        writer = MapFileWriter(
            ledger_metadata(status),
            compression=FileCompression.BLOCK,
            sync=os.urandom(SYNC_BYTES),
            index_sync=os.urandom(SYNC_BYTES),
        )
        begin = 0
        while begin < status.entry_count:
            batch = self._ledger.read(begin, status.entry_count - 1, READ_BYTES)
            for number in range(len(batch)):
                payload = batch.data[batch.offsets[number] : batch.offsets[number + 1]]
                yield writer.append(begin + number, payload)
            begin = batch.stop_entry_id
        rest, self.index = writer.finish()
        yield rest


def _summed(pieces: Iterable[bytes], write: Callable[[bytes], object]) -> Iterator[bytes]:
    """The pieces as they are; the checksums of the file's chunks are written as these are whole."""
    held = b""
    for piece in pieces:
        held += piece
        whole = len(held) - len(held) % CHUNK_BYTES
        if whole:
            write(make_checksums(held[:whole])[HEAD_BYTES:])
            held = held[whole:]
        yield piece
    write(make_checksums(held)[HEAD_BYTES:])


def _cut(pieces: Iterable[bytes], block_bytes: int) -> Iterator[memoryview]:
    """The same bytes as blocks of one length, but for the last."""
    block = bytearray()
    for piece in pieces:
        left = memoryview(piece)
        while left:
            taken = left[: block_bytes - len(block)]
            block += taken
            left = left[len(taken) :]
            if len(block) == block_bytes:
                yield memoryview(block).toreadonly()
                block = bytearray()
    if block:
        yield memoryview(block).toreadonly()
