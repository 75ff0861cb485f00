"""`release_segments`: what it forgets and keeps, what it refuses, and that it may be taken twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import DRIVER, closed, copied, failed, managed_ledger, segment, still_open
from tiers import uuid_of

from offload_core.metadata.records import (
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    begin_attempt,
    complete_attempt,
    release_segments,
)
from offload_hooks.errors import AttemptError

UNKNOWN = bytes.fromhex("803f01")
WHOLE = OffloadContext.of_segments(
    [segment(uuid_of(1), 4), segment(uuid_of(2), 9)], complete=True, timestamp_ms=7
)
OTHER = closed(2, 5, copied(uuid_of(9)))


def among(ledger: LedgerRecord) -> ManagedLedgerInfo:
    return managed_ledger(still_open(4), ledger, OTHER)


def test_a_released_ledger_is_as_if_it_was_never_offloaded_and_others_stay() -> None:
    released = release_segments(among(closed(3, 10, WHOLE)), 3)
    assert released == among(closed(3, 10))
    assert release_segments(released, 3) == released


def test_ledger_based_offload_takes_a_released_ledger() -> None:
    info = among(closed(3, 10, WHOLE))
    with pytest.raises(AttemptError, match="streaming segments"):
        begin_attempt(info, 3, uuid_of(5), DRIVER)
    info = begin_attempt(release_segments(info, 3), 3, uuid_of(5), DRIVER)
    ledger = complete_attempt(info, 3, uuid_of(5), 8).ledger(3)
    assert ledger is not None
    assert ledger.has_complete_copy
    assert ledger.context is not None
    assert ledger.context.segments == ()


def test_what_is_not_known_of_a_ledger_is_kept() -> None:
    ledger = closed(3, 10, replace(WHOLE, unknown_fields=UNKNOWN))
    after = release_segments(among(ledger), 3).ledger(3)
    assert after is not None
    assert after.context == OffloadContext(unknown_fields=UNKNOWN)


def test_a_ledger_whose_segment_failed_is_released() -> None:
    context = OffloadContext.of_segments([segment(uuid_of(1), 4), failed(segment(uuid_of(2), None))])
    assert release_segments(among(closed(3, 10, context)), 3) == among(closed(3, 10))


@pytest.mark.parametrize(
    "ledger", [closed(3, 10), closed(3, 10, copied(uuid_of(1), bookkeeper_deleted=True))]
)
def test_a_ledger_without_segments_stays_as_it_is(ledger: LedgerRecord) -> None:
    assert release_segments(among(ledger), 3) == among(ledger)


def test_the_only_copy_is_not_released() -> None:
    gone = closed(3, 10, replace(WHOLE, bookkeeper_deleted=True))
    pip76 = OffloadContext.of_segments([segment(uuid_of(1), 9, bookkeeper_deleted=True)], complete=True)
    for ledger in (gone, closed(3, 10, pip76)):
        assert not ledger.has_hot_copy
        with pytest.raises(AttemptError, match="hot copy is gone") as caught:
            release_segments(among(ledger), 3)
        assert caught.value.ledger_id == 3


def test_what_is_under_way_is_not_released() -> None:
    assigned = OffloadContext.of_segments([segment(uuid_of(1), 4), segment(uuid_of(2), None, complete=False)])
    with pytest.raises(AttemptError, match="under way") as caught:
        release_segments(among(closed(3, 10, assigned)), 3)
    assert caught.value.found == uuid_of(2)
    part = OffloadContext.of_segments([segment(uuid_of(1), 4)])
    with pytest.raises(AttemptError, match="written to"):
        release_segments(managed_ledger(still_open(3, part)), 3)
    with pytest.raises(AttemptError, match="no such ledger"):
        release_segments(among(closed(3, 10)), 7)
