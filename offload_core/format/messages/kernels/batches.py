"""From entries to one table column per message: batches are taken apart, markers and compacted-out messages left out.

The value of an entry lies in the block, or, once decompressed, in the scratch buffer (`scratch_offsets[i]` ≥ 0).
Arguments that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import load_i32
from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.protobuf_fields import LAST_FIELD, read_varint, skip_field

LEAST_MESSAGE_BYTES = 6
"""Least bytes of a message in a batch: its metadata's length, and the required `payload_size`."""


@kernel
def survey_entries(entries, sizes, compressed, raw):
    """Decide about each entry: its payload's size as it will be read, whether to decompress or pass it on.

    `entries` int64 table; `sizes` int64, `compressed` and `raw` (`READ` or `PASS_ON`) uint8 (outputs). Answers how many
    are encrypted, chunks, of transactions (markers as well), and compressed.
    Bounds: the outputs have as many as `entries`, whose rows have `E_FIELDS`.
    """
    if len(entries) > min(len(sizes), len(compressed), len(raw)) or entries.shape[1] < f.E_FIELDS:
        raise IndexError("entries do not fit the output")
    encrypted = chunks = transactional = packed = 0
    for i in range(len(entries)):
        entry = entries[i]
        seen = entry[f.E_MARKER_TYPE] < 0
        is_encrypted = seen and entry[f.E_ENCRYPTION_KEYS] > 0
        is_chunk = seen and entry[f.E_CHUNKS] > 1
        encrypted += is_encrypted
        chunks += is_chunk
        transactional += entry[f.E_TXN_MOST] != -1 and entry[f.E_TXN_LEAST] != -1
        raw[i] = f.PASS_ON if is_encrypted or is_chunk else f.READ
        compressed[i] = seen and raw[i] == f.READ and entry[f.E_COMPRESSION] != 0
        packed += compressed[i]
        sizes[i] = entry[f.E_UNCOMPRESSED_SIZE] if compressed[i] else entry[f.E_PAYLOAD_LENGTH]
    return encrypted, chunks, transactional, packed


