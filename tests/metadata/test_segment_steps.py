"""The steps of a streaming segment: what each records, that it may be taken twice, and what is read of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from records import (
    ASSIGNED_MS,
    DRIVER,
    FRESH,
    LATER,
    LEASE,
    MINE,
    OFFLOADED_MS,
    OTHER,
    assign,
    closed,
    complete,
    context,
    copied,
    managed_ledger,
    placed,
    position,
    segment,
    shares,
    still_open,
    taken_twice,
)
from tiers import uuid_of

from offload_core.metadata.records import (
    AttemptStatus,
    OffloadContext,
    OffloadSegment,
    SegmentLayout,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
)
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.metadata.records.segments import (
    Segment,
    abandon_segment,
    as_written,
    extend_segment,
    find_segment,
    forget_segment,
    mark_segmented_hot_copy_deleted,
    renew_segment,
    resume_segment,
    segments_of,
    unfinished_segment,
)
from offload_core.writing.managed_ledger.owned_record import lose_ledger
from offload_hooks.errors import AttemptError, MetadataError

# --- what each step records --------------------------------------------------------------------


def test_a_segment_over_two_ledgers_is_assigned_extended_and_completed():
    info = managed_ledger(closed(3, 10), still_open(5))
    info = taken_twice(info, partial(assign, ledger_id=3, lease=LEASE))
    assert context(info, 3) == OffloadContext(
        uuid=MINE,
        driver=DRIVER,
        segments=(
            OffloadSegment(uuid=MINE, assigned_ms=ASSIGNED_MS, driver=placed(lease=str(LEASE), begin="3:0")),
        ),
    )
    found = unfinished_segment(info)
    assert found == Segment(
        uuid=MINE,
        begin=position(3, 0),
        end=None,
        status=AttemptStatus.ASSIGNED,
        assigned_ms=ASSIGNED_MS,
        offloaded_ms=None,
        driver=placed(lease=str(LEASE), begin="3:0"),
        ledger_ids=(3,),
    )
    info = taken_twice(info, lambda known: extend_segment(known, MINE, 5))
    assert [share.end_entry_id for share in shares(info, 3) + shares(info, 5)] == [9, None]
    assert {share.driver for share in shares(info, 3) + shares(info, 5)} == {found.driver}
    info = taken_twice(info, lambda known: complete(known, (3, 9), (5, 6)))
    driver = placed(begin="3:0", end="5:6")
    for ledger_id, last in ((3, 9), (5, 6)):
        done = segment(MINE, last, assigned_ms=ASSIGNED_MS, offloaded_ms=OFFLOADED_MS, driver=driver)
        assert context(info, ledger_id) == OffloadContext(
            uuid=MINE, driver=DRIVER, timestamp_ms=OFFLOADED_MS, segments=(done,)
        )
    assert unfinished_segment(info) is None
    assert [(found.ledger_ids, found.end, found.offloaded_ms) for found in segments_of(info)] == [
        ((3, 5), position(5, 6), OFFLOADED_MS)
    ]


def test_a_ledger_of_several_segments_is_offloaded_with_the_last_and_when_it_is_closed():
    info = complete(assign(managed_ledger(still_open(3)), 3), (3, 5))
    info = assign(info, 3, 6, uuid=OTHER, driver=placed(bucket="other"))
    info = complete(info, (3, 9), uuid=OTHER, offloaded_ms=OFFLOADED_MS + 1)
    found = context(info, 3)
    assert (found.uuid, found.driver, found.timestamp_ms) == (MINE, DRIVER, OFFLOADED_MS + 1)
    assert found.first_entry_ids() == (0, 6)
    assert not info.ledgers[0].is_fully_offloaded, "it is open"
    for entries, is_whole in ((10, True), (11, False)):
        assert closed(3, entries, found).is_fully_offloaded == is_whole
    assert not found.complete, "only a copy that is one object has it"


def test_a_segment_of_history_is_recorded_in_all_its_ledgers_at_once():
    before = managed_ledger(*FRESH.ledgers, closed(4, 0))
    info = taken_twice(before, partial(assign, ledger_id=3, end=position(7, 12)))
    assert [shares(info, each)[0].end_entry_id for each in (3, 5, 7)] == [9, 3, 12]
    assert {shares(info, each)[0].driver for each in (3, 5, 7)} == {placed(begin="3:0", end="7:12")}
    assert context(info, 4) is None
    found = unfinished_segment(info)
    assert (found.begin, found.end, found.ledger_ids) == (position(3, 0), position(7, 12), (3, 5, 7))
    info = complete(info, (3, 9), (5, 3), (7, 12))
    assert {each.ledger_id for each in info.ledgers if each.is_fully_offloaded} == {3, 5}
    info = taken_twice(info, partial(assign, ledger_id=7, entry_id=13, uuid=OTHER, end=position(7, 19)))
    info = complete(info, (7, 19), uuid=OTHER)
    assert {each.ledger_id for each in info.ledgers if each.is_fully_offloaded} == {3, 5, 7}


def test_a_lease_stands_in_every_share_until_the_attempt_has_ended():
    info = extend_segment(assign(FRESH, 3, lease=LEASE), MINE, 5)
    later = replace(LEASE, until_ms=LEASE.until_ms + 1)
    renewed = taken_twice(info, lambda known: renew_segment(known, MINE, later))
    assert [lease_of(share.driver) for share in shares(renewed, 3) + shares(renewed, 5)] == [later, later]
    for ended in (complete(renewed, (3, 9), (5, 3)), abandon_segment(renewed, MINE)):
        assert [lease_of(share.driver) for share in shares(ended, 3) + shares(ended, 5)] == [None, None]
        with pytest.raises(AttemptError, match=r"complete already|was abandoned"):
            renew_segment(ended, MINE, later)


def test_an_abandoned_segment_keeps_its_positions_for_the_next_attempt():
    info = extend_segment(assign(FRESH, 3, lease=LEASE), MINE, 5)
    failed = taken_twice(info, lambda known: abandon_segment(known, MINE))
    found = unfinished_segment(failed)
    assert (found.status, found.begin, found.end) == (AttemptStatus.FAILED, position(3, 0), None)
    with pytest.raises(AttemptError, match="was abandoned"):
        complete(failed, (3, 9), (5, 3))
    with pytest.raises(AttemptError, match="was abandoned"):
        extend_segment(failed, MINE, 7)
    other = placed(bucket="other")
    resumed = taken_twice(failed, lambda known: resume_segment(known, MINE, OTHER, other, 5, lease=LEASE))
    assert segments_of(resumed) == (
        Segment(
            uuid=OTHER,
            begin=position(3, 0),
            end=None,
            status=AttemptStatus.ASSIGNED,
            assigned_ms=5,
            offloaded_ms=None,
            driver=placed(other, lease=str(LEASE), begin="3:0"),
            ledger_ids=(3, 5),
        ),
    )
    assert context(resumed, 3).uuid == OTHER
    with pytest.raises(AttemptError, match="took the place of this segment's"):
        complete(resumed, (3, 9), (5, 3))
    assert complete(extend_segment(resumed, OTHER, 7), (3, 9), (5, 3), (7, 0), uuid=OTHER) != resumed


def test_a_step_that_is_made_again_after_its_attempt_was_abandoned_is_refused():
    failed = abandon_segment(assign(FRESH, 3), MINE)
    with pytest.raises(AttemptError, match="was abandoned"):
        assign(failed, 3)
    resumed = abandon_segment(resume_segment(failed, MINE, OTHER, DRIVER, 5), OTHER)
    with pytest.raises(AttemptError, match="was abandoned"):
        resume_segment(resumed, MINE, OTHER, DRIVER, 5)


def test_an_abandoned_segment_may_get_an_end_and_what_is_behind_it_is_free_again():
    info = extend_segment(extend_segment(assign(FRESH, 3), MINE, 5), MINE, 7)
    failed = taken_twice(info, lambda known: abandon_segment(known, MINE, position(5, 2)))
    assert context(failed, 7) is None
    assert [share.end_entry_id for share in shares(failed, 3) + shares(failed, 5)] == [9, 2]
    with pytest.raises(AttemptError, match="ends elsewhere"):
        abandon_segment(failed, MINE, position(5, 3))
    resumed = resume_segment(failed, MINE, OTHER, DRIVER, 5)
    assert segments_of(resumed)[0].end == position(5, 2)
    with pytest.raises(AttemptError, match="does not go on"):
        extend_segment(resumed, OTHER, 7)
    with pytest.raises(AttemptError, match="ends elsewhere"):
        complete(resumed, (3, 9), (5, 3), uuid=OTHER)
    assert segments_of(complete(resumed, (3, 9), (5, 2), uuid=OTHER))[0].is_finished


def test_a_segment_without_an_entry_of_its_first_ledger_begins_with_the_next():
    info = complete(assign(managed_ledger(still_open(3), still_open(5)), 3), (3, 9))
    info = assign(info, 3, 10, uuid=OTHER)
    ended = managed_ledger(replace(closed(3, 10), context=context(info, 3)), still_open(5))
    info = taken_twice(ended, lambda known: extend_segment(known, OTHER, 5))
    assert [share.uuid for share in shares(info, 3)] == [MINE]
    assert info.in_order[0].is_fully_offloaded
    assert segments_of(info)[1].begin == position(5, 0)


def test_a_segment_goes_on_over_a_ledger_that_was_forgotten_since_it_was_empty():
    info = extend_segment(assign(managed_ledger(closed(3, 10), still_open(5)), 3), MINE, 5)
    forgotten = managed_ledger(*(each for each in info.ledgers if each.ledger_id != 5), still_open(7))
    assert segments_of(complete(forgotten, (3, 9)))[0].is_finished
    assert context(complete(info, (3, 9)), 5) is None, "a ledger of which it got no entry is not touched"
    info = extend_segment(forgotten, MINE, 7)
    assert segments_of(complete(info, (3, 9), (7, 0)))[0].ledger_ids == (3, 7)
    nothing_left = managed_ledger(still_open(7))
    with pytest.raises(AttemptError, match="cleaned up"):
        extend_segment(nothing_left, MINE, 7)
    with pytest.raises(AttemptError, match="cleaned up"):
        abandon_segment(nothing_left, MINE)
    assert forget_segment(nothing_left, MINE) == nothing_left


def test_a_segment_that_is_not_complete_can_be_forgotten():
    one = complete(assign(managed_ledger(still_open(3)), 3), (3, 5))
    two = assign(one, 3, 6, uuid=OTHER)
    assert taken_twice(two, lambda known: forget_segment(known, OTHER)) == one
    assert forget_segment(abandon_segment(two, OTHER), OTHER) == one
    assert forget_segment(extend_segment(assign(FRESH, 3), MINE, 5), MINE) == FRESH
    with pytest.raises(AttemptError, match="complete already"):
        forget_segment(one, MINE)


def test_what_is_not_known_is_kept_by_every_step():
    unknown = bytes.fromhex("803f01")
    info = managed_ledger(
        replace(closed(3, 10), context=OffloadContext(unknown_fields=unknown)), closed(5, 4)
    )
    info = abandon_segment(extend_segment(assign(info, 3), MINE, 5), MINE)
    info = complete(resume_segment(info, MINE, OTHER, DRIVER, 5), (3, 9), (5, 3), uuid=OTHER)
    assert context(info, 3).unknown_fields == unknown
    assert forget_segment(assign(managed_ledger(*info.ledgers, closed(7, 2)), 7), MINE).ledger(
        3
    ) == info.ledger(3)


def test_a_hot_copy_is_marked_as_gone_when_all_entries_are_in_complete_segments():
    info = complete(assign(FRESH, 3), (3, 5))
    with pytest.raises(AttemptError, match="is needed until"):
        mark_segmented_hot_copy_deleted(info, 3)
    info = complete(assign(info, 3, 6, uuid=OTHER), (3, 9), uuid=OTHER)
    marked = taken_twice(info, lambda known: mark_segmented_hot_copy_deleted(known, 3))
    before = context(info, 3)
    gone = tuple(replace(share, bookkeeper_deleted=True) for share in before.segments)
    assert context(marked, 3) == replace(before, bookkeeper_deleted=True, segments=gone)
    for ledger in (closed(3, 10), closed(3, 10, copied(MINE))):
        with pytest.raises(AttemptError, match="is needed until"):
            mark_segmented_hot_copy_deleted(managed_ledger(ledger), 3)


def test_of_a_segment_in_two_ledgers_the_share_of_the_one_whose_hot_copy_went_says_so():
    info = managed_ledger(closed(3, 10), closed(5, 4), closed(7, 20))
    info = complete(assign(info, 3, end=position(7, 12)), (3, 9), (5, 3), (7, 12))
    marked = taken_twice(info, lambda known: mark_segmented_hot_copy_deleted(known, 5))
    assert [ledger.has_hot_copy for ledger in marked.in_order] == [True, False, True]
    deleted = [share.bookkeeper_deleted for each in (3, 5, 7) for share in shares(marked, each)]
    assert deleted == [False, True, False]
    with pytest.raises(AttemptError, match="is needed until"):
        mark_segmented_hot_copy_deleted(marked, 7)
    with pytest.raises(AttemptError, match="hot copy is gone"):
        assign(marked, 5, 4, uuid=OTHER)


def test_a_ledger_that_is_lost_or_to_be_deleted_says_so_in_all_shares():
    info = complete(assign(managed_ledger(still_open(3)), 3), (3, 5))
    info = assign(info, 3, 6, uuid=OTHER)
    for gone in (
        taken_twice(info, lambda known: mark_for_deletion(known, {3})),
        lose_ledger(info, 3, OFFLOADED_MS),
    ):
        assert not gone.ledgers[0].has_hot_copy
        assert [share.bookkeeper_deleted for share in shares(gone, 3)] == [True, True]


def test_a_share_without_a_place_of_its_own_gets_its_ledgers_to_say_that_the_hot_copy_is_gone():
    bare = segment(MINE, 9, driver=None)
    for driver, expected in ((DRIVER, [True]), (None, [False])):
        known = replace(OffloadContext.of_segments([bare]), driver=driver)
        marked = taken_twice(
            managed_ledger(closed(3, 10, known)), lambda info: mark_segmented_hot_copy_deleted(info, 3)
        )
        assert not marked.ledgers[0].has_hot_copy
        assert [share.bookkeeper_deleted for share in shares(marked, 3)] == expected


# --- what older versions wrote -----------------------------------------------------------------


@pytest.mark.parametrize("gone", [False, True])
def test_a_record_of_an_older_version_is_read_alike_and_written_as_today(gone):
    one_object = closed(9, 3, replace(copied(LATER), bookkeeper_deleted=gone))
    parts = [segment(MINE, 5), segment(OTHER, 9)]
    old = managed_ledger(
        closed(3, 10, OffloadContext.of_segments(parts, complete=True, bookkeeper_deleted=gone)), one_object
    )
    parts = [segment(MINE, 5, bookkeeper_deleted=gone), segment(OTHER, 9, bookkeeper_deleted=gone)]
    new = managed_ledger(
        closed(3, 10, OffloadContext.of_segments(parts, bookkeeper_deleted=gone)), one_object
    )
    assert as_written(old) == new
    assert as_written(new) == new
    for info in (old, new):
        ledger = info.ledgers[0]
        assert (ledger.is_fully_offloaded, ledger.has_hot_copy) == (True, not gone)
        assert not ledger.is_marked_for_deletion
    marked = [as_written(mark_segmented_hot_copy_deleted(info, 3)) for info in (old, new)]
    assert marked[0] == marked[1]


def test_a_record_that_falsely_calls_segments_complete_goes_by_the_segments():
    info = managed_ledger(closed(3, 10, OffloadContext.of_segments([segment(MINE, 5)], complete=True)))
    assert not info.ledgers[0].is_fully_offloaded
    with pytest.raises(AttemptError, match="is needed until"):
        mark_segmented_hot_copy_deleted(info, 3)


def test_a_copy_that_another_pulsar_made_takes_the_place_of_the_segments_when_it_is_complete():
    streamed = OffloadContext.of_segments([segment(MINE, 5), segment(OTHER, 9)])
    for complete_copy, left in ((False, streamed.segments), (True, ())):
        anew = replace(streamed, uuid=LATER, complete=complete_copy, timestamp_ms=OFFLOADED_MS)
        packed = pack_managed_ledger_info(managed_ledger(closed(3, 10, anew)))
        info = parse_managed_ledger_info(packed)
        (ledger,) = info.ledgers
        assert ledger.context == replace(anew, segments=left)
        assert as_written(info) == info
        assert ledger.is_fully_offloaded, "by the segments, or by the copy"


# --- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", list(SegmentLayout))
def test_segments_without_our_properties_are_read_in_both_layouts(layout):
    written = managed_ledger(
        closed(5, 4, OffloadContext.of_segments([segment(OTHER, 3)])),
        closed(3, 10, OffloadContext.of_segments([segment(MINE, 5), segment(OTHER, 9)])),
        still_open(7, OffloadContext.of_segments([segment(LATER, None, complete=False, offloaded_ms=None)])),
    )
    info = parse_managed_ledger_info(pack_managed_ledger_info(written, segment_layout=layout))
    found = segments_of(info)
    assert [(each.uuid, each.begin, each.end, each.ledger_ids) for each in found] == [
        (MINE, position(3, 0), position(3, 5), (3,)),
        (OTHER, position(3, 6), position(5, 3), (3, 5)),
        (LATER, position(7, 0), None, (7,)),
    ]
    assert unfinished_segment(info) == found[2]
    assert (found[0].driver, found[0].status) == (DRIVER, AttemptStatus.OFFLOADED)
    resumed = resume_segment(abandon_segment(info, LATER), LATER, uuid_of(4), DRIVER, 5)
    done = complete(resumed, (7, 0), uuid=uuid_of(4))
    assert [each.is_finished for each in segments_of(done)] == [True, True, True]


def test_a_segment_without_driver_metadata_can_be_abandoned():
    bare = segment(MINE, None, complete=False, offloaded_ms=None, driver=None)
    info = abandon_segment(managed_ledger(still_open(3, OffloadContext.of_segments([bare]))), MINE)
    assert segments_of(info)[0].status is AttemptStatus.FAILED


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (segment(MINE, 3), AttemptStatus.OFFLOADED),
        (segment(MINE, 3, complete=False), AttemptStatus.ASSIGNED),
        (segment(MINE, 3, complete=False, driver=placed(status="failed")), AttemptStatus.FAILED),
    ],
    ids=["offloaded", "assigned", "failed"],
)
def test_a_segment_is_as_far_as_the_least_of_its_shares(second, status):
    """As none of ours ever differ."""
    info = managed_ledger(
        closed(3, 10, OffloadContext.of_segments([segment(MINE, 9)])),
        closed(5, 4, OffloadContext.of_segments([second])),
    )
    (found,) = segments_of(info)
    assert found.status is status
    assert (unfinished_segment(info) is None) == (status is AttemptStatus.OFFLOADED)


def test_a_begin_that_is_none_is_an_error():
    wrong = segment(MINE, 5, driver=DRIVER.with_property("begin", "7"))
    with pytest.raises(MetadataError, match="is no position"):
        segments_of(managed_ledger(closed(3, 6, OffloadContext.of_segments([wrong]))))


def test_ledgers_that_are_being_deleted_have_no_part_in_segments():
    info = extend_segment(assign(FRESH, 3), MINE, 5)
    first = info.ledger(3)
    info = info.with_ledger(replace(first, context=replace(first.context, bookkeeper_deleted=True)))
    info = abandon_segment(info, MINE)
    found = find_segment(info, MINE)
    assert (found.begin, found.ledger_ids) == (position(3, 0), (5,))
    resumed = resume_segment(info, MINE, OTHER, DRIVER, 5)
    assert unfinished_segment(resumed) == find_segment(resumed, OTHER)
    assert segments_of(resumed)[0].begin == position(5, 0)
    assert [share.uuid for share in shares(resumed, 3)] == [MINE], "its objects are still to be deleted"
