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
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.codec.extent import ENTRIES_AT_ONCE, EntryCursor, LedgerExtent
from offload_core.format.codec.mapfile.crc_files import (
    CHECKSUM_BYTES,
    HEAD_BYTES,
    ChecksumVerifier,
    parse_checksum_head,
)
from offload_core.format.messages.arrow_arrays import Constant, new_bytes, new_offsets
from offload_core.format.messages.kernels.entry_fields import ABORTED, COMMITTED, OPEN
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES, MessageDecoder
from offload_core.format.messages.payload_opener import PayloadOpener
from offload_core.format.schemas import PayloadDecoder, decoded
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan.chunks_around import TaskOpening
from offload_core.reading.scan.extents import extents_ahead, lose
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.windows import Window, fetch_windows, message_decoder, walk_windows
from offload_core.storage.tier import Tier
from offload_hooks.counts import StoreCounts, counting
from offload_hooks.errors import BadLengthError, RangeError, placed

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
    tier: Tier, task: ScanTask, options: ReadOptions, report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Read a task's extents. `report` is called at the end with what that took, which is logged as well.

    Raises:
        FormatError: bytes that the format does not allow.
        StoreError: the store fails.
        DataLossError: entries are missing in the middle of a ledger (`fail_on_data_loss`).
        UnresolvedTransactionError: the task is none of those that `Scan.tasks` has, and it would have to know more.
        OptionError, PluginError: the key provider cannot be used.
    """
    return measured(_read_task(tier, task, options), report)


def _read_task(tier: Tier, task: ScanTask, options: ReadOptions) -> Generator[pa.RecordBatch, None, None]:
    typing, opening = _Typing(options), TaskOpening(tier, task, options)
    if options.times is None:
        yield from _read_extents(tier, task.extents, typing, opening, options)
        return
    for _, of_topic in itertools.groupby(task.extents, key=lambda extent: extent.topic):
        yield from _read_extents(tier, tuple(of_topic), typing, opening, options)


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


def _read_extents(
    tier: Tier,
    planned: Sequence[ScanExtent | ScanLedger],
    typing: _Typing,
    opening: TaskOpening,
    options: ReadOptions,
) -> Iterator[pa.RecordBatch]:
    # Closed at once on errors too, not when garbage is collected: that may be in the middle of a thread's start.
    with (
        contextlib.closing(extents_ahead(tier, planned, options.fail_on_data_loss)) as extents,
        contextlib.closing(fetch_windows(tier, extents)) as fetched,
    ):
        ended = False
        for extent, windows in itertools.groupby(fetched, key=lambda window: window.extent):
            opener = opening.of(extent)
            with placed(key=extent.data_key, ledger_id=extent.ledger_id):
                verifier = checksum_verifier(tier, extent) if options.verify_checksums else None
                ended = yield from _read_extent(extent, windows, typing, options, verifier, opener)
            if ended:
                break
        opening.finish(is_over=ended)


def _read_extent(
    extent: ScanExtent,
    windows: Iterator[Window],
    typing: _Typing,
    options: ReadOptions,
    verifier: ChecksumVerifier | None,
    opener: PayloadOpener,
) -> Generator[pa.RecordBatch, None, bool]:
    """Read an extent's batches; return True if what follows of its topic is after the range of times."""
    schema, typed = typing.of(extent)
    decoder = message_decoder(extent, schema, options, opener)
    end_ms = None if options.times is None else options.times.end_ms
    read = entry_reader(extent, schema) if options.level == "entries" else message_reader(extent, decoder)
    ended = False
    for _, cursor in walk_windows(extent, _verified(windows, verifier)):
        yield from read(cursor) if typed is None else decoded(read(cursor), typed)
        ended = end_ms is not None and decoder.earliest_ms >= end_ms
        if ended:
            break
    if typed is not None:
        typed.report()
    elif decoder.names_schemas:
        _log.info(
            "%s, ledger %d: the messages have a schema; `value` is binary. The option `schemas` gives typed columns",
            extent.label,
            extent.ledger_id,
        )
    if not ended:
        _check_extent(extent, cursor.next_entry_id, cursor.payload_bytes, options.fail_on_data_loss)
    return ended


def _verified(windows: Iterable[Window], verifier: ChecksumVerifier | None) -> Iterator[Window]:
    for window in windows:
        if verifier is not None:
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


def message_reader(extent: ScanExtent, decoder: MessageDecoder) -> ReadWindow:
    """Make the reader of an extent's windows at level `messages`."""

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        for located in cursor.located(BATCH_BYTES):
            entry_ids = located.entry_ids
            yield from decoder.decode(
                *located,
                start_batch=extent.start_batch if entry_ids[0] == extent.start_entry_id else 0,
                stop_batch=extent.stop_batch or None if entry_ids[-1] + 1 == extent.stop_entry_id else None,
                states=_states(extent, entry_ids),
            )

    return read


def _states(extent: ScanExtent, entry_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int8] | None:
    """The outcome of each entry's transaction, as the decoder takes it."""
    states = None
    for ranges, state in ((extent.aborted, ABORTED), (extent.open, OPEN)):
        mask = ranges.mask(entry_ids)
        if mask is not None:
            states = np.full(len(entry_ids), COMMITTED, dtype=np.int8) if states is None else states
            states[mask] = state
    return states


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
