"""Each kind of garbage is found and goes; what may be needed, or another's, stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from collected import LATER, World, clock, kinds
from damage import DAMAGES, SCENES, Scene
from damage.scenes import LEDGER, PAYLOADS, Stored, closed_ledger, one_ledger, pip17, share, streaming
from records import copied, failed, managed_ledger, still_open
from tiers import MODIFIED_AT, TOPIC, uuid_of

from offload_core.catalogue import Records, parse_topic
from offload_core.catalogue.record_store import StoreRecords
from offload_core.gc import Kind
from offload_core.metadata import ManagedLedgerInfo, OffloadContext
from offload_core.metadata.attempt_lease import AttemptHolder, AttemptLease, with_lease
from offload_core.metadata.copy_replacement import abandon_replacement, begin_replacement, switch_replacement
from offload_core.metadata.replacement_record import CopyForm
from offload_core.verify import Code
from offload_hooks.errors import BadMagicError, OptionError, StoreError
from offload_hooks.testing import MemoryMetadataStore
from offload_hooks.values import Upload

OTHER = "persistent://acme/cold/others"


def orphaned() -> Scene:
    """A ledger's copy, and another one that no record names."""
    scene = pip17()
    scene.add(one_ledger(), 5)
    return scene


def info_of(scene: Scene) -> ManagedLedgerInfo:
    assert scene.records is not None
    info = scene.records[TOPIC]
    assert isinstance(info, ManagedLedgerInfo)
    return info


# --- what is sound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, make in SCENES.items() if make().records])
@pytest.mark.parametrize("is_shared", [True, False])
def test_of_what_is_sound_nothing_goes(name: str, is_shared: bool) -> None:
    world = World.of(SCENES[name]())
    before = world.keys
    assert world.collect(is_shared=is_shared) == []
    assert (world.keys, world.log.changes) == (before, [])
    assert world.summary.left == 0


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_nothing_that_a_record_calls_complete_goes_however_damaged_it_is(damage) -> None:  # type: ignore[no-untyped-def]
    scene, _ = damage.make()
    world = World.of(scene)
    before = world.keys
    needed = {key for key in before if any(str(uuid) in key for uuid in needed_uuids(scene))}
    if scene.records:
        world.report()
        complete = world.summary.why_incomplete is None
        world.collect()
        assert complete or world.keys == before
    assert needed <= world.keys


def needed_uuids(scene: Scene) -> set[object]:
    infos = [info for info in (scene.records or {}).values() if isinstance(info, ManagedLedgerInfo)]
    contexts = [ledger.context for info in infos for ledger in info.ledgers if ledger.context]
    whole = {context.uuid for context in contexts if context.complete}
    return whole | {each.uuid for context in contexts for each in context.segments if each.complete}


# --- each kind -------------------------------------------------------------------------------------


def superseded() -> tuple[Scene, Kind]:
    return orphaned(), Kind.SUPERSEDED


def orphan() -> tuple[Scene, Kind]:
    scene = orphaned()
    scene.records = {
        TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, None), *other_ledger(scene.written[0].key.uuid))
    }
    return scene, Kind.ORPHAN


def other_ledger(uuid):  # type: ignore[no-untyped-def]
    """A record that names the first copy, so that its cluster is known."""
    return [closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid))]


def orphan_of_a_trimmed_ledger() -> tuple[Scene, Kind]:
    scene = orphaned()
    scene.records = {TOPIC: managed_ledger(*other_ledger(scene.written[0].key.uuid))}
    return scene, Kind.ORPHAN


def deleted_topic() -> tuple[Scene, Kind]:
    scene = orphaned()
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    return scene, Kind.DELETED_TOPIC


def without_index() -> tuple[Scene, Kind]:
    scene = orphaned()
    del scene.objects[scene.index_key(1)]
    return scene, Kind.NO_INDEX


def without_data() -> tuple[Scene, Kind]:
    scene = orphaned()
    del scene.objects[scene.key(1)]
    return scene, Kind.NO_DATA


def attempt(context: OffloadContext) -> Scene:
    """A complete ledger, and an attempt at another one."""
    scene = orphaned()
    info = info_of(scene)
    scene.records = {TOPIC: managed_ledger(*info.ledgers, closed_ledger(LEDGER + 1, PAYLOADS, context))}
    return scene


