"""`release_segments`: what it forgets and keeps, what it refuses, and that it may be taken twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import DRIVER, closed, copied, failed, managed_ledger, segment, still_open
from tiers import uuid_of

from offload_core.metadata.records import OffloadContext, begin_attempt, complete_attempt, release_segments
from offload_hooks.errors import AttemptError

UNKNOWN = bytes.fromhex("803f01")
WHOLE = OffloadContext.of_segments(
    [segment(uuid_of(1), 4), segment(uuid_of(2), 9)], complete=True, timestamp_ms=7
)
OTHER = closed(2, 5, copied(uuid_of(9)))


def among(ledger):
    return managed_ledger(still_open(4), ledger, OTHER)


def test_a_released_ledger_is_as_if_it_was_never_offloaded_and_others_stay():
    released = release_segments(among(closed(3, 10, WHOLE)), 3)
    assert released == among(closed(3, 10))
    assert release_segments(released, 3) == released


def test_ledger_based_offload_takes_a_released_ledger():
    info = among(closed(3, 10, WHOLE))
    with pytest.raises(AttemptError, match="streaming segments"):
        begin_attempt(info, 3, uuid_of(5), DRIVER)
    info = begin_attempt(release_segments(info, 3), 3, uuid_of(5), DRIVER)
    ledger = complete_attempt(info, 3, uuid_of(5), 8).ledger(3)
    assert (ledger.has_complete_copy, ledger.context.segments) == (True, ())


ONE_OBJECT = copied(uuid_of(1), bookkeeper_deleted=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (replace(WHOLE, unknown_fields=UNKNOWN), OffloadContext(unknown_fields=UNKNOWN)),
        (OffloadContext.of_segments([segment(uuid_of(1), 4), failed(segment(uuid_of(2), None))]), None),
        (None, None),
        (ONE_OBJECT, ONE_OBJECT),
    ],
    ids=["unknown fields", "a failed segment", "nothing", "one object"],
)
def test_only_segments_are_forgotten(before, after):
    assert release_segments(among(closed(3, 10, before)), 3) == among(closed(3, 10, after))


ASSIGNED = [segment(uuid_of(1), 4), segment(uuid_of(2), None, complete=False)]
PIP76_GONE = [segment(uuid_of(1), 9, bookkeeper_deleted=True)]


@pytest.mark.parametrize(
    ("ledger", "message", "found"),
    [
        (closed(3, 10, replace(WHOLE, bookkeeper_deleted=True)), "hot copy is gone", uuid_of(1)),
        (
            closed(3, 10, OffloadContext.of_segments(PIP76_GONE, complete=True)),
            "hot copy is gone",
            uuid_of(1),
        ),
        (closed(3, 10, OffloadContext.of_segments(ASSIGNED)), "under way", uuid_of(2)),
        (still_open(3, OffloadContext.of_segments(ASSIGNED[:1])), "written to", None),
        (closed(7, 10), "no such ledger", None),
    ],
)
def test_what_is_not_released(ledger, message, found):
    with pytest.raises(AttemptError, match=message) as caught:
        release_segments(among(ledger), 3)
    assert (caught.value.ledger_id, caught.value.found) == (3, found)
