"""A task → Arrow record batches of about 1 MiB, in order of positions.

Works in any process: all it needs is the task, the options and the Tier. Bytes that are wrong are an error that names
object, ledger, block, entry and byte.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from offload_core.codec.cursor import EntryCursor
from offload_core.codec.mapfile.checksums import ChecksumVerifier
from offload_core.messages.arrays import Constant, new_bytes, new_offsets
from offload_core.messages.decode import BATCH_BYTES, MessageDecoder
from offload_core.messages.opening import PayloadOpener
from offload_core.messages.schema import arrow_schema
from offload_core.scan.checksums import checksum_verifier
from offload_core.scan.entries import ENTRIES_AT_ONCE, message_decoder, open_window
from offload_core.scan.fetch import Window, fetch_windows
from offload_core.scan.opening import TaskOpening
from offload_core.scan.tasks import ReadOptions, Run, ScanTask
from offload_core.tier import Tier
from offload_hooks.errors import DataLossError, placed

_log = logging.getLogger(__name__)

ReadWindow = Callable[[EntryCursor], Iterator[pa.RecordBatch]]


def read_task(tier: Tier, task: ScanTask, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Read a task's runs.

    Raises:
        FormatError: bytes that are not what the format says.
        StoreError: the store fails.
        DataLossError: entries are missing in the middle of a ledger (`fail_on_data_loss`).
        OptionError, PluginError: the key provider cannot be used.
    """
    schema = arrow_schema(options.level, options.columns)
    # Closed at once on errors too, not when garbage is collected: that may be in the middle of a thread's start.
    opening = TaskOpening(tier, task, options)
    with contextlib.closing(fetch_windows(tier, task.runs)) as fetched:
        for run, windows in itertools.groupby(fetched, key=lambda window: window.run):
            opener = opening.of(run)
            with placed(key=run.data_key):
                verifier = checksum_verifier(tier, run) if options.verify_checksums else None
                yield from _read_run(run, windows, schema, options, verifier, opener)
        opening.finish()


def _read_run(
    run: Run,
    windows: Iterator[Window],
    schema: pa.Schema,
    options: ReadOptions,
    verifier: ChecksumVerifier | None,
    opener: PayloadOpener,
) -> Iterator[pa.RecordBatch]:
    if options.level == "entries":
        read = entry_reader(run, schema)
    else:
        read = message_reader(run, message_decoder(run, schema, options, opener))
    payload_bytes = 0
    for window in windows:
        if verifier is not None:
            verifier.update(window.data, window.offset)
        if window.begins_block:
            cursor = open_window(run, window)
        elif not cursor.done:
            cursor.feed(window.data, window.offset)
        cursor.skip_to(run.start_entry_id)
        yield from read(cursor)
        window.walked_to(cursor.reached)
        if window.ends_block:
            payload_bytes += cursor.payload_bytes
    _check_run(run, cursor.next_entry_id, payload_bytes, options.fail_on_data_loss)


def entry_reader(run: Run, schema: pa.Schema) -> ReadWindow:
    """How the blocks of a run are read at level `entries`: cursor → batches of its window."""
    constants = {
        name: Constant(pa.scalar(value, type=schema.field(name).type))
        for name, value in (("__topic", run.topic), ("__ledgerId", run.ledger_id))
        if name in schema.names
    }

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        large = 0
        while not cursor.done and not cursor.starved:
            room = large or min(BATCH_BYTES, len(cursor.array))
            (values_buffer, values), (offsets_buffer, offsets) = (
                new_bytes(room),
                new_offsets(ENTRIES_AT_ONCE),
            )
            count = cursor.copy(values, offsets)
            large = 0
            if count == 0:
                if not cursor.done and not cursor.starved:
                    large = cursor.next_length  # an entry larger than a batch: a batch for itself
                continue
            first = cursor.next_entry_id - count
            arrays = []
            for name in schema.names:
                if name == "value":
                    buffers = [None, offsets_buffer, values_buffer]
                    arrays.append(pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0))
                elif name == "__entryId":
                    arrays.append(pa.array(np.arange(first, first + count), type=pa.int64()))
                else:
                    arrays.append(constants[name].rows(count))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return read


def message_reader(run: Run, decoder: MessageDecoder) -> ReadWindow:
    """How the blocks of a run are read at level `messages`: cursor → batches of its window."""
    offsets = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)
    lengths = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)

    def read(cursor: EntryCursor) -> Iterator[pa.RecordBatch]:
        while not cursor.done and not cursor.starved:
            count = cursor.locate(offsets, lengths, BATCH_BYTES)
            if count == 0:
                break
            first = cursor.next_entry_id - count
            yield from decoder.decode(
                cursor.array,
                cursor.offset,
                first,
                offsets[:count],
                lengths[:count],
                start_batch=run.start_batch if first == run.start_entry_id else 0,
                stop_batch=run.stop_batch or None if cursor.next_entry_id == run.stop_entry_id else None,
            )

    return read


def _check_run(run: Run, reached: int, payload_bytes: int, fail: bool) -> None:
    """At a run's end: nothing missing before what follows, and as many bytes as the ledger's metadata says."""
    if run.next_entry_id is not None and reached < run.next_entry_id:
        error = DataLossError(
            f"entries of a ledger of {run.topic or '(unknown topic)'} have no copy here",
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
