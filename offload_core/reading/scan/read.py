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

from offload_core.format.codec.cursor import EntryCursor
from offload_core.format.codec.mapfile.checksums import (
    CHECKSUM_BYTES,
    HEAD_BYTES,
    ChecksumVerifier,
    parse_checksum_head,
)
from offload_core.format.messages.arrays import Constant, new_bytes, new_offsets
from offload_core.format.messages.decode import BATCH_BYTES, MessageDecoder
from offload_core.format.messages.kernels.fields import ABORTED, COMMITTED, OPEN
from offload_core.format.messages.opening import PayloadOpener
from offload_core.format.messages.schema import arrow_schema
from offload_core.format.schemas import PayloadDecoder, decoded
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan.chunks_around import TaskOpening
from offload_core.reading.scan.runs import runs_ahead
from offload_core.reading.scan.tasks import LedgerShare, ReadOptions, Run, ScanTask
from offload_core.reading.scan.windows import (
    ENTRIES_AT_ONCE,
    EntryLocator,
    Window,
    fetch_windows,
    message_decoder,
    walk_windows,
)
from offload_core.storage.tier import Tier
from offload_hooks.counts import StoreCounts, counting
from offload_hooks.errors import BadLengthError, DataLossError, RangeError, placed

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
        seconds: the time that reading took, without what is done with the batches in between.
    """

    rows: int = 0
    bytes: int = 0
    ranges: int = 0
    retries: int = 0
    seconds: float = 0.0


Report = Callable[[TaskMetrics], None]
"""Is called once per task, at its end, where it was read."""


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


def checksum_verifier(tier: Tier, run: Run) -> ChecksumVerifier | None:
    """Make the verifier of the run's bytes; None if its object has no checksum file.

    Raises:
        FormatError: the `.crc` file is none, or too short.
        StoreError: the store fails.
    """
    key, file = run.checksum_key, run.sequence_file
    if key is None or file is None:
        return None
    with placed(key=key):
        try:
            size = parse_checksum_head(tier.read_range(key, 0, HEAD_BYTES))
            first = run.blocks[0].offset // size
            last = -(-(run.blocks[-1].offset + run.blocks[-1].length) // size)
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
    """Read a task's runs. `report` is called at the end with what that took, which is logged as well.

    Raises:
        FormatError: bytes that are not what the format says.
        StoreError: the store fails.
        DataLossError: entries are missing in the middle of a ledger (`fail_on_data_loss`).
        UnresolvedTransactionError: the task is none of those that `Scan.tasks` has, and it would have to know more.
        OptionError, PluginError: the key provider cannot be used.
    """
    return measured(_read_task(tier, task, options), report)


def _read_task(tier: Tier, task: ScanTask, options: ReadOptions) -> Generator[pa.RecordBatch, None, None]:
    typing, opening = _Typing(options), TaskOpening(tier, task, options)
    if options.times is None:
        yield from _read_runs(tier, task.runs, typing, opening, options)
        return
    for _, of_topic in itertools.groupby(task.runs, key=lambda run: run.topic):
        yield from _read_runs(tier, tuple(of_topic), typing, opening, options)


class _Typing:
    """Makes typed columns of each topic's messages, where the options ask for them."""

    def __init__(self, options: ReadOptions) -> None:
        self._payloads = options.payloads
        self._schema = options.schema
        self._decoders: dict[str, PayloadDecoder] = {}

    def of(self, run: Run) -> tuple[pa.Schema, PayloadDecoder | None]:
        """The columns that a run is read with, and what makes of them those that are asked for."""
        if self._payloads is None:
            return self._schema, None
        topic = "" if run.topic is None else TopicName(run.topic).base
        if topic not in self._decoders:
            self._decoders[topic] = PayloadDecoder(self._payloads, topic or None, self._schema)
        typed = self._decoders[topic]
        return arrow_schema("messages", typed.needed), typed


def _read_runs(
    tier: Tier,
    planned: Sequence[Run | LedgerShare],
    typing: _Typing,
    opening: TaskOpening,
    options: ReadOptions,
) -> Iterator[pa.RecordBatch]:
    # Closed at once on errors too, not when garbage is collected: that may be in the middle of a thread's start.
    with (
        contextlib.closing(runs_ahead(tier, planned, options.fail_on_data_loss)) as runs,
        contextlib.closing(fetch_windows(tier, runs)) as fetched,
    ):
        ended = False
        for run, windows in itertools.groupby(fetched, key=lambda window: window.run):
            opener = opening.of(run)
            with placed(key=run.data_key, ledger_id=run.ledger_id):
                verifier = checksum_verifier(tier, run) if options.verify_checksums else None
                ended = yield from _read_run(run, windows, typing, options, verifier, opener)
            if ended:
                break
        opening.finish(is_over=ended)


