"""What a worker is given to read: plain values that cross to another process.

A task is a list of runs, a run some consecutive blocks of one ledger in one object. Source: design in docs/spark.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from offload_core.codec.index import IndexedBlock
from offload_core.codec.mapfile.header import SequenceFile
from offload_core.codec.object_format import ObjectFormat
from offload_core.messages.schema import Level, arrow_schema
from offload_core.schemas import Payloads
from offload_hooks.errors import OptionError

DEFAULT_MAX_MESSAGE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How entries are read.

    Attributes:
        level: `messages` or `entries`.
        columns: the columns to make, in order; None for the default ones.
        verify_checksums: verify the CRC-32C of every entry that has one, and a MapFile by its `.crc` file.
        max_message_bytes: the most that one payload may decompress to.
        fail_on_data_loss: entries that are missing in the middle are an error; else a warning.
        payloads: how payloads become typed columns; None to leave `value` as it is.
    """

    level: Level = "messages"
    columns: tuple[str, ...] | None = None
    verify_checksums: bool = True
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    fail_on_data_loss: bool = True
    payloads: Payloads | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are made."""
        if self.payloads is None:
            return arrow_schema(self.level, self.columns)
        return self.payloads.schema(self.columns)

    def check(self) -> None:
        """Refuse levels and columns that there are not: `OptionError`."""
        if self.payloads is not None and self.level != "messages":
            raise OptionError("entries have no schema", expected="level messages", found=self.level)
        self.schema  # noqa: B018 - raises


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive blocks of one ledger in one data object, and which of their messages are asked for.

    Attributes:
        topic: full name, None if it is not known; `partition` −1 if it has none.
        data_key: the data object.
        start_entry_id, start_batch: leave out what comes before.
        stop_entry_id, stop_batch: leave out what comes from here on; `stop_entry_id` None reads to the blocks' end.
            With `stop_batch` > 0 the entry `stop_entry_id` − 1 is read up to that message.
        next_entry_id: the entry with which the ledger goes on elsewhere, None if it does not: a gap before it is data
            loss.
        payload_bytes: what the ledger's metadata says of all its entries, if this run is all of it.
        sequence_file: what the readers of a MapFile must know.
        checksum_key: the data object's file of checksums (`.crc`), where there is one.
    """

    topic: str | None
    partition: int
    ledger_id: int
    object_format: ObjectFormat
    data_key: str
    blocks: tuple[IndexedBlock, ...]
    start_entry_id: int = 0
    start_batch: int = 0
    stop_entry_id: int | None = None
    stop_batch: int = 0
    next_entry_id: int | None = None
    payload_bytes: int | None = None
    sequence_file: SequenceFile | None = None
    checksum_key: str | None = None

    @property
    def data_bytes(self) -> int:
        """Bytes that are fetched for it."""
        return sum(block.length for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Runs that one worker reads one after another."""

    runs: tuple[Run, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes that are fetched for it."""
        return sum(run.data_bytes for run in self.runs)
