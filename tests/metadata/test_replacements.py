"""The steps by which another copy takes the place of a complete one: what each records, refuses, and does twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from records import (
    CLOSED_AT_MS,
    DRIVER,
    closed,
    copied,
    ledger,
    managed_ledger,
    new_copy,
    position,
    segment,
    still_open,
    taken_twice,
)
from tiers import uuid_of

from offload_core.metadata.catalogue.known_tiers import is_same_place
from offload_core.metadata.records import (
    CopyForm,
    DriverMetadata,
    OffloadContext,
    OtherRole,
    abandon_replacement,
    assign_segment,
    begin_attempt,
    begin_replacement,
    complete_segment,
    find_segment,
    forget_replaced,
    forget_replacement,
    forget_segment,
    mark_hot_copy_deleted,
    other_copies,
    read_copies,
    release_segments,
    renew_replacement,
    replaced_of,
    replacement_of,
    switch_replacement,
)
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, lease_of
from offload_core.metadata.records.ledger_changes import mark_for_deletion, needed_objects
from offload_hooks.errors import AttemptError, MetadataError

OLD, OTHER_OLD, NEW, NEWER = uuid_of(1), uuid_of(2), uuid_of(3), uuid_of(4)
SINCE, NOW = CLOSED_AT_MS + 5000, CLOSED_AT_MS + 9000
THERE = DriverMetadata(name="S3", properties=(("bucket", "new"), ("location", "s3://new/prefix")))
LEASE = AttemptLease(holder=AttemptHolder(machine=0xAB, process=7, started=11), until_ms=NOW)
WHOLE = managed_ledger(still_open(9), closed(5, 4, copied(OTHER_OLD)), closed(3, 10, copied(OLD)))


def extended(of, begin, end):
    return of.with_extent(position(*begin), position(*end))


def streamed():
    """One segment over part of ledger 3, and one over the rest of it and ledger 5; ledger 9 begins a third."""
    first = extended(segment(OLD, 5), (3, 0), (3, 5))
    second = partial(extended, begin=(3, 6), end=(5, 3))
    return managed_ledger(
        closed(3, 10, OffloadContext.of_segments([first, second(segment(OTHER_OLD, 9))], complete=True)),
        closed(5, 4, OffloadContext.of_segments([second(segment(OTHER_OLD, 3))], complete=True)),
        still_open(9),
    )


def begin(info, *ledger_ids, **given):
    lease = given.pop("lease", None)
    return taken_twice(info, partial(begin_replacement, copy=there(*ledger_ids, **given), lease=lease))


def there(*ledger_ids, uuid=NEW, **given):
    return new_copy(uuid, *ledger_ids, **{"driver": THERE, "since_ms": SINCE} | given)


def switch(info, uuid=NEW, **given):
    return taken_twice(info, partial(switch_replacement, uuid=uuid, now_ms=NOW, **given))


def context(info, ledger_id):
    return ledger(info, ledger_id).context


def as_read(info):
    """The record without what it names beside the copies that are read."""
    for copy in other_copies(info):
        if copy.role is OtherRole.REPLACEMENT:
            info = forget_replacement(abandon_replacement(info, copy.uuid), copy.uuid)
        elif copy.uuid not in read_copies(info):
            info = forget_replaced(info, copy.uuid)
    return info


# --- a ledger's one object ---------------------------------------------------------------------


def test_another_object_takes_the_place_of_a_ledgers():
    begun = begin(WHOLE, 3, lease=LEASE)
    assert as_read(begun) == WHOLE, "until the switch all is as it was"
    under_way = replacement_of(ledger(begun, 3))
    assert under_way == there(3, driver=THERE.with_property("lease", str(LEASE)))
    assert (under_way.is_abandoned, lease_of(under_way.driver)) == (False, LEASE)
    switched = switch(begun)
    assert other_copies(switched) == (new_copy(OLD, 3, role=OtherRole.REPLACED, since_ms=NOW),)
    assert is_same_place(THERE, context(switched, 3).driver or DRIVER)
    forgotten = taken_twice(switched, partial(forget_replaced, uuid=OLD))
    assert context(forgotten, 3) == replace(context(WHOLE, 3), uuid=NEW, driver=THERE)


def test_the_record_of_it_is_stable():
    driver = context(begin(WHOLE, 3, lease=LEASE), 3).driver
    assert driver.get("pulsar-offload.replacement") == (
        f'{{"uuid":"{NEW}","form":"ledger","since":{SINCE},"driver":"S3","properties":'
        f'{{"bucket":"new","location":"s3://new/prefix","lease":"00000000000000ab:7:11:{NOW}"}}}}'
    )
    driver = context(switch(begin(WHOLE, 3)), 3).driver
    assert driver.get("pulsar-offload.replaced") == (
        f'[{{"uuid":"{OLD}","form":"ledger","since":{NOW},"driver":"aws-s3","properties":'
        '{"bucket":"golden","managedLedgerOffloadDriver":"AWS_S3","region":"us-east-1",'
        '"serviceEndpoint":"http://127.0.0.1:5577"}}]'
    )


def test_what_else_is_recorded_of_a_copy_stays():
    old = copied(OLD, bookkeeper_deleted=True, driver=DRIVER.with_property("pulsar-offload.filter", "{}"))
    switched = forget_replaced(switch(begin(managed_ledger(closed(3, 10, old)), 3)), OLD)
    assert context(switched, 3) == replace(
        old, uuid=NEW, driver=THERE.with_property("pulsar-offload.filter", "{}")
    )


def test_it_is_replaced_again_and_both_are_remembered():
    twice = switch(begin(switch(begin(WHOLE, 3)), 3, uuid=NEWER), NEWER)
    assert [each.uuid for each in replaced_of(ledger(twice, 3))] == [OLD, NEW]
    assert [each.uuid for each in other_copies(forget_replaced(twice, OLD))] == [NEW]


def test_a_hot_copy_goes_by_the_copy_that_is_read():
    begun = begin(WHOLE, 3)
    assert context(mark_hot_copy_deleted(begun, 3, OLD), 3).bookkeeper_deleted
    with pytest.raises(AttemptError, match="took the place"):
        mark_hot_copy_deleted(switch(begun), 3, OLD)
    assert context(switch(mark_hot_copy_deleted(begun, 3, OLD)), 3).bookkeeper_deleted


# --- its end, if it fails ----------------------------------------------------------------------


def test_a_replacement_that_failed_leaves_the_record_as_it_was():
    abandoned = taken_twice(begin(WHOLE, 3, lease=LEASE), partial(abandon_replacement, uuid=NEW))
    under_way = replacement_of(ledger(abandoned, 3))
    assert (under_way.is_abandoned, lease_of(under_way.driver)) == (True, None)
    assert taken_twice(abandoned, partial(forget_replacement, uuid=NEW)) == WHOLE


def test_a_lease_is_renewed():
    later = replace(LEASE, until_ms=NOW + 1)
    renewed = taken_twice(begin(WHOLE, 3, lease=LEASE), partial(renew_replacement, uuid=NEW, lease=later))
    assert lease_of(replacement_of(ledger(renewed, 3)).driver) == later


ABANDONED = abandon_replacement(begin(WHOLE, 3), NEW)
SWITCHED = switch(begin(WHOLE, 3))


@pytest.mark.parametrize(
    ("info", "copy", "message"),
    [
        (begin(WHOLE, 3), there(3, uuid=NEWER), "is not ended"),
        (ABANDONED, there(3, uuid=NEWER), "is not ended"),
        (ABANDONED, there(3), "is not ended"),
        (WHOLE, there(9), "has all entries of its ledger"),
        (WHOLE, there(4), "no such ledger"),
        (WHOLE, there(3, 5), "follow each other, or one"),
        (mark_for_deletion(WHOLE, [3]), there(3), "all entries"),
    ],
)
def test_what_cannot_be_begun(info, copy, message):
    with pytest.raises(AttemptError, match=message):
        begin_replacement(info, copy)


@pytest.mark.parametrize(
    ("info", "step", "message"),
    [
        (WHOLE, partial(switch_replacement, uuid=NEW, now_ms=NOW), "is not recorded"),
        (ABANDONED, partial(switch_replacement, uuid=NEW, now_ms=NOW), "was abandoned"),
        (ABANDONED, partial(renew_replacement, uuid=NEW, lease=LEASE), "was abandoned"),
        (SWITCHED, partial(renew_replacement, uuid=NEW, lease=LEASE), "is not recorded"),
        (SWITCHED, partial(abandon_replacement, uuid=NEW), "is not recorded"),
        (SWITCHED, partial(forget_replacement, uuid=NEW), "is read"),
        (begin(WHOLE, 3), partial(forget_replacement, uuid=NEW), "was not abandoned"),
        (begin(WHOLE, 3), partial(forget_replaced, uuid=OLD), "is read"),
        (SWITCHED, partial(forget_replaced, uuid=NEW), "is read"),
        (
            mark_for_deletion(begin(WHOLE, 3), [3]),
            partial(switch_replacement, uuid=NEW, now_ms=NOW),
            "abandoned",
        ),
    ],
)
def test_what_is_refused(info, step, message):
    with pytest.raises(AttemptError, match=message):
        step(info)


def test_no_offload_begins_beside_it():
    with pytest.raises(AttemptError, match="offloaded already"):
        begin_attempt(begin(WHOLE, 3), 3, NEWER, DRIVER)


# --- segments ----------------------------------------------------------------------------------


def test_a_segment_takes_the_place_of_one_with_its_extent():
    info = streamed()
    begun = begin(info, 3, 5, form=CopyForm.SEGMENT, segment=OTHER_OLD)
    assert as_read(begun) == info
    switched = switch(begun)
    was, now = find_segment(info, OTHER_OLD), find_segment(switched, NEW)
    assert (now.begin, now.end, now.ledger_ids, now.status) == (was.begin, was.end, (3, 5), was.status)
    assert is_same_place(THERE, now.driver)
    assert [share.uuid for share in context(switched, 3).segments] == [OLD, NEW]
    assert [(each.uuid, each.form, each.ledger_ids) for each in other_copies(switched)] == [
        (OTHER_OLD, CopyForm.SEGMENT, (3, 5))
    ]
    assert [ledger(switched, each).is_fully_offloaded for each in (3, 5)] == [True, True]


@pytest.mark.parametrize("form", CopyForm)
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_whichever_form_a_copy_gets_the_record_has_what_that_form_has(form, gone, whole):
    known = copied(OLD) if whole else OffloadContext.of_segments([segment(OLD, 9)])
    info = managed_ledger(closed(3, 10, replace(known, bookkeeper_deleted=gone)))
    found = ledger(switch(begin(info, 3, form=form)), 3)
    assert found.context.complete == (form is CopyForm.LEDGER)
    assert found.context.bookkeeper_deleted == gone
    assert [share.bookkeeper_deleted for share in found.context.segments] == [gone] * (
        form is CopyForm.SEGMENT
    )
    assert (found.is_fully_offloaded, found.has_hot_copy) == (True, not gone)


def test_a_share_without_a_place_of_its_own_stays_where_it_is():
    shares = [segment(OLD, 5), segment(OTHER_OLD, 9, driver=None)]
    info = managed_ledger(closed(3, 10, OffloadContext.of_segments(shares, complete=True)))
    switched = switch(begin(info, 3, form=CopyForm.SEGMENT, segment=OLD))
    assert [share.driver for share in context(switched, 3).segments][1] == DRIVER


def test_of_an_open_ledger_a_complete_segment_is_replaced_while_the_next_is_written():
    first = extended(segment(OLD, 5), (9, 0), (9, 5))
    info = managed_ledger(still_open(9, OffloadContext.of_segments([first])))
    info = assign_segment(info, OTHER_OLD, position(9, 6), DRIVER, SINCE)
    begun = begin(info, 9, form=CopyForm.SEGMENT, segment=OLD)
    completed = complete_segment(begun, OTHER_OLD, position(9, 7), {9: 7}, NOW)
    for going_on in (begun, completed, forget_segment(begun, OTHER_OLD)):
        assert replacement_of(ledger(going_on, 9)) is not None
        switched = switch(going_on)
        assert context(switched, 9).segments[0].uuid == NEW
        assert [each.uuid for each in replaced_of(ledger(switched, 9))] == [OLD]
    late = complete_segment(switch(begun), OTHER_OLD, position(9, 7), {9: 7}, NOW)
    assert [each.uuid for each in replaced_of(ledger(late, 9))] == [OLD]


def test_ledgers_are_merged_into_a_segment():
    filtered = copied(OLD, driver=DRIVER.with_property("pulsar-offload.filter", "{}"))
    info = managed_ledger(closed(3, 10, filtered), closed(4, 0), closed(5, 4, copied(OTHER_OLD)))
    switched = switch(begin(info, 3, 5, form=CopyForm.SEGMENT))
    made = find_segment(switched, NEW)
    assert (made.begin, made.end, made.ledger_ids) == (position(3, 0), position(5, 3), (3, 5))
    assert [share.filter_record for share in context(switched, 3).segments] == ["{}"]
    assert [share.filter_record for share in context(switched, 5).segments] == [None]
    assert [share.end_entry_id for each in (3, 5) for share in context(switched, each).segments] == [9, 3]
    assert ledger(switched, 3).is_fully_offloaded
    assert not context(switched, 3).complete
    assert {each.uuid for each in other_copies(switched)} == {OLD, OTHER_OLD}
    assert context(switched, 3).timestamp_ms == filtered.timestamp_ms


def test_a_ledger_of_segments_becomes_one_object_and_the_segment_of_another_stays():
    switched = switch(begin(streamed(), 3))
    assert (context(switched, 3).uuid, context(switched, 3).segments) == (NEW, ())
    assert [each.uuid for each in replaced_of(ledger(switched, 3))] == [OLD, OTHER_OLD]
    assert read_copies(switched) == {NEW, OTHER_OLD}
    with pytest.raises(AttemptError, match="is read"):
        forget_replaced(switched, OTHER_OLD)


def test_what_filters_did_to_several_segments_has_to_be_said():
    shares = [segment(OLD, 5).with_filter_record("{}"), segment(OTHER_OLD, 9)]
    info = begin(managed_ledger(closed(3, 10, OffloadContext.of_segments(shares, complete=True))), 3)
    with pytest.raises(AttemptError, match="cannot be joined"):
        switch(info)
    switched = switch(info, filter_records={3: "{1}"})
    assert context(switched, 3).driver.get("pulsar-offload.filter") == "{1}"


@pytest.mark.parametrize(
    ("ledger_ids", "given", "message"),
    [
        ((3, 5), {"segment": OLD}, "has other ledgers"),
        ((3,), {"segment": NEWER}, "when it is complete"),
        ((3, 5), {"segment": OTHER_OLD, "form": CopyForm.LEDGER}, "by another one"),
    ],
)
def test_a_segment_that_is_not_so_is_not_replaced(ledger_ids, given, message):
    with pytest.raises(AttemptError, match=message):
        begin(streamed(), *ledger_ids, **{"form": CopyForm.SEGMENT} | given)


# --- others' steps -----------------------------------------------------------------------------


def test_condemning_one_ledger_ends_a_replacement_of_several():
    begun = begin(WHOLE, 3, 5, form=CopyForm.SEGMENT)
    condemned = mark_for_deletion(begun, [3])
    assert replacement_of(ledger(condemned, 5)).is_abandoned
    assert NEW in needed_objects(condemned), "ledger 5 is not deleted, and tells of it"
    with pytest.raises(AttemptError, match="abandoned"):
        switch(condemned)
    assert NEW not in needed_objects(mark_for_deletion(condemned, [5]))


def test_a_replaced_segment_is_needed_until_its_last_ledger_is_condemned():
    switched = switch(begin(streamed(), 3, 5, form=CopyForm.SEGMENT, segment=OTHER_OLD))
    assert OTHER_OLD in needed_objects(mark_for_deletion(switched, [3]))
    assert OTHER_OLD not in needed_objects(mark_for_deletion(switched, [3, 5]))


def test_segments_are_released_only_if_none_is_being_replaced():
    begun = begin(streamed(), 3, 5, form=CopyForm.SEGMENT, segment=OTHER_OLD)
    with pytest.raises(AttemptError, match="another copy of the ledger is under way"):
        release_segments(begun, 3)
    assert ledger(release_segments(abandon_replacement(begun, NEW), 3), 3).context is None
    assert ledger(release_segments(switch(begun), 3), 3).context is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 20_000,
        "[]",
        "7",
        "{}",
        '{"uuid":7}',
        '{"uuid":"x","form":"ledger","since":1,"driver":"S3","properties":{}}',
        f'{{"uuid":"{NEW}","form":"book","since":1,"driver":"S3","properties":{{}}}}',
        f'{{"uuid":"{NEW}","form":"ledger","since":1e999,"driver":"S3","properties":{{}}}}',
        f'{{"uuid":"{NEW}","form":"ledger","since":1,"driver":"S3","properties":{{"bucket":7}}}}',
        f'{{"uuid":"{NEW}","form":"ledger","since":1,"driver":"S3","properties":{{}},"segment":1}}',
    ],
)
def test_a_damaged_record_of_it_is_refused(text):
    for name in ("pulsar-offload.replacement", "pulsar-offload.replaced"):
        driver = DRIVER.with_property(name, text if name.endswith("ment") or text == "7" else f"[{text}]")
        if text in ("", "[]") and name.endswith("replaced"):
            continue  # a list without any
        with pytest.raises(
            MetadataError,
            match=r"(record of another copy|copy's record|list of replaced copies) is|has no right",
        ) as caught:
            other_copies(managed_ledger(closed(3, 10, copied(OLD, driver=driver))))
        assert caught.value.ledger_id == 3
