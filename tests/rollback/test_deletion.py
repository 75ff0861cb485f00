"""Deleting streaming objects: what goes and stays, in which order, what is recorded, and what fails."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from crash_points import Points, watched
from golden import STREAMING_CASES
from managed_ledgers import Audit
from records import closed, segment, still_open, streaming_record
from scenes.rollbacks import (
    NAMELESS,
    ORDERS,
    in_one_object,
    in_segments,
    keys,
    put_segment,
    put_whole,
    topic,
)
from tiers import MANAGED_LEDGER, Names, lay_out_broker_objects, lay_out_case, put, uuid_of

from offload_core.maintenance.rollback import Allowed, JudgedObject, delete_judged, judge_tier
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.records import (
    ManagedLedgerInfo,
    OffloadContext,
)
from offload_core.storage.tier import Tier, open_store
from offload_core.storage.tier.chain import Layer
from offload_core.writing.audit import Deletion, FileAuditLog
from offload_hooks import hookimpl
from offload_hooks.errors import StoreError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver

ALL = Allowed(loss=True)


class Refusing:
    def record(self, deletion: Deletion) -> None:
        raise StoreError(f"no room for ledger {deletion.ledger_id}")


@pytest.fixture
def tier() -> Tier:
    return Tier(MemoryDriver())


def delete(
    tier: Tier, records: Mapping[TopicName, ManagedLedgerInfo] | None, allowed: Allowed | None = None
) -> tuple[list[JudgedObject], list[Deletion]]:
    audit, done = Audit(), list[JudgedObject]()
    judged = judge_tier(tier, None if records is None else lambda: records)
    delete_judged(tier, judged, audit, allowed=allowed or Allowed(), listener=done.append, at_once=1)
    return done, audit.deletions


# --- what goes ---------------------------------------------------------------------------------


def test_what_is_not_needed_goes_and_the_rest_stays(tier: Tier) -> None:
    hot = put_segment(tier, 1, (5, 0, 3))
    needed = put_segment(tier, 2, (6, 0, 3))
    whole = put_whole(tier, 3, 7, 3)
    put(tier, str(uuid_of(4)), b"a picture of a cat", {})
    put(tier, "acme/cold/persistent/orders/8-00000000-0000-4000-8000-00000000000a/data", b"SEQ\x06", {})
    before = keys(tier)
    records = topic(in_segments(5, 3, (1, 2)), in_segments(6, 3, (2, 2), gone=True), in_one_object(7, 3, 3))
    done, deletions = delete(tier, records)
    assert [each.object.key for each in done] == [hot]
    assert before - keys(tier) == {hot.data_key, hot.index_key}
    assert deletions == [
        Deletion(
            managed_ledger=MANAGED_LEDGER,
            ledger_id=5,
            copy="cold",
            why="streaming objects are rolled back; ledger 5: its record names this segment, and its hot copy is there",
            uuid=uuid_of(1),
            entries=3,
            size_bytes=300,
        )
    ]
    assert delete(tier, records) == ([], [])
    delete(tier, records, ALL)
    assert before - keys(tier) == {hot.data_key, hot.index_key, needed.data_key, needed.index_key}
    assert {whole.data_key, whole.index_key, str(uuid_of(4))} <= keys(tier)


def test_what_no_record_knows_stays_whatever_is_accepted(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), (6, 0, 3))
    put_segment(tier, 2, (6, 3, 3), parts=["data"], names=NAMELESS)
    put_segment(tier, 3, (5, 0, 3), names=Names())  # of a cluster that has the same topic and ledgers
    put_segment(tier, 4, (7, 0, 3), (8, 0, 3))  # its ledger 8 is newer than these records
    put_whole(tier, 5, 7, 3)
    before = keys(tier)
    for records in (None, {}, topic(closed(4, 3))):
        assert delete(tier, records, ALL) == ([], [])
    assert keys(tier) == before
    _, deletions = delete(tier, topic(closed(5, 3), closed(6, 3), in_segments(7, 3, (4, 2), gone=True)), ALL)
    assert before - keys(tier) == {str(uuid_of(1)), f"{uuid_of(1)}-index"}
    assert [(each.managed_ledger, each.ledger_id, each.entries) for each in deletions] == [
        (MANAGED_LEDGER, 5, 3),
        (MANAGED_LEDGER, 6, 3),
    ]


def test_half_of_an_object_is_recorded_without_a_ledger(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    _, (deletion,) = delete(tier, topic(closed(5, 3)))
    assert (deletion.managed_ledger, deletion.ledger_id, deletion.entries) == (MANAGED_LEDGER, None, None)
    assert keys(tier) == set()


def test_what_is_under_way_stays_whatever_is_accepted(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    share = segment(uuid_of(1), None, complete=False)
    delete(tier, topic(still_open(5, OffloadContext.of_segments([share]))), ALL)
    assert keys(tier) == {str(uuid_of(1))}


def test_after_a_release_what_records_still_name_stays(tier: Tier) -> None:
    put_segment(tier, 1, (5, 0, 3))
    records = topic(in_segments(5, 3, (1, 2)))
    assert delete(tier, records, Allowed(recorded=False)) == ([], [])
    delete(tier, topic(closed(5, 3)), Allowed(recorded=False))
    assert keys(tier) == set()


def test_an_upload_that_was_left_under_the_key_goes_with_it(tier: Tier) -> None:
    key = put_segment(tier, 1, (5, 0, 3))
    tier.begin_data(key.data_key)
    delete(tier, topic(closed(5, 3)))
    assert list(tier.list_uploads()) == []


def test_pulsars_own_objects_by_their_record(tmp_path: Path) -> None:
    for name in STREAMING_CASES:
        lay_out_case(tmp_path, "streaming", name)
    lay_out_broker_objects(tmp_path, ["json"])
    with open_store(tmp_path) as store:
        others = {key for key in keys(store) if "-ledger-" in key}
        assert others
        delete(store, {ORDERS: _gone(streaming_record())})
        assert len(keys(store)) == len(others) + 2 * len(STREAMING_CASES)
        done, _ = delete(store, {ORDERS: streaming_record()})
        assert len(done) == len(STREAMING_CASES)
        assert keys(store) == others


def _gone(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    return replace(
        info,
        ledgers=tuple(
            replace(each, context=replace(each.context, bookkeeper_deleted=True)) if each.context else each
            for each in info.ledgers
        ),
    )


# --- failures ----------------------------------------------------------------------------------


def test_each_deletion_is_recorded_before_and_nothing_goes_without(tier: Tier, tmp_path: Path) -> None:
    put_segment(tier, 1, (5, 0, 3))
    judged = judge_tier(tier, lambda: topic(closed(5, 3)))
    with pytest.raises(StoreError, match="no room for ledger 5"):
        delete_judged(tier, judged, Refusing(), allowed=ALL)
    assert len(keys(tier)) == 2
    delete_judged(tier, judged, FileAuditLog(tmp_path / "audit"), allowed=ALL)
    (line,) = (tmp_path / "audit").read_text().splitlines()
    said = json.loads(line)
    assert (said["action"], said["copy"], said["uuid"]) == ("delete", "cold", str(uuid_of(1)))


def test_a_failure_in_the_middle_names_the_object_and_the_same_call_goes_on() -> None:
    driver = MemoryDriver()
    plain = Tier(driver)
    for number in (1, 2, 3):
        put_segment(plain, number, (number, 0, 3))
    points = Points(at=12, fault="before")  # the data of the second one
    tier = Tier(driver, [watched(points)])
    records = topic(closed(1, 3), closed(2, 3), closed(3, 3))
    done: list[JudgedObject] = []
    judged = judge_tier(plain, lambda: records)
    with pytest.raises(StoreUnavailableError) as caught:
        delete_judged(tier, judged, Audit(), allowed=Allowed(), listener=done.append, at_once=1)
    assert points.calls[-1] == "delete"
    assert caught.value.key == str(uuid_of(2))
    assert [each.object.key.data_key for each in done] == [str(uuid_of(1))]
    assert keys(plain) == {str(uuid_of(2)), str(uuid_of(3)), f"{uuid_of(3)}-index"}
    again, _ = delete(plain, records)
    assert [each.object.key.data_key for each in again] == [str(uuid_of(2)), str(uuid_of(3))]
    assert keys(plain) == set()


@pytest.mark.parametrize("change", ["hot copy gone", "named by another ledger", "ledger gone"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_object_whose_records_change_before_its_data_goes_stays_whole(at: int, change: str) -> None:
    plain = Tier(MemoryDriver())
    put_segment(plain, 1, (5, 0, 3))
    put_segment(plain, 2, (6, 0, 3))
    before = topic(in_segments(5, 3, (1, 2)), in_segments(6, 3, (2, 2)))
    others = {
        "hot copy gone": topic(in_segments(5, 3, (1, 2), gone=True), in_segments(6, 3, (2, 2))),
        "named by another ledger": topic(
            in_segments(5, 3, (1, 2)), in_segments(6, 3, (2, 2)), in_segments(7, 3, (1, 2))
        ),
        "ledger gone": topic(in_segments(6, 3, (2, 2))),
    }
    judged = judge_tier(plain, lambda: before)
    done: list[JudgedObject] = []
    reads = 0

    def read_again(_: object) -> Mapping[TopicName, ManagedLedgerInfo]:
        nonlocal reads
        reads += 1
        return others[change] if reads >= at else before

    whole = keys(plain)
    delete_judged(
        plain, judged, Audit(), allowed=Allowed(), read_again=read_again, listener=done.append, at_once=1
    )
    if at < 3:
        assert keys(plain) >= {each for each in whole if each.startswith(str(uuid_of(1)))}
        assert [each.object.key.uuid for each in done] in ([], [uuid_of(2)])
    else:
        assert done[0].object.key.uuid == uuid_of(1)  # its data was gone by then


def test_many_go_at_once_and_after_a_failure_no_further_one_is_begun() -> None:
    driver = MemoryDriver()
    plain = Tier(driver)
    for number in range(1, 101):
        put_segment(plain, number, (number, 0, 1))
    judged = judge_tier(plain, lambda: topic(still_open(101)))
    done: list[JudgedObject] = []
    tier = Tier(driver, [Layer(name="broken", make=lambda _: Broken())])
    with pytest.raises(StoreUnavailableError) as caught:
        delete_judged(tier, judged, Audit(), allowed=ALL, listener=done.append)
    assert (caught.value.key, done) in [(str(uuid_of(number)), []) for number in range(1, 17)]
    assert len(keys(plain)) == 200
    delete_judged(plain, judged, Audit(), allowed=ALL, listener=done.append)
    assert keys(plain) == set()
    assert len(done) == 100


class Broken:
    """A layer where nothing can be deleted."""

    @hookimpl(wrapper=True)
    def delete(self) -> Generator[None, object, object]:
        raise StoreUnavailableError("the store broke")
        yield
