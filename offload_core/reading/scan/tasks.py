"""The tasks of a scan: plain values that cross to another process.

A task is a list of extents, an extent some consecutive blocks of one ledger in one object; or, in place of an extent, a
ledger whose index the worker reads itself. Source: design in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.messages.encryption import CRYPTO_FAILURE_ACTIONS, CryptoFailureAction
from offload_core.format.messages.message_columns import MODES, Level, Mode, arrow_schema
from offload_core.format.schemas import Payloads
from offload_core.metadata.catalogue import UNKNOWN_TOPIC, Ledger
from offload_core.reading.scan.positions import Position
from offload_core.storage.tier import PluginSpec
from offload_hooks.errors import OptionError

Place = tuple[int, int]
"""Ledger and entry."""

DEFAULT_MAX_MESSAGE_BYTES = 128 << 20
DEFAULT_TIME_SLACK_MS = 60_000
DEFAULT_CHUNK_LOOK_BACK_BYTES = 128 << 20
DEFAULT_MAX_PENDING_CHUNK_BYTES = 256 << 20
DEFAULT_TRANSACTION_TIMEOUT_MS = 600_000
DEFAULT_TRANSACTION_SEARCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A range of publish times, in milliseconds since the epoch; half-open, None for no bound.

    `slack_ms` is how much older than a message before it a message is taken to be at most.
    """

    start_ms: int | None = None
    stop_ms: int | None = None
    slack_ms: int = DEFAULT_TIME_SLACK_MS

    @property
    def end_ms(self) -> int | None:
        """Time after which no message of the range is expected."""
        return None if self.stop_ms is None else self.stop_ms + self.slack_ms


Isolation = Literal["committed", "uncommitted"]
"""The messages of transactions that are read: those that a consumer sees, or all."""