def _read_run(
    run: Run,
    windows: Iterator[Window],
    typing: _Typing,
    options: ReadOptions,
    verifier: ChecksumVerifier | None,
    opener: PayloadOpener,
) -> Generator[pa.RecordBatch, None, bool]:
    """A run's batches; in the end whether nothing of the range of times is expected in what follows of its topic."""
    schema, typed = typing.of(run)
    decoder = message_decoder(run, schema, options, opener)
    end_ms = None if options.times is None else options.times.end_ms
    read = entry_reader(run, schema) if options.level == "entries" else message_reader(run, decoder)
    payload_bytes, ended = 0, False
    for window, cursor in walk_windows(run, _verified(windows, verifier)):
        yield from read(cursor) if typed is None else decoded(read(cursor), typed)
        if window.ends_block:
            payload_bytes += cursor.payload_bytes
        ended = end_ms is not None and decoder.earliest_ms >= end_ms
        if ended:
            break
    if typed is not None:
        typed.report()
    elif decoder.names_schemas:
        _log.info(
            "%s, ledger %d: the messages have a schema; `value` is binary. The option `schemas` gives typed columns",
            run.label,
            run.ledger_id,
        )
    if not ended:
        _check_run(run, cursor.next_entry_id, payload_bytes, options.fail_on_data_loss)
    return ended


def _verified(windows: Iterable[Window], verifier: ChecksumVerifier | None) -> Iterator[Window]:
    for window in windows:
        if verifier is not None:
            verifier.update(window.data, window.offset)
        yield window


def entry_reader(run: Run, schema: pa.Schema) -> ReadWindow:
    """Make the reader of a run's windows at level `entries`."""
    constants = {
        name: Constant(pa.scalar(value, type=schema.field(name).type))
        for name, value in (("__topic", run.topic), ("__ledgerId", run.ledger_id))
        if name in schema.names
    }

    entry_ids = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        large = 0
        while not cursor.done and not cursor.starved:
            room = large or min(BATCH_BYTES, len(cursor.array))
            (values_buffer, values), (offsets_buffer, offsets) = (
                new_bytes(room),
                new_offsets(ENTRIES_AT_ONCE),
            )
            count = cursor.copy(values, offsets, entry_ids)
            large = 0
            if count == 0:
                if not cursor.done and not cursor.starved:
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


def message_reader(run: Run, decoder: MessageDecoder) -> ReadWindow:
    """Make the reader of a run's windows at level `messages`."""
    locator = EntryLocator()

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        for located in locator.locate(cursor):
            _, _, entry_ids, _, _ = located
            yield from decoder.decode(
                *located,
                start_batch=run.start_batch if entry_ids[0] == run.start_entry_id else 0,
                stop_batch=run.stop_batch or None if entry_ids[-1] + 1 == run.stop_entry_id else None,
                states=_states(run, entry_ids),
            )

    return read


def _states(run: Run, entry_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int8] | None:
    """The outcome of each entry's transaction, as the decoder takes it."""
    states = None
    for ranges, state in ((run.aborted, ABORTED), (run.open, OPEN)):
        mask = ranges.mask(entry_ids)
        if mask is not None:
            states = np.full(len(entry_ids), COMMITTED, dtype=np.int8) if states is None else states
            states[mask] = state
    return states


def _check_run(run: Run, reached: int, payload_bytes: int, fail: bool) -> None:
    """At a run's end: nothing missing before what follows, and as many bytes as the ledger's metadata says."""
    if run.next_entry_id is not None and reached < run.next_entry_id:
        error = DataLossError(
            f"entries of a ledger of {run.label} have no copy here",
            ledger_id=run.ledger_id,
            entry_id=reached,
            expected=f"entries {reached} to {run.next_entry_id - 1}",
            hint="Set failOnDataLoss to false to read what there is.",
        )
        if fail:
            raise error
        _log.warning("%s", error)
    elif run.payload_bytes is not None and run.payload_bytes != payload_bytes:
        _log.warning(
            "%s (ledger %d) holds %d bytes of entries, its metadata says %d: some are not offloaded yet, or the "
            "metadata is wrong, as it can be in the field, or the last entry of a block is",
            run.data_key,
            run.ledger_id,
            payload_bytes,
            run.payload_bytes,
        )
