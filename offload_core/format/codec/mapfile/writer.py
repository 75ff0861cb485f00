"""Writers of SequenceFiles and of MapFiles, as Hadoop writes them: bytes out, nothing stored.

With the same syncs the files are Hadoop's byte for byte, as far as zlib deflates as Hadoop's does. Source:
docs/formats/mapfile.md.
"""

from __future__ import annotations

from array import array

from offload_core.format.codec.ledger_metadata import LedgerMetadata, pack_ledger_metadata
from offload_core.format.codec.mapfile.index_file import METADATA_KEY
from offload_core.format.codec.mapfile.record_batches import KEY_BYTES, LENGTH_BYTES, SYNC_ESCAPE, deflate
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    SYNC_BYTES,
    Buffer,
    FileCompression,
    SequenceHeader,
    pack_counted,
    pack_header,
    pack_vint,
)
from offload_hooks.errors import OptionError

SYNC_INTERVAL_BYTES = 102_400
"""Least distance in bytes of Hadoop's sync marks in a file whose records stand alone."""

BLOCK_BYTES = 1_000_000
"""Bytes of keys and values that fill a compressed block: the default of Hadoop and of Pulsar's documentation."""

INDEX_INTERVAL = 128
"""Least distance, in records, of an index's records."""

MAX_VALUE_BYTES = (1 << 31) - 1 - KEY_BYTES - LENGTH_BYTES


class SequenceFileWriter:
    """Appends records with ascending keys to a SequenceFile.

    `length` is the file's length so far, in bytes; `take` hands out the bytes that were not taken yet.
    """

    def __init__(self, header: SequenceHeader, *, block_bytes: int = BLOCK_BYTES) -> None:
        if len(header.sync) != SYNC_BYTES:
            raise OptionError(
                "a sync has another length", expected=f"{SYNC_BYTES} bytes", found=len(header.sync)
            )
        self._compression = header.compression
        self._mark = SYNC_ESCAPE.to_bytes(4, "big", signed=True) + header.sync
        self._block_bytes = block_bytes
        self._parts = [pack_header(header)]
        self.length = len(self._parts[0])
        self._last_sync = 0
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._held_bytes = 0

    def append(self, key: int, value: bytes) -> None:
        """The next record: its key, its value as it is stored."""
        packed_key = key.to_bytes(KEY_BYTES, "big", signed=True)
        if self._compression is FileCompression.BLOCK:
            self._keys.append(packed_key)
            self._values.append(value)
            self._held_bytes += KEY_BYTES + len(value)
            if self._held_bytes >= self._block_bytes:
                self._flush()
            return
        if self.length >= self._last_sync + SYNC_INTERVAL_BYTES:
            self._put(self._mark)
            self._last_sync = self.length
        if self._compression is FileCompression.RECORD:
            value = deflate(value)
        record_length = KEY_BYTES + len(value)
        self._put(record_length.to_bytes(4, "big") + KEY_BYTES.to_bytes(4, "big") + packed_key)
        self._put(value)

    def take(self) -> bytes:
        """The bytes that were written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken

    def finish(self) -> bytes:
        """Write the last records, and take them; nothing is appended after that."""
        self._flush()
        return self.take()

    def _flush(self) -> None:
        if not self._keys:
            return
        key_lengths = bytes([KEY_BYTES]) * len(self._keys)
        value_lengths = b"".join(pack_vint(len(value)) for value in self._values)
        self._put(self._mark + pack_vint(len(self._keys)))
        for field in (key_lengths, b"".join(self._keys), value_lengths, b"".join(self._values)):
            self._put(pack_counted(deflate(field)))
        self._keys.clear()
        self._values.clear()
        self._held_bytes = 0

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self.length += len(data)


class IndexFileWriter:
    """Collects the records of an index file, of all that the data file has; `pack` gives its bytes.

    Args:
        interval: records between two records of the index, at least.
    """

    def __init__(self, interval: int = INDEX_INTERVAL) -> None:
        self._interval = interval
        self._keys, self._positions = array("q"), array("q")
        self._count = 0
        self._indexed_count = -interval
        self._indexed_position = 0

    def add(self, key: int, position: int) -> None:
        """The next record of the data file, and where it is, or the block that will hold it."""
        if self._count >= self._indexed_count + self._interval and position > self._indexed_position:
            self._keys.append(key)
            self._positions.append(position)
            self._indexed_count, self._indexed_position = self._count, position
        self._count += 1

    def pack(
        self, sync: bytes, custom: tuple[tuple[str, str], ...] = (), *, block_bytes: int = BLOCK_BYTES
    ) -> bytes:
        """The index file, block-compressed as Hadoop has it always; `custom` stands in its header."""
        header = SequenceHeader(
            compression=FileCompression.BLOCK, value_class=LONG_WRITABLE, sync=sync, metadata=custom
        )
        writer = SequenceFileWriter(header, block_bytes=block_bytes)
        for key, position in zip(self._keys, self._positions, strict=True):
            writer.append(key, position.to_bytes(8, "big"))
        return writer.finish()


class MapFileWriter:
    """Writes a ledger as Pulsar's filesystem offloader does.

    Args:
        metadata: of the ledger; it becomes the first record.
        compression: of the data file; the index is block-compressed always, as Hadoop has it.
        sync, index_sync: 16 random bytes of each file, which must not occur in it by chance.
        block_bytes: keys and values of a compressed block.
        index_interval: records between two records of the index, at least.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        compression: FileCompression,
        sync: bytes,
        index_sync: bytes,
        block_bytes: int = BLOCK_BYTES,
        index_interval: int = INDEX_INTERVAL,
    ) -> None:
        data_header = SequenceHeader(compression=compression, value_class=BYTES_WRITABLE, sync=sync)
        self._data = SequenceFileWriter(data_header, block_bytes=block_bytes)
        self._index_sync = index_sync
        self._block_bytes = block_bytes
        self._index = IndexFileWriter(index_interval)
        self._last_key = METADATA_KEY - 1
        self._append(METADATA_KEY, pack_ledger_metadata(metadata))

    def append(self, entry_id: int, payload: Buffer) -> bytes:
        """The next entry; the bytes of the data file that are ready.

        Raises:
            OptionError: an id that is not above the last one, or an entry that is too long for the format.
        """
        if entry_id <= self._last_key or entry_id < 0:
            raise OptionError(
                "entries are not appended in their order", expected=f"above {self._last_key}", found=entry_id
            )
        if len(payload) > MAX_VALUE_BYTES:
            raise OptionError(
                "an entry is too long for a MapFile",
                entry_id=entry_id,
                expected=f"at most {MAX_VALUE_BYTES} bytes",
                found=len(payload),
            )
        self._append(entry_id, payload)
        return self._data.take()

    def finish(self, custom: tuple[tuple[str, str], ...] = ()) -> tuple[bytes, bytes]:
        """The rest of the data file, and the whole index file.

        Args:
            custom: properties of the ledger that are known only now; they stand in the index file's header.
        """
        rest = self._data.finish()
        return rest, self._index.pack(self._index_sync, custom, block_bytes=self._block_bytes)

    def _append(self, key: int, payload: Buffer) -> None:
        self._index.add(key, self._data.length)
        self._data.append(key, b"".join([len(payload).to_bytes(LENGTH_BYTES, "big"), payload]))
        self._last_key = key
