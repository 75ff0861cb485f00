"""Records that are wrong, or objects that contradict their records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from records import closed_ledger, copied, failed, managed_ledger, segment
from tiers import TOPIC, uuid_of

from damage.corpus import Place, damage
from damage.scenes import FIRST, FOLLOWING, LEDGER, PAYLOADS, Scene, filtered, one_ledger, pip17, streaming
from offload_core.maintenance.verify import Code
from offload_core.metadata.records import LedgerRecord, OffloadContext

OF_LEDGER: Place = {"topic": TOPIC, "ledger_id": LEDGER}


def drop(scene: Scene, number: int = 0):
    """A pair of objects is gone."""
    del scene.objects[scene.key(number)], scene.objects[scene.index_key(number)]


def change_context(scene: Scene, ledger_id: int = LEDGER, **changes: object):
    """A ledger's offload context, changed."""

    def change(record: LedgerRecord) -> LedgerRecord:
        assert record.context is not None
        return replace(record, context=replace(record.context, **changes))

    scene.change_record(change, ledger_id)


# --- one object ------------------------------------------------------------------------------------


@damage(pip17, Code.RECORD_UNREADABLE)
def record_is_garbage(scene: Scene) -> Place:
    scene.records = {"persistent://acme/cold/garbage": b"\xff\xff\xff", **(scene.records or {})}
    return {"topic": "persistent://acme/cold/garbage"}


@damage(pip17, Code.NO_OBJECT)
def a_complete_copy_is_gone(scene: Scene):
    drop(scene)


@damage(partial(pip17, gone=True), Code.LOST)
def a_complete_copy_is_gone_and_the_hot_one_too(scene: Scene):
    drop(scene)


@damage(pip17, Code.NO_INDEX)
def the_index_of_a_complete_copy_is_gone(scene: Scene):
    del scene.objects[scene.index_key()]


@damage(partial(pip17, gone=True), Code.LOST, Code.NO_DATA)
def the_data_of_the_only_copy_is_gone(scene: Scene):
    del scene.objects[scene.key()]


@damage(pip17, Code.BROKEN_COPY, Code.INDEX_BAD_MAGIC)
def the_index_of_a_complete_copy_is_broken(scene: Scene):
    scene.flip(scene.index_key(), 0)


@damage(pip17, Code.RECORD_OTHER_FORMAT)
def record_speaks_of_segments_of_a_pip17_object(scene: Scene):
    uuid = scene.written[0].key.uuid
    context = OffloadContext.of_segments([segment(uuid, len(PAYLOADS) - 1)], complete=True)
    change_context(scene, segments=context.segments)


@damage(pip17, Code.OTHER_LEDGER)
def record_names_the_object_of_another_ledger(scene: Scene) -> Place:
    uuid = scene.written[0].key.uuid
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid)))}
    return {"topic": TOPIC, "ledger_id": LEDGER + 1, "key": scene.key()}


@damage(pip17, Code.OTHER_TOPIC)
def record_names_the_object_of_another_topic(scene: Scene):
    for stored in scene.objects.values():
        stored.metadata["managedledgername"] = "acme/cold/persistent/others"


@damage(pip17, Code.RECORD_ENTRIES)
def record_has_more_entries(scene: Scene):
    scene.change_record(lambda record: replace(record, info=replace(record.info, entries=17)))


@damage(pip17, Code.RECORD_SIZE)
def record_has_another_size(scene: Scene):
    scene.change_record(lambda record: replace(record, info=replace(record.info, size=17)))


@damage(pip17, Code.UNFINISHED)
def objects_of_an_attempt_that_did_not_finish(scene: Scene):
    change_context(scene, complete=False)


@damage(pip17, Code.UNFINISHED)
def half_of_an_attempt_that_did_not_finish(scene: Scene):
    del scene.objects[scene.index_key()]
    change_context(scene, complete=False)


@damage(pip17, Code.CONDEMNED)
def objects_of_a_ledger_that_is_being_deleted(scene: Scene):
    change_context(scene, complete=False, bookkeeper_deleted=True)


@damage(pip17, Code.ORPHAN)
def a_copy_that_no_record_names(scene: Scene) -> Place:
    scene.add(one_ledger(), 5)
    return {"topic": TOPIC, "key": scene.key(1), "ledger_id": LEDGER}


@damage(pip17, Code.ORPHAN)
def half_of_a_copy_that_no_record_names(scene: Scene) -> Place:
    scene.add(one_ledger(), 5, cluster=None)
    del scene.objects[scene.index_key(1)]
    return {"topic": TOPIC, "key": scene.key(1), "ledger_id": LEDGER}


