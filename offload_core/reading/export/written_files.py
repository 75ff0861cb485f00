"""Write record batches to files of Parquet, CSV or JSON lines, one for each topic and day; in a Tier each is an upload.

Rows wait until there are enough for a row group. The bytes that wait and the number of open files are bounded: where
times alternate, files get smaller. A file is stored block by block, and is visible only once it is committed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from offload_core.format.messages.json_rows import flat_columns, json_lines
from offload_core.reading.export.export_files import (
    ExportedFile,
    FileFormat,
    FilePlace,
    FileSink,
    ParquetOptions,
    Partition,
    StagedUpload,
    position_at,
    split,
)
from offload_core.reading.scan import Position
from offload_core.storage.tier import Tier
from offload_hooks import BlockReceipt
from offload_hooks.values import ReadableBuffer

if TYPE_CHECKING:
    from typing_extensions import Self

BLOCK_BYTES = 8 << 20


class UploadSink(io.RawIOBase):
    """A file that becomes an upload; holds at most a block of it."""

    def __init__(self, tier: Tier, key: str) -> None:
        super().__init__()
        self.file = self
        self._tier = tier
        self._upload = tier.begin_data(key)
        self._block_bytes = max(BLOCK_BYTES, tier.describe().capabilities.min_block_bytes)
        self._pending = bytearray()
        self._receipts: list[BlockReceipt] = []
        self._offset = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self._offset + len(self._pending)

    def write(self, data: ReadableBuffer) -> int:  # type: ignore[override]
        """Write bytes; whole blocks are stored."""
        view = memoryview(data).cast("B")
        self._pending += view
        while len(self._pending) >= self._block_bytes:
            self._store(self._block_bytes)
        return len(view)

    def finish(self) -> StagedUpload:
        """Store the remaining bytes."""
        if self._pending:
            self._store(len(self._pending))
        return StagedUpload(upload=self._upload, receipts=tuple(self._receipts))

    def discard(self) -> None:
        """Drop the upload."""
        self._tier.abort_data(self._upload)

    def _store(self, length: int) -> None:
        block = bytes(memoryview(self._pending)[:length])
        receipt = self._tier.write_block(self._upload, len(self._receipts) + 1, self._offset, block)
        self._receipts.append(receipt)
        self._offset += length
        del self._pending[:length]


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Files are uploads to this Tier, with the same name in each attempt: the commit makes one of them visible."""

    tier: Tier
    attempt: str = ""

    def open(self, key: str) -> UploadSink:
        """A new upload."""
        return UploadSink(self.tier, key)


_OPEN_FILES = 32
_UNLIKE = frozenset(("value", "__key", "__messageId", "__orderingKey", "__sequenceId", "__entryId", "__uuid"))
"""Columns whose values hardly ever come twice: a dictionary of them costs time and saves nothing."""


