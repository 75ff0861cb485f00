"""Before a hot copy goes: the objects of all segments of its ledger are there, and have its entries, all of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import closed
from scenes.drawn import segmented, segmented_topics
from tiers import MANAGED_LEDGER

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_hooks.errors import DataLossError, OffloadError


@given(topic=segmented_topics(gaps=False), data=st.data())
def test_a_hot_copy_may_go_only_while_all_objects_of_its_segments_are_there(topic, data):
    tiers = KnownTiers(topic.tier)
    whole = [each for each in topic.info.ledgers if each.is_fully_offloaded]
    assert {each.ledger_id for each in whole} == {
        each.ledger_id
        for each in topic.info.ledgers
        if each.info.is_closed and topic.cold_stops.get(each.ledger_id) == each.info.entries
    }
    for ledger in whole:
        check_cold_copies(tiers, MANAGED_LEDGER, ledger)
    if whole:
        del topic.driver.objects[data.draw(st.sampled_from(sorted(topic.driver.objects)))]
        for ledger in whole:
            keys = {f"{share.uuid}{end}" for share in ledger.context.segments for end in ("", "-index")}
            if not keys <= set(topic.driver.objects):
                with pytest.raises(OffloadError, match="not there"):
                    check_cold_copies(tiers, MANAGED_LEDGER, ledger)


def whole_ledger():
    """A ledger of nine entries in three segments."""
    topic = segmented(sizes=[9], segments=[3, 6, 9])
    ledger = topic.info.ledgers[0]
    return topic, ledger, [share.uuid for share in ledger.context.segments]


def put(topic, uuid, of):
    """An object in the place of another."""
    for end in ("", "-index"):
        topic.driver.objects[f"{uuid}{end}"] = topic.driver.objects[f"{of}{end}"]


def test_a_segment_with_gaps_that_has_no_block_of_a_ledger_is_refused():
    """Also one of which a filter left nothing has a block for it."""
    topic = segmented(sizes=[1, 1], segments=[2], left_out=lambda entries: frozenset(entries[:1]))
    first, second = topic.info.ledgers
    tiers = KnownTiers(topic.tier)
    with pytest.raises(DataLossError, match="no block of the ledger"):
        check_cold_copies(tiers, MANAGED_LEDGER, first)
    with pytest.raises(DataLossError, match="neither record nor index tells of that"):
        check_cold_copies(tiers, MANAGED_LEDGER, second)


def of_another(topic, uuid, other, begin=""):
    """The objects of another topic in the place of a segment's."""
    topic.driver.objects |= {
        key.replace(key[:36], str(uuid)): data
        for key, data in other.driver.objects.items()
        if key.startswith(begin)
    }


def longer(topic, uuids):
    topic.driver.objects[str(uuids[1])] += b"x"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda topic, uuids: put(topic, uuids[1], uuids[0]),
            r"does not match its record.*ledger 0.*expected",
        ),
        (
            lambda topic, uuids: put(topic, uuids[1], uuids[2]),
            r"does not match its record.*ledger 0.*expected",
        ),
        (
            lambda topic, uuids: of_another(topic, uuids[0], segmented(sizes=[9], segments=[6])),
            "does not match its record",
        ),
        (longer, "does not match its record"),
        (
            lambda topic, uuids: of_another(
                topic,
                uuids[0],
                segmented(sizes=[1, 3], segments=[1, 4]),
                "00000000-0000-4000-8000-000000000001",
            ),
            "by its index none",
        ),
    ],
    ids=["entries before", "entries after", "goes further", "length of data", "another ledger"],
)
def test_a_segment_that_is_not_as_recorded_is_refused(harm, message):
    topic, ledger, uuids = whole_ledger()
    harm(topic, uuids)
    with pytest.raises(DataLossError, match=message):
        check_cold_copies(KnownTiers(topic.tier), MANAGED_LEDGER, ledger)


@pytest.mark.parametrize("kept", [1, 2])
def test_segments_that_do_not_go_to_the_end_are_refused(kept):
    topic, ledger, _ = whole_ledger()
    context = replace(ledger.context, segments=ledger.context.segments[:kept])
    with pytest.raises(DataLossError, match=f"do not go to its end .*expected entries {3 * kept} to 8"):
        check_cold_copies(KnownTiers(topic.tier), MANAGED_LEDGER, closed(ledger.ledger_id, 9, context))


def test_segments_may_have_entries_that_the_hot_tier_lost():
    """A ledger that was recovered after a crash may end before what was streamed of it."""
    topic, ledger, _ = whole_ledger()
    check_cold_copies(KnownTiers(topic.tier), MANAGED_LEDGER, closed(ledger.ledger_id, 8, ledger.context))


def test_a_segment_that_is_not_complete_is_refused():
    topic, ledger, _ = whole_ledger()
    *others, last = ledger.context.segments
    context = replace(ledger.context, segments=(*others, replace(last, complete=False)))
    with pytest.raises(DataLossError):
        check_cold_copies(KnownTiers(topic.tier), MANAGED_LEDGER, replace(ledger, context=context))
