"""All kernels over entries, frames, batches, columns, payloads, transactions, tombstones, MapFiles and ledger files.

They run with bounds checks on, over what the encoders write with drawn options, changed at drawn places, and over drawn
arguments; where a plain reference implementation exists, it finds the same. Kernels of schemas: `test_schema_kernels`.
"""

from __future__ import annotations

import functools
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from bounds_checked import Guarded, called, run_checked
from drawn_entries import drawn_entry
from entries import CODECS, borders, mutations
from mapfiles import SYNC, mapfile, read_mapfile
from scenes.messages import ALL_COLUMNS, comparable, decoder, entry_spans, reference_rows
from scenes.transactions import found_in, last_entries_of

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.block_layout import pack_frames, padding, walk_frames
from offload_core.format.codec.crc32c import crc32c, crc32c_address
from offload_core.format.codec.kernels import c_functions, frames
from offload_core.format.codec.kernels import hot_frames as ledger_kernels
from offload_core.format.codec.kernels import mapfile as mapfile_kernels
from offload_core.format.codec.mapfile.record_batches import read_lengths_plainly, walk_records
from offload_core.format.codec.mapfile.sequence_file import CutOffError, FileCompression, pack_vint
from offload_core.format.messages.entry import pack_tombstone
from offload_core.format.messages.kernels import (
    batches,
    column_spans,
    decompression,
    entries,
    entry_fields,
    protobuf_fields,
    tombstones,
    transaction_ranges,
)
from offload_core.format.messages.kernels.last_entries import find_last_entries
from offload_core.format.messages.payload_opener import _Memory
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.format.schemas.kernels.key_value import split_key_values
from offload_core.storage.hot import ledger_frames
from offload_core.writing.offload_filters import _AFTER, _BEFORE, replace_by_tombstones
from offload_hooks.errors import FormatError, OffloadError

INT64 = (-(2**63), 2**63 - 1)
EXTREMES = (
    *(3, 6, 12, 127, 255, 0x7FFFFFFF, 0xFFFFFFFF),
    *((1 << bits) for bits in (0, 1, 2, 3, 4, 7, 8, 31, 32, 62)),
    *(0, -1, -2, -12, -(1 << 31), -(1 << 32), INT64[0], INT64[0] + 1, INT64[1], INT64[1] - 1, INT64[1] - 12),
)
LARGE = (
    *(b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 4, b"\xff" * 9 + b"\x01"),
    *(b"\xff" * 11, b"\0" * 8, b"\x80" * 9),
)


# --- drawing -----------------------------------------------------------------------------------


def some_bytes(data, random):
    """What makes lengths, varints and ids wrong, or is taken from elsewhere in the data."""
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(LARGE)
    if kind == 1:
        return random.randbytes(random.randint(1, 12))
    if kind == 2:
        return bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF))]) * random.randint(1, 4)
    at = random.randrange(len(data))
    return data[at : at + random.randint(1, 40)]


MUTATIONS = mutations(some_bytes)


def changed(data, random):
    """The data as it is, cut off, or changed at a few places."""
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        if not data:
            break
        if random.randrange(6):
            data = random.choice(MUTATIONS)(data, random.randrange(len(data)), random)
        else:
            data = data[: random.randrange(random.choice((len(data), min(len(data), 16))))]
    return data


def readonly(data):
    return np.frombuffer(data, dtype=np.uint8)


def number(random, most=40):
    """Mostly small, now and then as large as can be."""
    return random.randint(0, most) if random.randrange(4) else random.choice(EXTREMES)


def numbers(random, count, most=40):
    """Ascending, or not at all."""
    if random.randrange(3):
        found = sorted(random.randint(0, most) for _ in range(count))
        for _ in range(random.choice((0, 0, 0, 1))):
            if found:
                found[random.randrange(count)] = random.choice(EXTREMES)
    else:
        found = [number(random, most) for _ in range(count)]
    return np.array(found, dtype=np.int64)


def around(random, size):
    """A size that is right, or nearly."""
    return max(0, size + random.choice((0, 0, 0, 0, 0, -1, 1, -size, 5)))


def table(random, rows, columns, most):
    drawn = [number(random, most) if random.randrange(3) else -1 for _ in range(rows * columns)]
    return np.array(drawn, dtype=np.int64).reshape(rows, columns)


