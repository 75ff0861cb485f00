"""Tiers with one kind of garbage each, and its kind."""

from __future__ import annotations

from dataclasses import replace

from damage import Scene
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, one_ledger, pip17, share
from records import copied, failed, managed_ledger
from tiers import TOPIC, uuid_of

from offload_core.gc import GarbageKind
from offload_core.metadata import ManagedLedgerInfo, OffloadContext
from offload_core.metadata.copy_replacement import abandon_replacement, begin_replacement, switch_replacement
from offload_core.metadata.replacement_record import CopyForm

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


def superseded() -> tuple[Scene, GarbageKind]:
    return orphaned(), GarbageKind.SUPERSEDED


def orphan() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {
        TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, None), *other_ledger(scene.written[0].key.uuid))
    }
    return scene, GarbageKind.ORPHAN


def other_ledger(uuid):  # type: ignore[no-untyped-def]
    """A record that names the first copy, so that its cluster is known."""
    return [closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid))]


def orphan_of_a_trimmed_ledger() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {TOPIC: managed_ledger(*other_ledger(scene.written[0].key.uuid))}
    return scene, GarbageKind.ORPHAN


def deleted_topic() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    return scene, GarbageKind.DELETED_TOPIC


def without_index() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    del scene.objects[scene.index_key(1)]
    return scene, GarbageKind.NO_INDEX


def without_data() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    del scene.objects[scene.key(1)]
    return scene, GarbageKind.NO_DATA


def attempt(context: OffloadContext) -> Scene:
    """A complete ledger, and an attempt at another one."""
    scene = orphaned()
    info = info_of(scene)
    scene.records = {TOPIC: managed_ledger(*info.ledgers, closed_ledger(LEDGER + 1, PAYLOADS, context))}
    return scene


def failed_attempt() -> tuple[Scene, GarbageKind]:
    context = copied(uuid_of(5), complete=False)
    assert context.driver is not None
    return attempt(
        replace(context, driver=context.driver.with_property("status", "failed"))
    ), GarbageKind.FAILED


def unfinished_attempt() -> tuple[Scene, GarbageKind]:
    return attempt(copied(uuid_of(5), complete=False)), GarbageKind.UNFINISHED


def condemned() -> tuple[Scene, GarbageKind]:
    return attempt(copied(uuid_of(5), complete=False, bookkeeper_deleted=True)), GarbageKind.CONDEMNED


def failed_segment() -> tuple[Scene, GarbageKind]:
    return attempt(OffloadContext.of_segments([failed(share(uuid_of(5), 15))])), GarbageKind.FAILED


def replaced() -> tuple[Scene, GarbageKind]:
    scene = pip17()
    scene.add(one_ledger(), 5)
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    begun = begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)
    scene.records = {TOPIC: switch_replacement(begun, uuid, 0)}
    scene.written.reverse()  # the first one is what was replaced
    return scene, GarbageKind.REPLACED


def replacement_given_up() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    begun = begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)
    scene.records = {TOPIC: abandon_replacement(begun, uuid)}
    return scene, GarbageKind.FAILED


def replacement_left() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    info, uuid = info_of(scene), uuid_of(5)
    driver = info.ledgers[0].context.driver  # type: ignore[union-attr]
    assert driver is not None
    scene.records = {TOPIC: begin_replacement(info, [LEDGER], uuid, CopyForm.LEDGER, driver, 0)}
    return scene, GarbageKind.UNFINISHED


KINDS = [
    superseded, orphan, orphan_of_a_trimmed_ledger, deleted_topic, without_index, without_data, failed_attempt,
    unfinished_attempt, condemned, failed_segment, replaced, replacement_given_up, replacement_left,
]  # fmt: skip
