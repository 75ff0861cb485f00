"""Runs of entries → Arrow record batches of messages, by the kernels.

Entries whose payload cannot be read here (encrypted, chunks) are passed on raw, one row each, and counted. Left out are
markers, compacted-out messages, and entries of transactions that the caller says are not to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.messages.arrays import Bytes, Constant, Table
from offload_core.messages.checksum import crc32c_address
from offload_core.messages.columns import MAKERS, Group
from offload_core.messages.compression import decompress_into
from offload_core.messages.entry import read_messages, split_entry
from offload_core.messages.kernels import batches, entries
from offload_core.messages.kernels import fields as f
from offload_hooks.errors import (
    FormatError,
    MetadataError,
    OffloadError,
    UnresolvedTransactionError,
    placed,
)

BATCH_BYTES = 1 << 20
"""About how large a record batch is: it ends with the entry that reaches this."""

_EMPTY = np.empty(0, dtype=np.uint8)


@dataclass(slots=True, kw_only=True)
class EntryCounts:
    """What a decoder passed on that a consumer would not have seen so."""

    encrypted: int = 0
    chunks: int = 0


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
        refuse_transactions: raise an `UnresolvedTransactionError` before any of the entries that are given together,
            if one of them is of a transaction, or its marker.

    Attributes:
        earliest_ms: the earliest publish time of the entries that were decoded last.
        names_schemas: whether an entry named a version of its topic's schema.
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
        self.counts = EntryCounts()
        self.names_schemas = False

    def decode(
        self,
        block: Bytes,
        block_offset: int | None,
        first_entry_id: int,
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        *,
        start_batch: int = 0,
        stop_batch: int | None = None,
        states: npt.NDArray[np.int8] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of consecutive entries, in batches of about 1 MiB, none of them empty.

        A decoder decodes one run of entries at a time: its tables are used again for the next.

        Args:
            block: uint8, read-only; the entries' payloads lie in it.
            block_offset: the block's place in its object, for errors; None if it has none.
            first_entry_id: id of the first of the entries.
            offsets: int64, where in `block` each payload begins; `lengths` int64, its bytes.
            start_batch: leave out the first entry's messages before this batch index.
            stop_batch: leave out the last entry's messages from this batch index on.
            states: of each entry the state of its transaction (`kernels.fields`); None if all are committed.

        Raises:
            FormatError: a subclass, with ledger, entry and byte.
            UnresolvedTransactionError: see `refuse_transactions`.
        """
        count = len(offsets)
        table = self._entry_table.shaped(count, f.E_FIELDS)
        right = entries.read_entries(block, offsets, lengths, count, self._checksum, table)
        if right < count:
            self._explain(block, block_offset, first_entry_id, offsets, lengths, right)
        self.names_schemas |= count > 0 and bool(table[0, f.E_SCHEMA_VERSION_LENGTH] >= 0)
        if states is not None:
            table[:, f.E_TXN_STATE] = states
            if self._hide_unsettled:
                table[states != f.COMMITTED, f.E_MARKER_TYPE] = f.HIDDEN
        self._leave_out(table)
        compressed, raw, sizes, packed, transactional = self._survey(table)
        if transactional and self._refuse_transactions:
            raise UnresolvedTransactionError(
                "an entry is of a transaction whose outcome is not known",
                ledger_id=self._ledger_id,
                entry_id=first_entry_id,
                hint="Read the tasks that a Scan has.",
            )
        if packed:
            too_large = np.flatnonzero((compressed != 0) & ((sizes < 0) | (sizes > self._max_message_bytes)))
            if len(too_large):
                self._explain(block, block_offset, first_entry_id, offsets, lengths, int(too_large[0]))
        for first, last in _groups(sizes):
            try:
                scratch, scratch_offsets = self._decompress(block, table, compressed, sizes, first, last)
            except _WrongEntryError as wrong:
                self._explain(block, block_offset, first_entry_id, offsets, lengths, wrong.row)
            room = batches.message_room(table, first, last, sizes, raw)
            messages = self._message_table.shaped(f.M_FIELDS, room)
            made, wrong_row = batches.read_messages(
                block, scratch, table, first, last, scratch_offsets, raw, messages
            )
            if wrong_row >= 0:
                self._explain(block, block_offset, first_entry_id, offsets, lengths, wrong_row)
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
                first_entry_id=first_entry_id,
            )
            try:
                batch = self._to_batch(group)
            except FormatError as error:
                row = self._wrong_entry(group, error)
                raise error.at(
                    ledger_id=self._ledger_id,
                    entry_id=first_entry_id + row,
                    offset=None if block_offset is None else block_offset + int(offsets[row]),
                ) from error.__cause__
            yield batch

    def _leave_out(self, table: Table) -> None:
        """Hide entries that were published outside the range of times, as a broker's markers are hidden."""
        start, stop = self._times
        if start is None and stop is None:
            return
        published = table[:, f.E_PUBLISH_TIME]
        self.earliest_ms = int(published.min())
        outside = np.zeros(len(table), dtype=np.bool_)
        if start is not None:
            outside |= published < start
        if stop is not None:
            outside |= published >= stop
        table[outside, f.E_MARKER_TYPE] = 0

    def _survey(self, table: Table) -> tuple[Bytes, Bytes, npt.NDArray[np.int64], int, int]:
        """Per entry: to be decompressed? passed on raw? and the size of its payload as it will be read.

        Last, how many are to be decompressed, and how many are of transactions.
        """
        count = len(table)
        sizes = np.empty(count, dtype=np.int64)
        compressed, raw = np.empty(count, dtype=np.uint8), np.empty(count, dtype=np.uint8)
        encrypted, chunks, transactional, packed = batches.survey_entries(table, sizes, compressed, raw)
        self.counts.encrypted += encrypted
        self.counts.chunks += chunks
        return compressed, raw, sizes, packed, transactional

    def _decompress(
        self,
        block: Bytes,
        table: Table,
        compressed: Bytes,
        sizes: npt.NDArray[np.int64],
        first: int,
        last: int,
    ) -> tuple[Bytes, npt.NDArray[np.int64]]:
        """Decompress a group's payloads one behind another; the buffer, and each entry's place in it or −1."""
        places = np.full(len(table), -1, dtype=np.int64)
        chosen = np.flatnonzero(compressed[first:last]) + first
        if len(chosen) == 0:
            return _EMPTY, places
        ends = np.cumsum(sizes[chosen])
        if len(self._scratch) < ends[-1]:
            self._scratch = np.empty(max(int(ends[-1]), BATCH_BYTES), dtype=np.uint8)
        places[chosen] = ends - sizes[chosen]
        starts = table[chosen, f.E_PAYLOAD].tolist()
        stops = (table[chosen, f.E_PAYLOAD] + table[chosen, f.E_PAYLOAD_LENGTH]).tolist()
        codecs = table[chosen, f.E_COMPRESSION].tolist()
        place = 0
        for row, codec, start, stop, end in zip(
            chosen.tolist(), codecs, starts, stops, ends.tolist(), strict=True
        ):
            try:
                decompress_into(codec, block[start:stop], self._scratch[place:end])
            except OffloadError as error:
                raise _WrongEntryError(row) from error
            place = end
        return self._scratch, places

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
            return error.entry_id - group.first_entry_id
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

    def _explain(
        self,
        block: Bytes,
        block_offset: int | None,
        first_entry_id: int,
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        row: int,
    ) -> None:
        """Raise what is wrong with an entry that the kernels refused."""
        start = int(offsets[row])
        entry = block[start : start + int(lengths[row])].tobytes()
        place = None if block_offset is None else block_offset + start
        with placed(ledger_id=self._ledger_id, entry_id=first_entry_id + row, offset=place):
            try:
                parts = split_entry(entry, verify_checksum=self._verify_checksums)
            except FormatError as error:
                error.offset = None if place is None else place + (error.offset or 0)
                raise
            try:
                read_messages(parts, max_message_bytes=self._max_message_bytes)
            except FormatError as error:
                error.offset = None  # it counts in the decompressed payload
                raise
            raise MetadataError("an entry's metadata is not right")


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


class _WrongEntryError(Exception):
    """Carries the row of an entry that does not decompress to the place that explains it."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


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
