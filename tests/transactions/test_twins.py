"""The kernels of the pass over metadata against their plain twins, and what they refuse."""

import itertools
import struct

import numpy as np
import pytest
from entries import entry, marker
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes.messages import entry_spans
from scenes.transactions import found_in, is_entry, outcomes_of

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.block_layout import PADDING
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.messages.columns import TRANSACTION_STATES
from offload_core.format.messages.kernels.entry_fields import E_FIELDS
from offload_core.format.messages.kernels.last_entries import find_last_entries
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.reading.scan.transactions.outcomes import outcomes
from offload_hooks.errors import ChecksumError, FormatError, MetadataError

BITS = st.sampled_from([0, 1, 7, 2**63, 2**64 - 1])
IDS = st.one_of(
    st.just({}),
    st.builds(lambda most: {"txnid_most_bits": most}, BITS),
    st.builds(lambda most, least: {"txnid_most_bits": most, "txnid_least_bits": least}, BITS, BITS),
)
TIMES = st.integers(0, 2**64 - 1)
ENTRIES = st.one_of(
    st.builds(lambda ids, time: entry(b"value", publish_time=time, **ids), IDS, TIMES),
    st.builds(lambda ids, kind, time: marker(kind, publish_time=time, **ids), IDS, st.integers(9, 24), TIMES),
)


def look(entries, *, at_once=99, verify_checksums=True):
    """Entries from 40 on, so many at once."""
    finder = TransactionFinder(7, verify_checksums=verify_checksums)
    block, offsets, lengths = entry_spans(entries)
    for begin in range(0, len(entries), at_once):
        end = begin + at_once
        ids = np.arange(40, 40 + len(entries))
        finder.add(LocatedEntries(block, 1000, ids[begin:end], offsets[begin:end], lengths[begin:end]))
    return finder


@settings(deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=30), st.integers(1, 31))
def test_what_is_found_is_what_the_twin_finds(entries, at_once):
    finder = look(entries, at_once=at_once)
    *expected, times = found_in(entries, 40)
    assert [table.tolist() for table in finder.tables()] == expected
    assert tuple(finder.times.tolist()) == times


def test_entries_of_one_transaction_that_follow_one_another_are_one_range():
    ids = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    entries = [entry(b"a", **ids)] * 1000 + [entry(b"b")] + [entry(b"c", **ids)] + [marker(22)] * 5
    ranges, markers, tombstones = look(entries, at_once=64).tables()
    assert ranges.tolist() == [[40, 1040, 1, 2], [1041, 1042, 1, 2]]
    assert markers.tolist() == []
    assert tombstones.tolist() == [[1042, 1047]]


def test_an_entry_that_is_none_is_an_error_that_names_the_place():
    with pytest.raises(FormatError) as caught:
        look([entry(b"a"), b"\x00\x00\x00\x07abc"])
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 41)
    assert caught.value.offset == 1000 + 12 + len(entry(b"a")) + 12
    with pytest.raises(MetadataError, match="lacks"):
        look([entry(b"a", publish_time=None)])


def test_checksums_are_verified_where_the_answer_depends_on_them():
    """What is read later is verified then; a marker never is."""
    ids = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    plain, of_transaction, commit = entry(b"abc"), entry(b"abc", **ids), marker(21, **ids)
    look([plain[:-1] + b"x"])
    for wrong in (of_transaction[:-1] + b"x", commit[:-1] + b"\x03"):
        with pytest.raises(ChecksumError) as caught:
            look([plain, wrong])
        assert caught.value.entry_id == 41
    assert len(look([of_transaction[:-1] + b"x"], verify_checksums=False).tables()[0]) == 1


# --- outcomes ----------------------------------------------------------------------------------

PLACES = st.tuples(st.integers(0, 3), st.integers(0, 20))
OWNERS = st.tuples(st.integers(0, 1), st.integers(-3, 1))


@given(st.dictionaries(PLACES, st.tuples(OWNERS, st.sampled_from([0, 0, 20, 21, 22])), max_size=30))
def test_the_outcome_of_each_range_is_what_the_twin_says(events):
    ranges = [[*place, place[1] + 1, *owner] for place, (owner, kind) in sorted(events.items()) if not kind]
    markers = [[*place, *owner, kind] for place, (owner, kind) in sorted(events.items()) if kind]
    found = outcomes(
        np.array(ranges, dtype=np.int64).reshape(-1, 5), np.array(markers, dtype=np.int64).reshape(-1, 5)
    )
    assert [TRANSACTION_STATES[state] for state in found] == outcomes_of(ranges, markers)


# --- the ends of blocks ------------------------------------------------------------------------

FRAMES = st.lists(
    st.tuples(st.integers(1, 3), st.one_of(ENTRIES, st.binary(max_size=30))), min_size=1, max_size=12
)


def find(data, next_entry_id, least=0, *, gaps=False):
    row = np.empty(E_FIELDS, dtype=np.int64)
    array = np.frombuffer(data, dtype=np.uint8)
    return find_last_entries(array, next_entry_id, least, gaps, crc32c_address(), row)


@settings(deadline=None)
@given(FRAMES, st.integers(0, 40), st.booleans(), st.booleans(), st.data())
def test_the_last_entries_of_a_window_are_those_that_are_linked_to_its_end(
    drawn, padding, gaps, is_known, data
):
    """Frames up to the last one that is no entry, or does not begin in the window."""
    framed, places, entry_id = b"", [], 5
    for step, payload in drawn:
        entry_id += step if gaps else 1
        places.append((len(framed), entry_id, payload))
        framed += struct.pack(">iq", len(payload), entry_id) + payload
    padded = framed + (PADDING * 11)[:padding]
    begin = data.draw(st.integers(0, len(framed)))
    linked = list(itertools.takewhile(lambda each: each[0] >= begin and is_entry(each[2]), reversed(places)))
    next_entry_id = entry_id + 1 if is_known else -1
    at, first = linked[-1][:2] if linked else (len(padded), next_entry_id)
    assert find(padded[begin:], next_entry_id, gaps=gaps) == (at - begin, first)


def test_a_payload_that_is_framed_itself_is_not_taken_for_entries():
    """Records with a length and a number before them, the number being the id that the next entry back must have."""
    inner = struct.pack(">iq", 20, 6) + b"a record of 20 bytes"
    entries = [entry(b"x" * 100), entry(inner)]
    framed = b"".join(struct.pack(">iq", len(each), i) + each for i, each in enumerate(entries, 5))
    assert find(framed, 7) == (0, 5)
    assert find(framed[50:], 7) == (len(entries[0]) + 12 - 50, 6)


def test_ids_below_the_blocks_first_are_not_searched_for():
    framed = b"".join(struct.pack(">iq", len(entry(b"a")), i) + entry(b"a") for i in range(5))
    assert find(framed, 5, least=3) == (3 * (len(entry(b"a")) + 12), 3)
    assert find(framed, -1, least=3) == (3 * (len(entry(b"a")) + 12), 3)


def test_a_row_that_is_too_short_is_refused():
    with pytest.raises(IndexError, match="rows are too short"):
        find_last_entries(np.zeros(40, dtype=np.uint8), 1, 0, False, 0, np.empty(3, dtype=np.int64))
