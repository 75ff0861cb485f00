"""Which streaming objects may go: each thing that records can say, not say, or contradict the tier in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from mapfiles import mapfile
from records import closed, copied, failed, segment, still_open
from scenes.rollbacks import (
    NAMED,
    NAMELESS,
    ORDERS,
    in_one_object,
    in_segments,
    put_segment,
    put_whole,
    topic,
)
from tiers import Names, put, uuid_of

from offload_core.format.codec.object_marks import LOST_KEY
from offload_core.maintenance.rollback import Allowed, JudgedObject, Verdict, judge_tier
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.records import (
    CopyForm,
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    abandon_replacement,
    begin_replacement,
)
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver

OTHERS = Names(managed_ledger="acme/cold/persistent/others", cluster=None)


@pytest.fixture
def tier() -> Tier:
    return Tier(MemoryDriver())


def judged(tier: Tier, records: Mapping[TopicName, ManagedLedgerInfo]) -> JudgedObject:
    (found,) = judge_tier(tier, lambda: records)
    return found


def verdict(tier: Tier, *ledgers: LedgerRecord) -> Verdict:
    return judged(tier, topic(*ledgers)).verdict


def shares(*ends: tuple[int, int | None, str], gone: bool = False) -> OffloadContext:
    made = []
    for number, end, status in ends:
        share = segment(uuid_of(number), end, complete=status == "offloaded")
        made.append(failed(share) if status == "failed" else share)
    return OffloadContext.of_segments(made, bookkeeper_deleted=gone)


# --- objects that records name -----------------------------------------------------------------


def test_the_only_copy_of_one_ledger_keeps_an_object_of_several(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    found = judged(tier, topic(in_segments(5, 3, (1, 2), gone=True), in_segments(6, 4, (1, 3))))
    assert found.verdict is Verdict.NEEDED
    assert found.why == "ledger 5: its hot copy is gone, and this segment is its only copy"
    assert [(each.ledger_id, each.verdict) for each in found.ledgers] == [
        (5, Verdict.NEEDED),
        (6, Verdict.HOT),
    ]
    assert found.topics == (ORDERS,)


def test_an_object_whose_ledgers_are_all_hot(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    assert verdict(tier, in_segments(5, 3, (1, 2)), in_segments(6, 4, (1, 3))) is Verdict.HOT


def test_a_segment_under_way_is_left_alone(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    assert verdict(tier, closed(5, 3, shares((1, None, "assigned")))) is Verdict.UNFINISHED
    assert verdict(tier, closed(5, 3, shares((1, None, "failed")))) is Verdict.HOT


def test_a_segment_that_failed_is_no_copy(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    assert (
        verdict(tier, closed(5, 3, shares((2, 2, "offloaded"), (1, 2, "failed"), gone=True))) is Verdict.FREE
    )


def test_a_ledger_that_is_being_deleted_needs_nothing(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    for status in ("assigned", "failed"):
        assert verdict(tier, closed(5, 3, shares((1, 2, status), gone=True))) is Verdict.FREE
    assert (
        verdict(tier, closed(5, 3, copied(uuid_of(9), complete=False, bookkeeper_deleted=True)))
        is Verdict.FREE
    )


def test_a_named_object_that_cannot_be_read_is_kept_all_the_same(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), parts=["data"], names=NAMELESS)
    assert verdict(tier, in_segments(5, 3, (1, 2), gone=True)) is Verdict.NEEDED
    assert verdict(tier, in_segments(5, 3, (1, 2))) is Verdict.HOT


def test_the_record_says_whose_an_object_is_whatever_it_says_itself(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), names=OTHERS)
    found = judged(tier, topic(in_segments(5, 3, (1, 2), gone=True)))
    assert (found.verdict, found.topics) == (Verdict.NEEDED, (ORDERS,))


# --- objects that no record names --------------------------------------------------------------


def test_what_no_record_names_is_judged_by_its_ledgers(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    put_whole(tier, 8, 5, 3)
    assert verdict(tier, closed(5, 3)) is Verdict.FREE
    assert verdict(tier, in_one_object(5, 3, 8)) is Verdict.FREE
    assert verdict(tier, in_one_object(5, 3, 9)) is Verdict.NEEDED  # its one object is not here
    assert verdict(tier, in_one_object(5, 3, 9, gone=False)) is Verdict.FREE
    assert (
        verdict(tier, in_segments(5, 3, (2, 2), gone=True)) is Verdict.NEEDED
    )  # the other segment is not here
    assert verdict(tier, in_segments(5, 9, (2, 2), complete=False, gone=True)) is Verdict.NEEDED
    assert verdict(tier, in_segments(5, 9, (2, 2), complete=False)) is Verdict.FREE


def test_what_other_segments_have_is_not_needed_if_these_are_whole(tier: Tier) -> None:
    record = in_segments(5, 5, (2, 2), (3, 4), gone=True)
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (5, 0, 3))
    put_segment(tier, 3, (5, 3, 2), parts=["data"])

    def verdicts() -> list[Verdict]:
        return [each.verdict for each in judge_tier(tier, lambda: topic(record))]

    assert verdicts() == [Verdict.NEEDED] * 3
    put_segment(tier, 3, (5, 3, 2))
    assert verdicts() == [Verdict.FREE, Verdict.NEEDED, Verdict.NEEDED]


def test_what_cannot_be_read_and_no_record_names_may_be_anything(tier: Tier) -> None:
    key = put_segment(tier, 1, (5, 0, 3))
    put(tier, key.index_key, b"\x3d\x1f\xb0\xbc", NAMED.as_metadata("index"))
    assert verdict(tier, closed(5, 3)) is Verdict.UNKNOWN
    assert verdict(tier, in_segments(5, 3, (1, 2))) is Verdict.HOT
    put_segment(tier, 1, (5, 0, 3), names=replace(NAMED, version="2"))
    assert verdict(tier, closed(5, 3)) is Verdict.UNKNOWN


def test_an_old_ledger_that_its_topic_has_not_any_more_needs_nothing_and_a_new_one_may(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    assert verdict(tier, still_open(6)) is Verdict.FREE
    assert verdict(tier, closed(4, 2)) is Verdict.UNKNOWN  # these records are older than the object
    assert verdict(tier) is Verdict.UNKNOWN


def test_whose_an_object_is_may_not_be_known(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), names=OTHERS)
    assert verdict(tier, closed(5, 3)) is Verdict.UNKNOWN
    assert judged(tier, {}).verdict is Verdict.UNKNOWN
    put_segment(tier, 1, (5, 0, 3), names=NAMELESS)
    for record in (closed(5, 3), closed(6, 3)):  # another cluster may have a ledger 5 as well
        assert verdict(tier, record) is Verdict.UNKNOWN


@pytest.mark.parametrize("parts", [["data"], ["data", "index"]])
def test_what_is_of_a_cluster_is_known_only_if_a_record_names_it(tier: Tier, parts: list[str]) -> None:
    put_segment(tier, 1, (5, 0, 3), names=Names(cluster="west"), parts=parts)
    found = judged(tier, topic(closed(5, 3)))
    assert (found.verdict, found.topics) == (Verdict.UNKNOWN, (ORDERS,))
    assert found.why == "it is of cluster west, and no record names it"
    assert verdict(tier, in_segments(5, 3, (1, 2))) is Verdict.HOT


def test_what_is_not_known_counts_before_what_is_needed(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), (6, 0, 3))
    assert verdict(tier, in_segments(5, 3, (1, 2), gone=True)) is Verdict.UNKNOWN


def test_a_ledger_that_only_the_index_lists_counts_as_well(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), (6, 0, 3))
    assert verdict(tier, in_segments(5, 3, (1, 2)), in_one_object(6, 3, 9)) is Verdict.NEEDED
    assert verdict(tier, in_segments(5, 3, (1, 2)), closed(6, 3)) is Verdict.HOT


def test_half_of_an_object_that_no_record_names_was_given_up(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    assert verdict(tier, closed(5, 3)) is Verdict.FREE
    assert judged(tier, {}).verdict is Verdict.UNKNOWN
    put_segment(tier, 1, (5, 0, 3), parts=["data"], names=NAMELESS)
    assert verdict(tier, closed(5, 3)) is Verdict.UNKNOWN


def test_what_is_none_is_never_judged_by_records(tier: Tier) -> None:
    put(tier, str(uuid_of(1)), b"a picture of a cat", Names().as_metadata("data"))
    assert verdict(tier, in_segments(5, 3, (1, 2), gone=True)) is Verdict.FOREIGN
    assert [each.verdict for each in judge_tier(tier, None)] == [Verdict.FOREIGN]


def test_a_copy_that_is_about_to_take_anothers_place_is_left_alone(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    put_whole(tier, 8, 5, 3)
    info, uuid = ManagedLedgerInfo(ledgers=(in_one_object(5, 3, 8),)), uuid_of(1)
    driver = DriverMetadata(name="local")
    begun = begin_replacement(info, [5], uuid, CopyForm.SEGMENT, driver, 0)
    assert judged(tier, {ORDERS: begun}).verdict is Verdict.UNFINISHED
    given_up = abandon_replacement(begun, uuid)
    assert judged(tier, {ORDERS: given_up}).verdict is Verdict.FREE


def test_a_segment_that_lost_entries_does_not_stand_for_another(tier: Tier) -> None:
    record = in_segments(5, 3, (2, 2), gone=True)
    for number in (1, 2):
        put_segment(tier, number, (5, 0, 3))
    assert next(each.verdict for each in judge_tier(tier, lambda: topic(record))) is Verdict.FREE
    for key in (str(uuid_of(2)), f"{uuid_of(2)}-index"):
        stat = tier.stat(key)
        data = bytes(tier.read_range(key, 0, stat.size_bytes))
        tier.write_index(key, data, user_metadata={**stat.user_metadata, LOST_KEY: "1 entries: 5:1"})
    assert [each.verdict for each in judge_tier(tier, lambda: topic(record))] == [Verdict.NEEDED] * 2


def test_a_record_that_calls_a_streaming_object_the_ledgers_own_is_not_believed(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    assert verdict(tier, in_one_object(5, 3, 1)) is Verdict.NEEDED
    put_whole(tier, 1, 5, 3)
    assert verdict(tier, in_one_object(5, 3, 1)) is Verdict.FREE


def test_a_copy_in_a_mapfile_and_in_a_folder_is_seen(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), folder="a/")
    written = mapfile([b"1", b"2", b"3"], ledger_id=5)
    for part, data in (("data", written.data), ("index", written.index)):
        put(tier, f"a/acme/cold/persistent/orders/5-{uuid_of(8)}/{part}", data, {})
    no_driver = closed(5, 3, copied(uuid_of(8), bookkeeper_deleted=True, driver=None))
    assert verdict(tier, no_driver) is Verdict.FREE
    assert verdict(tier, in_one_object(5, 3, 8)) is Verdict.NEEDED  # its driver writes other objects


def test_without_records_nothing_is_known_not_to_be_needed(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (6, 0, 3), parts=["index"], names=NAMELESS)
    one, two = judge_tier(tier, None)
    assert (one.verdict, two.verdict) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    assert [(each.ledger_id, each.topic) for each in one.ledgers] == [(5, ORDERS)]
    assert ([each.ledger_id for each in two.ledgers], two.topics) == ([6], ())


# --- choosing ----------------------------------------------------------------------------------


def test_only_what_is_of_the_topics_that_are_named(tier: Tier) -> None:
    partition = Names(managed_ledger="acme/cold/persistent/parts-partition-3")
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (6, 0, 3), names=partition)
    put_segment(tier, 3, (7, 0, 3), names=NAMELESS)

    def chosen(*names: str) -> Sequence[str]:
        topics = [parse_topic(name) for name in names]
        return [each.object.key.data_key[-1] for each in judge_tier(tier, None, topics=topics)]

    assert chosen() == ["1", "2", "3"]
    assert chosen("acme/cold/orders") == ["1"]
    assert chosen("acme/cold/parts", "acme/cold/orders") == ["1", "2"]
    assert chosen("acme/cold/parts-partition-3") == ["2"]
    assert chosen("acme/cold/part") == []


def test_only_what_lies_in_a_folder(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), folder="a/")
    put_segment(tier, 2, (5, 0, 3), folder="b/")
    assert [each.object.key.folder for each in judge_tier(tier, None, prefix="b/")] == ["b/"]


def test_the_tier_is_listed_before_the_records_are_read(tier: Tier) -> None:
    def read() -> Mapping[TopicName, ManagedLedgerInfo]:
        put_segment(tier, 1, (5, 0, 3))  # another process writes, after the listing
        return topic()

    assert judge_tier(tier, read) == []


def test_what_may_be_deleted() -> None:
    def allowed(**given: bool) -> set[Verdict]:
        return {verdict for verdict in Verdict if Allowed(**given).allows(verdict)}

    assert allowed() == {Verdict.FREE, Verdict.HOT}
    assert allowed(recorded=False) == {Verdict.FREE}
    assert allowed(loss=True) == {Verdict.FREE, Verdict.HOT, Verdict.NEEDED}
