"""The steps of a streaming segment: what each refuses."""

from __future__ import annotations

import pytest
from records import (
    DRIVER,
    FRESH,
    MINE,
    OFFLOADED_MS,
    OTHER,
    assign,
    closed,
    complete,
    copied,
    managed_ledger,
    position,
    segment,
    still_open,
)

from offload_core.metadata.records import OffloadContext
from offload_core.metadata.records.segments import abandon_segment, extend_segment, resume_segment
from offload_hooks.errors import AttemptError


@pytest.mark.parametrize("before", [assign(FRESH, 3), abandon_segment(assign(FRESH, 3), MINE)])
def test_a_segment_is_assigned_only_after_the_last_is_complete(before):
    with pytest.raises(
        AttemptError, match=r"assigned after the last one is complete.*Resume that one first"
    ) as caught:
        assign(before, 5, uuid=OTHER)
    assert caught.value.found == MINE
    assert assign(complete(assign(FRESH, 3), (3, 9)), 5, uuid=OTHER) != before


@pytest.mark.parametrize(
    ("ledger", "entry_id", "message"),
    [
        (closed(3, 10), 1, "directly after"),
        (still_open(3), 1, "directly after"),
        (closed(3, 0), 0, "directly after"),
        (closed(3, 10, OffloadContext.of_segments([segment(OTHER, 4)])), 0, "directly after"),
        (closed(3, 10, OffloadContext.of_segments([segment(OTHER, 4)])), 6, "directly after"),
        (closed(3, 5, OffloadContext.of_segments([segment(OTHER, 4)])), 5, "directly after"),
        (closed(3, 10, copied(OTHER)), 0, "as one object"),
        (closed(3, 10, OffloadContext(uuid=OTHER, driver=DRIVER)), 0, "as one object"),
        (closed(3, 10, OffloadContext(bookkeeper_deleted=True)), 0, "hot copy is gone"),
        (closed(7, 10), 0, "no such ledger"),
    ],
)
def test_a_segment_begins_only_where_nothing_is_left_out(ledger, entry_id, message):
    with pytest.raises(AttemptError, match=rf"{message}.*ledger 3"):
        assign(managed_ledger(ledger), 3, entry_id)


@pytest.mark.parametrize(
    ("info", "end", "message"),
    [
        (FRESH, (5, 4), "ends with an entry"),
        (FRESH, (9, 0), "closed ledgers only"),
        (FRESH, (8, 0), "ends with an entry"),
        (managed_ledger(closed(3, 10), closed(5, 4, copied(OTHER)), closed(7, 2)), (7, 1), "as one object"),
        (
            managed_ledger(closed(3, 10), closed(5, 4, OffloadContext.of_segments([segment(OTHER, 1)]))),
            (5, 3),
            "segments of its own",
        ),
    ],
)
def test_a_segment_with_an_end_has_closed_ledgers_without_copies(info, end, message):
    with pytest.raises(AttemptError, match=message):
        assign(info, 3, end=position(*end))


def test_a_segment_ends_behind_its_begin():
    info = complete(assign(FRESH, 3), (3, 5))
    with pytest.raises(AttemptError, match="after its begin"):
        assign(info, 3, 6, uuid=OTHER, end=position(3, 5))
    for end in (position(3, 5), position(9, 0)):
        with pytest.raises(AttemptError, match="after its begin"):
            abandon_segment(assign(info, 3, 6, uuid=OTHER), OTHER, end)
    with pytest.raises(AttemptError, match="no such entry"):
        abandon_segment(assign(info, 3, 6, uuid=OTHER), OTHER, position(3, 10))


@pytest.mark.parametrize(
    ("info", "ledger_id", "message"),
    [
        (assign(managed_ledger(still_open(3), still_open(5)), 3), 5, "when its ledger is closed"),
        (assign(FRESH, 3), 7, "into the next ledger"),
        (assign(FRESH, 3), 77, "into the next ledger"),
        (assign(managed_ledger(closed(3, 1), closed(5, 1, copied(OTHER))), 3), 5, "as one object"),
        (complete(assign(FRESH, 3), (3, 9)), 5, "complete already"),
        (FRESH, 5, "cleaned up"),
    ],
)
def test_a_segment_goes_on_into_the_next_ledger_only(info, ledger_id, message):
    with pytest.raises(AttemptError, match=message):
        extend_segment(info, MINE, ledger_id)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([(3, 8), (5, 2)], "not all entries"),
        ([(5, 2)], "not all entries"),
        ([(3, 9), (5, 4)], "not all entries"),
        ([(3, 9), (5, 3), (7, 1)], "other ledgers"),
        ([(3, 9), (5, 3)], ""),
        ([(3, 7)], ""),
    ],
)
def test_a_segment_is_complete_with_all_entries_from_its_begin_to_its_end(ends, message):
    info = extend_segment(assign(FRESH, 3), MINE, 5)
    if not message:
        assert complete(info, *ends) != info
        return
    with pytest.raises(AttemptError, match=message):
        complete(info, *ends)


def test_a_segment_that_is_complete_stays_as_it_is():
    info = complete(assign(FRESH, 3), (3, 5))
    assert complete(info, (3, 5), offloaded_ms=OFFLOADED_MS + 1) == info
    with pytest.raises(AttemptError, match="complete already"):
        complete(info, (3, 6))
    with pytest.raises(AttemptError, match="complete already"):
        abandon_segment(info, MINE)


def test_only_an_attempt_that_was_abandoned_is_resumed():
    with pytest.raises(AttemptError, match="was not abandoned"):
        resume_segment(assign(FRESH, 3), MINE, OTHER, DRIVER, 5)
    with pytest.raises(AttemptError, match="cleaned up"):
        resume_segment(FRESH, MINE, OTHER, DRIVER, 5)
    with pytest.raises(AttemptError, match="complete already"):
        resume_segment(complete(assign(FRESH, 3), (3, 5)), MINE, OTHER, DRIVER, 5)