def failed_attempt() -> tuple[Scene, Kind]:
    context = copied(uuid_of(5), complete=False)
    assert context.driver is not None
    return attempt(replace(context, driver=context.driver.with_property("status", "failed"))), Kind.FAILED


def unfinished_attempt() -> tuple[Scene, Kind]:
    return attempt(copied(uuid_of(5), complete=False)), Kind.UNFINISHED


def condemned() -> tuple[Scene, Kind]:
    return attempt(copied(uuid_of(5), complete=False, bookkeeper_deleted=True)), Kind.CONDEMNED


def failed_segment() -> tuple[Scene, Kind]:
    return attempt(OffloadContext.of_segments([failed(share(uuid_of(5), 15))])), Kind.FAILED


def replaced() -> tuple[Scene, Kind]:
    scene = pip17()
    scene.add(one_ledger(), 5)
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    begun = begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)
    scene.records = {TOPIC: switch_replacement(begun, uuid, 0)}
    scene.written.reverse()  # the first one is what was replaced
    return scene, Kind.REPLACED


def replacement_given_up() -> tuple[Scene, Kind]:
    scene = orphaned()
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    begun = begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)
    scene.records = {TOPIC: abandon_replacement(begun, uuid)}
    return scene, Kind.FAILED


def replacement_left() -> tuple[Scene, Kind]:
    scene = orphaned()
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    scene.records = {TOPIC: begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)}
    return scene, Kind.UNFINISHED


KINDS = [
    superseded, orphan, orphan_of_a_trimmed_ledger, deleted_topic, without_index, without_data, failed_attempt,
    unfinished_attempt, condemned, failed_segment, replaced, replacement_given_up, replacement_left,
]  # fmt: skip


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_each_kind_is_found_and_goes_and_nothing_else(make: Callable[[], tuple[Scene, Kind]]) -> None:
    scene, kind = make()
    world = World.of(scene)
    before, garbage = world.keys, {scene.key(1), scene.index_key(1)}
    (found,) = world.report()
    assert (found.garbage.kind, found.garbage.key, found.is_deleted) == (kind, scene.key(1), False)
    assert world.keys == before
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (kind, True), gone.why_kept
    assert world.keys == before - garbage
    assert any(str(uuid_of(0 if make is replaced else 5)) in str(each) for each in world.log.changes)
    assert world.collect() == []
    assert world.summary.left == 0


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_not_old_enough_stays(make: Callable[[], tuple[Scene, Kind]]) -> None:
    scene, _ = make()
    world = World.of(scene)
    at = MODIFIED_AT + timedelta(days=1, minutes=4)
    assert world.collect(now_ms=clock(at)) == []
    assert world.summary.younger == 1
    assert len(world.report(now_ms=clock(at), clock_skew=timedelta(0))) == 1
    assert len(world.report(now_ms=clock(at + timedelta(minutes=2)))) == 1


def test_the_younger_of_two_objects_counts() -> None:
    scene, _ = superseded()
    scene.objects[scene.index_key(1)].modified_at = LATER - timedelta(hours=3)
    assert World.of(scene).collect() == []


def test_an_attempt_that_was_left_is_given_up_in_its_record_and_forgotten() -> None:
    scene, _ = unfinished_attempt()
    world = World.of(scene)
    world.collect()
    known = world.records.read("acme/cold/persistent/orders")
    assert known is not None
    ledger = known.info.ledger(LEDGER + 1)
    assert ledger is not None
    assert ledger.context is None


def leased(until_s: int) -> OffloadContext:
    """An attempt that somebody on another machine is at, so long after the collection."""
    context = copied(uuid_of(5), complete=False)
    holder = AttemptHolder(machine=1, process=1, started=1)
    lease = AttemptLease(holder=holder, until_ms=clock()() + until_s * 1000)
    assert context.driver is not None
    return replace(context, driver=with_lease(context.driver, lease))


def leased_segment(until_s: int) -> OffloadContext:
    driver = leased(until_s).driver
    return OffloadContext.of_segments([share(uuid_of(5), 15, complete=False, driver=driver)])


