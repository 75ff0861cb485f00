"""From a run to its entries: the cursor over its windows, what lies in them, the decoder of messages, the chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.codec.cursor import EntryCursor, open_cursor
from offload_core.format.messages.arrays import Bytes
from offload_core.format.messages.chunks import Chunk
from offload_core.format.messages.decode import BATCH_BYTES, MessageDecoder
from offload_core.format.messages.opening import PayloadOpener
from offload_core.format.messages.schema import arrow_schema
from offload_core.reading.scan.fetch import Window, fetch_windows
from offload_core.reading.scan.tasks import ReadOptions, Run
from offload_core.storage.tier import Tier
from offload_hooks.errors import placed

ENTRIES_AT_ONCE = 16384

Longs = npt.NDArray[np.int64]

Located = tuple[Bytes, int | None, Longs, Longs, Longs]
"""Entries in order: where they lie, its place in the object; id, offset and length of each."""


class EntryLocator:
    """Finds the entries of windows, some at a time: those that reach `byte_room` bytes, `ENTRIES_AT_ONCE` at most."""

    def __init__(self, byte_room: int = BATCH_BYTES) -> None:
        self._byte_room = byte_room
        self._ids, self._offsets, self._lengths = (
            np.empty(ENTRIES_AT_ONCE, dtype=np.int64) for _ in range(3)
        )

    def locate(self, cursor: EntryCursor) -> Iterator[Located]:
        """What is left in the cursor's window, as `MessageDecoder.decode` takes it; the next of them replace these."""
        while not cursor.done and not cursor.starved:
            count = cursor.locate(self._ids, self._offsets, self._lengths, self._byte_room)
            if count == 0:
                break
            yield cursor.array, cursor.offset, self._ids[:count], self._offsets[:count], self._lengths[:count]


def walk_windows(run: Run, windows: Iterable[Window]) -> Iterator[tuple[Window, EntryCursor]]:
    """A run's windows, each with the cursor where it goes on, from the run's first entry on."""
    for window in windows:
        if window.begins_block:
            cursor = _open_cursor(run, window)
        elif not cursor.done:
            cursor.feed(window.data, window.offset)
        cursor.skip_to(run.start_entry_id)
        yield window, cursor
        window.walked_to(cursor.reached)


def _open_cursor(run: Run, window: Window) -> EntryCursor:
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
        gaps=run.has_gaps,
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
    locator = EntryLocator()
    with placed(key=run.data_key), contextlib.closing(fetch_windows(tier, (run,))) as windows:
        for _, cursor in walk_windows(run, windows):
            for located in locator.locate(cursor):
                yield from decoder.chunks(*located)
