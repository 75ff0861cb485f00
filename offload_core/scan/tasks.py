"""What a worker is given to read: plain values that cross to another process.

A task is a list of runs, a run some consecutive blocks of one ledger in one object. Source: design in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from offload_core.codec.index import IndexedBlock
from offload_core.codec.mapfile.header import SequenceFile
from offload_core.codec.object_format import ObjectFormat
from offload_core.messages.encryption import CRYPTO_FAILURE_ACTIONS, CryptoFailureAction
from offload_core.messages.schema import MODES, Level, Mode, arrow_schema
from offload_hooks.errors import OptionError

DEFAULT_MAX_MESSAGE_BYTES = 128 << 20
DEFAULT_CHUNK_LOOK_BACK_BYTES = 128 << 20
DEFAULT_MAX_PENDING_CHUNK_BYTES = 256 << 20

Chunks = Literal["joined", "raw"]
"""Whether chunks become messages, or are passed on one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProviderSpec:
    """A key provider: its entry-point name and its options, whose values are in no repr."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How entries are read.

    Attributes:
        level: `messages` or `entries`.
        columns: the columns to make, in order; None for the default ones.
        verify_checksums: verify the CRC-32C of every entry that has one, and a MapFile by its `.crc` file.
        max_message_bytes: the most that one payload may decompress to.
        fail_on_data_loss: entries that are missing in the middle are an error; else a warning.
        mode: what becomes of messages that cannot be read: encrypted ones that do not decrypt, incomplete ones.
        key_provider: who decrypts the data keys of encrypted messages; None for nobody.
        crypto_failure_action: what becomes of messages for which there is no key; None for FAIL with a key provider,
            CONSUME without.
        chunks: `joined` to messages, or `raw`, one by one.
        chunk_look_back_bytes: how far before a task the beginnings of its messages are looked for, in stored bytes.
        max_pending_chunk_bytes: the most that is held of messages that are not complete yet.
    """

    level: Level = "messages"
    columns: tuple[str, ...] | None = None
    verify_checksums: bool = True
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    fail_on_data_loss: bool = True
    mode: Mode = "FAILFAST"
    key_provider: KeyProviderSpec | None = None
    crypto_failure_action: CryptoFailureAction | None = None
    chunks: Chunks = "joined"
    chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES
    max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES

    def check(self) -> None:
        """Refuse levels, columns and words that there are not: `OptionError`."""
        arrow_schema(self.level, self.columns)
        for what, given, known in (
            ("mode", self.mode, MODES),
            ("crypto failure action", self.crypto_failure_action, (None, *CRYPTO_FAILURE_ACTIONS)),
            ("way to read chunks", self.chunks, ("joined", "raw")),
        ):
            if given not in known:
                words = ", ".join(word for word in known if word is not None)
                raise OptionError(f"there is no such {what}", expected=words, found=given)

    @property
    def joins_chunks(self) -> bool:
        """Whether messages are put together from chunks."""
        return self.level == "messages" and self.chunks == "joined"

    @property
    def without_key(self) -> CryptoFailureAction:
        """What becomes of messages for which there is no key."""
        if self.crypto_failure_action is not None:
            return self.crypto_failure_action
        return "CONSUME" if self.key_provider is None else "FAIL"


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
class Neighbours:
    """What lies around a task's runs of one topic, in order, as far as messages in chunks may reach.

    Attributes:
        before: runs that end where the task begins; `reaches_beginning` if there is nothing before them.
        after: runs that begin where the task ends; `reaches_end` if there is nothing after them.
    """

    before: tuple[Run, ...] = ()
    reaches_beginning: bool = True
    after: tuple[Run, ...] = ()
    reaches_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Runs that one worker reads one after another. `neighbours`: of the first and the last topic, by their names."""

    runs: tuple[Run, ...]
    neighbours: Mapping[str | None, Neighbours] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """Bytes that are fetched for it."""
        return sum(run.data_bytes for run in self.runs)