@pytest.mark.parametrize("make", [leased, leased_segment])
def test_an_attempt_that_somebody_is_at_stays_however_old_it_is(
    make: Callable[[int], OffloadContext],
) -> None:
    scene = attempt(make(60))
    world = World.of(scene)
    upload = world.tier.begin_data(f"{uuid_of(5)}")
    world.memory.uploads[upload].started_at = MODIFIED_AT
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert (world.keys, world.summary.live, len(world.memory.uploads)) == (before, 2, 1)
    assert {each.garbage.kind for each in World.of(attempt(make(-1))).collect()} == {Kind.UNFINISHED}


@pytest.mark.parametrize("make", [leased, leased_segment])
def test_an_attempt_that_somebody_takes_up_before_the_last_look_stays(
    make: Callable[[int], OffloadContext],
) -> None:
    world = World.of(attempt(make(-1)))
    alive = attempt(make(60))
    before = world.keys

    @contextmanager
    def changing() -> Iterator[Records]:
        yield Changing(world, lambda: world.put_record(TOPIC, info_of(alive)), 3)

    (outcome,) = world.collection(records=changing).collect(world.log)
    assert outcome.why_kept is not None
    assert "offloads the ledger at the moment" in outcome.why_kept
    assert world.keys == before
    known = world.records.read("acme/cold/persistent/orders")
    assert known is not None
    assert known.info == info_of(alive)


def test_attempts_in_a_record_that_is_not_ours_to_change_stay() -> None:
    """As of a live Pulsar: its broker cleans up when it offloads the ledger again."""

    class NotOurs(MemoryMetadataStore):
        def put(self, *_: object) -> int:
            raise BadMagicError("a live Pulsar's tree is there")

    for make in (unfinished_attempt, condemned):
        scene, _ = make()
        world = World.of(scene)
        before = world.keys
        world.metadata = NotOurs(world.metadata.metadata)
        (outcome,) = world.collect()
        assert "a live Pulsar's tree is there" in str(outcome.why_kept)
        assert (world.keys, world.summary.left) == (before, 1)


# --- whose it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [superseded, orphan_of_a_trimmed_ledger, deleted_topic, without_index])
@pytest.mark.parametrize("cluster", ["west", None])
def test_what_may_be_another_clusters_stays(
    make: Callable[[], tuple[Scene, Kind]], cluster: str | None
) -> None:
    scene, kind = make()
    for key in {scene.key(1), scene.index_key(1)} & set(scene.objects):
        metadata = scene.objects[key].metadata
        del metadata["pulsarclustername"]
        if cluster is not None:
            metadata["pulsarclustername"] = cluster
    world = World.of(scene)
    before = world.keys
    assert world.collect() == []
    assert (world.summary.unknown.total(), world.keys) == (1, before)
    assert [each.garbage.kind for each in world.collect(is_shared=False)] == ([] if cluster else [kind])


def test_nothing_is_known_of_a_cluster_that_no_named_object_names() -> None:
    scene, _ = superseded()
    for key in (scene.key(0), scene.index_key(0)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    assert World.of(scene).collect() == []


def test_what_names_no_topic_or_lies_elsewhere_stays() -> None:
    scene, _ = superseded()
    for key in (scene.key(1), scene.index_key(1)):
        del scene.objects[key].metadata["managedledgername"]
    for key in list(scene.objects):
        scene.objects[f"backup/{key}"] = scene.objects[key]
    for name in (f"{uuid_of(6)}-ledger-7", f"backup/{uuid_of(6)}-ledger-7"):
        scene.objects[name] = Stored(b"x", {"managedledgername": "../../etc/passwd"})
    world = World.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before
    assert (world.summary.nameless, dict(world.summary.unknown)) == (4, {})


def test_a_ledger_that_is_newer_than_its_topics_record_stays() -> None:
    scene = pip17()
    scene.add(one_ledger(), 5)
    scene.records = {TOPIC: managed_ledger(*other_ledger(scene.written[0].key.uuid))}
    newer = one_ledger()
    scene.add(replace(newer, key=replace(newer.key, ledger_id=99)), 6)
    world = World.of(scene)
    assert kinds(world.collect()) == {scene.key(1): "orphan"}
    assert scene.key(2) in world.keys


# --- what may be the last copy ---------------------------------------------------------------------


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("lost", ["data", "index", "wrong length", "topic of another"])
def test_a_copy_stays_while_the_one_that_is_named_is_not_whole(gone: bool, lost: str) -> None:
    scene = pip17(gone=gone)
    scene.add(one_ledger(), 5)
    other = replace(one_ledger(), key=replace(one_ledger().key, ledger_id=LEDGER + 1))
    scene.add(other, 6)
    info = info_of(scene)
    scene.records = {
        TOPIC: managed_ledger(*info.ledgers, closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(6))))
    }
    if lost == "data":
        del scene.objects[scene.key(0)]
    elif lost == "index":
        del scene.objects[scene.index_key(0)]
    elif lost == "wrong length":
        scene.cut(scene.key(0), -1)
    else:
        scene.change_record(lambda record: replace(record, info=replace(record.info, entries=17)))
    world = World.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before
    assert world.summary.kept.total() == 1


