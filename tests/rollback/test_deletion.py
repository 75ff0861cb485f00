"""Deleting streaming objects: what goes and stays, in which order, what is recorded, and what fails."""

import json
from dataclasses import replace
from itertools import chain, repeat

import pytest
from crash_points import Metadata, Points, watched
from effort import effort
from golden import STREAMING_CASES
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import Audit
from records import closed, failed, managed_ledger, segment, still_open, streaming_record
from scenes.rollbacks import NAMELESS, ORDERS, in_one_object, in_segments, keys, put_segment, put_whole, topic
from tiers import MANAGED_LEDGER, Names, lay_out_broker_objects, lay_out_case, put, uuid_of

from offload_core.maintenance.rollback import (
    Allowed,
    JudgedObject,
    delete_judged,
    judge_tier,
    release_recorded,
)
from offload_core.metadata.records import LedgerRecord, OffloadContext
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier, open_store
from offload_core.storage.tier.chain import Layer
from offload_core.writing.audit import Deletion, FileAuditLog
from offload_hooks import hookimpl
from offload_hooks.errors import StoreError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore

ALL = Allowed(loss=True)


class Refusing:
    def record(self, deletion):
        raise StoreError(f"no room for ledger {deletion.ledger_id}")


@pytest.fixture
def tier():
    return Tier(MemoryDriver())


def delete(tier, records, allowed=None):
    audit, done = Audit(), list[JudgedObject]()
    judged = judge_tier(tier, None if records is None else lambda: records)
    delete_judged(tier, judged, audit, allowed=allowed or Allowed(), listener=done.append, at_once=1)
    return done, audit.deletions


# --- what goes ---------------------------------------------------------------------------------


def test_what_is_not_needed_goes_and_the_rest_stays(tier):
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


def test_what_no_record_knows_stays_whatever_is_accepted(tier):
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


def test_half_of_an_object_is_recorded_without_a_ledger(tier):
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    _, (deletion,) = delete(tier, topic(closed(5, 3)))
    assert (deletion.managed_ledger, deletion.ledger_id, deletion.entries) == (MANAGED_LEDGER, None, None)
    assert keys(tier) == set()


def test_an_upload_that_was_left_under_the_key_goes_with_it(tier):
    key = put_segment(tier, 1, (5, 0, 3))
    tier.begin_data(key.data_key)
    delete(tier, topic(closed(5, 3)))
    assert list(tier.list_uploads()) == []


def test_pulsars_own_objects_by_their_record(tmp_path):
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


def _gone(info):
    return info.with_ledgers(
        replace(each, context=replace(each.context, bookkeeper_deleted=True))
        for each in info.ledgers
        if each.context
    )


# --- failures ----------------------------------------------------------------------------------


def test_each_deletion_is_recorded_before_and_nothing_goes_without(tier, tmp_path):
    put_segment(tier, 1, (5, 0, 3))
    judged = judge_tier(tier, lambda: topic(closed(5, 3)))
    with pytest.raises(StoreError, match="no room for ledger 5"):
        delete_judged(tier, judged, Refusing(), allowed=ALL)
    assert len(keys(tier)) == 2
    delete_judged(tier, judged, FileAuditLog(tmp_path / "audit"), allowed=ALL)
    (line,) = (tmp_path / "audit").read_text().splitlines()
    said = json.loads(line)
    assert (said["action"], said["copy"], said["uuid"]) == ("delete", "cold", str(uuid_of(1)))


