"""The kernels of the pass over metadata against their plain twins, and what they refuse."""

import numpy as np
import pytest
from entries import entry, marker
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes.messages import entry_spans
from scenes.transactions import found_in, outcomes_of

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.messages.columns import TRANSACTION_STATES
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.reading.scan.tasks import EntryRanges
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
    ranges = [[*place, *owner] for place, (owner, kind) in sorted(events.items()) if not kind]
    markers = [[*place, *owner, kind] for place, (owner, kind) in sorted(events.items()) if kind]
    found = outcomes(
        np.array(ranges, dtype=np.int64).reshape(-1, 4), np.array(markers, dtype=np.int64).reshape(-1, 5)
    )
    assert [TRANSACTION_STATES[state] for state in found] == outcomes_of(ranges, markers)


# --- ranges of entries -------------------------------------------------------------------------


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 90), min_size=1))
def test_ranges_are_the_set_of_their_entries(entries, asked):
    ids = np.array(sorted(asked), dtype=np.int64)
    first, stop = min(asked), max(asked) + 1
    ranges = EntryRanges.of(np.array([(i, i + 1) for i in sorted(entries)], dtype=np.int64).reshape(-1, 2))
    assert len(ranges) == sum(i - 1 not in entries for i in entries)
    assert {i for begin, stop in ranges.bounds.tolist() for i in range(begin, stop)} == entries
    expected = [i in entries for i in ids.tolist()]
    for each in (ranges, ranges.within(first, stop)):
        mask = each.mask(ids)
        assert (mask is None) == (not any(expected))
        assert mask is None or mask.tolist() == expected
    behind = ranges.within(first, None).bounds
    assert {i for i in entries if i >= first} <= {
        i for begin, stop in behind.tolist() for i in range(begin, stop)
    }
    assert hash(ranges) == hash(EntryRanges.of(ranges.bounds))