def test_half_of_a_segment_stays_while_a_ledger_of_its_topic_lacks_something() -> None:
    scene = streaming(gone=True)
    for name in (scene.key(0), scene.index_key(0)):
        twin = name.replace(str(uuid_of(0)), str(uuid_of(5)))
        scene.objects[twin] = replace(scene.objects[name])
    del scene.objects[scene.index_key(0).replace(str(uuid_of(0)), str(uuid_of(5)))]
    assert kinds(World.of(scene).report()) == {str(uuid_of(5)): "no-index"}
    del scene.objects[scene.key(0)]
    assert World.of(scene).report() == []


# --- records that are not complete, changed or slow ------------------------------------------------


def test_one_record_that_cannot_be_read_and_nothing_goes() -> None:
    scene, _ = superseded()
    assert scene.records is not None
    scene.records[OTHER] = b"\xff\xff"
    world = World.of(scene)
    before = world.keys
    assert [each.is_deleted for each in world.collect()] == [False]
    assert (world.keys, world.log.changes) == (before, [])
    assert "the record of persistent://acme/cold/others cannot be read" in str(world.summary.why_incomplete)


def test_records_that_are_not_complete_only_report() -> None:
    scene, _ = superseded()
    world = World.of(scene)
    topic = parse_topic(TOPIC)

    class Given:
        why_incomplete = "they were given"

        def topics(self) -> list[object]:
            return [topic]

        def read(self, topics):  # type: ignore[no-untyped-def]
            return {each: {topic: info_of(scene)}[each] for each in topics}

    @contextmanager
    def given() -> Iterator[Records]:
        yield Given()  # type: ignore[misc]

    assert kinds(list(world.collection(records=given).report())) == {scene.key(1): "superseded"}
    assert world.summary.why_incomplete == "they were given"
    with pytest.raises(OptionError, match="nothing is deleted"):
        list(world.collection(records=given).collect(world.log))
    scene, _ = deleted_topic()
    assert list(World.of(scene).collection(records=given).report()) == []


def test_clocks_that_are_too_far_apart_and_nothing_goes() -> None:
    scene, _ = superseded()
    scene.objects[scene.key(0)].modified_at = LATER + timedelta(minutes=6)
    world = World.of(scene)
    assert [each.is_deleted for each in world.collect()] == [False]
    assert "the clocks of store and machine" in str(world.summary.why_incomplete)
    assert [each.is_deleted for each in world.collect(clock_lead=timedelta(minutes=2))] == [True]


class Changing(StoreRecords):
    """Records that change just before they are read for the `turn`th time."""

    def __init__(self, world: World, change: Callable[[], None], turn: int) -> None:
        super().__init__(world.metadata)
        self._change, self._left = change, turn

    def read(self, topics):  # type: ignore[no-untyped-def]
        asked = list(topics)
        self._left -= bool(asked)
        if not self._left:
            self._change()
        return super().read(asked)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_what_a_record_names_by_the_last_look_stays(turn: int) -> None:
    scene, _ = superseded()
    world = World.of(scene)
    before = world.keys
    named = managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(5))))

    @contextmanager
    def changing() -> Iterator[Records]:
        yield Changing(world, lambda: world.put_record(TOPIC, named), turn)

    outcomes = list(world.collection(records=changing).collect(world.log))
    assert not any(each.is_deleted for each in outcomes) or scene.key(1) in world.keys
    assert {scene.key(1), scene.index_key(1)} <= world.keys
    assert turn == 1 or world.keys == before


