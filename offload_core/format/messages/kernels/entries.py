"""From entries' payloads to one table row per entry: broker metadata, checksum, message metadata, place of the payload.

Source of the layout: docs/formats/entry.md. At an entry that is not right a kernel does not raise: it stops there.
Arguments that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import address_of, call_checksum, load_i32, load_u32
from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.protobuf_fields import LAST_FIELD, read_varint, skip_field

_BROKER_MAGIC = np.uint32(0x0E02)
_CHECKSUM_MAGIC = np.uint32(0x0E01)
_ABSENT = np.int64(-1)


@kernel
def _read_broker_metadata(data, position, end, row):
    while position < end:
        tag, position = read_varint(data, position, end)
        if position < 0:
            return False
        if tag in (8, 16):
            value, position = read_varint(data, position, end)
            row[f.E_BROKER_TIMESTAMP if tag == 8 else f.E_BROKER_INDEX] = value
        else:
            position = skip_field(data, position, end, tag)
        if position < 0:
            return False
    return True


@kernel
def _set_number(row, field, value):
    """Store a varint field of `MessageMetadata`, if it is one of those kept.

    Bounds: of `row`, here and in the functions below: fields by their names, all below `E_FIELDS`, which `read_entry`
    has checked.
    """
    if field == 2:
        row[f.E_SEQUENCE_ID] = value
    elif field == 3:
        row[f.E_PUBLISH_TIME] = value
    elif field == 8:
        row[f.E_COMPRESSION] = np.int32(value)
    elif field == 9:
        row[f.E_UNCOMPRESSED_SIZE] = np.uint32(value)
    elif field == 11:
        row[f.E_BATCH_SIZE] = max(np.int64(np.int32(value)), np.int64(0))
    elif field == 12:
        row[f.E_EVENT_TIME] = value
    elif field == 19:
        row[f.E_DELIVER_AT_TIME] = value
    elif field == 20:
        row[f.E_MARKER_TYPE] = np.uint32(value)
    elif field == 22:
        row[f.E_TXN_LEAST] = value
    elif field == 23:
        row[f.E_TXN_MOST] = value
    elif field == 27:
        row[f.E_CHUNKS] = np.int32(value)
    elif field == 28:
        row[f.E_CHUNKED_SIZE] = np.int32(value)
    elif field == 29:
        row[f.E_CHUNK_ID] = np.int32(value)
    elif field in (17, 25, 30):
        flag = f.KEY_IS_BASE64 if field == 17 else (f.NULL_VALUE if field == 25 else f.NULL_KEY)
        row[f.E_FLAGS] = row[f.E_FLAGS] | flag if value else row[f.E_FLAGS] & ~flag


@kernel
def _set_span(row, field, offset, length):
    """Store a length-delimited field of `MessageMetadata`."""
    if field == 1:
        row[f.E_PRODUCER], row[f.E_PRODUCER_LENGTH] = offset, length
    elif field == 4:
        row[f.E_PROPERTIES] += 1
    elif field == 5:
        row[f.E_REPLICATED_FROM], row[f.E_REPLICATED_FROM_LENGTH] = offset, length
    elif field == 6:
        row[f.E_KEY], row[f.E_KEY_LENGTH] = offset, length
    elif field == 7:
        row[f.E_REPLICATE_TO] += 1
    elif field == 13:
        row[f.E_ENCRYPTION_KEYS] += 1
    elif field == 14:
        row[f.E_ENCRYPTION_ALGORITHM], row[f.E_ENCRYPTION_ALGORITHM_LENGTH] = offset, length
    elif field == 15:
        row[f.E_ENCRYPTION_PARAM], row[f.E_ENCRYPTION_PARAM_LENGTH] = offset, length
    elif field == 16:
        row[f.E_SCHEMA_VERSION], row[f.E_SCHEMA_VERSION_LENGTH] = offset, length
    elif field == 18:
        row[f.E_ORDERING_KEY], row[f.E_ORDERING_KEY_LENGTH] = offset, length
    elif field == 26:
        row[f.E_UUID], row[f.E_UUID_LENGTH] = offset, length


@kernel
def _read_message_metadata(data, position, end, row):
    seen = 0
    while position < end:
        tag, position = read_varint(data, position, end)
        if position < 0:
            return False
        field, wire_type = tag >> 3, tag & 7
        if wire_type == 0 and 0 < field <= LAST_FIELD:
            value, position = read_varint(data, position, end)
            if position < 0:
                return False
            if field == 2 or field == 3:
                seen |= 1 << field
            _set_number(row, field, value)
        elif wire_type == 2 and 0 < field <= LAST_FIELD:
            length, position = read_varint(data, position, end)
            if position < 0 or length < 0 or length > end - position:
                return False
            if field == 1:
                seen |= 2
            _set_span(row, field, position, length)
            position += length
        else:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return False
    return seen & 0b1110 == 0b1110


@kernel
def read_entry(data, position, end, checksum, row):
    """Fill `row` from the entry in `data[position:end]`; False if it is not right.

    `checksum` is the address of a C function of CRC-32C, 0 to leave checksums alone.
    Bounds: an entry that is not in `data` is not right; each length in it is checked against `end`.
    """
    if len(row) < f.E_FIELDS:
        raise IndexError("a table's rows are too short")
    if not 0 <= position <= end <= len(data):
        return False
    row[:] = 0
    for field in (
        f.E_UNCOMPRESSED_SIZE, f.E_BATCH_SIZE, f.E_KEY_LENGTH, f.E_ORDERING_KEY_LENGTH, f.E_SCHEMA_VERSION_LENGTH,
        f.E_MARKER_TYPE, f.E_TXN_LEAST, f.E_TXN_MOST, f.E_UUID_LENGTH, f.E_CHUNK_ID, f.E_CHUNKS, f.E_CHUNKED_SIZE,
        f.E_BROKER_TIMESTAMP, f.E_BROKER_INDEX, f.E_ENCRYPTION_ALGORITHM_LENGTH, f.E_ENCRYPTION_PARAM_LENGTH,
        f.E_REPLICATED_FROM_LENGTH, f.E_DELIVER_AT_TIME,
    ):  # fmt: skip
        row[field] = _ABSENT
    if end - position >= 6 and load_u32(data, position) >> 16 == _BROKER_MAGIC:
        size = np.int64(load_i32(data, position + 2))
        position += 6
        if size < 0 or size > end - position:
            return False
        if not _read_broker_metadata(data, position, position + size, row):
            return False
        position += size
    if end - position >= 6 and load_u32(data, position) >> 16 == _CHECKSUM_MAGIC:
        stored = load_u32(data, position + 2)
        position += 6
        if checksum != 0:
            found = call_checksum(
                checksum, np.uint32(0), address_of(data, position, end - position), end - position
            )
            if found != stored:
                return False
    if end - position < 4:
        return False
    size = np.int64(load_i32(data, position))
    position += 4
    if size < 0 or size > end - position:
        return False
    row[f.E_METADATA], row[f.E_METADATA_END] = position, position + size
    if not _read_message_metadata(data, position, position + size, row):
        return False
    row[f.E_PAYLOAD], row[f.E_PAYLOAD_LENGTH] = position + size, end - position - size
    return True


@kernel
def is_span(offset, length, size):
    """True if `length` bytes from `offset` lie in `size` bytes.

    A sum is not made: one that overflows may be anything in compiled code.
    Bounds: uses no index.
    """
    return length >= 0 and 0 <= offset <= size - length


@kernel
def read_entries(data, offsets, lengths, count, checksum, table):
    """Fill one row of `table` (int64, `E_FIELDS` wide) per entry; answers how many are right before the first wrong.

    Bounds: `count` is at most the arrays' lengths; each entry by `read_entry`, after its span by `is_span`.
    """
    if count > min(len(offsets), len(lengths), len(table)):
        raise IndexError("more entries than places or rows")
    for i in range(count):
        if not is_span(offsets[i], lengths[i], len(data)):
            return i
        if not read_entry(data, offsets[i], offsets[i] + lengths[i], checksum, table[i]):
            return i
    return count
