"""Every call of a collection fails, answers unknown, or ends the process; the next collection ends what it began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from crash_points import FAULTS, Fault, Killed, Metadata, PointedAudit, Points, watched
from damage import Scene
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, one_ledger, pip17
from effort import Sample
from records import copied, managed_ledger
from scenes.garbage import CollectedTier
from tiers import MODIFIED_AT, TOPIC, uuid_of

from offload_core.metadata.catalogue import Records
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import OffloadContext
from offload_core.storage.tier import Tier
from offload_core.writing.audit import Deletion
from offload_hooks.errors import OffloadError
from offload_hooks.testing import MemoryDriver


def of_ledger(ledger_id: int) -> object:
    written = one_ledger()
    return replace(written, key=replace(written.key, ledger_id=ledger_id))


def littered() -> CollectedTier:
    """A needed copy, one that it took the place of, half of one, checksums alone, two attempts, and an upload."""
    scene = Scene(records={})
    kept = pip17()
    scene.objects, scene.written = kept.objects, kept.written
    scene.add(one_ledger(), 5)
    scene.add(one_ledger(), 6)
    del scene.objects[scene.index_key(2)]
    for number, ledger_id in ((7, LEDGER + 1), (8, LEDGER + 2)):
        scene.add(of_ledger(ledger_id), number)  # type: ignore[arg-type]
    scene.add(one_ledger(), 9)
    scene.put(f"{scene.key(5)}-checksums", b"checksums")
    scene.objects[f"{scene.key(5)}-checksums"].metadata.update(scene.objects[scene.key(5)].metadata)
    del scene.objects[scene.key(5)], scene.objects[scene.index_key(5)]
    left: OffloadContext = copied(uuid_of(7), complete=False)
    given_up: OffloadContext = copied(uuid_of(8), complete=False)
    assert given_up.driver is not None
    given_up = replace(given_up, driver=given_up.driver.with_property("status", "failed"))
    scene.records = {
        TOPIC: managed_ledger(
            closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))),
            closed_ledger(LEDGER + 1, PAYLOADS, left),
            closed_ledger(LEDGER + 2, PAYLOADS, given_up),
        )
    }
    world = CollectedTier.of(scene)
    upload = world.tier.begin_data(scene.key(0))
    world.memory.uploads[upload].started_at = MODIFIED_AT
    return world


NEEDED = {f"{uuid_of(0)}-ledger-{LEDGER}", f"{uuid_of(0)}-ledger-{LEDGER}-index"}


def collect(world: CollectedTier, points: Points) -> None:
    @contextmanager
    def opened() -> Iterator[Records]:
        yield StoreRecords(Metadata(world.metadata, points))

    tier = Tier(MemoryDriver(world.memory), [watched(points)])
    list(world.collection(tier=tier, records=opened).collect(PointedAudit(world.log, points), at_once=1))


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_crash_at_any_call_the_next_collection_goes_on(fault: Fault, sample: Sample[int]) -> None:
    counted = Points()
    collect(littered(), counted)
    assert len(counted.calls) > 20
    for at in sample(range(1, len(counted.calls) + 1), 7):
        world = littered()
        with suppress(Killed, OffloadError):
            collect(world, Points(at, fault))
        deleted = {each.uuid for each in world.log.changes if isinstance(each, Deletion)}
        for number in (5, 6, 7, 8, 9):
            keys = {key for key in world.keys if key.startswith(str(uuid_of(number)))}
            whole = 1 if number in (6, 9) else 2
            assert len(keys) == whole or uuid_of(number) in deleted  # recorded before it is made
        assert world.keys >= NEEDED
        world.age()  # an index that was put back is young
        collect(world, Points())
        assert world.keys == NEEDED
        assert not world.memory.uploads
        assert world.summary.left == 0
        known = world.records.read("acme/cold/persistent/orders")
        assert known is not None
        first, *others = known.info.ledgers
        assert first.has_complete_copy
        collect(world, Points())
        assert all(not each.has_complete_copy for each in others)