# --- segments --------------------------------------------------------------------------------------


@damage(streaming, Code.NO_OBJECT)
def a_segment_is_gone(scene: Scene):
    drop(scene)


@damage(partial(streaming, gone=True), Code.LOST)
def a_segment_is_gone_and_the_hot_copy_too(scene: Scene):
    drop(scene)


@damage(streaming, Code.RECORD_OTHER_FORMAT)
def record_speaks_of_one_object_of_a_segment(scene: Scene):
    uuid = scene.written[0].key.uuid
    scene.change_record(lambda record: replace(record, context=copied(uuid)))
    scene.objects = {key: stored for key, stored in scene.objects.items() if key.startswith(str(uuid))}
    change_context(scene, 8, segments=(), uuid=None, complete=False)


@damage(streaming, Code.OTHER_LEDGER)
def record_names_a_segment_without_its_ledger(scene: Scene) -> Place:
    scene.change_share(0, lambda old: replace(old, uuid=scene.written[0].key.uuid), 8)
    return {"topic": TOPIC, "ledger_id": 8, "key": scene.key(0)}


@damage(streaming, Code.SEGMENT_OVERLAP, Code.SEGMENT_END)
def record_begins_a_segment_later(scene: Scene) -> Place:
    scene.change_share(0, lambda old: replace(old, end_entry_id=len(FIRST)))
    return {**OF_LEDGER, "key": scene.key(1), "entry_id": len(FIRST)}


@damage(streaming, Code.SEGMENT_GAP, Code.SEGMENT_END)
def record_begins_a_segment_earlier(scene: Scene) -> Place:
    scene.change_share(0, lambda old: replace(old, end_entry_id=len(FIRST) - 2))
    return {**OF_LEDGER, "key": scene.key(1), "entry_id": len(FIRST) - 1}


@damage(filtered, Code.RECORD_FILTER)
def a_record_says_nothing_of_a_filter(scene: Scene) -> Place:
    """Remove the record of the filter: nothing shows which entries were to be kept."""
    scene.change_record(lambda record: replace(record, context=copied(scene.written[0].key.uuid)))


@damage(streaming, Code.SEGMENT_END)
def a_segment_ends_before_its_record_says(scene: Scene) -> Place:
    """Change its index, by which the whole ledger ends before."""
    scene.change_share(0, lambda old: replace(old, end_entry_id=len(FOLLOWING)), 8)
    scene.change_record(
        lambda record: replace(record, info=replace(record.info, entries=None, timestamp_ms=0)), 8
    )
    return {"topic": TOPIC, "ledger_id": 8, "key": scene.key(1), "entry_id": len(FOLLOWING)}


@damage(streaming, Code.SEGMENT_END)
def record_ends_a_segment_before_its_last_block(scene: Scene) -> Place:
    scene.change_share(0, lambda old: replace(old, end_entry_id=1), 8)
    return {"topic": TOPIC, "ledger_id": 8, "key": scene.key(1), "entry_id": 1}


@damage(streaming, Code.FALSE_COMPLETE, Code.ORPHAN)
def record_is_complete_without_its_last_segment(scene: Scene) -> Place:
    shares = [segment(scene.written[0].key.uuid, len(FIRST) - 1)]
    context = OffloadContext.of_segments(shares, complete=True)
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, context))}
    return {**OF_LEDGER, "entry_id": len(FIRST)}


@damage(streaming, Code.LOST)
def hot_copy_is_gone_before_its_last_segment(scene: Scene) -> Place:
    change_context(scene, bookkeeper_deleted=True, complete=False)
    scene.change_share(1, lambda old: replace(old, complete=False))
    drop(scene, 1)
    change_context(scene, 8, segments=(), uuid=None, complete=False)
    return {**OF_LEDGER, "entry_id": len(FIRST)}


@damage(streaming, Code.FAILED)
def objects_of_a_segment_that_failed(scene: Scene) -> Place:
    change_context(scene, complete=False)
    change_context(scene, 8, complete=False)
    for ledger_id, number in ((LEDGER, 1), (8, 0)):
        scene.change_share(number, failed, ledger_id)
    return {"topic": TOPIC, "ledger_id": 8, "key": scene.key(1)}


@damage(streaming, Code.ORPHAN)
def a_segment_that_no_record_names(scene: Scene) -> Place:
    scene.add(replace(scene.written[0], key=replace(scene.written[0].key, uuid=uuid_of(9))), 9)
    return {"topic": TOPIC, "key": scene.key(2)}
