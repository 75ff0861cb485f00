"""Changes of a running Pulsar's records, and their mirrors, as steps from one record to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import CLOSED_AT_MS, DRIVER, closed, copied, managed_ledger, segment, still_open
from tiers import uuid_of

from offload_core.metadata.records import (
    CopyForm,
    DriverMetadata,
    ManagedLedgerInfo,
    OffloadContext,
    OtherCopy,
    abandon_replacement,
    begin_attempt,
    begin_replacement,
    complete_attempt,
    forget_attempt,
    forget_replacement,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
    replaced_of,
    switch_replacement,
)
from offload_core.metadata.records.attempts import status_of
from offload_core.metadata.records.live_changes import (
    abandon_own,
    given_ledgers,
    is_own,
    mirrored,
    own_ledgers,
    settled,
    why_no_copy,
    with_copies,
    without_copies,
)
from offload_core.metadata.records.offload_context import AttemptStatus
from offload_core.metadata.records.replacements import find_replacement, with_replaced

OURS, THEIRS = uuid_of(1), uuid_of(2)
LIVE = managed_ledger(closed(1, 10), closed(2, 10), still_open(3))
NOW_MS = CLOSED_AT_MS + 5000


def mirror_with(ledger_id, *, complete=False):
    """A mirror of `LIVE` with an attempt or a copy of ours."""
    mirror = begin_attempt(mirrored(LIVE, ManagedLedgerInfo()), ledger_id, OURS, DRIVER)
    return complete_attempt(mirror, ledger_id, OURS, NOW_MS) if complete else mirror


def copies_of(uuid, *ledger_ids):
    return [replace(closed(each, 10), context=copied(uuid)) for each in ledger_ids]


def given_to(live, *ledger_ids):
    return with_copies(live, copies_of(OURS, *ledger_ids), NOW_MS)


# --- mirrors -----------------------------------------------------------------------------------


def test_a_new_mirror_has_the_ledgers_and_nothing_of_ours():
    mirror = mirrored(LIVE, ManagedLedgerInfo())
    assert [each.info for each in mirror.ledgers] == [each.info for each in LIVE.ledgers]
    assert own_ledgers(mirror) == ()


def test_complete_copies_of_the_live_record_are_mirrored_and_are_not_ours():
    live = managed_ledger(closed(1, 10, copied(THEIRS, bookkeeper_deleted=True)), still_open(3))
    mirror = mirrored(live, ManagedLedgerInfo())
    (ledger, _) = mirror.ledgers
    assert ledger.has_complete_copy
    assert not ledger.has_hot_copy
    assert not is_own(ledger)
    assert parse_managed_ledger_info(pack_managed_ledger_info(mirror)) == mirror


@pytest.mark.parametrize("driver", [DRIVER, None])
def test_an_attempt_of_a_broker_is_never_in_a_mirror(driver):
    """What offloads there would take it for one of its own that was left, and delete its objects."""
    unfinished = OffloadContext(uuid=THEIRS, driver=driver)
    mirror = mirrored(managed_ledger(closed(1, 10, unfinished), still_open(3)), ManagedLedgerInfo())
    assert [each.context for each in mirror.ledgers] == [None, None]


def test_a_copy_that_names_no_driver_is_not_ours():
    live = managed_ledger(closed(1, 10, copied(THEIRS, driver=None)), still_open(3))
    assert own_ledgers(mirrored(live, ManagedLedgerInfo())) == ()


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    "ledger",
    [closed(1, 10), closed(1, 10, OffloadContext(uuid=THEIRS, driver=DRIVER)), closed(1, 10, copied(THEIRS))],
)
def test_an_attempt_of_ours_stays_until_it_is_forgotten(complete, ledger):
    mirror = mirror_with(1, complete=complete)
    live = managed_ledger(ledger, closed(2, 10), still_open(3))
    assert mirrored(live, mirror).ledger(1).context == mirror.ledger(1).context
    without = managed_ledger(closed(2, 10), still_open(3))
    assert mirrored(without, mirror).ledger(1).context == mirror.ledger(1).context
    forgotten = forget_attempt(abandon_own(mirror, 1, OURS), 1, OURS)
    assert not own_ledgers(mirrored(live, forgotten))
    assert mirrored(without, forgotten).ledger(1) is None


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_copy_that_the_live_record_has_is_ours_until_it_is_confirmed(abandoned):
    """Also one that was abandoned: whether it is whole is to be seen."""
    mirror = mirror_with(1, complete=True)
    mirror = abandon_own(mirror, 1, OURS) if abandoned else mirror
    live = given_to(LIVE, 1).info
    assert own_ledgers(mirrored(live, mirror)) == own_ledgers(mirror)
    assert given_ledgers(live, mirrored(live, mirror)) == (live.ledger(1),)
    confirmed = mirrored(live, mirror, confirmed={OURS})
    assert own_ledgers(confirmed) == given_ledgers(live, confirmed) == ()
    assert confirmed.ledger(1).has_complete_copy


def test_only_what_the_live_record_has_is_confirmed():
    mirror = mirror_with(1, complete=True)
    assert own_ledgers(mirrored(LIVE, mirror, confirmed={OURS})) == own_ledgers(mirror)
    assert given_ledgers(LIVE, mirror) == ()
    theirs = managed_ledger(closed(1, 10, copied(THEIRS)), closed(2, 10), still_open(3))
    assert own_ledgers(mirrored(theirs, mirror, confirmed={OURS, THEIRS})) == own_ledgers(mirror)
    assert given_ledgers(theirs, mirror) == ()


def test_a_mirror_of_the_same_record_does_not_change():
    mirror = mirror_with(1)
    assert mirrored(LIVE, mirror) == mirror


@pytest.mark.parametrize("complete", [False, True])
def test_what_is_abandoned_is_given_no_more(complete):
    mirror = abandon_own(mirror_with(1, complete=complete), 1, OURS)
    context = mirror.ledger(1).context
    assert not context.complete
    assert status_of(context.driver) is AttemptStatus.FAILED
    assert abandon_own(mirror, 1, OURS) == mirror


def test_only_what_is_ours_is_abandoned():
    live = managed_ledger(closed(1, 10, copied(THEIRS)), still_open(3))
    mirror = mirrored(live, ManagedLedgerInfo())
    assert abandon_own(mirror, 1, THEIRS) == mirror
    assert abandon_own(mirror_with(1), 1, THEIRS) == mirror_with(1)
    assert abandon_own(mirror_with(1), 7, OURS) == mirror_with(1)


# --- live records ------------------------------------------------------------------------------


def test_all_copies_are_given_by_one_change_and_all_else_stays():
    live = replace(
        LIVE,
        properties=(("theirs", "1"),),
        ledgers=(replace(LIVE.ledgers[0], unknown_fields=b"\xa2\x06\x01x"), *LIVE.ledgers[1:]),
    )
    given = given_to(live, 1, 2)
    assert given.given == (1, 2)
    assert given.refused == {}
    context = OffloadContext(uuid=OURS, complete=True, timestamp_ms=NOW_MS, driver=DRIVER)
    assert [each.context for each in given.info.ledgers] == [context, context, None]
    bare = replace(given.info, ledgers=tuple(replace(each, context=None) for each in given.info.ledgers))
    assert bare == live


def test_a_copy_that_was_given_is_given_once():
    once = given_to(LIVE, 1)
    again = with_copies(once.info, copies_of(OURS, 1), NOW_MS + 1)
    assert again.info == once.info
    assert again.given == (1,)


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (managed_ledger(still_open(3)), "no more"),
        (managed_ledger(closed(1, 10)), "last ledger"),
        (managed_ledger(still_open(1), still_open(3)), "open"),
        (managed_ledger(closed(1, 0), still_open(3)), "no entries"),
        (managed_ledger(closed(1, 10, copied(THEIRS)), still_open(3)), "cold copy"),
        (managed_ledger(closed(1, 10, OffloadContext(uuid=THEIRS)), still_open(3)), f"attempt {THEIRS}"),
        (
            managed_ledger(
                closed(1, 10, OffloadContext.of_segments([segment(THEIRS, None, complete=False)])),
                still_open(3),
            ),
            "segments",
        ),
        (managed_ledger(closed(1, 10, OffloadContext(bookkeeper_deleted=True)), still_open(3)), "hot copy"),
        (managed_ledger(closed(1, 11), still_open(3)), "10 entries"),
    ],
)
def test_a_ledger_that_may_not_have_a_copy_gets_none(live, why):
    given = given_to(live, 1)
    assert given.info == live
    assert given.given == ()
    assert why in given.refused[1]


def test_one_that_is_refused_does_not_hold_up_the_others():
    live = managed_ledger(closed(1, 10, OffloadContext(uuid=THEIRS)), closed(2, 10), still_open(3))
    given = given_to(live, 1, 2)
    assert given.given == (2,)
    assert list(given.refused) == [1]
    assert why_no_copy(live, 2) is None


def test_a_copy_is_taken_back_only_where_a_hot_one_is_left():
    given = given_to(LIVE, 1, 2).info
    assert without_copies(given, copies_of(OURS, 1, 2)) == LIVE
    assert without_copies(given, copies_of(THEIRS, 1, 2)) == given
    gone = given.with_ledger(
        replace(given.ledger(1), context=replace(given.ledger(1).context, bookkeeper_deleted=True))
    )
    left = without_copies(gone, copies_of(OURS, 1, 2))
    assert left.ledger(1) == gone.ledger(1)
    assert left.ledger(2).context is None


# --- copies that take the place of others ------------------------------------------------------

FILTERED = DRIVER.with_property("pulsar-offload.filter", "{}")
ELSEWHERE = DriverMetadata(name="aws-s3", properties=(("bucket", "new"),))
OFFLOADED = managed_ledger(
    closed(1, 10, copied(THEIRS, driver=FILTERED, bookkeeper_deleted=True)), closed(2, 10), still_open(3)
)
MOVE = OtherCopy(uuid=OURS, form=CopyForm.LEDGER, driver=ELSEWHERE, since_ms=NOW_MS, ledger_ids=(1,))


def moving():
    """A mirror in which a copy of the live record is being replaced."""
    return begin_replacement(mirrored(OFFLOADED, ManagedLedgerInfo()), MOVE)


def moved():
    return switch_replacement(moving(), OURS, NOW_MS)


def moved_copies():
    """The ledgers of `moved` as they are given."""
    (ledger,) = own_ledgers(moved())
    driver = ELSEWHERE.with_property("pulsar-offload.filter", "{}")
    bare = replace(ledger, context=replace(ledger.context, driver=driver))
    return [with_replaced(bare, replaced_of(ledger))]


def test_a_copy_that_is_to_replace_another_stays_in_the_mirror_and_the_other_is_not_ours():
    mirror = moving()
    assert own_ledgers(mirror) == ()
    assert mirrored(OFFLOADED, mirror) == mirror
    without = managed_ledger(closed(2, 10), still_open(3))
    gone = mirrored(without, mirror)
    assert gone.ledger(1) == mirror.ledger(1)
    assert own_ledgers(gone) == ()
    taken = managed_ledger(closed(1, 10), closed(2, 10), still_open(3))
    assert find_replacement(mirrored(taken, mirror), OURS)
    left = forget_replacement(abandon_replacement(mirror, OURS), OURS)
    assert mirrored(OFFLOADED, left) == mirrored(OFFLOADED, ManagedLedgerInfo())
    assert mirrored(without, left).ledger(1) is None


def test_one_that_replaces_a_copy_which_names_no_driver_leaves_that_to_the_live_record():
    live = managed_ledger(closed(1, 10, copied(THEIRS, driver=None)), still_open(3))
    assert own_ledgers(begin_replacement(mirrored(live, ManagedLedgerInfo()), MOVE)) == ()


def test_a_copy_takes_the_place_of_the_one_that_it_was_made_of_and_of_no_other():
    (ledger,) = own_ledgers(moved())
    assert mirrored(OFFLOADED, moved()) == moved()
    given = with_copies(OFFLOADED, moved_copies(), NOW_MS + 1)
    assert given.given == (1,)
    context, before = given.info.ledger(1).context, OFFLOADED.ledger(1).context
    driver = ELSEWHERE.with_property("pulsar-offload.filter", "{}")
    assert context == replace(before, uuid=OURS, driver=driver), (
        "all else stays, since when it is offloaded too"
    )
    assert given_ledgers(given.info, moved()) == tuple(moved_copies())
    other = managed_ledger(closed(1, 10, copied(uuid_of(3))), still_open(3))
    assert "cold copy" in with_copies(other, moved_copies(), NOW_MS).refused[1]
    assert why_no_copy(OFFLOADED, 1, [uuid_of(3)]) is not None
    assert ledger.ledger_id == 1


def test_a_deletion_lag_begins_anew_where_bookkeeper_has_the_ledger_still():
    before = OFFLOADED.ledger(1)
    hot = OFFLOADED.with_ledger(replace(before, context=replace(before.context, bookkeeper_deleted=False)))
    assert with_copies(hot, moved_copies(), NOW_MS + 9).info.ledger(1).context.timestamp_ms == NOW_MS + 9


def test_a_copy_replaces_what_the_live_record_has_or_nothing():
    (ledger,) = own_ledgers(moved())
    assert settled(OFFLOADED, moved()) == moved()
    given = with_copies(OFFLOADED, moved_copies(), NOW_MS).info
    assert settled(given, mirrored(given, moved())) == mirrored(given, moved())
    for live in (LIVE, managed_ledger(closed(1, 10, copied(uuid_of(3))), still_open(3))):
        (bare,) = own_ledgers(settled(live, mirrored(live, moved())))
        assert replaced_of(bare) == ()
        assert bare.copy_uuids == ledger.copy_uuids


def test_an_attempt_that_the_live_record_has_by_now_is_none():
    """As when its uuid was put into the record by hand."""
    theirs = managed_ledger(closed(1, 10, copied(OURS)), closed(2, 10), still_open(3))
    assert find_replacement(mirrored(theirs, moving()), OURS) is None


def test_what_was_replaced_is_put_back_when_the_copy_is_taken_back():
    given = with_copies(OFFLOADED, moved_copies(), NOW_MS + 1).info
    assert without_copies(given, moved_copies()) == OFFLOADED
    assert without_copies(given, given_ledgers(given, moved())) == OFFLOADED
    confirmed = mirrored(given, moved(), confirmed={OURS})
    assert own_ledgers(confirmed) == ()
    assert replaced_of(confirmed.ledger(1)) == ()
