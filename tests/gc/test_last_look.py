"""Attempts that somebody is at, records that change or are not complete, uploads, failures: what is unsure stays."""

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, one_ledger
from records import copied, managed_ledger, segment, still_open
from scenes.garbage import (
    LATER,
    OTHER,
    CollectedTier,
    attempt,
    changing,
    clock,
    condemned,
    deleted_topic,
    info_of,
    kinds,
    superseded,
    unfinished_attempt,
    without_index,
)
from tiers import MANAGED_LEDGER, MODIFIED_AT, TOPIC, uuid_of

from offload_core.maintenance.gc import GarbageKind
from offload_core.maintenance.verify import Code
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.records import OffloadContext
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, with_lease
from offload_hooks.errors import BadMagicError, OptionError, StoreError
from offload_hooks.testing import MemoryMetadataStore


def leased(until_s):
    """An attempt that somebody on another machine is at, so long after the collection."""
    context = copied(uuid_of(5), complete=False)
    holder = AttemptHolder(machine=1, process=1, started=1)
    lease = AttemptLease(holder=holder, until_ms=clock()() + until_s * 1000)
    return replace(context, driver=with_lease(context.driver, lease))


def leased_segment(until_s):
    driver = leased(until_s).driver
    return OffloadContext.of_segments([segment(uuid_of(5), 15, complete=False, driver=driver)])


@pytest.mark.parametrize("make", [leased, leased_segment])
def test_an_attempt_that_somebody_is_at_stays_however_old_it_is(make):
    scene = attempt(make(60))
    world = CollectedTier.of(scene)
    upload = world.tier.begin_data(f"{uuid_of(5)}")
    world.memory.uploads[upload].started_at = MODIFIED_AT
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert (world.keys, world.summary.live, len(world.memory.uploads)) == (before, 2, 1)
    assert {each.garbage.kind for each in CollectedTier.of(attempt(make(-1))).collect()} == {
        GarbageKind.UNFINISHED
    }


@pytest.mark.parametrize("make", [leased, leased_segment])
def test_an_attempt_that_somebody_takes_up_before_the_last_look_stays(make):
    world = CollectedTier.of(attempt(make(-1)))
    alive, before = info_of(attempt(make(60))), world.keys
    taken_up = changing(world, lambda: world.put_record(TOPIC, alive), 3)
    (outcome,) = world.collect(records=taken_up)
    assert "offloads the ledger at the moment" in outcome.why_kept
    assert world.keys == before
    assert world.records.read(MANAGED_LEDGER).info == alive


def test_attempts_in_a_record_that_is_not_ours_to_change_stay():
    """As of a live Pulsar: its broker cleans up when it offloads the ledger again."""

    class NotOurs(MemoryMetadataStore):
        def put(self, *_):
            raise BadMagicError("a live Pulsar's tree is there")

    for make in (unfinished_attempt, condemned):
        scene, _ = make()
        world = CollectedTier.of(scene)
        before = world.keys
        world.metadata = NotOurs(world.metadata.metadata)
        (outcome,) = world.collect()
        assert "a live Pulsar's tree is there" in str(outcome.why_kept)
        assert (world.keys, world.summary.left) == (before, 1)


# --- records that are not complete, changed or slow ------------------------------------------------


def test_one_record_that_cannot_be_read_and_nothing_goes():
    scene, _ = superseded()
    scene.records[OTHER] = b"\xff\xff"
    world = CollectedTier.of(scene)
    before = world.keys
    assert [each.is_deleted for each in world.collect()] == [False]
    assert (world.keys, world.log.changes) == (before, [])
    assert "the record of persistent://acme/cold/others cannot be read" in str(world.summary.why_incomplete)


def test_records_that_are_not_complete_only_report():
    scene, _ = superseded()
    world = CollectedTier.of(scene)
    topic = parse_topic(TOPIC)

    class Given:
        why_incomplete = "they were given"

        def topics(self):
            return [topic]

        def read(self, topics):
            return {each: {topic: info_of(scene)}[each] for each in topics}

    @contextmanager
    def given():
        yield Given()

    assert kinds(list(world.collection(records=given).report())) == {scene.key(1): "superseded"}
    assert world.summary.why_incomplete == "they were given"
    with pytest.raises(OptionError, match="nothing is deleted"):
        list(world.collection(records=given).collect(world.log))
    scene, _ = deleted_topic()
    assert list(CollectedTier.of(scene).collection(records=given).report()) == []


def test_clocks_that_are_too_far_apart_and_nothing_goes():
    scene, _ = superseded()
    scene.objects[scene.key(0)].modified_at = LATER + timedelta(minutes=6)
    world = CollectedTier.of(scene)
    assert [each.is_deleted for each in world.collect()] == [False]
    assert "the clocks of store and machine" in str(world.summary.why_incomplete)
    assert [each.is_deleted for each in world.collect(clock_lead=timedelta(minutes=2))] == [True]


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_what_a_record_names_by_the_last_look_stays(turn):
    scene, _ = superseded()
    world = CollectedTier.of(scene)
    before = world.keys
    named = managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(5))))
    outcomes = world.collect(records=changing(world, lambda: world.put_record(TOPIC, named), turn))
    assert not any(each.is_deleted for each in outcomes) or scene.key(1) in world.keys
    assert {scene.key(1), scene.index_key(1)} <= world.keys
    assert turn == 1 or world.keys == before


