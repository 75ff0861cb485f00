"""The values of an export, and which file a row belongs to: its topic and day.

Folders are Hive's, `topic=<escaped name>/date=<day>`, as Spark, DuckDB, Polars and Arrow read them; a name that is too
long for a file system ends with a digest (`topics`), and the manifest has the whole name. A file is named by the
position of its first row, with leading zeros, so that names sort as positions do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.topics import name_of
from offload_core.reading.scan import Position, ReadProgress
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import OptionError

DEFAULT_ROW_GROUP_BYTES = 64 << 20
FileFormat = Literal["parquet", "csv", "jsonl"]
"""What an export writes to a folder; also how its files' names end."""
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """Options for writing Parquet files.

    Attributes:
        compression: one of `COMPRESSIONS`; `compression_level` None for the codec's own.
        row_group_bytes: approximate size of a row group, by its rows in memory.
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
    """A file that is stored but not visible, with what any process needs to make it visible."""

    upload: Upload
    receipts: tuple[BlockReceipt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file of one topic and day, its rows in order of positions.

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


class FileSink(Protocol):
    """A file that is being written: pyarrow writes to `file`, whose `tell()` gives its size."""

    file: Any

    def finish(self) -> StagedUpload | None:
        """Complete the file; return the upload if it is not visible yet."""

    def discard(self) -> None:
        """Abandon the file, as far as the store allows."""


class FilePlace(Protocol):
    """A place where workers write files; picklable."""

    def open(self, key: str) -> FileSink:
        """A new file. `key` is relative to the place."""

    @property
    def attempt(self) -> str:
        """The end of a file's name: empty, or different for each export where files are visible at once."""


class Target(Protocol):
    """The target of an export; it also stores the position up to which each topic is exported."""

    commit_bytes: int
    """Commit after about this many stored bytes of topics."""

    def load(self) -> Mapping[TopicName, Position]:
        """Complete the last commit of a killed export; return the next position to export by topic."""

    def check_columns(self, schema: pa.Schema, fixed: Sequence[str]) -> None:
        """Refuse other columns than the target has, if it has any; called after `load`, before all else.

        Args:
            schema: of the rows.
            fixed: the columns that later exports must have as well; fields of payloads may come and go with their
                schemas unless they are asked for.

        Raises:
            OptionError.
        """

    def place(self, schema: pa.Schema) -> FilePlace:
        """The place for files of this schema."""

    def commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        """Make the files part of the target, and write down how far it has come: both at once, or neither.

        Raises:
            StoreError: another export has committed since `load`; or the store fails.
        """

    def settle(self) -> None:
        """Leave the target as readers want it; called when nothing is under way."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress(ReadProgress):
    """Progress of a round: of the read, and written files, committed or not."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The rows, files and bytes that an export has committed.

    Attributes:
        rows, files, size_bytes: of the files.
        data_bytes: stored bytes of topics that were read for them.
        complete: False if it was stopped before the end of the plan.
        since: where each topic stood before; of a Delta table, each that was exported now.
    """

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    data_bytes: int = 0
    complete: bool = True
    since: Mapping[TopicName, Position] = field(default_factory=dict, compare=False)

    def plus(self, later: ExportReport) -> ExportReport:
        """Both together; complete if the later one is."""
        return ExportReport(
            rows=self.rows + later.rows,
            files=self.files + later.files,
            size_bytes=self.size_bytes + later.size_bytes,
            data_bytes=self.data_bytes + later.data_bytes,
            complete=later.complete,
            since=later.since,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one scan task.

    `reached` is, by topic, where a later export goes on once the files are committed.
    """

    files: tuple[ExportedFile, ...]
    reached: Mapping[TopicName, Position]
    data_bytes: int

    @property
    def report(self) -> ExportReport:
        """What it adds to an export."""
        return ExportReport(
            rows=sum(file.rows for file in self.files),
            files=len(self.files),
            size_bytes=sum(file.size_bytes for file in self.files),
            data_bytes=self.data_bytes,
        )


NEEDED_COLUMNS = ("__topic", "__publishTime", "__ledgerId", "__entryId", "__batchIndex")
"""The columns by which rows are sorted into files."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = (
    int(np.datetime64(day, "D").astype(np.int64)) for day in ("0001-01-01", "9999-12-31")
)
_NO_DAY = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Partition:
    """A topic and a day, counted from 1970-01-01."""

    topic: str
    day: int

    @property
    def date(self) -> str | None:
        """The day as text; None outside of the years 1 to 9999, which readers do not know."""
        if not _FIRST_DAY <= self.day <= _LAST_DAY:
            return None
        return str(np.datetime64(self.day, "D"))

    def key_of(self, first: Position, attempt: str, kind: FileFormat) -> str:
        """The key of the file whose first row is at `first`."""
        name = f"{first.ledger_id:019d}-{first.entry_id:019d}-{first.batch_index:09d}"
        return f"{folder_of(self.topic)}/date={self.date or NO_VALUE}/{name}{attempt}.{kind}"


def folder_of(topic: str) -> str:
    """The folder of a topic's files."""
    return name_of(topic, before="topic=")


def split(batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """A batch's rows by topic and day, each part in the batch's order; mostly the batch itself."""
    if not batch.num_rows:
        return
    days = _days(batch.column("__publishTime"))
    topics = batch.column("__topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    if len(names) == 1 and days.min() == days.max():
        yield Partition(names[0], int(days[0])), batch
        return
    codes = topics.indices.to_numpy(zero_copy_only=False)
    pairs, which = np.unique(np.stack([codes, days]), axis=1, return_inverse=True)
    for number, (code, day) in enumerate(pairs.T):
        yield Partition(names[code], int(day)), batch.filter(pa.array(which.reshape(-1) == number))


def position_at(batch: pa.RecordBatch, row: int) -> Position:
    """The position of a row; the batch index of a message that is in none is 0."""
    ledger, entry, index = (
        batch.column(name)[row].as_py() for name in ("__ledgerId", "__entryId", "__batchIndex")
    )
    return Position(ledger, entry, max(index, 0))


def _days(times: pa.Array) -> npt.NDArray[np.int64]:
    micros = pc.fill_null(times.cast(pa.int64()), _NO_DAY).to_numpy()
    return np.floor_divide(micros, _DAY_US)  # type: ignore[no-any-return]
