"""The steps of an offload attempt: what each records, what it refuses, and that it may be taken twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from records import (
    DRIVER,
    STANDALONE_RECORDS,
    closed,
    copied,
    managed_ledger,
    segment,
    still_open,
    taken_twice,
)
from tiers import uuid_of

from offload_core.metadata.records import (
    DriverMetadata,
    ManagedLedgerInfo,
    OffloadContext,
    abandon_attempt,
    begin_attempt,
    complete_attempt,
    forget_attempt,
    mark_hot_copy_deleted,
    parse_stored_record,
    renew_attempt,
)
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, lease_of
from offload_hooks.errors import AttemptError

LEDGER = 3
MINE, OTHER = uuid_of(1), uuid_of(2)
NOW = 1_700_000_001_234
UNKNOWN = bytes.fromhex("803f01")

FRESH = closed(LEDGER, 10)
OTHERS = (closed(2, 5, copied(uuid_of(9))), still_open(4))

Step = Callable[[ManagedLedgerInfo], ManagedLedgerInfo]
PREPARE: Step = partial(begin_attempt, ledger_id=LEDGER, uuid=MINE, driver=DRIVER)
COMPLETE: Step = partial(complete_attempt, ledger_id=LEDGER, uuid=MINE, timestamp_ms=NOW)
FAIL: Step = partial(forget_attempt, ledger_id=LEDGER, uuid=MINE)
DELETE: Step = partial(mark_hot_copy_deleted, ledger_id=LEDGER, uuid=MINE)


def among_others(ledger):
    """The ledger between two others, in an order that is not that of their ids."""
    return managed_ledger(OTHERS[1], ledger, OTHERS[0])


def with_context(**fields):
    return among_others(replace(FRESH, context=OffloadContext(**fields)))


def context(info):
    """The ledger's context; all else must be as it was."""
    assert [ledger.ledger_id for ledger in info.ledgers] == [4, LEDGER, 2]
    assert (info.ledgers[0], info.ledgers[2]) == (OTHERS[1], OTHERS[0])
    assert replace(info.ledgers[1], context=None) == FRESH
    return info.ledgers[1].context


def test_an_attempt_is_prepared_completed_and_its_hot_copy_deleted():
    prepared = taken_twice(among_others(FRESH), PREPARE)
    assert context(prepared) == OffloadContext(uuid=MINE, driver=DRIVER)
    completed = taken_twice(prepared, COMPLETE)
    assert context(completed) == OffloadContext(uuid=MINE, driver=DRIVER, complete=True, timestamp_ms=NOW)
    assert completed.ledgers[1].has_complete_copy
    assert complete_attempt(completed, LEDGER, MINE, NOW + 1) == completed, "the time is that of the first"
    deleted = taken_twice(completed, DELETE)
    assert context(deleted) == replace(context(completed), bookkeeper_deleted=True)
    assert taken_twice(prepared, FAIL) == among_others(FRESH), "one that failed leaves the record as it was"


def test_a_lease_stands_with_the_attempt_until_it_has_ended():
    lease = AttemptLease(holder=AttemptHolder(machine=0xAB, process=7, started=11), until_ms=NOW)
    prepared = begin_attempt(among_others(FRESH), LEDGER, MINE, DRIVER, lease=lease)
    driver = context(prepared).driver
    assert driver == DRIVER.with_property("lease", f"00000000000000ab:7:11:{NOW}")
    assert lease_of(driver) == lease
    later = replace(lease, until_ms=NOW + 1)
    renewed = taken_twice(prepared, partial(renew_attempt, ledger_id=LEDGER, uuid=MINE, lease=later))
    assert lease_of(context(renewed).driver) == later
    assert COMPLETE(renewed) == COMPLETE(PREPARE(among_others(FRESH))), "a complete copy has none"
    assert FAIL(renewed) == among_others(FRESH)
    abandoned = context(abandon_attempt(renewed, LEDGER, MINE))
    assert abandoned.driver == DRIVER.with_property("status", "failed")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (COMPLETE(PREPARE(among_others(FRESH))), "complete already"),
        (abandon_attempt(PREPARE(among_others(FRESH)), LEDGER, MINE), "was abandoned"),
        (FAIL(PREPARE(among_others(FRESH))), "took the place of this one, or it was cleaned up"),
        (with_context(uuid=OTHER, driver=DRIVER), "took the place of this one"),
    ],
    ids=["complete", "abandoned", "forgotten", "another"],
)
def test_only_the_attempt_that_goes_on_is_renewed(info, message):
    lease = AttemptLease(holder=AttemptHolder(machine=1, process=7, started=11), until_ms=NOW)
    with pytest.raises(AttemptError, match=message):
        renew_attempt(info, LEDGER, MINE, lease)


