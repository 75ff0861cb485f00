"""Which file a row belongs to: its topic and day, and what folder and file are called.

Folders are Hive's, `topic=<escaped name>/date=<day>`, as Spark, DuckDB, Polars and Arrow read them; of a name that is
too long for a file system the end is a digest (`topics`), and the manifest has the name itself. A file is named by
the position of its first row, with leading zeros, so that names sort as positions do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offload_core.metadata.catalogue.topics import name_of
from offload_core.reading.scan import Position

NEEDED_COLUMNS = ("__topic", "__publishTime", "__ledgerId", "__entryId", "__batchIndex")
"""What a batch must have to be sorted into files."""

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

    def key_of(self, first: Position, attempt: str) -> str:
        """The key of the file whose first row is at `first`."""
        name = f"{first.ledger_id:019d}-{first.entry_id:019d}-{first.batch_index:09d}"
        return f"{folder_of(self.topic)}/date={self.date or NO_VALUE}/{name}{attempt}.parquet"


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