def test_a_failure_in_the_middle_names_the_object_and_the_same_call_goes_on():
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
def test_an_object_whose_records_change_before_its_data_goes_stays_whole(at, change):
    plain = Tier(MemoryDriver())
    put_segment(plain, 1, (5, 0, 3))
    put_segment(plain, 2, (6, 0, 3))
    five, six = in_segments(5, 3, (1, 2)), in_segments(6, 3, (2, 2))
    before = topic(five, six)
    after = {
        "hot copy gone": topic(in_segments(5, 3, (1, 2), gone=True), six),
        "named by another ledger": topic(five, six, in_segments(7, 3, (1, 2))),
        "ledger gone": topic(six),
    }[change]
    judged = judge_tier(plain, lambda: before)
    done: list[JudgedObject] = []
    reads = chain(repeat(before, at - 1), repeat(after))

    def read_again(_):
        return next(reads)

    whole = keys(plain)
    delete_judged(
        plain, judged, Audit(), allowed=Allowed(), read_again=read_again, listener=done.append, at_once=1
    )
    if at < 3:
        assert keys(plain) >= {each for each in whole if each.startswith(str(uuid_of(1)))}
        assert [each.object.key.uuid for each in done] in ([], [uuid_of(2)])
    else:
        assert done[0].object.key.uuid == uuid_of(1)  # its data was gone by then


def test_many_go_at_once_and_after_a_failure_no_further_one_is_begun():
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
    def delete(self):
        raise StoreUnavailableError("the store broke")
        yield


# --- Deleting streaming objects and releasing their records: by every crash, and in any layout, nothing is lost.


# --- every crash, with the release of the records -----------------------------------------------


LEDGERS = (
    in_segments(5, 3, (1, 2)),
    in_segments(6, 4, (1, 1), (2, 3)),
    in_segments(7, 2, (2, 0), (3, 1), gone=True),
    closed(8, 2),
)


def rolled_back(tier, records):
    """The whole deletion with a release, as the command does it."""
    judged = judge_tier(tier, lambda: release_recorded(records, [], dry_run=False).infos)
    delete_judged(tier, judged, Audit(), allowed=Allowed(recorded=False), at_once=1)


def laid_out():
    driver, store = MemoryDriver(), MemoryMetadataStore()
    tier = Tier(driver)
    put_segment(tier, 1, (5, 0, 3), (6, 0, 2))
    put_segment(tier, 2, (6, 2, 2), (7, 0, 1))
    put_segment(tier, 3, (7, 1, 1))
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, managed_ledger(*LEDGERS), None)
    return driver, store


def run(made, points):
    driver, store = made
    rolled_back(Tier(driver, [watched(points)]), ManagedLedgerRecords(Metadata(store, points)))


def check(made, where):
    driver, store = made
    plain = Tier(driver)
    for ledger in ManagedLedgerRecords(store).read(MANAGED_LEDGER).info.in_order:
        assert readable(plain, ledger) == set(range(ledger.info.entries or 0)), where
        for share in ledger.context.segments if ledger.context else ():
            assert {str(share.uuid), f"{share.uuid}-index"} <= keys(plain), where  # released before


def check_done(made, where):
    driver, store = made
    known = ManagedLedgerRecords(store).read(MANAGED_LEDGER)
    assert known.info == as_written(managed_ledger(closed(5, 3), closed(6, 4), LEDGERS[2], closed(8, 2)))
    left = {f"{uuid_of(number)}{end}" for number in (2, 3) for end in ("", "-index")}
    assert keys(Tier(driver)) == left, where


def test_whatever_ends_it_nothing_is_lost_and_the_same_call_goes_on(crash_matrix):
    calls = crash_matrix(lambda _: laid_out(), run, check=check, check_done=check_done, every=14)
    assert calls.count("put") == 1
    assert calls.count("delete") == 3  # the index, what lies beside, the data


def readable(tier, ledger):
    """The entries of a ledger that can be read from some copy that its record names: a plain model."""
    there, context = keys(tier), ledger.context
    entries = set(range(ledger.info.entries or 0))
    if context is None or ledger.has_hot_copy:
        return entries
    if not context.segments:
        name = f"{context.uuid}-ledger-{ledger.ledger_id}"
        return entries if context.complete and {name, f"{name}-index"} <= there else set()
    found: set[int] = set()
    begin = 0
    for share in context.segments:
        stop = (share.end_entry_id or 0) + 1
        if share.complete and {str(share.uuid), f"{share.uuid}-index"} <= there:
            found |= set(range(begin, stop))
        begin = stop
    return found


