"""From tables of spans to the buffers of Arrow's binary, string and map layouts.

Arguments that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.frames import INT32_MAX
from offload_core.format.codec.kernels.intrinsics import copy_bytes
from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.protobuf_fields import read_varint, skip_field


@kernel
def span_bytes(lengths):
    """Number of bytes that all spans have together; −1 if there is no span at all."""
    total = np.int64(0)
    present = False
    for i in range(len(lengths)):
        if lengths[i] >= 0:
            present = True
            total += lengths[i]
    return total if present else np.int64(-1)


@kernel
def gather_spans(block, scratch, flags, scratch_flag, offsets, lengths, values, value_offsets, validity):
    """Copy one span per row one after another into `values`; answers the number of rows without one.

    `offsets`, `lengths`, `flags` int64; a row lies in `scratch` if its flags have `scratch_flag`. Outputs: `values`
    uint8 with room for all, `value_offsets` int32 (rows + 1), `validity` uint8 bitmap, zeroed (least bit first).
    Bounds: the arrays have as many as `offsets`; each span is checked against the buffer that it lies in, and against
    what is left of `values`, which an int32 can address.
    """
    rows = len(offsets)
    if rows > min(len(lengths), len(flags), len(value_offsets) - 1, 8 * len(validity)):
        raise IndexError("spans do not fit the output")
    value_room = min(len(values), INT32_MAX)
    used = np.int64(0)
    missing = 0
    value_offsets[0] = 0
    for i in range(rows):
        length = lengths[i]
        if length < 0:
            missing += 1
        else:
            in_scratch = flags[i] & scratch_flag
            room = len(scratch) if in_scratch else len(block)
            if offsets[i] < 0 or length > min(room - offsets[i], value_room - used):
                raise IndexError("a span is not in its buffer, or has no room")
            if in_scratch:
                copy_bytes(values, used, scratch, offsets[i], length)
            else:
                copy_bytes(values, used, block, offsets[i], length)
            used += length
            validity[i >> 3] |= np.uint8(1 << (i & 7))
        value_offsets[i + 1] = used
    return missing


_LAST_MS = np.int64((2**63 - 1) // 1000)


@kernel
def scale_times(times_ms, absent, times_us, validity):
    """Milliseconds to microseconds; answers how many are left out: those equal to `absent`, and beyond int64.

    `times_ms`, `times_us` int64; `validity` uint8 bitmap, zeroed (least bit first).
    Bounds: the outputs have as many as `times_ms`.
    """
    if len(times_ms) > min(len(times_us), 8 * len(validity)):
        raise IndexError("times do not fit the output")
    missing = 0
    for i in range(len(times_ms)):
        time = times_ms[i]
        if time == absent or time > _LAST_MS or time < -_LAST_MS:
            missing += 1
            times_us[i] = 0
        else:
            times_us[i] = time * 1000
            validity[i >> 3] |= np.uint8(1 << (i & 7))
    return missing


@kernel
def all_same(block, offsets, lengths):
    """True if all spans (int64) hold the same bytes, or all none.

    Bounds: `lengths` has as many as `offsets`; each span is checked against `block`.
    """
    if len(lengths) < len(offsets):
        raise IndexError("spans have no lengths")
    for i in range(len(offsets)):
        if lengths[i] != lengths[0]:
            return False
        if lengths[i] > 0 and (offsets[i] < 0 or lengths[i] > len(block) - offsets[i]):
            raise IndexError("a span is not in its block")
        for j in range(lengths[0]):
            if block[offsets[i] + j] != block[offsets[0] + j]:
                return False
    return True


@kernel
def _write_varint(out, position, value):
    """Write the varint of `value`; answers its end.

    Bounds: at most 10 bytes, 9 if `value` ≥ 0, 5 if it is below 2³⁵, for which the caller has checked the room.
    """
    remaining = np.uint64(value)
    while remaining >= 128:
        out[position] = np.uint8(remaining & np.uint64(127)) | np.uint8(128)
        remaining >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(remaining)
    return position + 1


MESSAGE_ID_BYTES = 45
"""The most bytes of one message id: five tags, and varints of 10, 10, 9, 5 and 5 bytes."""


@kernel
def pack_message_ids(
    ledger_id, partition, entry_ids, entry_rows, batch_index, batch_sizes, values, value_offsets
):
    """Serialise one `MessageIdData` per message as Pulsar's clients do.

    `entry_ids` and `batch_sizes`: int64 per entry.
    Bounds: `values` has `MESSAGE_ID_BYTES` left for each; rows are checked against the entries, and what is written of
    a batch against what has 5 bytes.
    """
    rows = len(entry_rows)
    if rows > min(len(batch_index), len(value_offsets) - 1):
        raise IndexError("message ids do not fit the output")
    value_room = min(len(values), INT32_MAX)
    position = np.int64(0)
    value_offsets[0] = 0
    for i in range(rows):
        entry = entry_rows[i]
        if not 0 <= entry < min(len(entry_ids), len(batch_sizes)) or value_room - position < MESSAGE_ID_BYTES:
            raise IndexError("a message id has no entry, or no room")
        if batch_index[i] >= 0 and not (batch_index[i] <= INT32_MAX and 0 <= batch_sizes[entry] <= INT32_MAX):
            raise IndexError("a message's place is in no batch")
        values[position] = 8
        position = _write_varint(values, position + 1, ledger_id)
        values[position] = 16
        position = _write_varint(values, position + 1, entry_ids[entry])
        if partition >= 0:
            values[position] = 24
            position = _write_varint(values, position + 1, partition)
        if batch_index[i] >= 0:
            values[position] = 32
            position = _write_varint(values, position + 1, batch_index[i])
            values[position] = 48
            position = _write_varint(values, position + 1, batch_sizes[entry])
        value_offsets[i + 1] = position
    return position


@kernel
def gather_properties(
    block, scratch, counts, batch_index, flags, starts, ends,
    row_offsets, keys, key_offsets, values, value_offsets,
):  # fmt: skip
    """Copy the properties of all messages; answers False if one of them is not right.

    int64 per message: number of properties, place in its batch, flags, where its metadata starts and ends.
    `row_offsets` int32 (messages + 1); `keys`, `values` uint8 with room for all; their offsets int32 (properties + 1).
    Bounds: the arrays have as many as `counts`. Metadata that is not in its buffer, properties for which there is no
    room, and other ones than were counted are not right.
    """
    rows = len(counts)
    if rows > min(len(batch_index), len(flags), len(starts), len(ends), len(row_offsets) - 1):
        raise IndexError("messages do not fit the output")
    if len(key_offsets) < 1 or len(value_offsets) != len(key_offsets):
        raise IndexError("properties have no room")
    room = len(key_offsets) - 1
    key_room, value_room = min(len(keys), INT32_MAX), min(len(values), INT32_MAX)
    done = 0
    key_end = np.int64(0)
    value_end = np.int64(0)
    row_offsets[0] = 0
    key_offsets[0] = 0
    value_offsets[0] = 0
    for i in range(rows):
        if counts[i] > 0:
            batched = batch_index[i] >= 0
            expected = f.SINGLE_PROPERTIES_TAG if batched else f.ENTRY_PROPERTIES_TAG
            data = scratch if flags[i] & f.METADATA_IN_SCRATCH else block
            position, end = starts[i], ends[i]
            if not 0 <= position <= end <= len(data):
                return False
            while position < end:
                tag, position = read_varint(data, position, end)
                if position < 0:
                    return False
                if tag != expected:
                    position = skip_field(data, position, end, tag)
                    if position < 0:
                        return False
                    continue
                length, position = read_varint(data, position, end)
                if position < 0 or not 0 <= length <= end - position:
                    return False
                key, key_length, value, value_length = _read_property(data, position, position + length)
                if key_length < 0 or value_length < 0:
                    return False
                if key_length > key_room - key_end or value_length > value_room - value_end or done == room:
                    return False
                copy_bytes(keys, key_end, data, key, key_length)
                copy_bytes(values, value_end, data, value, value_length)
                key_end += key_length
                value_end += value_length
                done += 1
                key_offsets[done] = key_end
                value_offsets[done] = value_end
                position += length
        row_offsets[i + 1] = done
    return done == room


@kernel
def _read_property(data, position, end):
    """Spans of key and value of a `KeyValue`; lengths −1 if missing or not right.

    Bounds: `data[position:end]`, which the caller has checked; each length is checked against `end`.
    """
    key = value = position
    key_length = value_length = np.int64(-1)
    bad = (key, np.int64(-1), value, np.int64(-1))
    while position < end:
        tag, position = read_varint(data, position, end)
        if position < 0:
            return bad
        if tag == 10 or tag == 18:
            length, position = read_varint(data, position, end)
            if position < 0 or length < 0 or length > end - position:
                return bad
            if tag == 10:
                key, key_length = position, length
            else:
                value, value_length = position, length
            position += length
        else:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return bad
    return key, key_length, value, value_length