class WrittenFiles:
    """The files that a task writes; a context manager, which discards unfinished files on an error."""

    def __init__(
        self, place: FilePlace, kind: FileFormat, options: ParquetOptions, columns: Sequence[str] | None
    ) -> None:
        self._place = place
        self._kind = kind
        self._options = options
        self._columns = columns
        self._open: dict[Partition, _OpenFile] = {}
        self._waiting_bytes = 0
        self._done: list[ExportedFile] = []
        self.last: dict[str, Position] = {}
        """The position of the last row, by topic."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Sort a batch's rows into their files."""
        for partition, rows in split(batch):
            self._write(partition, rows)

    def finish(self) -> tuple[ExportedFile, ...]:
        """Finish all files."""
        while self._open:
            self._finish_oldest()
        return tuple(self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.discard()

    def _write(self, partition: Partition, rows: pa.RecordBatch) -> None:
        self.last[partition.topic] = position_at(rows, -1)
        written = rows if self._columns is None else rows.select(self._columns)
        file = self._open.pop(partition, None)
        if file is not None and file.schema != written.schema:
            self._done.append(file.finish())
            file = None
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._finish_oldest()
            first = position_at(rows, 0)
            file = _OpenFile(self._place, self._kind, self._options, partition, first, written.schema)
        self._open[partition] = file  # the newest comes last
        self._waiting_bytes += file.add(written, position_at(rows, -1))
        if file.waiting_bytes >= self._options.row_group_bytes:
            self._waiting_bytes -= file.flush()
        elif self._waiting_bytes >= 2 * self._options.row_group_bytes:
            self._waiting_bytes -= sum(each.flush() for each in self._open.values())

    def _finish_oldest(self) -> None:
        file = self._open[next(iter(self._open))]
        self._waiting_bytes -= file.flush()
        self._done.append(file.finish())
        del self._open[file.partition]


class _ParquetWriter:
    def __init__(self, file: Any, schema: pa.Schema, options: ParquetOptions) -> None:
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression=options.compression,
            compression_level=options.compression_level,
            use_dictionary=[path for path, _ in _leaves(schema) if path.split(".")[0] not in _UNLIKE],
            write_statistics=[path for path, kind in _leaves(schema) if not pa.types.is_binary(kind)],
        )

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write a row group."""
        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class _CsvWriter:
    def __init__(self, file: Any, *_: object) -> None:
        self._file = file
        self._with_header = True

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write rows, the first ones after the names of the columns."""
        for batch in batches:
            text = pa.BufferOutputStream()
            pc.write_csv(flat_columns(batch), text, pc.WriteOptions(include_header=self._with_header))
            self._with_header = False
            self._file.write(text.getvalue())

    def close(self) -> None:
        """Nothing is left to write."""


class _JsonWriter:
    def __init__(self, file: Any, *_: object) -> None:
        self._file = file

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write lines."""
        for batch in batches:
            self._file.write("".join(json_lines([batch])).encode())

    def close(self) -> None:
        """Nothing is left to write."""


_WRITERS: dict[FileFormat, type[_ParquetWriter | _CsvWriter | _JsonWriter]] = {
    "parquet": _ParquetWriter,
    "csv": _CsvWriter,
    "jsonl": _JsonWriter,
}


class _OpenFile:
    def __init__(
        self,
        place: FilePlace,
        kind: FileFormat,
        options: ParquetOptions,
        partition: Partition,
        first: Position,
        schema: pa.Schema,
    ) -> None:
        self.partition = partition
        self.schema = schema
        self.waiting_bytes = 0
        self._key = partition.key_of(first, place.attempt, kind)
        self._first = self._last = first
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._sink: FileSink = place.open(self._key)
        self._writer = _WRITERS[kind](self._sink.file, schema, options)

    def add(self, rows: pa.RecordBatch, last: Position) -> int:
        """Write rows; return their bytes in memory."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._last = last
        size = int(rows.nbytes)
        self.waiting_bytes += size
        return size

    def flush(self) -> int:
        """Write what waits as a row group; how many bytes of memory that was."""
        flushed = self.waiting_bytes
        if self._waiting:
            self._writer.write(self._waiting)
            self._waiting.clear()
            self.waiting_bytes = 0
        return flushed

    def finish(self) -> ExportedFile:
        """Write the end of the file."""
        self.flush()
        self._writer.close()
        size = self._sink.file.tell()
        staged = self._sink.finish()
        return ExportedFile(
            key=self._key,
            topic=self.partition.topic,
            date=self.partition.date,
            rows=self._rows,
            size_bytes=size,
            first=self._first,
            last=self._last,
            staged=staged,
        )

    def discard(self) -> None:
        """Abandon the file."""
        self._sink.discard()


def _leaves(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of Parquet, which are the leaves of ours: paths and types."""
    for field in schema:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_map(kind):
        yield from _leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(f"{path}.{field.name}", field.type)
    else:
        yield path, kind