# --- any layout --------------------------------------------------------------------------------


@st.composite
def layouts(draw):
    """Ledgers in any state, and objects: number, shares, and which parts of them are there."""
    ledgers: list[LedgerRecord] = []
    shares_of: dict[int, list[tuple[int, int, int]]] = {}
    number = 1
    for ledger_id in range(3, 3 + draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["hot", "whole", "segments", "segments", "trimmed"]))
        gone = draw(st.booleans())
        if kind == "hot":
            ledgers.append(closed(ledger_id, 4))
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))  # left of an attempt
        elif kind == "whole":
            ledgers.append(in_one_object(ledger_id, 4, 100 + ledger_id, gone=gone))
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))
        elif kind == "trimmed":
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))
        else:
            shares, first = [], 0
            for _ in range(draw(st.integers(1, 3))):
                if draw(st.booleans()):
                    number += 1
                count = draw(st.integers(1, 3))
                status = draw(st.sampled_from(["offloaded", "offloaded", "assigned", "failed"]))
                share = segment(uuid_of(number), first + count - 1, complete=status == "offloaded")
                if uuid_of(number) not in {each.uuid for each in shares}:
                    shares.append(failed(share) if status == "failed" else share)
                    shares_of.setdefault(number, []).append((ledger_id, first, count))
                    first += count
            entries = first + draw(st.sampled_from([0, 0, 2]))
            context = OffloadContext.of_segments(shares, complete=True, bookkeeper_deleted=gone)
            ledgers.append(closed(ledger_id, entries, context))
    parts = st.sampled_from(["both", "both", "both", "data", "index"])
    return ledgers, [(each, shares, draw(parts)) for each, shares in shares_of.items()]


@given(layout=layouts(), loss=st.booleans(), release=st.booleans(), named=st.booleans())
@effort(2)
def test_no_entry_is_lost_that_a_record_has(layout, loss, release, named):
    ledgers, objects = layout
    tier, store = Tier(MemoryDriver()), MemoryMetadataStore()
    for ledger in ledgers:
        if ledger.context is not None and not ledger.context.segments:
            put_whole(tier, 100 + ledger.ledger_id, ledger.ledger_id, 4)
    whole = keys(tier)
    for number, shares, parts in objects:
        names = {} if named else {"names": NAMELESS}
        put_segment(tier, number, *shares, parts=["data", "index"] if parts == "both" else [parts], **names)
    records = ManagedLedgerRecords(store)
    records.write(MANAGED_LEDGER, managed_ledger(*ledgers, still_open(99)), None)
    before = {ledger.ledger_id: readable(tier, ledger) for ledger in ledgers}

    def infos():
        if release:
            return release_recorded(records, [], dry_run=False).infos
        return {ORDERS: records.read(MANAGED_LEDGER).info}

    judged = judge_tier(tier, infos)
    allowed = Allowed(recorded=not release, loss=loss)
    delete_judged(tier, judged, Audit(), allowed=allowed)
    assert whole <= keys(tier)
    known = records.read(MANAGED_LEDGER)
    under_way = {
        str(share.uuid)
        for ledger in known.info.in_order
        if ledger.context is not None and not ledger.is_marked_for_deletion
        for share in ledger.context.segments
        if not share.complete and share.status.value == "assigned"
    }
    left = {key.removesuffix("-index") for key in keys(tier) - whole}
    there = {str(uuid_of(number)) for number, _, _ in objects}
    if not loss:
        for ledger in known.info.in_order:
            assert ledger.ledger_id == 99 or before[ledger.ledger_id] <= readable(tier, ledger)
    elif not release and named:
        assert left == under_way & there
    assert under_way & there <= left