def test_an_older_attempt_is_replaced_by_name_only():
    unfinished = with_context(uuid=OTHER, driver=DriverMetadata(name="S3"), unknown_fields=UNKNOWN)
    with pytest.raises(
        AttemptError, match=r"not complete .*ledger 3.* found .*Delete its objects first"
    ) as caught:
        PREPARE(unfinished)
    assert caught.value.found == OTHER
    with pytest.raises(AttemptError):
        begin_attempt(unfinished, LEDGER, MINE, DRIVER, replaces=uuid_of(5))
    prepared = begin_attempt(unfinished, LEDGER, MINE, DRIVER, replaces=OTHER)
    assert context(prepared) == OffloadContext(uuid=MINE, driver=DRIVER, unknown_fields=UNKNOWN)
    with pytest.raises(AttemptError, match="another offload attempt took the place"):
        complete_attempt(prepared, LEDGER, OTHER, NOW)


def test_what_is_not_known_is_kept_by_every_step():
    info = with_context(unknown_fields=UNKNOWN)
    for step in (PREPARE, COMPLETE, DELETE):
        info = step(info)
        assert context(info).unknown_fields == UNKNOWN
    assert FAIL(PREPARE(with_context(unknown_fields=UNKNOWN))) == with_context(unknown_fields=UNKNOWN)


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        (still_open(LEDGER), "open or empty"),
        (closed(LEDGER, 0), "open or empty"),
        (closed(LEDGER, 10, copied(OTHER)), "offloaded already"),
        (closed(LEDGER, 10, copied(MINE)), "offloaded already"),
        (closed(LEDGER, 10, OffloadContext(bookkeeper_deleted=True)), "hot copy is gone"),
        (closed(LEDGER, 10, OffloadContext.of_segments([segment(OTHER, 4)])), "by streaming segments"),
        (closed(77, 10), "no such ledger"),
    ],
)
def test_what_cannot_be_offloaded_is_refused(ledger, message):
    with pytest.raises(AttemptError, match=rf"{message}.*ledger 3"):
        PREPARE(managed_ledger(ledger))


@pytest.mark.parametrize("step", [COMPLETE, FAIL, DELETE])
def test_a_step_of_an_attempt_that_is_not_recorded_is_refused(step):
    with pytest.raises(AttemptError, match=f"took the place of this one.* expected {MINE}, found {OTHER}"):
        step(with_context(uuid=OTHER))
    with pytest.raises(AttemptError, match="no such ledger"):
        step(managed_ledger())
    with pytest.raises(AttemptError, match="by streaming segments"):
        step(with_context(uuid=MINE, segments=(segment(MINE, 4),)))


@pytest.mark.parametrize("step", [COMPLETE, DELETE])
@pytest.mark.parametrize("info", [among_others(FRESH), with_context()])
def test_an_attempt_that_was_cleaned_up_does_not_go_on(step, info):
    with pytest.raises(AttemptError, match=r"or it was cleaned up .*found none"):
        step(info)


def test_a_complete_copy_is_not_forgotten():
    with pytest.raises(AttemptError, match="complete already"):
        FAIL(with_context(uuid=MINE, complete=True))


def test_the_hot_copy_stays_until_the_cold_one_is_complete():
    with pytest.raises(AttemptError, match="needed until the cold one is complete"):
        DELETE(with_context(uuid=MINE))


@pytest.mark.parametrize("path", STANDALONE_RECORDS, ids=lambda path: path.name)
def test_what_a_broker_recorded_is_what_our_steps_record(path):
    """From each golden ledger, had it not been offloaded, back to the context that Pulsar recorded."""
    info = parse_stored_record(path.read_bytes()).info
    for ledger in info.ledgers:
        recorded = ledger.context
        if recorded is None or recorded.uuid is None:
            continue
        stepped = begin_attempt(
            info.with_ledger(replace(ledger, context=None)), ledger.ledger_id, recorded.uuid, recorded.driver
        )
        if recorded.complete:
            stepped = complete_attempt(stepped, ledger.ledger_id, recorded.uuid, recorded.timestamp_ms)
        if recorded.bookkeeper_deleted:
            stepped = mark_hot_copy_deleted(stepped, ledger.ledger_id, recorded.uuid)
        assert stepped == info