def test_what_has_changed_since_the_listing_stays() -> None:
    for change in ("younger", "larger", "whole"):
        scene, _ = without_index() if change == "whole" else superseded()
        world = World.of(scene)
        stored = world.memory.objects[scene.key(1)]

        def act(world: World = world, stored=stored, change: str = change, scene: Scene = scene) -> None:  # type: ignore[no-untyped-def]
            if change == "younger":
                stat = replace(stored.stat, modified_at=LATER)
                world.memory.objects[scene.key(1)] = replace(stored, stat=stat)
            elif change == "larger":
                stat = replace(stored.stat, size_bytes=stored.stat.size_bytes + 1)
                world.memory.objects[scene.key(1)] = replace(stored, stat=stat)
            else:
                world.memory.objects[scene.index_key(1)] = stored

        @contextmanager
        def changing(world: World = world, act: Callable[[], None] = act) -> Iterator[Records]:
            yield Changing(world, act, 3)

        (outcome,) = world.collection(records=changing).collect(world.log)
        assert (outcome.is_deleted, outcome.why_kept) == (False, "it has changed since it was listed"), change
        assert scene.key(1) in world.keys


# --- uploads ---------------------------------------------------------------------------------------


def uploads_of(*keys: str) -> World:
    scene, _ = superseded()
    world = World.of(scene)
    for key in keys:
        upload = world.tier.begin_data(key)
        world.memory.uploads[upload].started_at = MODIFIED_AT
    return world


def test_uploads_of_attempts_that_records_name_go_and_others_where_nobody_else_writes() -> None:
    ours, others, strange = f"{uuid_of(0)}-ledger-7", f"{uuid_of(9)}-ledger-7", "picture-of-a-cat"
    world = uploads_of(ours, others, strange)
    found = [each for each in world.collect() if each.garbage.kind is Kind.UPLOAD]
    assert [(each.garbage.key, each.is_deleted) for each in found] == [(ours, True)]
    assert {each.key for each in world.memory.uploads} == {others, strange}
    world.collect(is_shared=False)
    assert {each.key for each in world.memory.uploads} == {strange}
    assert [each.garbage.kind.code for each in found] == [Code.STALE_UPLOAD]


def test_an_upload_that_is_young_stays() -> None:
    world = uploads_of(f"{uuid_of(0)}-ledger-7")
    for opened in world.memory.uploads.values():
        opened.started_at = LATER - timedelta(hours=1)
    world.collect()
    assert len(world.memory.uploads) == 1


def test_an_upload_of_an_attempt_that_was_left_goes_with_it() -> None:
    world = uploads_of(f"{uuid_of(8)}-ledger-9")
    info = managed_ledger(
        closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))), still_open(9, copied(uuid_of(8), complete=False))
    )
    world.put_record(TOPIC, info)
    found = {each.garbage.key: each for each in world.collect()}
    assert found[f"{uuid_of(8)}-ledger-9"].garbage.kind is Kind.UNFINISHED
    assert not world.memory.uploads
    known = world.records.read("acme/cold/persistent/orders")
    assert known is not None
    assert known.info.ledgers[1].context is None


# --- what is wanted, and failures ------------------------------------------------------------------


def test_only_so_much_or_of_these_topics() -> None:
    scene, _ = superseded()
    scene.add(one_ledger(), 6)
    world = World.of(scene)
    assert world.collect(wants=lambda topic: topic is not None and topic.full == OTHER) == []
    assert len(world.collect(limit=1)) == 1
    assert len(world.collect()) == 1
    assert world.collect() == []


def test_a_failure_of_the_audit_log_and_nothing_goes() -> None:
    scene, _ = superseded()
    world = World.of(scene)
    before = world.keys

    class Full:
        def record(self, _: object) -> None:
            raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="disk is full"):
        list(world.collection().collect(Full()))
    assert world.keys == before


def test_uploads_are_not_asked_for_where_the_driver_has_none() -> None:
    scene, _ = superseded()
    world = World.of(scene)
    world.memory.uploads.clear()
    assert Upload(key="a", upload_id="b") not in world.memory.uploads
    assert kinds(list(world.collection(tier=scene.tier()).report())) == {scene.key(1): "superseded"}
