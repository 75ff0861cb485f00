"""Tombstones: their bytes, the kernel against its reference, and what readers make of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from entries import batch_entry, entry, frame_entry, marker, spans_of
from hypothesis import assume, given
from hypothesis import strategies as st
from scenes.messages import decoded_rows

from offload_core.format.messages.entry import pack_tombstone, read_messages, split_entry
from offload_core.writing.offload_filters import replace_by_tombstones
from offload_hooks.errors import BadLengthError, ChecksumError, FormatError, MetadataError, TruncatedError
from offload_proto.messages_pb2 import BrokerEntryMetadata

BY_BROKER = BrokerEntryMetadata(broker_timestamp=1_700_000_000_123, index=41)
LATEST = 2**64 - 1
SHOWN = Path(__file__).parents[1] / "docs" / "tombstone.bin"

TIMES = st.sampled_from([0, 127, 128, 2**35 - 1, 2**35, 2**63, LATEST]) | st.integers(0, LATEST)
IDS = st.sampled_from([{}, {"txnid_most_bits": 0, "txnid_least_bits": 0}])
BROKERS = st.none() | st.builds(
    BrokerEntryMetadata,
    broker_timestamp=st.none() | st.integers(0, 2**50),
    index=st.none() | st.integers(0, 9),
)
ENTRIES = st.one_of(
    st.builds(
        lambda value, time, ids, broker, checksum: entry(
            value, publish_time=time, broker=broker, checksum=checksum, **ids
        ),
        st.binary(max_size=60),
        TIMES,
        IDS,
        BROKERS,
        st.booleans(),
    ),
    st.builds(lambda time, ids: batch_entry([b"a", b"bc"], publish_time=time, **ids), TIMES, IDS),
    st.builds(
        lambda time, ids, broker: marker(21, publish_time=time, broker=broker, **ids), TIMES, IDS, BROKERS
    ),
    st.just(frame_entry(b"\x18\x07\x10\x01\x0a\x00\x18\x09", b"metadata in another order, its time twice")),
)


def replaced(entries, dropped, *, skipped=b""):
    """What becomes of entries with ids from 40 on, those at the places `dropped` replaced."""
    data, starts, lengths = spans_of([skipped, *entries])
    offsets = np.append(starts, starts[-1] + lengths[-1])[1:]
    mask = np.zeros(len(entries), dtype=np.bool_)
    mask[list(dropped)] = True
    made, borders, gone = replace_by_tombstones(data, offsets, mask, 40)
    assert (borders[0], borders[-1]) == (0, len(made))
    assert np.flatnonzero(gone).tolist() == [i for i in dropped if not split_entry(entries[i]).is_marker]
    assert np.flatnonzero(mask).tolist() == list(dropped)
    return [made[a:b].tobytes() for a, b in pairwise(borders.tolist())]


# --- bytes -------------------------------------------------------------------------------------


def test_a_tombstone_is_the_bytes_that_its_page_shows():
    """docs/formats/entry.md."""
    broker = BrokerEntryMetadata(broker_timestamp=1795215792950, index=41)
    of_transaction = {"txnid_most_bits": 0, "txnid_least_bits": 5}
    filtered = entry(b"value", publish_time=1795215792942, broker=broker, **of_transaction)
    assert replaced([filtered], [0]) == [pack_tombstone(filtered)] == [SHOWN.read_bytes()]


def test_what_a_broker_put_before_an_entry_stays_there_byte_for_byte():
    odd = b"\x10\x29\x08\x07\x1a\x00"  # the index first, and a field of a later broker
    filtered = frame_entry(b"\x0a\x00\x10\x00\x18\x09", b"value", broker=odd)
    bare = frame_entry(b"\x0a\x00\x10\x00\x18\x09", b"value")
    (made,) = replaced([filtered], [0])
    assert made == b"\x0e\x02\x00\x00\x00\x06" + odd + pack_tombstone(bare)
    parts = split_entry(made)
    assert (parts.broker.index, parts.broker.broker_timestamp) == (41, 7)


@given(st.lists(ENTRIES, min_size=1, max_size=20), st.data(), st.binary(max_size=5))
def test_dropped_entries_are_what_the_reference_makes_and_the_others_are_as_they_were(entries, data, skipped):
    dropped = data.draw(st.sets(st.integers(0, len(entries) - 1)))
    expected = [pack_tombstone(each) if i in dropped else each for i, each in enumerate(entries)]
    assert replaced(entries, sorted(dropped), skipped=skipped) == expected


@pytest.mark.parametrize("kind", [10, 12, 20, 21, 22])
def test_markers_stay_as_they_are(kind):
    """Brokers pass over them; who reads the topic again needs to know how transactions ended."""
    ids = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    tombstone = pack_tombstone(entry(b"value"))
    kept = [marker(kind, **ids), marker(kind, broker=BY_BROKER), tombstone]
    assert replaced([*kept, entry(b"value")], [0, 1, 2, 3]) == [*kept, tombstone]


def test_what_is_kept_need_be_no_entry_of_pulsars():
    assert replaced([b"", b"anything", entry(b"value")], [2])[:2] == [b"", b"anything"]


# --- what readers make of them -----------------------------------------------------------------


@given(ENTRIES)
def test_a_tombstone_is_a_marker_of_no_transaction_at_the_time_of_its_entry(filtered):
    before, after = split_entry(filtered), split_entry(pack_tombstone(filtered))
    assume(not before.is_marker)
    assert after.metadata.publish_time == before.metadata.publish_time
    assert after.broker == before.broker
    assert (after.metadata.marker_type, after.payload) == (22, b"")
    assert not after.metadata.HasField("txnid_most_bits")
    assert not after.metadata.HasField("txnid_least_bits")
    assert after.is_marker
    assert read_messages(after, max_message_bytes=100) == []


def test_a_tombstone_has_no_rows():
    filtered = batch_entry([b"a", b"b"], broker=BY_BROKER)
    rows = decoded_rows([entry(b"first"), pack_tombstone(filtered), entry(b"last")])
    assert [row["value"] for row in rows] == [b"first", b"last"]


# --- what is no entry --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (b"", TruncatedError),
        (b"\x00\x00\x00\x07abc", BadLengthError),
        (b"\x0e\x02\x00\x00\x00\x7f" + entry(b"value"), BadLengthError),
        (entry(b"value", publish_time=None), MetadataError),
        (entry(b"value")[:-1] + b"x", ChecksumError),
    ],
    ids=["nothing", "not Pulsar's", "broker's metadata cut", "no publish time", "damaged"],
)
def test_what_is_no_whole_entry_is_not_dropped_and_is_named(wrong, error):
    with pytest.raises(error) as caught:
        replaced([entry(b"first"), entry(b"second"), wrong, entry(b"last")], [1, 2])
    assert caught.value.entry_id == 42


def test_an_entry_that_is_cut_anywhere_is_named():
    whole = entry(b"", broker=BY_BROKER)
    assert replaced([whole], [0]) == [pack_tombstone(whole)]
    for length in range(len(whole)):
        with pytest.raises(FormatError) as caught:
            replaced([whole, whole[:length]], [1])
        assert caught.value.entry_id == 41
