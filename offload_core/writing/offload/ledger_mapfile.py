"""`LedgerMapFile`: a ledger's MapFile, as Pulsar's offloader `filesystem` leaves it, with `.crc` files.

Values are compressed in blocks, as Pulsar's documentation configures it. The metadata of the ledger is the first record
of the data file, so the record of a filter, which is known at the end, is in the header of the index file. Source:
docs/formats/mapfile.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import IO

from offload_core.format.codec.mapfile.crc_files import CHUNK_BYTES, HEAD_BYTES, make_checksums
from offload_core.format.codec.mapfile.sequence_file import SYNC_BYTES, FileCompression
from offload_core.format.codec.mapfile.writer import MapFileWriter
from offload_core.metadata.records.filter_record import RECORD_KEY
from offload_core.writing.offload.attempt_objects import ledger_metadata
from offload_core.writing.offload.ledger_entries import LedgerEntries
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.ledger_stores import LedgerStatus


def cut_into_blocks(parts: Iterable[bytes], block_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes of the parts as blocks of one length, but for the last."""
    block = bytearray()
    for part in parts:
        left = memoryview(part)
        while left:
            taken = left[: block_bytes - len(block)]
            block += taken
            left = left[len(taken) :]
            if len(block) == block_bytes:
                yield memoryview(block).toreadonly()
                block = bytearray()
    if block:
        yield memoryview(block).toreadonly()


class LedgerMapFile:
    """Iterates once over the data file, in blocks; `index` is the index file then.

    Args:
        entries: of the ledger.
        status: the ledger's.
        block_bytes: the length of the blocks, but for the last.
        filter_run: the filter of the entries; None for none.
        checksums: gets the data file's `.crc` file.

    Attributes:
        count, data_length: the number of the blocks so far, and their bytes.

    Raises (as it is iterated over):
        OptionError: an entry is too long for the format.
        Exception: what `entries` raise.
    """

    def __init__(
        self,
        entries: LedgerEntries,
        status: LedgerStatus,
        block_bytes: int,
        filter_run: FilterRun | None,
        checksums: IO[bytes],
    ) -> None:
        self._entries = entries
        self._block_bytes = block_bytes
        self._filter_run = filter_run
        self._writer = MapFileWriter(
            ledger_metadata(status),
            compression=FileCompression.BLOCK,
            sync=os.urandom(SYNC_BYTES),
            index_sync=os.urandom(SYNC_BYTES),
        )
        self._checksums = checksums
        self.count = 0
        self.data_length = 0
        self.index = b""

    def __iter__(self) -> Iterator[memoryview]:
        for block in cut_into_blocks(self._summed(), self._block_bytes):
            self.count += 1
            self.data_length += len(block)
            yield block

    def _summed(self) -> Iterator[bytes]:
        """Yield the data file in parts; its checksums are written by the way."""
        self._checksums.write(make_checksums(b""))
        held = b""
        for part in self._packed():
            held += part
            whole = len(held) - len(held) % CHUNK_BYTES
            if whole:
                self._checksums.write(make_checksums(held[:whole])[HEAD_BYTES:])
                held = held[whole:]
            yield part
        self._checksums.write(make_checksums(held)[HEAD_BYTES:])

    def _packed(self) -> Iterator[bytes]:
        for batch in self._entries:
            values, borders = batch.values.data, batch.offsets.tolist()
            for number, entry_id in enumerate(batch.entry_ids.tolist()):
                if ready := self._writer.append(entry_id, values[borders[number] : borders[number + 1]]):
                    yield ready
        run = self._filter_run
        custom = () if run is None else ((RECORD_KEY, run.record().pack()),)
        rest, self.index = self._writer.finish(custom)
        yield rest