@pytest.mark.parametrize("change", ["younger", "larger", "whole"])
def test_what_has_changed_since_the_listing_stays(change):
    scene, _ = without_index() if change == "whole" else superseded()
    world = CollectedTier.of(scene)
    stored = world.memory.objects[scene.key(1)]
    stat = stored.stat
    now = {
        "younger": (scene.key(1), replace(stored, stat=replace(stat, modified_at=LATER))),
        "larger": (scene.key(1), replace(stored, stat=replace(stat, size_bytes=stat.size_bytes + 1))),
        "whole": (scene.index_key(1), stored),
    }
    (outcome,) = world.collect(records=changing(world, lambda: world.memory.objects.update([now[change]]), 3))
    assert (outcome.is_deleted, outcome.why_kept) == (False, "it has changed since it was listed")
    assert scene.key(1) in world.keys


# --- uploads ---------------------------------------------------------------------------------------


def uploads_of(*keys):
    scene, _ = superseded()
    world = CollectedTier.of(scene)
    for key in keys:
        upload = world.tier.begin_data(key)
        world.memory.uploads[upload].started_at = MODIFIED_AT
    return world


def test_uploads_of_attempts_that_records_name_go_and_others_where_nobody_else_writes():
    ours, others, strange = f"{uuid_of(0)}-ledger-7", f"{uuid_of(9)}-ledger-7", "picture-of-a-cat"
    world = uploads_of(ours, others, strange)
    found = [each for each in world.collect() if each.garbage.kind is GarbageKind.UPLOAD]
    assert [(each.garbage.key, each.is_deleted) for each in found] == [(ours, True)]
    assert {each.key for each in world.memory.uploads} == {others, strange}
    world.collect(is_shared=False)
    assert {each.key for each in world.memory.uploads} == {strange}
    assert [each.garbage.kind.code for each in found] == [Code.STALE_UPLOAD]


def test_an_upload_that_is_young_stays():
    world = uploads_of(f"{uuid_of(0)}-ledger-7")
    (upload,) = world.memory.uploads.values()
    upload.started_at = LATER - timedelta(hours=1)
    world.collect()
    assert len(world.memory.uploads) == 1


def test_an_upload_of_an_attempt_that_was_left_goes_with_it():
    world = uploads_of(f"{uuid_of(8)}-ledger-9")
    info = managed_ledger(
        closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))), still_open(9, copied(uuid_of(8), complete=False))
    )
    world.put_record(TOPIC, info)
    found = {each.garbage.key: each for each in world.collect()}
    assert found[f"{uuid_of(8)}-ledger-9"].garbage.kind is GarbageKind.UNFINISHED
    assert not world.memory.uploads
    assert world.records.read(MANAGED_LEDGER).info.ledgers[1].context is None


# --- what is wanted, and failures ------------------------------------------------------------------


def test_only_so_much_or_of_these_topics():
    scene, _ = superseded()
    scene.add(one_ledger(), 6)
    world = CollectedTier.of(scene)
    assert world.collect(wants=lambda topic: topic is not None and topic.full == OTHER) == []
    assert len(world.collect(limit=1)) == 1
    assert len(world.collect()) == 1
    assert world.collect() == []


@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("limit", [0, 1, 3, 40])
def test_what_stays_by_the_last_look_does_not_count_against_the_limit(limit, at_once):
    scene, _ = superseded()
    for number in range(10, 40):
        scene.add(one_ledger(), number)
    world = CollectedTier.of(scene)

    def write_half_anew():
        for number in range(10, 25):
            world.tier.write_index(f"{uuid_of(number)}-ledger-{LEDGER}-index", b"anew")

    assert len(world.report(limit=2)) == 2
    found = world.collection(records=changing(world, write_half_anew, 3))
    outcomes = list(found.collect(world.log, limit=limit, at_once=at_once))
    assert sum(each.is_deleted for each in outcomes) == min(limit, 16)
    assert len({each.garbage.key for each in outcomes}) == len(outcomes)
    assert sum(each.why_kept is not None for each in outcomes) == (0 if limit < 2 else 15)


def test_a_failure_of_the_audit_log_and_nothing_goes():
    scene, _ = superseded()
    world = CollectedTier.of(scene)
    before = world.keys

    class Full:
        def record(self, _):
            raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="disk is full"):
        list(world.collection().collect(Full()))
    assert world.keys == before


def test_uploads_are_not_asked_for_where_the_driver_has_none():
    scene, _ = superseded()
    world = CollectedTier.of(scene)
    assert kinds(list(world.collection(tier=scene.tier()).report())) == {scene.key(1): "superseded"}
