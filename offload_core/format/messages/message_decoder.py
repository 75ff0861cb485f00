"""Consecutive entries → Arrow record batches of messages, by the kernels.

Entries that are encrypted or chunks are passed on raw, one row each, unless a `PayloadOpener` can do better. Left out
are markers, compacted-out messages, and entries of transactions that the caller excludes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.messages.arrow_arrays import Bytes, Constant, Table
from offload_core.format.messages.chunks import Chunk
from offload_core.format.messages.columns import MAKERS, Group
from offload_core.format.messages.entry import EntryParts, raise_fault, read_messages
from offload_core.format.messages.kernels import batches, entries
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.payload_opener import (
    EntryCounts,
    PayloadOpener,
    WrongPayloadError,
    fill_scratch,
    survey_payloads,
)
from offload_hooks.errors import FormatError, UnresolvedTransactionError

__all__ = ["BATCH_BYTES", "EntryCounts", "MessageDecoder"]

BATCH_BYTES = 1 << 20
"""About how large a record batch is: it ends with the entry that reaches this."""

_EMPTY = np.empty(0, dtype=np.uint8)
_NO_ROWS = np.empty(0, dtype=np.int64)


class MessageDecoder:
    """Decodes the entries of one ledger.

    Args:
        topic: the topic's full name, None if it is not known.
        partition: the topic's partition, −1 if it has none.
        ledger_id: the ledger.
        schema: the columns to make (`arrow_schema`).
        verify_checksums: whether to verify each entry's CRC-32C.
        max_message_bytes: the most that a payload may decompress to.
        times: leave out entries that were not published in this range of ms, half-open; None for no bound.
        hide_unsettled: leave out entries whose state is not `COMMITTED`.
        refuse_transactions: raise an `UnresolvedTransactionError` before any of the entries that are given together
            without states, if one of them is of a transaction, or its marker.
        opener: decrypts and joins; None passes on what is encrypted or a chunk.

    Attributes:
        earliest_ms: the earliest publish time of the entries that were decoded last.
        names_schemas: whether an entry named a version of its topic's schema.
        opener: the one given, or one that passes on.
        counts: what became of entries so far, those of the opener's other decoders included.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        partition: int,
        ledger_id: int,
        schema: pa.Schema,
        verify_checksums: bool,
        max_message_bytes: int,
        times: tuple[int | None, int | None] = (None, None),
        hide_unsettled: bool = False,
        refuse_transactions: bool = False,
        opener: PayloadOpener | None = None,
    ) -> None:
        self._times = times
        self.earliest_ms = -(2**63)
        self._ledger_id = ledger_id
        self._partition = partition
        self._schema = schema
        self._checksum = crc32c_address() if verify_checksums else 0
        self._verify_checksums = verify_checksums
        self._max_message_bytes = max_message_bytes
        self._hide_unsettled = hide_unsettled
        self._refuse_transactions = refuse_transactions
        self._constants = {
            name: Constant(pa.scalar(value, type=schema.field(name).type))
            for name, value in (("__topic", topic), ("__partition", partition), ("__ledgerId", ledger_id))
            if name in schema.names
        }
        self._scratch: Bytes = _EMPTY
        self._entry_table, self._message_table = _Table(), _Table()
        self.opener = PayloadOpener() if opener is None else opener
        self.counts = self.opener.counts
        self.names_schemas = False

    def decode(
        self,
        block: Bytes,
        block_offset: int | None,
        entry_ids: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        *,
        start_batch: int = 0,
        stop_batch: int | None = None,
        states: npt.NDArray[np.int8] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of entries, in batches of about 1 MiB, none of them empty.

        A decoder decodes one run of entries at a time: its tables are used again for the next.

        Args:
            block: uint8, read-only; the entries' payloads lie in it.
            block_offset: the block's place in its object, for errors; None if it has none.
            entry_ids: int64, the entries' ids, ascending.
            offsets: int64, where in `block` each payload begins; `lengths` int64, its bytes.
            start_batch: leave out the first entry's messages before this batch index.
            stop_batch: leave out the last entry's messages from this batch index on.
            states: of each entry the state of its transaction (`kernels.fields`); None where they are not known.

        Raises:
            FormatError: a subclass, with ledger, entry and byte.
            UnresolvedTransactionError: see `refuse_transactions`.
        """
        located = LocatedEntries(block, block_offset, entry_ids, offsets, lengths)
        count = len(offsets)
        table = self._read_entries(located)
        self.names_schemas |= count > 0 and bool(table[0, f.E_SCHEMA_VERSION_LENGTH] >= 0)
        if states is not None:
            table[:, f.E_TXN_STATE] = states
            if self._hide_unsettled:
                table[states != f.COMMITTED, f.E_MARKER_TYPE] = f.HIDDEN
        left_out = self._leave_out(table)
        plan = survey_payloads(table)
        if plan.transactional and self._refuse_transactions and states is None:
            raise UnresolvedTransactionError(
                "an entry is of a transaction whose outcome is not known",
                ledger_id=self._ledger_id,
                entry_id=int(entry_ids[0]),
            )
        self.opener.open(block, table, plan, self._ledger_id, entry_ids)
        plan.treatment[left_out] = f.LEAVE_OUT
        explain = functools.partial(self._explain, located, plan.opened)
        too_large = plan.too_large(self._max_message_bytes)
        if too_large is not None:
            explain(too_large)
        for first, last in _groups(plan.sizes):
            try:
                filled, scratch_offsets = fill_scratch(block, table, plan, first, last, self._room)
            except WrongPayloadError as wrong:
                explain(wrong.row)
            scratch = _EMPTY if filled is None else filled
            room = batches.message_room(table, first, last, plan.sizes, plan.treatment)
            messages = self._message_table.shaped(f.M_FIELDS, room)
            made, wrong_row = batches.read_messages(
                block, scratch, table, first, last, scratch_offsets, plan.sizes, plan.treatment, messages
            )
            if wrong_row >= 0:
                explain(wrong_row)
            messages = messages[:, :made]
            if start_batch and first == 0:
                messages = messages[:, (messages[f.M_ENTRY] != 0) | (_batch_index(messages) >= start_batch)]
            if stop_batch is not None and last == count:
                messages = messages[
                    :, (messages[f.M_ENTRY] != count - 1) | (_batch_index(messages) < stop_batch)
                ]
            if messages.shape[1] == 0:
                continue
            group = Group(
                block=block,
                scratch=scratch,
                entries=table,
                messages=messages,
                ledger_id=self._ledger_id,
                partition=self._partition,
                entry_ids=entry_ids,
                first_chunks=plan.first_chunks,
            )
            try:
                batch = self._to_batch(group)
            except FormatError as error:
                row = self._wrong_entry(group, error)
                raise error.at(
                    ledger_id=self._ledger_id,
                    entry_id=int(entry_ids[row]),
                    offset=None if block_offset is None else block_offset + int(offsets[row]),
                ) from error.__cause__
            yield batch

    def _leave_out(self, table: Table) -> npt.NDArray[np.int64]:
        """Hide entries that were published outside the range of times, as a broker's markers are hidden.

        Answers the rows of chunks that were: these are to be left out when they have been joined.
        """
        start, stop = self._times
        if start is None and stop is None:
            return _NO_ROWS
        published = table[:, f.E_PUBLISH_TIME]
        self.earliest_ms = int(published.min())
        outside = np.zeros(len(table), dtype=np.bool_)
        if start is not None:
            outside |= published < start
        if stop is not None:
            outside |= published >= stop
        is_chunk = (table[:, f.E_CHUNKS] > 1) & (table[:, f.E_MARKER_TYPE] < 0)
        table[outside & ~is_chunk, f.E_MARKER_TYPE] = 0
        return np.flatnonzero(outside & is_chunk)

    def chunks(self, located: LocatedEntries) -> list[Chunk]:
        """The chunks among entries, decrypted; errors as of `decode`."""
        table = self._read_entries(located)
        plan = survey_payloads(table)
        return self.opener.chunks_of(located.array, table, plan, self._ledger_id, located.entry_ids)

    def _read_entries(self, located: LocatedEntries) -> Table:
        """The table of the entries, a row each."""
        block, _, _, offsets, lengths = located
        count = len(offsets)
        table = self._entry_table.shaped(count, f.E_FIELDS)
        right = entries.read_entries(block, offsets, lengths, count, self._checksum, table)
        if right < count:
            self._explain(located, {}, right)
        return table

    def _room(self, size: int) -> Bytes:
        """Scratch memory of at least `size` bytes, used again and again."""
        if len(self._scratch) < size:
            self._scratch = np.empty(max(size, BATCH_BYTES), dtype=np.uint8)
        return self._scratch

    def _to_batch(self, group: Group) -> pa.RecordBatch:
        count = len(group.entry_rows)
        arrays = [
            self._constants[name].rows(count) if name in self._constants else MAKERS[name](group)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _wrong_entry(self, group: Group, error: FormatError) -> int:
        """The row of the entry that a group's columns cannot be made for, by halving the group."""
        if error.entry_id is not None:
            return int(np.searchsorted(group.entry_ids, error.entry_id))
        messages = group.messages
        while messages.shape[1] > 1:
            half = messages[:, : messages.shape[1] // 2]
            try:
                self._to_batch(replace(group, messages=half))
            except FormatError:
                messages = half
            else:
                messages = messages[:, half.shape[1] :]
        return int(messages[f.M_ENTRY, 0])

    def _explain(self, located: LocatedEntries, opened: Mapping[int, bytes], row: int) -> NoReturn:
        """Raise the error of an entry that the kernels refused."""

        def read(parts: EntryParts) -> object:
            whole = parts.opened(opened[row]) if row in opened else parts
            return read_messages(whole, max_message_bytes=self._max_message_bytes)

        raise_fault(
            located, row, ledger_id=self._ledger_id, verify_checksum=self._verify_checksums, read=read
        )


class _Table:
    """Memory of an int64 table, used again and again: to have new memory each time costs more than to fill it."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.int64)

    def shaped(self, rows: int, columns: int) -> Table:
        """A table of this shape, with whatever was in it before."""
        size = rows * columns
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.int64)
        return self._memory[:size].reshape(rows, columns)


def _batch_index(messages: Table) -> npt.NDArray[np.int64]:
    """Each message's place in its batch; 0 if it is in none."""
    places: npt.NDArray[np.int64] = np.maximum(messages[f.M_BATCH_INDEX], 0)
    return places


def _groups(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Split entries into runs, each ending with the entry that reaches `BATCH_BYTES`."""
    ends = np.cumsum(sizes)
    if len(ends) < 2 or ends[-2] < BATCH_BYTES:
        yield 0, len(sizes)  # as a run of entries that are not compressed always is
        return
    first, before = 0, 0
    while first < len(sizes):
        last = min(int(np.searchsorted(ends, before + BATCH_BYTES)) + 1, len(sizes))
        yield first, last
        first, before = last, int(ends[last - 1])
