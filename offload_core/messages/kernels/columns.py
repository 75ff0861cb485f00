"""From tables of spans to the buffers of Arrow's binary, string and map layouts."""

from __future__ import annotations

import numpy as np

from offload_core.codec.kernels.intrinsics import copy_bytes
from offload_core.kernel import kernel
from offload_core.messages.kernels.fields import (
    ENTRY_PROPERTIES_TAG,
    METADATA_IN_SCRATCH,
    SINGLE_PROPERTIES_TAG,
)
from offload_core.messages.kernels.protobuf import read_varint, skip_field


@kernel
def span_bytes(lengths):
    """How many bytes all spans have together; −1 if there is no span at all."""
    total = np.int64(0)
    present = False
    for i in range(len(lengths)):
        if lengths[i] >= 0:
            present = True
            total += lengths[i]
    return total if present else np.int64(-1)


@kernel
def gather_spans(block, scratch, flags, scratch_flag, offsets, lengths, values, value_offsets, validity):
    """Copy one span per row behind one another into `values`; answers the number of rows without one.

    `offsets`, `lengths`, `flags` int64; a row lies in `scratch` if its flags have `scratch_flag`. Outputs: `values`
    uint8 with room for all, `value_offsets` int32 (rows + 1), `validity` uint8 bitmap, zeroed (least bit first).
    """
    used = np.int64(0)
    missing = 0
    value_offsets[0] = 0
    for i in range(len(offsets)):
        length = lengths[i]
        if length < 0:
            missing += 1
        else:
            if flags[i] & scratch_flag:
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
    """
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
    """Whether all spans (int64) hold the same bytes, or all none."""
    for i in range(1, len(offsets)):
        if lengths[i] != lengths[0]:
            return False
        for j in range(lengths[0]):
            if block[offsets[i] + j] != block[offsets[0] + j]:
                return False
    return True


@kernel
def _write_varint(out, position, value):
    remaining = np.uint64(value)
    while remaining >= 128:
        out[position] = np.uint8(remaining & np.uint64(127)) | np.uint8(128)
        remaining >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(remaining)
    return position + 1


MESSAGE_ID_BYTES = 45
"""The most bytes of one message id: five tags and as many varints."""


@kernel
def pack_message_ids(
    ledger_id, partition, entry_ids, entry_rows, batch_index, batch_sizes, values, value_offsets
):
    """Serialise one `MessageIdData` per message as Pulsar's clients do.

    `entry_ids` and `batch_sizes`: int64 per entry.
    """
    position = np.int64(0)
    value_offsets[0] = 0
    for i in range(len(entry_rows)):
        entry = entry_rows[i]
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
    """
    done = 0
    key_end = np.int64(0)
    value_end = np.int64(0)
    row_offsets[0] = 0
    key_offsets[0] = 0
    value_offsets[0] = 0
    for i in range(len(counts)):
        if counts[i] > 0:
            batched = batch_index[i] >= 0
            wanted = SINGLE_PROPERTIES_TAG if batched else ENTRY_PROPERTIES_TAG
            data = scratch if flags[i] & METADATA_IN_SCRATCH else block
            position, end = starts[i], ends[i]
            while position < end:
                tag, position = read_varint(data, position, end)
                if tag != wanted:
                    position = skip_field(data, position, end, tag)
                    continue
                length, position = read_varint(data, position, end)
                key, key_length, value, value_length = _read_property(data, position, position + length)
                if key_length < 0 or value_length < 0:
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
    return True


@kernel
def _read_property(data, position, end):
    """Spans of key and value of a `KeyValue`; lengths −1 if missing or not right."""
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