@kernel
def message_room(entries, first, last, sizes, raw):
    """Number of messages that the entries `first` … `last` − 1 can have: never more than their bytes have room for.

    Bounds: 0 ≤ `first` ≤ `last` ≤ the arrays' lengths.
    """
    if not 0 <= first <= last <= min(len(entries), len(sizes), len(raw)) or entries.shape[1] < f.E_FIELDS:
        raise IndexError("no such entries")
    room = np.int64(0)
    for i in range(first, last):
        declared = entries[i, f.E_BATCH_SIZE]
        if raw[i] != f.READ or declared < 0:
            room += 1
        else:
            room += max(min(declared, sizes[i] // LEAST_MESSAGE_BYTES), 0)
    return room


@kernel
def _read_single(data, position, end, table, at):
    """Fill column `at` from a `SingleMessageMetadata`.

    Answers (payload size, compacted out); the size is −1 if something is not right.
    Bounds: `data[position:end]` and column `at`, which the callers have checked; rows by their names, below `M_FIELDS`.
    """
    size = np.int64(-1)
    compacted_out = False
    flags = 0
    table[f.M_METADATA, at], table[f.M_METADATA_END, at] = position, end
    while position < end:
        tag, position = read_varint(data, position, end)
        if position < 0:
            return np.int64(-1), False
        field, wire_type = tag >> 3, tag & 7
        if wire_type == 0 and 0 < field <= LAST_FIELD:
            value, position = read_varint(data, position, end)
            if position < 0:
                return np.int64(-1), False
            if field == 3:
                size = np.int64(np.int32(value))
            elif field == 4:
                compacted_out = value != 0
            elif field == 5:
                table[f.M_EVENT_TIME, at] = value
            elif field == 8:
                table[f.M_SEQUENCE_ID, at] = value
            elif field in (6, 9, 10):
                flag = f.KEY_IS_BASE64 if field == 6 else (f.NULL_VALUE if field == 9 else f.NULL_KEY)
                flags = flags | flag if value else flags & ~flag
        elif wire_type == 2 and 0 < field <= LAST_FIELD:
            length, position = read_varint(data, position, end)
            if position < 0 or length < 0 or length > end - position:
                return np.int64(-1), False
            if field == 1:
                table[f.M_PROPERTIES, at] += 1
            elif field == 2:
                table[f.M_KEY, at], table[f.M_KEY_LENGTH, at] = position, length
            elif field == 7:
                table[f.M_ORDERING_KEY, at], table[f.M_ORDERING_KEY_LENGTH, at] = position, length
            position += length
        else:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return np.int64(-1), False
    table[f.M_FLAGS, at] |= flags
    return size, compacted_out


@kernel
def _read_batch(data, position, end, size, entry, base_flags, sequence_id, table, count):
    """Columns for the `size` messages in `data[position:end]`; answers the new count, −1 if the batch is not right.

    Bounds: `read_messages` has checked the place in `data`, and that `table` has `size` columns from `count` on; each
    length is checked against `end`.
    """
    for i in range(size):
        if end - position < 4:
            return np.int64(-1)
        metadata_size = np.int64(load_i32(data, position))
        position += 4
        if metadata_size < 0 or metadata_size > end - position:
            return np.int64(-1)
        table[f.M_ENTRY, count] = entry
        table[f.M_BATCH_INDEX, count] = i
        table[f.M_EVENT_TIME, count] = 0
        table[f.M_SEQUENCE_ID, count] = sequence_id
        table[f.M_KEY_LENGTH, count] = -1
        table[f.M_ORDERING_KEY_LENGTH, count] = -1
        table[f.M_PROPERTIES, count] = 0
        table[f.M_FLAGS, count] = base_flags
        length, compacted_out = _read_single(data, position, position + metadata_size, table, count)
        position += metadata_size
        if length < 0 or length > end - position:
            return np.int64(-1)
        table[f.M_VALUE, count] = position
        table[f.M_VALUE_LENGTH, count] = -1 if table[f.M_FLAGS, count] & f.NULL_VALUE else length
        position += length
        if not compacted_out:
            count += 1
    return count if position == end else np.int64(-1)


@kernel
def _set_whole(entry, index, offset, length, flags, table, at):
    """The column of an entry that is one message: not batched, or passed on raw.

    Bounds: column `at`, which `read_messages` has checked.
    """
    table[f.M_ENTRY, at] = index
    table[f.M_VALUE, at] = offset
    table[f.M_VALUE_LENGTH, at] = -1 if entry[f.E_FLAGS] & f.NULL_VALUE else length
    table[f.M_BATCH_INDEX, at] = -1
    table[f.M_EVENT_TIME, at] = entry[f.E_EVENT_TIME]
    table[f.M_SEQUENCE_ID, at] = entry[f.E_SEQUENCE_ID]
    table[f.M_KEY, at], table[f.M_KEY_LENGTH, at] = entry[f.E_KEY], entry[f.E_KEY_LENGTH]
    table[f.M_ORDERING_KEY, at], table[f.M_ORDERING_KEY_LENGTH, at] = (
        entry[f.E_ORDERING_KEY],
        entry[f.E_ORDERING_KEY_LENGTH],
    )
    table[f.M_METADATA, at], table[f.M_METADATA_END, at] = entry[f.E_METADATA], entry[f.E_METADATA_END]
    table[f.M_PROPERTIES, at] = entry[f.E_PROPERTIES]
    table[f.M_FLAGS, at] = entry[f.E_FLAGS] | flags


@kernel
def read_messages(block, scratch, entries, first, last, scratch_offsets, sizes, raw, table):
    """Columns for the messages of the entries `first` … `last` − 1; answers (count, the entry that is not right or −1).

    `entries` int64 table; per entry `scratch_offsets` int64 (−1: the payload is in `block`), `sizes` int64, the bytes
    of its payload as it is read, and `raw` uint8, `READ`, `PASS_ON` as it is, or `LEAVE_OUT`; `table` the output:
    `M_FIELDS` × messages, with room for all that the batches can hold.
    Bounds: 0 ≤ `first` ≤ `last` ≤ the arrays' lengths. An entry for whose messages `table` has no columns
    left is not right, nor is one whose payload is not in `block` or `scratch`.
    """
    if not 0 <= first <= last <= min(len(entries), len(scratch_offsets), len(sizes), len(raw)):
        raise IndexError("no such entries")
    if entries.shape[1] < f.E_FIELDS or table.shape[0] < f.M_FIELDS:
        raise IndexError("a table is too narrow")
    count = np.int64(0)
    for i in range(first, last):
        entry = entries[i]
        if entry[f.E_MARKER_TYPE] >= 0 or raw[i] == f.LEAVE_OUT:
            continue
        in_scratch = scratch_offsets[i] >= 0
        offset = scratch_offsets[i] if in_scratch else entry[f.E_PAYLOAD]
        length = sizes[i] if in_scratch else entry[f.E_PAYLOAD_LENGTH]
        held = len(scratch) if in_scratch else len(block)
        if (offset < 0) | (length < 0) | (length > held - offset):  # with `or` it takes three times as long
            return count, i
        size = entry[f.E_BATCH_SIZE]
        if raw[i] == f.PASS_ON or size < 0:
            if count == table.shape[1]:
                return count, i
            flags = (f.VALUE_IN_SCRATCH if in_scratch else 0) | (f.VALUE_IS_RAW if raw[i] == f.PASS_ON else 0)
            _set_whole(entry, i, offset, length, flags, table, count)
            count += 1
            continue
        if size > min(length // LEAST_MESSAGE_BYTES, table.shape[1] - count):
            return count, i
        flags = f.VALUE_IN_SCRATCH | f.METADATA_IN_SCRATCH if in_scratch else 0
        data = scratch if in_scratch else block
        made = _read_batch(
            data, offset, offset + length, size, i, flags, entry[f.E_SEQUENCE_ID], table, count
        )
        if made < 0:
            return count, i
        count = made
    return count, np.int64(-1)
