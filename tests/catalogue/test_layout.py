"""Which positions lie in which object, by a topic's record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from records import closed, copied, failed, managed_ledger, segment, still_open
from tiers import uuid_of

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.recorded_copies import layout_of
from offload_core.metadata.records import OffloadContext

TOPIC = parse_topic("acme/cold/orders")


def told(*ledgers):
    """Of each range: ledger, first, last, the number of its object's uuid, whether complete, whether hot."""
    return [
        (
            each.ledger_id,
            each.first_entry_id,
            each.end_entry_id,
            None if each.key is None else each.key.uuid.node,
            each.is_complete,
            each.is_hot,
        )
        for each in layout_of(TOPIC, managed_ledger(*ledgers))
    ]


def test_one_object_is_the_whole_ledger_and_may_be_unfinished():
    assert told(
        closed(3, 10, copied(uuid_of(1), bookkeeper_deleted=True)),
        closed(4, 5, copied(uuid_of(2), complete=False)),
        closed(5, 7),
        still_open(6),
    ) == [
        (3, 0, 9, 1, True, False),
        (4, 0, 4, 2, False, True),
        (5, 0, 6, None, False, True),
        (6, 0, None, None, False, True),
    ]


def test_an_open_ledger_ends_where_it_is_known_to():
    info = managed_ledger(closed(5, 7), still_open(6))
    closed_one, written = layout_of(TOPIC, info, {6: 3})
    assert (written.ledger_id, written.first_entry_id, written.end_entry_id) == (6, 0, 2)
    assert (closed_one.is_written, written.is_written) == (False, True)
    assert layout_of(TOPIC, info)[1].is_written
    assert [each.ledger_id for each in layout_of(TOPIC, info, {6: 0})] == [5]


def test_segments_over_borders_and_the_rest_that_is_hot():
    first, second, open_one = (
        segment(uuid_of(1), 5),
        segment(uuid_of(2), 9),
        segment(uuid_of(3), None, complete=False),
    )
    assert told(
        closed(3, 10, OffloadContext.of_segments([first, second], complete=True)),
        closed(4, 8, OffloadContext.of_segments([segment(uuid_of(2), 3), failed(segment(uuid_of(4), 5))])),
        still_open(5, OffloadContext.of_segments([open_one])),
    ) == [
        (3, 0, 5, 1, True, True),
        (3, 6, 9, 2, True, True),
        (4, 0, 3, 2, True, True),
        (4, 4, 5, 4, False, True),
        (4, 6, 7, None, False, True),
        (5, 0, None, 3, False, True),
    ]


def test_a_segment_under_way_reaches_to_the_end_of_a_ledger_that_has_one():
    context = OffloadContext.of_segments([segment(uuid_of(1), None, complete=False)])
    assert told(closed(3, 10, context), still_open(4, context)) == [
        (3, 0, 9, 1, False, True),
        (4, 0, None, 1, False, True),
    ]


def test_an_empty_ledger_and_one_that_is_being_deleted_have_none():
    condemned = closed(4, 5, copied(uuid_of(1), complete=False, bookkeeper_deleted=True))
    assert told(closed(3, 0), condemned) == []


@given(ends=st.lists(st.integers(0, 50), unique=True, min_size=1), more=st.integers(0, 5))
def test_each_entry_of_a_sealed_ledger_is_in_one_range(ends, more):
    shares = [segment(uuid_of(end), end) for end in sorted(ends)]
    ledger = closed(3, max(ends) + 1 + more, OffloadContext.of_segments(shares))
    ranges = layout_of(TOPIC, managed_ledger(ledger))

    def ids(each):
        return range(each.first_entry_id, each.end_entry_id + 1)

    assert [entry_id for each in ranges for entry_id in ids(each)] == list(range(max(ends) + 1 + more))
    assert all(each.entries == len(ids(each)) for each in ranges)
