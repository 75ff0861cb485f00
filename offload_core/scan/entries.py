"""From a run to its entries: the cursor over a block's bytes, the decoder of messages, and the chunks alone."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import numpy as np
import pyarrow as pa

from offload_core.codec.cursor import EntryCursor, open_cursor
from offload_core.messages.chunks import Chunk
from offload_core.messages.decode import BATCH_BYTES, MessageDecoder
from offload_core.messages.opening import PayloadOpener
from offload_core.messages.schema import arrow_schema
from offload_core.scan.fetch import Window, fetch_windows
from offload_core.scan.tasks import ReadOptions, Run
from offload_core.tier import Tier
from offload_hooks.errors import placed

ENTRIES_AT_ONCE = 16384


def open_window(run: Run, window: Window) -> EntryCursor:
    """The cursor over a block, from its first window."""
    stop, block = run.stop_entry_id, window.block
    if stop is not None and block.end_entry_id is not None and stop >= block.end_entry_id:
        stop = None  # the whole block is asked for: its end is checked as well
    return open_cursor(
        window.data,
        run.object_format,
        run.ledger_id,
        block,
        sequence_file=run.sequence_file,
        stop_entry_id=stop,
        more=not window.ends_block,
    )


def message_decoder(
    run: Run, schema: pa.Schema, options: ReadOptions, opener: PayloadOpener | None = None
) -> MessageDecoder:
    """The decoder of a run's entries."""
    return MessageDecoder(
        topic=run.topic,
        partition=run.partition,
        ledger_id=run.ledger_id,
        schema=schema,
        verify_checksums=options.verify_checksums,
        max_message_bytes=options.max_message_bytes,
        times=(None, None) if options.times is None else (options.times.start_ms, options.times.stop_ms),
        hide_unsettled=options.isolation == "committed",
        refuse_transactions=options.needs_outcomes and not run.resolved,
        opener=opener,
    )


def read_chunks(
    tier: Tier, run: Run, options: ReadOptions, opener: PayloadOpener
) -> Generator[Chunk, None, None]:
    """The chunks among a run's entries, in order. Who does not read to the end closes it.

    Raises:
        FormatError, StoreError: as when its messages are read.
    """
    decoder = message_decoder(run, arrow_schema("messages", ["value"]), options, opener)
    offsets = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)
    lengths = np.empty(ENTRIES_AT_ONCE, dtype=np.int64)
    with placed(key=run.data_key), contextlib.closing(fetch_windows(tier, (run,))) as windows:
        for window in windows:
            if window.begins_block:
                cursor = open_window(run, window)
            elif not cursor.done:
                cursor.feed(window.data, window.offset)
            cursor.skip_to(run.start_entry_id)
            while not cursor.done and not cursor.starved:
                count = cursor.locate(offsets, lengths, BATCH_BYTES)
                if count == 0:
                    break
                first = cursor.next_entry_id - count
                yield from decoder.chunks(
                    cursor.array, cursor.offset, first, offsets[:count], lengths[:count]
                )
            window.walked_to(cursor.reached)
