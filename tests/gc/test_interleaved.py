"""Between any two calls of a collection others write records, and the other way round: no record loses a copy."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import pytest
from crash_points import Metadata, PointedAudit, Points, each_turn, watched
from damage import Scene
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, one_ledger, pip17
from managed_ledgers import Audit
from records import copied, managed_ledger, new_copy
from scenes.garbage import OTHER, CollectedTier, clock, deleted_topic, superseded
from tiers import MANAGED_LEDGER, MODIFIED_AT, TOPIC, uuid_of

from offload_core.maintenance.gc import GarbageKind
from offload_core.maintenance.record_recovery import RecoveryOutcome, recover_records
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.records.attempts import place_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import claimed, is_claim, placeholder
from offload_core.storage.tier import Tier
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry, Replacement
from offload_hooks.errors import AttemptError
from offload_hooks.testing import MemoryDriver

pytestmark = pytest.mark.long

LOST = managed_ledger_of_topic(parse_topic(OTHER))


def of_ledger(ledger_id):
    written = one_ledger()
    return replace(written, key=replace(written.key, ledger_id=ledger_id))


def lost_topic():
    """A topic with its record, and two ledgers of another one whose record is lost."""
    scene, _ = deleted_topic()
    for number, ledger_id in enumerate((20, 21), start=2):
        scene.add(of_ledger(ledger_id), 10 + ledger_id)
        for key in (scene.key(number), scene.index_key(number)):
            scene.objects[key].metadata["managedledgername"] = LOST
    return CollectedTier.of(scene)


def collect(world, points):
    @contextmanager
    def opened():
        yield StoreRecords(Metadata(world.metadata, points))

    tier = Tier(MemoryDriver(world.memory), [watched(points)])
    collection = world.collection(tier=tier, records=opened, is_shared=False)
    return list(collection.collect(world.log, at_once=1))


def recover(world, points):
    tier = Tier(MemoryDriver(world.memory), [watched(points)])
    records = ManagedLedgerRecords(Metadata(world.metadata, points))
    recovered = recover_records(tier, records, Audit(), wanted=lambda topic: topic == parse_topic(OTHER))
    return [each.outcome for each in recovered]


def check_consistent(world):
    """What the record of the lost topic names is there, whole; no claim is left."""
    known = world.records.read(LOST)
    if known is None:
        return None
    assert not is_claim(known.info)
    assert known.info.ledgers
    for ledger in known.info.ledgers:
        name = f"{ledger.context.uuid}-ledger-{ledger.ledger_id}"
        assert {name, f"{name}-index"} <= world.keys, ledger
    return known.info


@pytest.mark.sampled(4)
@pytest.mark.parametrize("after", [False, True])
def test_what_is_recovered_between_any_two_calls_of_a_collection_stays(after):
    recorded = []
    for world, _, found in each_turn(
        lost_topic, collect, lambda world: recover(world, Points()), after=after
    ):
        recorded.append(check_consistent(world) is not None)
        assert recorded[-1] == (RecoveryOutcome.NEW in found)
    assert sum(recorded) > 20  # up to the deletion of the indexes
    assert not all(recorded)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("after", [False, True])
def test_what_is_collected_between_any_two_calls_of_a_recovery_is_not_recorded(after):
    seen = set[RecoveryOutcome]()
    for world, found, _ in each_turn(
        lost_topic, recover, lambda world: collect(world, Points()), after=after
    ):
        assert (check_consistent(world) is not None) == (RecoveryOutcome.NEW in found)
        seen.update(found)
    assert RecoveryOutcome.GONE in seen
    assert (RecoveryOutcome.NEW in seen) == after  # the last call writes the record


def switched_to_the_other(world):
    """As a repair does whose copy is damaged: the other copy is read at once, and the damaged one is put aside."""
    (ledger,) = world.records.read(MANAGED_LEDGER).info.ledgers
    driver = place_of(ledger.context.driver)
    steps = Replacement(
        registry=RecordRegistry(world.records, clock()),
        name=MANAGED_LEDGER,
        copy=new_copy(uuid_of(5), LEDGER, driver=driver, since_ms=clock()()),
        old=uuid_of(0),
        tier=world.tier,
        audit=Audit(),
        why="its copy is damaged",
    )
    try:
        steps.switch_at_once()
    except AttemptError:
        return False
    for key in (f"{uuid_of(0)}-ledger-{LEDGER}", f"{uuid_of(0)}-ledger-{LEDGER}-index"):
        world.tier.delete([key])
    return True


@pytest.mark.sampled(4)
@pytest.mark.parametrize("after", [False, True])
def test_a_copy_that_a_repair_goes_over_to_between_any_two_calls_stays(after):
    seen = set[bool]()
    for world, _, switched in each_turn(
        lambda: CollectedTier.of(superseded()[0]), collect, switched_to_the_other, after=after
    ):
        (ledger,) = world.records.read(MANAGED_LEDGER).info.ledgers
        assert ledger.context.uuid == (uuid_of(5) if switched else uuid_of(0))
        name = f"{ledger.context.uuid}-ledger-{LEDGER}"
        assert {name, f"{name}-index"} <= world.keys
        seen.add(switched)
    assert seen == {False, True}


def test_two_collections_at_once_leave_nothing_and_no_claim():
    for world, _, _ in each_turn(lost_topic, collect, lambda world: collect(world, Points())):
        assert len(world.keys) == 2
        assert world.records.read(LOST) is None


def test_a_claim_that_was_left_is_in_nobodys_way():
    world = lost_topic()
    world.records.write(LOST, placeholder(1), None)
    assert {each.garbage.kind for each in world.report(is_shared=False)} == {GarbageKind.DELETED_TOPIC}
    assert recover(world, Points()) == [RecoveryOutcome.NEW]
    check_consistent(world)
    world = lost_topic()
    for _ in range(2):  # the second claim is of a process that was killed when all was deleted
        world.records.write(LOST, placeholder(1), None)
        collect(world, Points())
        assert (len(world.keys), world.records.read(LOST)) == (2, None)


def test_claims_of_two_names_of_a_topic_are_in_nobodys_way():
    """A collection claims the name that objects say, and the one that Pulsar encodes; it was killed there."""
    spelt_otherwise = LOST.replace("others", "%6Fthers")
    for has_record in (None, LOST, spelt_otherwise):
        world = lost_topic()
        for name in (LOST, spelt_otherwise):
            info = ManagedLedgerInfo(terminated_at=EntryPosition(-1, -1))
            world.records.write(name, info if name == has_record else placeholder(1), None)
        for _ in range(2):
            collect(world, Points())
        left = [
            name
            for name in (LOST, spelt_otherwise)
            if (known := world.records.read(name)) and known.info.terminated_at
        ]
        assert left == ([] if has_record is None else [has_record])
        assert has_record is not None or world.records.names() == [MANAGED_LEDGER]
        found = StoreRecords(world.metadata)
        assert [found.name(topic) for topic in found.topics() if topic == parse_topic(OTHER)] == left
        assert found.why_incomplete is None


def test_a_claim_is_of_the_record_that_objects_were_judged_by():
    world = lost_topic()
    known = world.records.read(MANAGED_LEDGER)
    with claimed(world.records, MANAGED_LEDGER, known.info, 1) as is_as_judged:
        assert is_as_judged
    written = world.records.read(MANAGED_LEDGER)
    assert written.info == known.info
    assert written.version != known.version  # who read it before finds that it was written
    with claimed(world.records, MANAGED_LEDGER, None, 1) as is_as_judged:
        assert not is_as_judged
    with claimed(world.records, LOST, None, 1) as is_as_judged:
        assert is_as_judged
        world.records.write(LOST, known.info, world.records.read(LOST))
    assert world.records.read(LOST).info == known.info


# --- Every call of a collection fails, answers unknown, or ends the process; the next collection ends what it began.


def littered():
    """A needed copy, one that it took the place of, half of one, checksums alone, two attempts, and an upload."""
    scene = Scene(records={})
    kept = pip17()
    scene.objects, scene.written = kept.objects, kept.written
    scene.add(one_ledger(), 5)
    scene.add(one_ledger(), 6)
    del scene.objects[scene.index_key(2)]
    for number, ledger_id in ((7, LEDGER + 1), (8, LEDGER + 2)):
        scene.add(of_ledger(ledger_id), number)
    scene.add(one_ledger(), 9)
    scene.put(f"{scene.key(5)}-checksums", b"checksums")
    scene.objects[f"{scene.key(5)}-checksums"].metadata.update(scene.objects[scene.key(5)].metadata)
    del scene.objects[scene.key(5)], scene.objects[scene.index_key(5)]
    left = copied(uuid_of(7), complete=False)
    given_up = replace(left, uuid=uuid_of(8), driver=left.driver.with_property("status", "failed"))
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


def collect_recorded(world, points):
    world.age()  # an index that was put back is young
    tier = Tier(MemoryDriver(world.memory), [watched(points)])
    records = partial(nullcontext, StoreRecords(Metadata(world.metadata, points)))
    list(world.collection(tier=tier, records=records).collect(PointedAudit(world.log, points), at_once=1))


def check_recorded(world, where):
    """What went is in the log, and what is needed did not go."""
    deleted = {each.uuid for each in world.log.changes if isinstance(each, Deletion)}
    for number in (5, 6, 7, 8, 9):
        keys = {key for key in world.keys if key.startswith(str(uuid_of(number)))}
        whole = 1 if number in (6, 9) else 2
        assert len(keys) == whole or uuid_of(number) in deleted, where  # recorded before it is made
    assert world.keys >= NEEDED, where


def check_collected(world, where):
    assert world.keys == NEEDED, where
    assert not world.memory.uploads
    assert world.summary.left == 0
    first, *others = world.records.read(MANAGED_LEDGER).info.ledgers
    assert first.has_complete_copy
    assert all(not each.has_complete_copy for each in others)


def test_after_a_crash_at_any_call_the_next_collection_goes_on(crash_matrix):
    calls = crash_matrix(
        lambda _: littered(), collect_recorded, check=check_recorded, check_done=check_collected, every=122
    )
    assert len(calls) > 20