Chunks = Literal["joined", "raw"]
"""Join chunks to messages, or pass them on one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options for reading entries: those of `ScanOptions`, of the same names, that workers need.

    Attributes:
        times: leave out messages that were not published in this range.
        payloads: how payloads become typed columns; None to leave `value` as it is.
    """

    level: Level = "messages"
    columns: tuple[str, ...] | None = None
    verify_checksums: bool = True
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    fail_on_data_loss: bool = True
    times: TimeRange | None = None
    payloads: Payloads | None = None
    isolation: Isolation = "committed"
    mode: Mode = "FAILFAST"
    key_provider: PluginSpec | None = None
    crypto_failure_action: CryptoFailureAction | None = None
    chunks: Chunks = "joined"
    chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES
    max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    transaction_search_bytes: int = DEFAULT_TRANSACTION_SEARCH_BYTES

    @property
    def schema(self) -> pa.Schema:
        """The columns that are made."""
        if self.payloads is None:
            return arrow_schema(self.level, self.columns)
        return self.payloads.schema(self.columns)

    def check(self) -> None:
        """Refuse unknown levels, columns and words, and options that are for messages only: `OptionError`."""
        if self.level == "entries":
            if self.times is not None:
                raise OptionError(
                    "a range of times is for messages", expected="level messages", found=self.level
                )
            if self.payloads is not None:
                raise OptionError("entries have no schema", expected="level messages", found=self.level)
        for what, given, known in (
            ("mode", self.mode, MODES),
            ("crypto failure action", self.crypto_failure_action, (None, *CRYPTO_FAILURE_ACTIONS)),
            ("isolation", self.isolation, get_args(Isolation)),
            ("way to read chunks", self.chunks, ("joined", "raw")),
        ):
            if given not in known:
                words = ", ".join(word for word in known if word is not None)
                raise OptionError(f"there is no such {what}", expected=words, found=given)
        self.schema  # noqa: B018 - raises

    @property
    def needs_outcomes(self) -> bool:
        """True if the read depends on outcomes of transactions."""
        wanted = self.isolation == "committed" or "__txnState" in (self.columns or ())
        return self.level == "messages" and wanted

    @property
    def hides_open(self) -> bool:
        """True if nothing is read from a topic's first open transaction on."""
        return self.level == "messages" and self.isolation == "committed"

    @property
    def neighbour_bytes(self) -> int | None:
        """Stored bytes around a task that its read may depend on; None for nothing."""
        bytes_around = (
            *((self.chunk_look_back_bytes,) if self.joins_chunks else ()),
            *((self.transaction_search_bytes,) if self.needs_outcomes else ()),
        )
        return max(bytes_around, default=None)

    @property
    def joins_chunks(self) -> bool:
        """True if messages are joined from chunks."""
        return self.level == "messages" and self.chunks == "joined"

    @property
    def without_key(self) -> CryptoFailureAction:
        """The action for messages for which there is no key."""
        if self.crypto_failure_action is not None:
            return self.crypto_failure_action
        return "CONSUME" if self.key_provider is None else "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanExtent(LedgerExtent):
    """An extent that a scan reads, or some of its blocks, and which of their messages are asked for.

    Attributes:
        topic: full name, None if it is not known; `partition` −1 if it has none.
        start_batch: leave out the messages of the entry `begin_entry_id` before this one.
        stop_batch: with `stop_batch` > 0 the entry `stop_entry_id` − 1 is read up to that message.
        next_entry_id: the entry with which the ledger goes on elsewhere, None if it does not: a gap before it is data
            loss.
        payload_bytes: the size of the ledger's entries by its metadata, if all of them are read here.
        ends_by_time: somewhere in its last block the range of times is expected to end.
    """

    topic: str | None
    partition: int
    start_batch: int = 0
    stop_batch: int = 0
    next_entry_id: int | None = None
    payload_bytes: int | None = None
    ends_by_time: bool = False

    @property
    def label(self) -> str:
        """The topic as it is shown."""
        return self.topic or UNKNOWN_TOPIC

    @property
    def start_entry_id(self) -> int:
        """The first entry that is asked for, whether its object has it or not."""
        return self.begin_entry_id or 0

    def starting_at(self, entry_id: int) -> ScanExtent:
        """The extent without the entries before one of it."""
        begin = int(np.searchsorted(self.blocks.first_entry_ids, entry_id, side="right")) - 1
        return replace(
            self.with_blocks(self.blocks[max(begin, 0) :]),
            begin_entry_id=entry_id,
            start_batch=self.start_batch if entry_id == self.start_entry_id else 0,
            payload_bytes=None,
        )

    def before(self, place: Place) -> ScanExtent | None:
        """The extent without what comes from a place of its topic on; None if it is empty."""
        if self.ledger_id != place[0]:
            return self if self.ledger_id < place[0] else None
        return self.stopping_at(place[1])

    def stopping_at(self, entry_id: int) -> ScanExtent | None:
        """The extent without the entries from one on; None if it is empty."""
        if self.stop_entry_id is not None and self.stop_entry_id <= entry_id:
            return self
        blocks = self.blocks.where(self.blocks.first_entry_ids < entry_id)
        if not blocks or entry_id <= self.start_entry_id:
            return None
        return replace(
            self.with_blocks(blocks),
            stop_entry_id=entry_id,
            stop_batch=0,
            next_entry_id=None if self.next_entry_id is None else min(self.next_entry_id, entry_id),
            payload_bytes=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRange:
    """The entries of one ledger that are read."""

    start: int = 0
    start_batch: int = 0
    stop: int | None = None
    stop_batch: int = 0


ALL_ENTRIES = EntryRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLedger:
    """A ledger of a scan.

    Attributes:
        topic: full name, None if it is not known; `partition` −1 if it has none.
        asked: which of its entries.
        ends_at: the position that ends the read of its topic, if one does: what lies before it must be there.
        is_closed: later ledgers of its topic were offloaded, or, without records, begun to be: it gets no more entries.
        is_last: no later ledger of its topic is read: its offload may not be complete.
        ends_by_time: as of a `ScanExtent`.
    """

    topic: str | None
    partition: int
    ledger: Ledger
    asked: EntryRange = ALL_ENTRIES
    ends_at: Position | None = None
    is_closed: bool
    is_last: bool
    ends_by_time: bool = False

    @property
    def label(self) -> str:
        """The topic as it is shown."""
        return self.topic or UNKNOWN_TOPIC

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self.ledger.ledger_id

    @property
    def data_bytes(self) -> int:
        """Bytes of all the ledger's blocks."""
        return self.ledger.data_bytes

    def before(self, place: Place) -> ScanLedger | None:
        """The ledger without what comes from a place of its topic on; None if nothing is left."""
        if self.ledger_id != place[0]:
            return self if self.ledger_id < place[0] else None
        if self.asked.start >= place[1]:
            return None
        stop = place[1] if self.asked.stop is None else min(self.asked.stop, place[1])
        return replace(self, asked=replace(self.asked, stop=stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The ledgers and extents around a task's extents of one topic, in order.

    As far as transactions and messages in chunks may reach.

    Attributes:
        before: what ends where the task begins; `reaches_beginning` if there is nothing before it.
        after: what begins where the task ends; `reaches_end` if there is nothing after it.
    """

    before: tuple[ScanExtent | ScanLedger, ...] = ()
    reaches_beginning: bool = True
    after: tuple[ScanExtent | ScanLedger, ...] = ()
    reaches_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Extents that one worker reads one after another, and ledgers whose indexes it reads to find theirs.

    Attributes:
        neighbours: what lies around them, by their topics.
        cuts: the positions from which on nothing of a topic is visible, since a transaction is open there.
    """

    extents: tuple[ScanExtent | ScanLedger, ...]
    neighbours: Mapping[str | None, Neighbours] = field(default_factory=dict)
    cuts: Mapping[str | None, Place] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """Bytes that are fetched for it, indexes apart."""
        return sum(each.data_bytes for each in self.extents)
