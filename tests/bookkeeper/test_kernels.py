"""The compiled walks over bookies' answers do what the plain reference does, and stay within their windows."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.bookkeeper.bookie_frames import (
    BATCH_HEAD_BYTES,
    BatchAnswer,
    ReadAnswer,
    parse_frame,
)
from offload_core.format.codec.bookkeeper.digests import HEAD_BYTES, EntryDigest
from offload_core.format.codec.bookkeeper.kernels import stored_entries as kernels
from offload_core.format.codec.crc32c import crc32c, crc32c_address
from offload_core.format.codec.ledger_metadata import DigestType
from offload_hooks.errors import FormatError

PAYLOADS = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes)), min_size=1, max_size=12
)
CRC32C = EntryDigest(kind=DigestType.CRC32C)
LEDGER = 7


def stored(entry_id, payload):
    head = struct.pack(">4q", LEDGER, entry_id, entry_id - 1, 0)
    return head + crc32c(head + payload).to_bytes(4, "big") + payload


def framed(body):
    return struct.pack(">i", len(body)) + body


def batch_frame(first, entries):
    head = struct.pack(">iiqqq", 0x02070000, 0, LEDGER, first, 5)
    return framed(head + b"".join(map(framed, entries)))


def answer(entry_id, data, code=0):
    return framed(struct.pack(">iiqq", 0x02020000, code, LEDGER, entry_id) + data)


def window(data):
    array = np.frombuffer(bytes(data), np.uint8)
    array.flags.writeable = False
    return array


def outputs(count):
    codes = np.full(count, kernels.NOT_ANSWERED, np.int32)
    return codes, np.zeros(count, np.int64), np.zeros(count, np.int64)


def check(data, codes, offsets, lengths, first, digest=CRC32C):
    return kernels.check_entries(
        window(data),
        codes,
        offsets,
        lengths,
        LEDGER,
        first,
        digest.payload_offset,
        digest.kind is DigestType.CRC32C,
        crc32c_address(),
    )


def joined(data, offsets, lengths, digest=CRC32C):
    room = int(lengths.sum()) - digest.payload_offset * len(lengths)
    values, borders = np.empty(room, np.uint8), np.empty(len(lengths) + 1, np.int64)
    kernels.join_payloads(window(data), offsets, lengths, digest.payload_offset, values, borders)
    return [values[borders[i] : borders[i + 1]].tobytes() for i in range(len(lengths))]


@given(PAYLOADS, st.integers(0, 2**62))
def test_a_batch_answer_is_taken_apart(payloads, first):
    frame = batch_frame(first, [stored(first + i, payload) for i, payload in enumerate(payloads)])
    codes, offsets, lengths = outputs(len(payloads))
    found = kernels.find_in_batch(window(frame), BATCH_HEAD_BYTES, len(frame), offsets, lengths)
    assert found == (kernels.ALL_FOUND, len(payloads))
    codes[:] = 0
    assert check(frame, codes, offsets, lengths, first) == 0
    assert joined(frame, offsets, lengths) == payloads


@given(PAYLOADS, st.data())
def test_any_changed_byte_is_seen_as_the_reference_sees_it(payloads, data):
    frame = bytearray(batch_frame(3, [stored(3 + i, payload) for i, payload in enumerate(payloads)]))
    at = data.draw(st.integers(BATCH_HEAD_BYTES, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        reference = parse_frame(memoryview(frame))
    except FormatError:
        reference = None
    _, offsets, lengths = outputs(len(frame))  # a changed length leaves room for many empty entries
    status, count = kernels.find_in_batch(window(frame), BATCH_HEAD_BYTES, len(frame), offsets, lengths)
    assert (status == kernels.BAD_BYTES) == (reference is None)
    if reference is None:
        return
    assert isinstance(reference, BatchAnswer)
    codes = np.zeros(count, np.int32)
    check(frame, codes, offsets[:count], lengths[:count], 3)
    for i, entry in enumerate(reference.stored):
        try:
            CRC32C.parse(entry, LEDGER, 3 + i)
        except FormatError:
            assert codes[i] == kernels.DAMAGED
        else:
            assert codes[i] == 0


@given(PAYLOADS, st.randoms(), st.data())
def test_answers_come_in_any_order_and_in_any_pieces(payloads, random, data):
    """Some entries are missing on the bookie, and some were not asked for."""
    count = len(payloads)
    asked = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    missing = data.draw(st.sets(st.sampled_from(asked)))
    frames = [
        answer(100 + i, b"", 2) if i in missing else answer(100 + i, stored(100 + i, payloads[i]))
        for i in asked
    ]
    random.shuffle(frames)
    whole = b"".join(frames)
    codes, offsets, lengths = outputs(count)
    at, found, end = 0, 0, 0
    while end < len(whole):
        end = data.draw(st.integers(end + 1, len(whole)))
        status, at, answered = kernels.find_answers(
            window(whole), at, end, LEDGER, 100, 1 << 20, codes, offsets, lengths
        )
        assert status == kernels.ALL_FOUND
        found += answered
    assert (found, at) == (len(asked), len(whole))
    for i in range(count):
        if i not in asked:
            assert codes[i] == kernels.NOT_ANSWERED
        elif i in missing:
            assert (codes[i], lengths[i]) == (2, 0)
        else:
            frame = whole[offsets[i] - 28 : offsets[i] + lengths[i]]
            reference = parse_frame(memoryview(frame))
            assert isinstance(reference, ReadAnswer)
            assert (reference.entry_id, bytes(reference.stored)) == (100 + i, stored(100 + i, payloads[i]))


@pytest.mark.parametrize(
    "frame",
    [
        answer(99, stored(99, b"x")),
        answer(102, stored(102, b"x")),
        answer(100, stored(100, b"x")) * 2,
        answer(100, b"", -5),
        framed(b"short"),
        struct.pack(">i", -1) + bytes(40),
        struct.pack(">i", (1 << 20) + 1) + bytes(40),
        framed(struct.pack(">iiqq", 0x02070000, 0, LEDGER, 100)),
        framed(struct.pack(">iiqq", 0x03020000, 0, LEDGER, 100)),
        framed(struct.pack(">iiqq", 0x02020000, 0, LEDGER + 1, 100)),
    ],
)
def test_an_answer_to_something_else_stops_the_walk(frame):
    codes, offsets, lengths = outputs(2)
    status, _, _ = kernels.find_answers(
        window(frame), 0, len(frame), LEDGER, 100, 1 << 20, codes, offsets, lengths
    )
    assert status == kernels.BAD_BYTES


@given(st.binary(max_size=200), st.integers(-3, 210), st.integers(-3, 210))
def test_any_bytes_are_walked_within_bounds(data, position, stop):
    codes, offsets, lengths = outputs(3)
    inside = 0 <= position <= stop <= len(data)
    for walk in (
        lambda: kernels.find_in_batch(window(data), position, stop, offsets, lengths),
        lambda: kernels.find_answers(
            window(data), position, stop, LEDGER, 0, 1 << 20, codes, offsets, lengths
        ),
    ):
        if inside:
            walk()
        else:
            with pytest.raises(IndexError):
                walk()


@given(
    st.binary(max_size=120),
    st.lists(st.tuples(st.integers(-5, 130), st.integers(-5, 130)), min_size=1, max_size=4),
    st.sampled_from(list(DigestType)),
)
def test_entries_outside_of_their_window_are_damaged(data, places, kind):
    digest = EntryDigest(kind=kind)
    offsets, lengths = (np.array(each, np.int64) for each in zip(*places, strict=True))
    codes = np.zeros(len(places), np.int32)
    check(data, codes, offsets, lengths, 0, digest)
    for code, (at, length) in zip(codes, places, strict=True):
        if not (at >= 0 and HEAD_BYTES <= length <= len(data) - at):
            assert code == kernels.DAMAGED


@pytest.mark.parametrize(
    ("offsets", "lengths", "room", "borders"),
    [
        ([0], [40], 3, 2),
        ([0], [40], 4, 3),
        ([0], [41], 9, 2),
        ([1], [40], 9, 2),
        ([-1], [40], 9, 2),
        ([0], [35], 9, 2),
    ],
)
def test_payloads_are_joined_within_bounds(offsets, lengths, room, borders):
    with pytest.raises(IndexError):
        kernels.join_payloads(
            window(bytes(40)),
            np.array(offsets, np.int64),
            np.array(lengths, np.int64),
            36,
            np.empty(room, np.uint8),
            np.empty(borders, np.int64),
        )


def test_a_payload_begins_after_its_digest():
    codes, offsets, lengths = outputs(1)
    with pytest.raises(IndexError):
        kernels.check_entries(window(bytes(40)), codes, offsets, lengths, 0, 0, 35, True, crc32c_address())
    with pytest.raises(IndexError):
        kernels.check_entries(
            window(bytes(40)), codes, offsets[:0], lengths, 0, 0, 36, True, crc32c_address()
        )
