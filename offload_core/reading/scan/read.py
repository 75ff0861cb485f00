"""Read a task: Arrow record batches of about 1 MiB, in order of positions, and what reading them took.

Works in any process: all it needs is the task, the options and the Tier. Damaged bytes are an error that names object,
ledger, block, entry and byte.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.extent import ENTRIES_AT_ONCE, EntryCursor, LedgerExtent
from offload_core.format.codec.mapfile.crc_files import (
    CHECKSUM_BYTES,
    HEAD_BYTES,
    ChecksumVerifier,
    parse_checksum_head,
)
from offload_core.format.messages.arrow_arrays import Constant, new_bytes, new_offsets
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES
from offload_core.format.messages.payload_opener import PayloadOpener
from offload_core.format.schemas import PayloadDecoder, decoded
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan.chunks_around import TaskOpening
from offload_core.reading.scan.extents import extents_ahead, lose
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.transactions.deciding import Ends, HeldEntries, TopicTransactions
from offload_core.reading.scan.transactions.outcomes import States
from offload_core.reading.scan.windows import (
    FIRST_RANGE_BYTES,
    ExtentEntries,
    Window,
    fetch_windows,
    message_decoder,
    walk_windows,
)
from offload_core.storage.tier import Tier
from offload_hooks.counts import StoreCounts, counting
from offload_hooks.errors import BadLengthError, RangeError, UnresolvedTransactionError, placed

_log = logging.getLogger(__name__)
_task_log = logging.getLogger("offload_core.reading.scan.metrics")
"""The logger of `TaskMetrics`, by the name that docs/spark.md gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """Measurements of a task, to its end or to where it was stopped.

    Attributes:
        rows: rows that were given.
        bytes: stored bytes that were read: of blocks, indexes and checksums.
        ranges: requests for them.
        retries: calls that the layer `retry` made again. What a store's own client repeats is not seen.
        seconds: the time that reading took, without the use of the batches in between.
    """

    rows: int = 0
    bytes: int = 0
    ranges: int = 0
    retries: int = 0
    seconds: float = 0.0

    def plus(self, other: TaskMetrics) -> TaskMetrics:
        """The sum of both."""
        return TaskMetrics(
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            ranges=self.ranges + other.ranges,
            retries=self.retries + other.retries,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProgress:
    """How far a read is: stored bytes that were read, those of the whole (0 if that is not known), and rows."""

    done_bytes: int
    total_bytes: int
    rows: int


Report = Callable[[TaskMetrics], None]
"""A callback, called once per task, at its end, where it was read."""


def measured(
    batches: Generator[pa.RecordBatch, None, None], report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Pass on batches; at their end, or when closed, log their metrics and pass them to `report`."""
    counts = StoreCounts()
    context = counting(counts)
    rows, seconds = 0, 0.0
    try:
        while True:
            began = time.perf_counter()
            batch = context.run(next, batches, None)
            seconds += time.perf_counter() - began
            if batch is None:
                return
            rows += batch.num_rows
            yield batch
    finally:
        with contextlib.ExitStack() as last:
            last.callback(context.run, batches.close)
            metrics = TaskMetrics(
                rows=rows, bytes=counts.bytes, ranges=counts.ranges, retries=counts.retries, seconds=seconds
            )
            fields = asdict(metrics)
            # `context` is what Spark keeps of a worker's log record beside its text.
            _task_log.info(
                "a task gave %d rows of %d bytes in %d ranges, with %d retries, in %.3f s",
                *fields.values(),
                extra=fields | {"context": fields},
            )
            if report is not None:
                report(metrics)


def checksum_verifier(tier: Tier, extent: LedgerExtent) -> ChecksumVerifier | None:
    """Make the verifier of the extent's bytes; None if its object has no checksum file.

    Raises:
        FormatError: the `.crc` file is none, or too short.
        StoreError: the store fails.
    """
    key, file = extent.checksum_key, extent.sequence_file
    if key is None or file is None:
        return None
    with placed(key=key):
        try:
            size = parse_checksum_head(tier.read_range(key, 0, HEAD_BYTES))
            first = extent.blocks[0].offset // size
            last = -(-(extent.blocks[-1].offset + extent.blocks[-1].length) // size)
            checksums = tier.read_range(
                key, HEAD_BYTES + first * CHECKSUM_BYTES, (last - first) * CHECKSUM_BYTES
            )
        except RangeError as error:
            raise BadLengthError("a .crc file does not cover its file") from error
    return ChecksumVerifier(
        checksums=checksums, chunk_bytes=size, begin=first * size, data_length=file.length
    )


ReadWindow = Callable[[EntryCursor], Iterator[pa.RecordBatch]]


def read_task(
    tier: Tier,
    task: ScanTask,
    options: ReadOptions,
    report: Report | None = None,
    *,
    ends: Ends | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a task's extents. `report` is called at the end with what that took, which is logged as well.

    `ends` shows where the reads of topics end, if all tasks of a scan are read one after another.

    Raises:
        FormatError: bytes that the format does not allow.
        StoreError: the store fails.
        DataLossError: entries are missing in the middle of a ledger (`fail_on_data_loss`).
        UnresolvedTransactionError: a transaction has no end near its entries, and was not found open by the plan.
        OptionError, PluginError: the key provider cannot be used.
    """
    return measured(_TaskReader(tier, task, options, ends).read(), report)


class _Typing:
    """Makes typed columns of each topic's messages, where the options ask for them."""

    def __init__(self, options: ReadOptions) -> None:
        self._payloads = options.payloads
        self._schema = options.schema
        self._decoders: dict[str, PayloadDecoder] = {}

    def of(self, extent: ScanExtent) -> tuple[pa.Schema, PayloadDecoder | None]:
        """The columns that an extent is read with, and what makes of them those that are asked for."""
        if self._payloads is None:
            return self._schema, None
        topic = "" if extent.topic is None else TopicName(extent.topic).base
        if topic not in self._decoders:
            self._decoders[topic] = PayloadDecoder(self._payloads, topic or None, self._schema)
        typed = self._decoders[topic]
        return arrow_schema("messages", typed.needed), typed


class _ExtentReader:
    """Makes batches of an extent's messages."""

    def __init__(
        self, extent: ScanExtent, opener: PayloadOpener, typing: _Typing, options: ReadOptions
    ) -> None:
        self.extent = extent
        schema, self._typed = typing.of(extent)
        self._decoder = message_decoder(extent, schema, options, opener)
        self._end_ms = None if options.times is None else options.times.end_ms

    def read(self, entries: LocatedEntries, states: States | None) -> Iterator[pa.RecordBatch]:
        """The batches of some entries with the states of their transactions; None where these are not known.

        Raises:
            UnresolvedTransactionError: they would have to be known; before the first batch.
        """
        extent, entry_ids = self.extent, entries.entry_ids
        batches = self._decoder.decode(
            *entries,
            start_batch=extent.start_batch if entry_ids[0] == extent.start_entry_id else 0,
            stop_batch=extent.stop_batch or None if entry_ids[-1] + 1 == extent.stop_entry_id else None,
            states=states,
        )
        return batches if self._typed is None else decoded(batches, self._typed)

    @property
    def is_over(self) -> bool:
        """True if what follows of the topic is after the range of times."""
        return self._end_ms is not None and self._decoder.earliest_ms >= self._end_ms

    def report(self) -> None:
        """Report what was noticed."""
        if self._typed is not None:
            self._typed.report()
        elif self._decoder.names_schemas:
            _log.info(
                "%s, ledger %d: the messages have a schema; `value` is binary. The option `schemas` gives typed "
                "columns",
                self.extent.label,
                self.extent.ledger_id,
            )


class _TaskReader:
    """Reads the extents of one task."""

    def __init__(self, tier: Tier, task: ScanTask, options: ReadOptions, ends: Ends | None) -> None:
        self._tier = tier
        self._task = task
        self._options = options
        self._ends = ends
        self._typing = _Typing(options)
        self._cuts = dict(task.cuts)
        self._opening = TaskOpening(tier, task, options, self._cuts)

    def read(self) -> Generator[pa.RecordBatch, None, None]:
        """The batches, in order."""
        if self._options.times is None:
            yield from self._read_extents(self._task.extents)
            return
        for _, of_topic in itertools.groupby(self._task.extents, key=lambda extent: extent.topic):
            yield from self._read_extents(tuple(of_topic))

    def _read_extents(self, planned: Sequence[ScanExtent | ScanLedger]) -> Iterator[pa.RecordBatch]:
        tier, fail = self._tier, self._options.fail_on_data_loss
        # Closed at once on errors too, not when garbage is collected: that may be in the middle of a thread's start.
        with (
            contextlib.closing(extents_ahead(tier, planned, fail)) as extents,
            contextlib.closing(fetch_windows(tier, extents, head_bytes=FIRST_RANGE_BYTES)) as windows,
        ):
            if self._options.level == "entries":
                yield from self._read_entries(windows)
                return
            ended = yield from self._read_messages(planned, HeldEntries(self._located(windows)))
            self._opening.finish(is_over=ended)

    def _by_extent(self, windows: Iterable[Window]) -> Iterator[tuple[ScanExtent, Iterator[Window]]]:
        """The windows of each extent, verified by its checksums where it has some."""
        for extent, of_one in itertools.groupby(windows, key=lambda window: window.extent):
            assert isinstance(extent, ScanExtent)
            verifier = None
            if self._options.verify_checksums:
                with placed(ledger_id=extent.ledger_id):
                    verifier = checksum_verifier(self._tier, extent)
            yield extent, _verified(of_one, verifier)

    def _read_entries(self, windows: Iterable[Window]) -> Iterator[pa.RecordBatch]:
        for extent, of_one in self._by_extent(windows):
            read = entry_reader(extent, self._options.schema)
            with placed(key=extent.data_key, ledger_id=extent.ledger_id):
                for _, cursor in walk_windows(extent, of_one):
                    yield from read(cursor)
                self._check(extent, cursor.next_entry_id, cursor.payload_bytes)

    def _located(self, windows: Iterable[Window]) -> Iterator[ExtentEntries]:
        """The entries of the task, about as many at a time as a batch takes, and the ends of its extents."""
        for extent, of_one in self._by_extent(windows):
            with placed(key=extent.data_key, ledger_id=extent.ledger_id):
                for _, cursor in walk_windows(extent, of_one):
                    for entries in cursor.located(BATCH_BYTES):
                        yield ExtentEntries(extent, entries)
            yield ExtentEntries(extent, None, cursor.next_entry_id, cursor.payload_bytes)

    def _read_messages(
        self, planned: Sequence[ScanExtent | ScanLedger], held: HeldEntries
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Read the messages; return True if what follows of the topic is after the range of times."""
        reader: _ExtentReader | None = None
        transactions: TopicTransactions | None = None
        for item in held:
            extent = item.extent
            if reader is None or reader.extent is not extent:
                reader = _ExtentReader(extent, self._opening.of(extent), self._typing, self._options)
            if transactions is not None and transactions.topic != extent.topic:
                transactions, held.keeps = None, False
            with placed(key=extent.data_key, ledger_id=extent.ledger_id):
                if item.entries is None:
                    reader.report()
                    self._check(extent, item.next_entry_id, item.payload_bytes)
                    continue
                if transactions is None:
                    try:
                        yield from reader.read(item.entries, None)
                    except UnresolvedTransactionError:
                        item, held.keeps = item.kept(), True
                        transactions = TopicTransactions(
                            self._tier, self._task, self._options, held, self._ends, extent
                        )
                if transactions is not None:
                    decided = transactions.decide(item)
                    if transactions.cut is not None:
                        self._cuts[extent.topic] = transactions.cut
                    if decided is not None:
                        yield from reader.read(*decided)
                    elif planned[-1].topic == extent.topic:
                        reader.report()
                        return False
            if reader.is_over:
                reader.report()
                return True
        return False

    def _check(self, extent: ScanExtent, reached: int, payload_bytes: int) -> None:
        """Check an extent's end, as far as it is visible."""
        cut = self._cuts.get(extent.topic)
        visible = extent if cut is None else extent.before(cut)
        if visible is not None:
            _check_extent(visible, reached, payload_bytes, self._options.fail_on_data_loss)


def _verified(windows: Iterable[Window], verifier: ChecksumVerifier | None) -> Iterator[Window]:
    for window in windows:
        if verifier is not None and window.source is window.extent:
            verifier.update(window.data, window.offset)
        yield window


def entry_reader(extent: ScanExtent, schema: pa.Schema) -> ReadWindow:
    """Make the reader of an extent's windows at level `entries`."""
    constants = {
        name: Constant(pa.scalar(value, type=schema.field(name).type))
        for name, value in (("__topic", extent.topic), ("__ledgerId", extent.ledger_id))
        if name in schema.names
    }

    entry_ids = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        large = 0
        while not cursor.needs_window:
            room = large or min(BATCH_BYTES, len(cursor.array))
            (values_buffer, values), (offsets_buffer, offsets) = (
                new_bytes(room),
                new_offsets(ENTRIES_AT_ONCE),
            )
            count = cursor.copy(values, offsets, entry_ids)
            large = 0
            if count == 0:
                if not cursor.needs_window:
                    large = cursor.next_length  # an entry larger than a batch: a batch for itself
                continue
            arrays = []
            for name in schema.names:
                if name == "value":
                    buffers = [None, offsets_buffer, values_buffer]
                    arrays.append(pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0))
                elif name == "__entryId":
                    arrays.append(pa.array(entry_ids[:count].copy()))
                else:
                    arrays.append(constants[name].rows(count))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return read


def _check_extent(extent: ScanExtent, reached: int, payload_bytes: int, fail: bool) -> None:
    """Check an extent's end: no entry is missing before the next extent, and the bytes match the ledger's metadata."""
    if extent.next_entry_id is not None and reached < extent.next_entry_id:
        lose(
            f"entries of a ledger of {extent.label} have no copy here",
            extent.ledger_id,
            fail,
            entry_id=reached,
            expected=f"entries {reached} to {extent.next_entry_id - 1}",
        )
    elif extent.payload_bytes is not None and extent.payload_bytes != payload_bytes:
        _log.warning(
            "%s (ledger %d) holds %d bytes of entries, its metadata states %d: some are not offloaded yet, or the "
            "metadata is wrong, as it can be in the field, or the last entry of a block is",
            extent.data_key,
            extent.ledger_id,
            payload_bytes,
            extent.payload_bytes,
        )