def payload_list(random, most=8):
    return [random.randbytes(random.choice((0, 1, 3, 20, 60))) for _ in range(random.randint(0, most))]


@functools.cache
def corpus(part):
    """Entries, made once: to make one takes longer than to read it."""
    random = Random(f"corpus {part}")
    return [drawn_entry(random) for _ in range(50)]


def sample(random, most):
    return random.choices(corpus(random.randrange(40)), k=random.randint(0, most))


def with_checksum(data):
    """The entry with a checksum that fits what was changed in it."""
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:] if data[:2] == b"\x0e\x01" else data


# --- frames of blocks --------------------------------------------------------------------------


def frames_of_blocks(random):
    data = payload_list(random)
    first = random.choice((0, 5, 2**63 - 20))
    gaps = bool(random.randrange(2))
    ids, at = [], first
    for _ in data:
        ids.append(at)
        at += random.choice((1, 1, 3)) if gaps else 1
    packed = b"".join(pack_frames([each], i) for each, i in zip(data, ids, strict=True) if i < 2**63)
    block = changed(packed + padding(random.choice((0, 1, 3, 4, 30))), random)
    stop = min(first + random.choice((0, 3, 100)), 2**63 - 1)
    end = len(block)
    window = block[: random.choice((end, end, random.randrange(end + 1)))]
    guarded = Guarded()
    columns_ = [guarded.array(around(random, random.randint(1, 9)), np.int64) for _ in range(3)]
    status, _, _, count = called(
        frames.find_entries, readonly(window), 0, end, first, stop, gaps, number(random, 99), *columns_
    )
    found = list(zip(*(column[:count].tolist() for column in columns_), strict=True))
    walked = []
    with suppress(FormatError):
        for each in walk_frames(block, 0, end, first, gaps=gaps):
            if each.entry_id >= stop or each.offset + each.length > len(window):
                break
            walked.append((each.entry_id, each.offset, each.length))
    assert found == (walked[:count] if status == frames.OUT_OF_ROOM else walked)
    values = guarded.array(random.randrange(200))
    ends, kept_ids = guarded.array(around(random, 6), np.int32), guarded.array(5, np.int64)
    limits = (end, first, stop, gaps)
    copied = called(frames.copy_entries, readonly(window), 0, *limits, values, ends, kept_ids)
    if copied is not None:
        kept = [(int(kept_ids[i]), values[ends[i] : ends[i + 1]].tobytes()) for i in range(copied[3])]
        assert kept == [(each, window[at : at + size]) for each, at, size in walked[: copied[3]]]
    guarded.check()


def framing(random):
    data = payload_list(random)
    values, offsets = readonly(b"".join(data)), borders(data)
    first = random.randint(0, len(data))
    last = random.randint(first, len(data))
    ids = np.arange(7, 7 + len(data))
    right = b"".join(pack_frames([data[i]], int(ids[i])) for i in range(first, last))
    guarded = Guarded()
    out = guarded.array(around(random, len(right) + 3))
    end = called(frames.frame_entries, values, offsets, ids, first, last, out, 3)
    assert (end is None) == (len(out) < 3 + len(right))
    if end is not None and end <= len(out):
        called(frames.fill_padding, out, end, len(out))
        assert out.tobytes()[3:] == right + padding(len(out) - 3 - len(right))
    sizes = [len(each) for each in data]
    crc = random.choice((0, 7))
    summed = called(
        frames.checksum_entries, values, offsets[:-1], np.diff(offsets), crc32c_address(), np.uint32(crc)
    )
    assert summed == crc32c(values.tobytes(), crc)
    wrong = np.array([random.choice((*INT64, len(values), 0)) for _ in range(2)])
    called(frames.checksum_entries, values, wrong[:1], wrong[1:], crc32c_address(), np.uint32(crc))
    room = sum(sizes[first:last]) + 16 * (last - first)
    out = guarded.array(around(random, room))
    seed = np.uint32(ledger_frames.ledger_seed(7))
    end = called(ledger_kernels.frame_entries, values, offsets, first, last, 9, crc32c_address(), seed, out)
    assert (end is None) == (len(out) < room)
    if end is not None:
        assert out[:end].tobytes() == ledger_frames.pack_frames(int(seed), 9, data[first:last])
    guarded.check()


