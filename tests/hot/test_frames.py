"""Frames: the kernels against their plain twin, over whole, cut and damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_core.format.codec.arrays import read_only
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.kernels.hot_frames import (
    BAD_FRAME,
    CUT_OFF,
    FULL,
    PASSED,
    copy_frames,
    pass_frames,
)
from offload_core.storage.hot.ledger_frames import (
    FRAME_HEAD_BYTES,
    MAX_ENTRY_BYTES,
    frame_head,
    ledger_seed,
    pack_frames,
    walk_frames,
)
from offload_core.storage.hot.ledger_writer import PayloadFrames, checked
from offload_hooks.errors import (
    BadLengthError,
    ChecksumError,
    EntryOrderError,
    FormatError,
    OptionError,
    TruncatedError,
)

SEED = ledger_seed(7)
payload_lists = st.lists(st.binary(max_size=60), max_size=8)


def passed(window, entry_id, stop_entry_id=1 << 60):
    arguments = (0, len(window), entry_id, stop_entry_id, MAX_ENTRY_BYTES, crc32c_address(), np.uint32(SEED))
    return pass_frames(read_only(window), *arguments)


def copied(window, entry_id, stop_entry_id, byte_room):
    values = np.empty(len(window), np.uint8)
    offsets = np.empty(len(window) // FRAME_HEAD_BYTES + 1, np.int64)
    arguments = (0, entry_id, stop_entry_id, MAX_ENTRY_BYTES, crc32c_address(), np.uint32(SEED), byte_room)
    status, position, count = copy_frames(read_only(window), *arguments, values, offsets)
    found = [values[offsets[i] : offsets[i + 1]].tobytes() for i in range(count)]
    return status, position, found


def by_the_twin(window, entry_id):
    """How far the twin comes, and what it says there."""
    position, found = 0, []
    try:
        for frame in walk_frames(window, 0, entry_id, SEED):
            position = frame.offset + frame.length
            found.append(bytes(window[frame.offset : position]))
    except FormatError as error:
        return position, found, error
    return position, found, None


def crc32c_bit_by_bit(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_bytes_of_a_frame():
    rest = bytes.fromhex("00000002 0000000000000001") + b"ab"
    checksum = crc32c_bit_by_bit((7).to_bytes(8, "big") + rest)
    assert pack_frames(SEED, 1, [b"ab", b""])[:18] == checksum.to_bytes(4, "big") + rest
    assert frame_head(SEED, 1, b"ab") == checksum.to_bytes(4, "big") + rest[:12]


@settings(deadline=None)
@given(payload_lists, st.integers(0, 1 << 40))
def test_the_kernel_writes_what_the_twin_writes(payloads, first_entry_id):
    written = b"".join(
        bytes(frames) for frames, _, _ in PayloadFrames(payloads, 7).batches(first_entry_id, SEED)
    )
    assert written == pack_frames(SEED, first_entry_id, payloads)


def test_large_batches_are_written_in_pieces():
    payloads = [bytes([i]) * (1 << 20) for i in range(11)] + [bytes(9 << 20), b"x"]
    batches = [(bytes(frames), a, b) for frames, a, b in PayloadFrames(payloads, 7).batches(3, SEED)]
    assert b"".join(frames for frames, _, _ in batches) == pack_frames(SEED, 3, payloads)
    assert [(a, b) for _, a, b in batches] == [(0, 3), (3, 6), (6, 9), (9, 11), (11, 12), (12, 13)]


@effort(2)
@given(payload_lists, st.data())
def test_kernels_stop_where_the_twin_does(payloads, data):
    window = bytearray(pack_frames(SEED, 5, payloads))
    if window and data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(window) - 1))
        window[bit // 8] ^= 1 << bit % 8
    window = bytes(window[: data.draw(st.integers(0, len(window)))])
    position, found, error = by_the_twin(window, 5)
    status, end, entry_id, size = passed(window, 5)
    assert (end, entry_id, size) == (position, 5 + len(found), sum(map(len, found)))
    expected = PASSED if error is None else CUT_OFF if isinstance(error, TruncatedError) else BAD_FRAME
    assert status == expected
    # At the window's end, and only there, the copying kernel wants more.
    assert copied(window, 5, 1 << 60, 1 << 60) == (expected or CUT_OFF, position, found)


@settings(deadline=None)
@given(payload_lists, st.integers(0, 9), st.integers(0, 200))
def test_copies_end_where_they_are_to(payloads, count, room):
    window = pack_frames(SEED, 5, payloads)
    status, _, found = copied(window, 5, 5 + count, room)
    expected = payloads[:count]
    while sum(map(len, expected)) > room:
        expected.pop()
    assert found == expected
    if len(found) == count:
        assert status == PASSED
    else:
        assert status == (FULL if len(found) < len(payloads) else CUT_OFF)


@settings(deadline=None)
@given(payload_lists, st.integers(0, 9))
def test_passing_ends_where_it_is_to(payloads, count):
    window = pack_frames(SEED, 5, payloads)
    _, position, entry_id, _ = passed(window, 5, 5 + count)
    assert entry_id == 5 + min(count, len(payloads))
    assert position == len(pack_frames(SEED, 5, payloads[:count]))


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        (pack_frames(SEED, 4, [b"x"]), EntryOrderError),
        (pack_frames(ledger_seed(8), 5, [b"x"]), ChecksumError),
        (bytes(64), EntryOrderError),
        (bytes(4) + (MAX_ENTRY_BYTES + 1).to_bytes(4, "big") + bytes(64), BadLengthError),
        (pack_frames(SEED, 5, [b"xyz"])[:-1], TruncatedError),
        (b"abc", TruncatedError),
    ],
    ids=["another entry's", "another ledger's", "zeros", "too large", "cut off", "a few bytes"],
)
def test_what_is_no_frame_is_named(window, kind):
    with pytest.raises(kind) as caught:
        list(walk_frames(window, 0, 5, SEED, file_offset=1000))
    assert (caught.value.entry_id, caught.value.offset) == (5, 1000)


def test_zeros_are_no_first_entry():
    assert isinstance(by_the_twin(bytes(64), 0)[2], ChecksumError)


@pytest.mark.parametrize("payload", [5, "text", None])
def test_what_is_no_bytes_is_refused(payload):
    with pytest.raises(OptionError):
        PayloadFrames([payload], 7)
    with pytest.raises(OptionError):
        checked(payload, 7)


def test_a_view_of_larger_items_is_refused():
    with pytest.raises(OptionError):
        PayloadFrames([memoryview(np.arange(4))], 7)
