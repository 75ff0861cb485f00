"""What an export deals in: files that were written, what a task gives back, and how far an export has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import OptionError

DEFAULT_ROW_GROUP_BYTES = 64 << 20
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """How Parquet files are written.

    Attributes:
        compression: one of `COMPRESSIONS`; `compression_level` None for the codec's own.
        row_group_bytes: about so many bytes of rows in memory make a row group.
    """

    compression: str = "zstd"
    compression_level: int | None = None
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES

    def check(self) -> None:
        """Refuse what makes no sense: `OptionError`."""
        if self.compression not in COMPRESSIONS:
            raise OptionError(
                "Parquet knows no such compression",
                expected=", ".join(COMPRESSIONS),
                found=repr(self.compression),
            )
        if self.row_group_bytes < 1:
            raise OptionError("a row group needs room", expected="1 byte or more", found=self.row_group_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedUpload:
    """A file that is stored and that nobody sees: what any process needs to make it visible."""

    upload: Upload
    receipts: tuple[BlockReceipt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A Parquet file of one topic and day, its rows in order of positions.

    Attributes:
        key: its place in the target.
        date: the day of publishing in UTC, `YYYY-MM-DD`; None for times that no calendar of the readers has.
        first, last: positions of its first and last row.
        staged: how to make it visible, where the target wants that done at the commit.
    """

    key: str
    topic: str
    date: str | None
    rows: int
    size_bytes: int
    first: Position
    last: Position
    staged: StagedUpload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one scan task became.

    `reached` is, by topic, where a later export goes on once the files are committed.
    """

    files: tuple[ExportedFile, ...]
    reached: Mapping[TopicName, Position]
    data_bytes: int


class FileSink(Protocol):
    """A file that is being written: `file` is what pyarrow writes to, and what knows by `tell()` how much."""

    file: Any

    def finish(self) -> StagedUpload | None:
        """All is written; the upload, if it is not visible yet."""

    def discard(self) -> None:
        """Give up what was written so far, as far as the store lets us."""


class FilePlace(Protocol):
    """Where workers write files; picklable."""

    def open(self, key: str) -> FileSink:
        """A new file. `key` is relative to the place."""

    @property
    def attempt(self) -> str:
        """What ends a file's name: empty, or different for each export where files are visible at once."""


class Target(Protocol):
    """Where an export goes, which is also where it is written down how far it has come."""

    commit_bytes: int
    """About so many stored bytes of topics make a commit."""

    def load(self) -> Mapping[TopicName, Position]:
        """Finish what a killed export left half done; by topic the first position that is not exported."""

    def place(self, schema: pa.Schema) -> FilePlace:
        """Where files of this schema are written."""

    def commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        """Make the files part of the target, and write down how far it has come: both at once, or neither.

        Raises:
            StoreError: another export has committed since `load`; or the store fails.
        """

    def close(self) -> None:
        """Give back connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """How far a round has come: stored bytes of topics that were read, of all; what was written, committed or not."""

    done_bytes: int
    total_bytes: int
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export has committed.

    Attributes:
        rows, files, size_bytes: of the files.
        data_bytes: stored bytes of topics that were read for them.
        complete: False if it was stopped before the end of what was planned.
    """

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    data_bytes: int = 0
    complete: bool = True

    def plus(self, result: TaskResult) -> ExportReport:
        """With what one more task gave."""
        return ExportReport(
            rows=self.rows + sum(file.rows for file in result.files),
            files=self.files + len(result.files),
            size_bytes=self.size_bytes + sum(file.size_bytes for file in result.files),
            data_bytes=self.data_bytes + result.data_bytes,
            complete=self.complete,
        )