def frames_of_ledgers(random):
    seed = ledger_frames.ledger_seed(7)
    data = payload_list(random)
    window = changed(ledger_frames.pack_frames(seed, 5, data), random)
    at = random.choice((0, 0, 0, random.randrange(len(window) + 1)))
    most = random.choice((ledger_frames.MAX_ENTRY_BYTES, 30))
    common = (most, crc32c_address(), np.uint32(seed))
    guarded = Guarded()
    status, _, entry_id, passed = called(
        ledger_kernels.pass_frames, readonly(window), at, len(window), 5, 1 << 60, *common
    )
    if at == 0 and most > 30:
        walked, fault = [], False
        try:
            for each in ledger_frames.walk_frames(window, 0, 5, seed):
                walked.append(each)
        except FormatError:
            fault = True
        assert (entry_id - 5, passed) == (len(walked), sum(each.length for each in walked))
        assert (status != ledger_kernels.PASSED) == fault
    values = guarded.array(around(random, len(window) - at))
    offsets = guarded.array(around(random, random.randint(1, 9)), np.int64)
    stop = 5 + number(random) % 99
    given = (*common, number(random, 300), values, offsets)
    called(ledger_kernels.copy_frames, readonly(window), at, 5, stop, *given)
    guarded.check()


# --- MapFiles ----------------------------------------------------------------------------------


def records(random):
    data, key = bytearray(), random.randint(-1, 3)
    for each in payload_list(random):
        if not random.randrange(3):
            data += b"\xff\xff\xff\xff" + SYNC
        data += (8 + len(each)).to_bytes(4, "big") + b"\0\0\0\x08"
        data += key.to_bytes(8, "big", signed=True) + each
        key += random.choice((1, 1, 5))
    whole = changed(bytes(data), random)
    end = len(whole) + random.choice((0, 0, 0, 1, 30))
    window = whole[: random.choice((len(whole), random.randrange(len(whole) + 1)))]
    guarded = Guarded()
    found = [guarded.array(around(random, 9), np.int64) for _ in range(3)]
    room = max(map(len, found))
    status, _, count = called(
        mapfile_kernels.locate_records, readonly(window), 0, end, readonly(SYNC), -2, room, 1 << 40, *found
    )
    if status != frames.OUT_OF_ROOM:
        walked = []
        with suppress(FormatError, CutOffError):
            for each in walk_records(window, 0, end, SYNC, -2):
                walked.append(tuple(each))
        located = list(zip(*(each[:count].tolist() for each in found), strict=True))
        assert located == walked
    lengths = b"".join(pack_vint(random.choice((0, 5, 127, 128, 300, 65536, 2**31 - 1))) for _ in range(5))
    lengths = changed(lengths, random)
    out = guarded.array(random.randrange(8), np.int64)
    read, place = called(mapfile_kernels.read_lengths, readonly(lengths), out)
    assert (out[:read].tolist(), place) == read_lengths_plainly(lengths, len(out))
    guarded.check()


def streams(random):
    """Inflated values, opened and copied; checksums of what was inflated."""
    sized = [(len(each) + random.choice((0, 0, 1)), each) for each in payload_list(random)]
    stored = [zlib.compress(size.to_bytes(4, "big") + each) for size, each in sized]
    window = changed(b"".join(stored), random)
    offsets = borders(stored)[:-1]
    lengths = np.array([len(each) for each in stored], dtype=np.int64)
    for _ in range(random.choice((0, 0, 1))):
        if stored:
            random.choice((offsets, lengths))[random.randrange(len(stored))] = random.choice(EXTREMES)
    guarded = Guarded()
    out = guarded.array(random.choice((0, 10, 300, 1000)))
    sizes, counts = guarded.array(around(random, len(stored)), np.int64), guarded.array(2, np.uint64)
    inflate, inflater = c_functions.inflate_address(), c_functions.Decompressor()
    given = (readonly(window), offsets, lengths, number(random, 300), out, sizes, counts)
    made = called(mapfile_kernels.inflate_values, inflate, inflater.address, *given)
    guarded.check()
    if made is None:
        return
    ends = np.cumsum(sizes[:made])
    opened, lengths = ends - sizes[:made], sizes[:made].copy()
    out.flags.writeable = False
    right = called(mapfile_kernels.open_values, out, opened, lengths)
    values = guarded.array(random.choice((0, 50, 1000)))
    value_offsets = guarded.array(around(random, right + 1), np.int32)
    called(mapfile_kernels.copy_values, out, opened, lengths, right, values, value_offsets)
    chunk = random.choice((1, 16, 512))
    chunks = [out[at : at + chunk] for at in range(0, len(out), chunk)]
    sums = guarded.array(4 * around(random, len(chunks)))
    called(mapfile_kernels.make_checksums, c_functions.crc32_address(), out, chunk, sums)
    if len(sums) // 4 <= len(chunks):
        for i, each in enumerate(chunks[: len(sums) // 4]):
            assert int.from_bytes(sums[4 * i : 4 * i + 4], "big") == zlib.crc32(each)
    guarded.check()


@functools.cache
def some_mapfiles(part):
    random = Random(f"mapfile {part}")
    return mapfile(
        [random.randbytes(random.choice((0, 5, 40))) for _ in range(random.randint(1, 30))],
        compression=random.choice(list(FileCompression)),
        block_bytes=random.choice((60, 500)),
        index_interval=random.choice((1, 4)),
    )


def whole_mapfiles(random):
    written = some_mapfiles(random.randrange(30))
    data = changed(written.data, random)
    as_written = data == written.data
    try:
        found = read_mapfile(
            replace(written, data=data),
            window_bytes=random.choice((None, 40, 97)) if as_written else None,
            stretch_bytes=1 << 20 if as_written else random.choice((80, 1 << 20)),
        )
    except OffloadError:
        assert not as_written
        return
    if as_written:
        assert found == list(written.entries)


# --- entries and messages ----------------------------------------------------------------------


def wire(random):
    """Varints and fields, one after another, up to the end of all bytes."""
    kinds = (0x80, 0xFF, 0x7F, 0, 1, 8, 10, 13, 9, 18, random.randrange(256))
    data = bytes(random.choice(kinds) for _ in range(random.randrange(16)))
    position = random.randrange(len(data) + 1)
    expected = plain_varint(data, position)
    value, after = called(protobuf_fields.read_varint, readonly(data), position, len(data))
    assert (value, after) == expected
    if after >= 0:
        skipped = called(protobuf_fields.skip_field, readonly(data), after, len(data), value)
        assert skipped == plain_skip(data, after, value)


def plain_varint(data, position):
    for count in range(1, 11):
        part = data[position : position + count]
        if len(part) < count:
            break
        if part[-1] < 128:
            value = sum((byte & 127) << 7 * i for i, byte in enumerate(part))
            if value >= 1 << 64:
                break
            return value - (1 << 64) if value >= 1 << 63 else value, position + count
    return 0, -1


def plain_skip(data, position, tag):
    sizes = {1: 8, 5: 4}
    if not 0 < tag >> 3 < 1 << 29:
        return -1
    if tag & 7 == 0:
        return plain_varint(data, position)[1]
    if tag & 7 == 2:
        size, position = plain_varint(data, position)
        return -1 if position < 0 or not 0 <= size <= len(data) - position else position + size
    size = sizes.get(tag & 7, len(data))
    return -1 if tag & 7 not in sizes or size > len(data) - position else position + size


def messages(random):
    """Entries decoded to drawn columns: rows, or an error of ours; of what was not changed, the reference's rows."""
    as_written = not random.randrange(12)
    found = sample(random, 5)
    if not as_written:
        found = [with_checksum(changed(each, random)) if random.randrange(4) else each for each in found]
    chosen = ALL_COLUMNS if as_written else random.sample(ALL_COLUMNS, random.randint(1, len(ALL_COLUMNS)))
    verify = as_written or bool(random.randrange(2))
    partition = -1 if as_written else random.choice((-1, 0, 2**31 - 1))
    made = decoder(chosen, verify_checksums=verify, partition=partition)
    block, offsets, lengths = entry_spans(found)
    ids = np.arange(len(found))
    bounds: dict[str, Any] = {}
    if not as_written and random.randrange(2):
        bounds = {"start_batch": random.randrange(4), "stop_batch": random.randrange(9)}
    try:
        rows = comparable(list(made.decode(block, 0, ids, offsets, lengths, **bounds)))
    except OffloadError:
        if as_written:
            with pytest.raises(OffloadError):
                reference_rows(found)
        return
    if as_written:
        expected = [{name: row[name] for name in chosen} for row in reference_rows(found)]
        assert rows == expected


SPANS = (
    entry_fields.E_PAYLOAD,
    entry_fields.E_PAYLOAD_LENGTH,
    entry_fields.E_METADATA,
    entry_fields.E_METADATA_END,
    entry_fields.E_KEY_LENGTH,
)


def tables_of_entries(random):
    """Entries at drawn places; messages of tables that were changed."""
    found = [each if random.randrange(3) else changed(each, random) for each in sample(random, 6)]
    block, offsets, lengths = entry_spans(found)
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        if found:
            random.choice((offsets, lengths))[random.randrange(len(found))] = random.choice(EXTREMES)
    guarded = Guarded()
    count = random.choice((len(found), len(found), around(random, len(found))))
    rows = guarded.array(len(found) * entry_fields.E_FIELDS, np.int64).reshape(
        len(found), entry_fields.E_FIELDS
    )
    right = called(entries.read_entries, block, offsets, lengths, count, 0, rows)
    right = 0 if right is None else right
    rows = rows[:right]
    for _ in range(random.choice((0, 0, 1, 3))):
        if right:
            field = random.choice((random.randrange(entry_fields.E_FIELDS), *SPANS))
            rows[random.randrange(right), field] = random.choice((*EXTREMES, len(block)))
    sizes, compressed, raw = (guarded.array(right, kind) for kind in (np.int64, np.uint8, np.uint8))
    called(batches.survey_entries, rows, sizes, compressed, raw)
    raw[compressed != 0] = random.choice(
        (entry_fields.READ, entry_fields.PASS_ON, entry_fields.LEAVE_OUT, entry_fields.LEAVE_OUT)
    )
    room = called(batches.message_room, rows, 0, right, sizes, raw)
    assert 0 <= room <= right + sum(max(int(each), 0) for each in sizes) // batches.LEAST_MESSAGE_BYTES
    scratch = guarded.array(random.randrange(80))
    scratch[:] = readonly(random.randbytes(len(scratch)))
    places = np.where(compressed != 0, random.randrange(40), -1).astype(np.int64)
    columns_ = min(around(random, room), 5000)
    out = guarded.array(entry_fields.M_FIELDS * columns_, np.int64).reshape(entry_fields.M_FIELDS, columns_)
    answer = called(batches.read_messages, block, scratch, rows, 0, right, places, sizes, raw, out)
    guarded.check()
    if answer is None:
        return
    out = out[:, : answer[0]]
    for field in (entry_fields.M_VALUE, entry_fields.M_KEY, entry_fields.M_ORDERING_KEY):
        arrow_columns(random, block, scratch, out, field)
    of_messages(random, block, scratch, rows, out)


def arrow_columns(random, block, scratch, out, field):
    """A span of each message, gathered as a column."""
    guarded = Guarded()
    if out.shape[1] and not random.randrange(3):  # a span that ends where its buffer does, or one behind
        row = random.randrange(out.shape[1])
        size = len(scratch if out[entry_fields.M_FLAGS, row] & entry_fields.VALUE_IN_SCRATCH else block)
        at = random.randint(0, size)
        out[field, row], out[field + 1, row] = at, size - at + random.randrange(2)
    lengths = out[field + 1]
    total = called(column_spans.span_bytes, lengths)
    if not 0 <= total < 1 << 20:
        return
    rows = out.shape[1]
    values, validity = guarded.array(around(random, total)), guarded.array((rows + 7) // 8)
    validity[:] = 0
    ends = guarded.array(around(random, rows + 1), np.int32)
    given = (out[entry_fields.M_FLAGS], entry_fields.VALUE_IN_SCRATCH, out[field], lengths)
    called(column_spans.gather_spans, block, scratch, *given, values, ends, validity)
    called(column_spans.all_same, block, np.ascontiguousarray(out[field]), np.ascontiguousarray(lengths))
    guarded.check()


def of_messages(random, block, scratch, rows, out):
    """Ids, times and properties of messages."""
    guarded, count = Guarded(), out.shape[1]
    packed = guarded.array(around(random, column_spans.MESSAGE_ID_BYTES * count))
    called(
        column_spans.pack_message_ids,
        number(random),
        random.choice((-1, 3, INT64[1])),
        np.arange(around(random, len(rows))),
        out[entry_fields.M_ENTRY],
        out[entry_fields.M_BATCH_INDEX],
        rows[:, entry_fields.E_BATCH_SIZE],
        packed,
        guarded.array(count + 1, np.int32),
    )
    validity = guarded.array(around(random, (count + 7) // 8))
    validity[:] = 0
    called(
        column_spans.scale_times, out[entry_fields.M_EVENT_TIME], 0, guarded.array(count, np.int64), validity
    )
    total = int(np.clip(out[entry_fields.M_PROPERTIES], 0, 99).sum())
    keys, values = (guarded.array(random.choice((0, 5, 400, 4000))) for _ in range(2))
    size = around(random, total + 1)
    key_ends, value_ends = (guarded.array(size, np.int32) for _ in range(2))
    called(
        column_spans.gather_properties,
        block,
        scratch,
        *(
            out[field]
            for field in (
                entry_fields.M_PROPERTIES,
                entry_fields.M_BATCH_INDEX,
                entry_fields.M_FLAGS,
                entry_fields.M_METADATA,
                entry_fields.M_METADATA_END,
            )
        ),
        guarded.array(count + 1, np.int32),
        keys,
        key_ends,
        values,
        value_ends,
    )
    guarded.check()


def decompressed_payloads(random):
    stored, sizes = [], []
    for _ in range(random.randrange(5)):
        value = b"offloaded" * random.randrange(9)
        stored.append(changed(CODECS[random.randrange(5)](value) + b"", random))
        sizes.append(random.choice((len(value), len(value), len(value) + 1, number(random))))
    block = readonly(b"".join(stored))
    lengths = np.array([len(each) for each in stored], dtype=np.int64)
    starts, declared = borders(stored)[:-1], np.array(sizes, dtype=np.int64)
    small = np.clip(declared, 0, 500)
    places = np.cumsum(small) - small
    for _ in range(random.choice((0, 0, 1))):
        if stored:
            random.choice((starts, lengths, places))[random.randrange(len(stored))] = random.choice(EXTREMES)
    guarded = Guarded()
    scratch = guarded.array(around(random, int(small.sum())))
    left = guarded.array(around(random, len(stored)), np.int64)
    codecs = np.array([random.choice((0, 1, 2, 3, 4, -1)) for _ in stored], dtype=np.int64)
    memory = _memory()
    given = (block, starts, lengths, codecs, scratch, places, declared)
    called(decompression.decompress, memory.functions, *given, memory.counts, left)
    guarded.check()


@functools.cache
def _memory():
    return _Memory()


# --- transactions and filters ------------------------------------------------------------------


def transactions_of_entries(random):
    as_written = bool(random.randrange(2))
    found = sample(random, 8)
    if not as_written:
        found = [each if random.randrange(2) else with_checksum(changed(each, random)) for each in found]
    block, offsets, lengths = entry_spans(found)
    if as_written and found and random.randrange(2):
        finder = TransactionFinder(7, verify_checksums=True)
        finder.add(LocatedEntries(block, 0, np.arange(3, 3 + len(found)), offsets, lengths))
        *tables, times = found_in(found, 3)
        assert [each.tolist() for each in finder.tables()] == tables
        assert tuple(finder.times.tolist()) == times
        return
    guarded = Guarded()
    outputs = []
    for width in (4, 4, 2):
        rows = random.choice((len(found), len(found), 8, random.randrange(9)))
        outputs.append(guarded.array(rows * width, np.int64).reshape(rows, width))
    ids, crc = np.arange(around(random, len(found))), random.choice((0, crc32c_address()))
    outputs = [guarded.array(entry_fields.E_FIELDS, np.int64), *outputs, np.array(INT64[::-1])]
    given = (block, offsets, lengths, len(found), ids, crc)
    called(transaction_ranges.find_transactions, *given, *outputs)
    guarded.check()


def last_entries(random):
    """The frames at the end of a block; those of the plain twin."""
    found = [
        each if random.randrange(3) else with_checksum(changed(each, random)) for each in sample(random, 8)
    ]
    gaps, entry_id, packed = bool(random.randrange(2)), random.choice((0, 5, 1 << 39)), b""
    for each in found:
        packed += pack_frames([each], entry_id)
        entry_id += random.choice((1, 1, 3)) if gaps else 1
    data = packed + padding(random.choice((0, 1, 3, 4, 30)))
    data = data[random.choice((0, random.randrange(len(data) + 1))) :]
    data = data if random.randrange(2) else changed(data, random)
    guarded = Guarded()
    row = guarded.array(around(random, entry_fields.E_FIELDS), np.int64)
    known = random.choice((entry_id, entry_id, -1, number(random)))
    least = random.choice((0, 0, number(random)))
    answer = called(find_last_entries, readonly(data), known, least, gaps, crc32c_address(), row)
    guarded.check()
    if answer is not None:
        assert answer == last_entries_of(data, known, least, gaps, is_entry_to_kernels)


def is_entry_to_kernels(payload):
    """They take some metadata that protobuf's own parser refuses."""
    row = np.empty(entry_fields.E_FIELDS, dtype=np.int64)
    return entries.read_entry(readonly(payload), 0, len(payload), crc32c_address(), row)


def filtered(random):
    """Entries that are dropped, or become tombstones."""
    as_written = bool(random.randrange(2))
    found = sample(random, 8)
    if not as_written:
        found = [each if random.randrange(2) else with_checksum(changed(each, random)) for each in found]
    data, offsets = readonly(b"before" + b"".join(found)), 6 + borders(found)
    dropped = np.array([bool(random.randrange(2)) for _ in found], dtype=np.bool_)
    size = len(data)
    try:
        made, ends, replaced = replace_by_tombstones(data, offsets, dropped, 0)
    except OffloadError:
        assert dropped.any()
    else:
        size = len(made)
        for i, each in enumerate(found if as_written else ()):
            mine = made[ends[i] : ends[i + 1]].tobytes()
            assert mine == (pack_tombstone(each) if replaced[i] else each)
    for _ in range(random.choice((0, 0, 1))):
        offsets[random.randrange(len(offsets))] = random.choice(EXTREMES)
    guarded = Guarded()
    offsets.flags.writeable = False
    out = guarded.array(around(random, len(data) - 6))
    out_offsets = guarded.array(around(random, len(offsets)), np.int64)
    count = called(frames.copy_kept, data, offsets, dropped, out, out_offsets)
    if count is not None:
        left = [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(found)) if not dropped[i]]
        assert [out[a:b].tobytes() for a, b in pairwise(out_offsets[: count + 1])] == left
    fields = guarded.array(entry_fields.E_FIELDS, np.int64)
    out = guarded.array(max(0, size + random.randrange(-12, 24)))
    given = (data, offsets, dropped.copy(), crc32c_address(), _BEFORE, _AFTER)
    called(tombstones.replace, *given, fields, out, out_offsets)
    guarded.check()


# --- drawn arguments ---------------------------------------------------------------------------


def arguments(random):
    """Kernels with arguments that need not fit one another at all: refused, or within bounds."""
    guarded = Guarded()
    drawn = random.randbytes(random.randrange(60))
    data = readonly(changed(random.choice(corpus(0)), random) if random.randrange(2) else drawn)
    few = random.randrange(6)

    def longs():
        return numbers(random, around(random, few), len(data))

    def ends():
        return numbers(random, around(random, few + 1), len(data))

    def fixed_ends():
        made = ends()
        made.flags.writeable = False
        return made

    def out(dtype=np.int64, more=0):
        made = guarded.array(around(random, few + more), dtype)
        made[:] = 0
        return made

    def space():
        return guarded.array(random.choice((0, 5, 64, 300)))

    def rows(count, wide):
        return table(random, around(random, count), around(random, wide) or 1, len(data))

    def n():
        return number(random, max(few, len(data)) if random.randrange(2) else few)

    flags, bits = partial(out, np.uint8), partial(out, np.bool_)
    new_ends, more_longs = partial(out, np.int32, 1), partial(out, more=1)
    of_entries = partial(rows, few, entry_fields.E_FIELDS)
    of_messages = partial(rows, entry_fields.M_FIELDS, 9)
    tables = [partial(rows, few, wide) for wide in (4, 4, 2)]
    crc, gaps, seed = crc32c_address(), bool(random.randrange(2)), np.uint32(1)
    crc32, inflater = c_functions.crc32_address(), (c_functions.inflate_address(), _inflater().address)
    memory = _memory()
    functions = memory.functions[: around(random, decompression.FUNCTIONS)]
    counts = guarded.array(2, np.uint64)
    sync = readonly(SYNC[: around(random, 16)])
    before, after = readonly(b"before"), readonly(b"after")

    def fields():
        return guarded.array(around(random, entry_fields.E_FIELDS), np.int64)

    def payloads():
        return numbers(random, few, len(data))

    def spans():
        return guarded.array(2 * few, np.int64).reshape(2, few)

    kernels: list[tuple[Any, ...]] = [  # and their arguments, or what makes them
        (frames.are_borders, ends, n, n, n),
        (frames.find_entries, data, n, n, n, n, gaps, n, out, out, out),
        (frames.copy_entries, data, n, n, n, n, gaps, space, new_ends, out),
        (frames.frame_entries, data, ends, longs, n, n, space, n),
        (frames.fill_padding, space, n, n),
        (frames.copy_kept, data, fixed_ends, bits, space, more_longs),
        (mapfile_kernels.locate_records, data, n, n, sync, n, n, n, out, out, out),
        (mapfile_kernels.inflate_values, *inflater, data, longs, longs, n, space, out, counts),
        (mapfile_kernels.make_checksums, crc32, data, n, space),
        (mapfile_kernels.open_values, data, longs, longs),
        (mapfile_kernels.copy_values, data, longs, longs, n, space, new_ends),
        (mapfile_kernels.read_lengths, data, out),
        (ledger_kernels.pass_frames, data, n, n, n, n, n, crc, seed),
        (ledger_kernels.copy_frames, data, n, n, n, n, crc, seed, n, space, more_longs),
        (ledger_kernels.frame_entries, data, ends, n, n, n, crc, seed, space),
        (entries.read_entries, data, longs, longs, n, 0, of_entries),
        (batches.survey_entries, of_entries, out, flags, flags),
        (batches.message_room, of_entries, n, n, longs, flags),
        (batches.read_messages, data, space, of_entries, n, n, longs, longs, flags, of_messages),
        (column_spans.span_bytes, longs),
        (column_spans.gather_spans, data, space, longs, 1, longs, longs, space, new_ends, flags),
        (column_spans.scale_times, longs, 0, out, flags),
        (column_spans.all_same, data, longs, longs),
        (column_spans.pack_message_ids, n, n, longs, longs, longs, longs, space, new_ends),
        (column_spans.gather_properties, data, space, *[longs] * 5, *[new_ends, space] * 2, new_ends),
        (decompression.decompress, functions, data, *[longs] * 3, space, longs, longs, memory.counts, out),
        (tombstones.replace, data, fixed_ends, bits, crc, before, after, fields, space, more_longs),
        (transaction_ranges.find_transactions, data, longs, longs, n, longs, 0, fields, *tables, out),
        (split_key_values, data, payloads, payloads, spans, spans, guarded.array(few, np.bool_)),
    ]
    for kernel, *given in random.sample(kernels, 4):
        called(kernel, *(each() if callable(each) else each for each in given))
    guarded.check()


@functools.cache
def _inflater():
    return c_functions.Decompressor()


FAMILIES = {
    family.__name__: family
    for family in (
        *(frames_of_blocks, framing, frames_of_ledgers, records, streams, whole_mapfiles, wire, messages),
        *(
            tables_of_entries,
            decompressed_payloads,
            transactions_of_entries,
            last_entries,
            filtered,
            arguments,
        ),
    )
}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_kernels_stay_within_bounds_in_very_many_cases():
    """Some two minutes of CPU, by two processes; the seed differs by the night, and is in the output of a failure."""
    run_checked(Path(__file__), seed=Random().randrange(1 << 40), cases=250_000, timeout_s=7000)
