"""A ledger whose cold copy is damaged or gone goes to a new copy from its hot one, and its record names that."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
from crash_points import Metadata, PointedAudit, PointedLedgers
from managed_ledgers import NAME, Audit
from records import new_copy
from scenes.filters import PlainFilter
from scenes.moves import BLOCK_BYTES, MovedTopic, watched

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.repair import Action, HotCopies, Repair
from offload_core.maintenance.repair.offloading_again import find_hot
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import begin_replacement, other_copies, read_copies
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger import Environment, HotLedgers
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload.running_attempt import lease_from, working_on
from offload_core.writing.offload_filters import ChosenFilter
from offload_hooks.errors import DataLossError, LiveAttemptError
from offload_hooks.ledger_stores import EntryBatch

# --- A topic in the hot tier whose cold copies get damaged, and repairs that may offload them again


def ledger_of(world, ledger_id):
    """A ledger's record."""
    return world.info.ledger(ledger_id)


def key_of(world, ledger_id):
    """The copy that a ledger's record names."""
    uuid = ledger_of(world, ledger_id).context.uuid
    return ObjectKey(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False)


def path_of(world, key):
    """An object's file."""
    return world.folder / "source" / key


def damage(world, key):
    """A byte of a message is another."""
    file = path_of(world, key.data_key)
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)


def remove(world, key):
    """The copy is gone."""
    world.source.delete([key.index_key, key.data_key])


def offloader_of(tier, _):
    """With small blocks."""
    return LedgerOffloader(tier, max_block_bytes=BLOCK_BYTES)


def hot_copies(world, points=None, **given):
    """The hot tier; its calls may be points."""
    store = world.hot if points is None else PointedLedgers(world.hot, points)
    environment = Environment(records=world.records, hot=HotLedgers(store))
    return HotCopies(environment=environment, **{"offloader_of": offloader_of, **given})


def repair_of(world, points=None, **given):
    """A repair that offloads again; calls of all stores may be points."""
    ours, tier = world.records, world.source
    if points is not None:
        ours = ManagedLedgerRecords(Metadata(world.records.store, points))
        tier = watched(world, "source", points)

    fields = {
        "records": partial(nullcontext, StoreRecords(ours.store)),
        "ours": ours,
        "hot": hot_copies(world, points),
        "offload_again": True,
        "now_ms": world.clock,
    }
    return Repair(tier, **fields | given)


def repaired(world, points=None, **given):
    """All is done that there is to do."""
    work, lines = repair_of(world, points, **given), Audit()
    audit = lines if points is None else PointedAudit(lines, points)
    planned = list(work.plan())
    for each in planned:
        if each.changes:
            work.do(each, audit)
    return planned, lines


def findings(world):
    """What a verification says of the tier and the records."""

    records = partial(nullcontext, StoreRecords(world.records.store))
    return list(Verification(world.source, deep=True, records=records, now_ms=world.clock))


def cut_index(world, key):
    """What is left of a pair whose index is garbage, and whose data is too."""
    damage(world, key)
    path_of(world, key.index_key).write_bytes(b"nothing of an index")


def remove_data(world, key):
    """Only the index is left."""
    world.source.delete([key.data_key])


HARM: dict[str, Callable[[MovedTopic, ObjectKey], None]] = {
    "damaged": damage,
    "gone": remove,
    "data-gone": remove_data,
    "both-damaged": cut_index,
}


@pytest.fixture
def world(tmp_path):
    """Two ledgers that are offloaded, and hot as well."""
    world = MovedTopic.make(tmp_path)
    for count in (30, 20):
        world.offload(world.add_ledger(count))
    return world


def first(world):
    return world.info.in_order[0].ledger_id


@pytest.mark.parametrize("harm", HARM)
def test_a_copy_is_made_anew_from_the_hot_one(world, harm):
    ledger_id = first(world)
    old = key_of(world, ledger_id)
    HARM[harm](world, old)
    (planned,), lines = repaired(world)
    assert planned.choice.action is Action.OFFLOAD_AGAIN
    new = key_of(world, ledger_id)
    assert new != old
    assert world.read_all(tiers=[world.source]) == world.entries
    assert [each.uuid for each in other_copies(world.info)] == [old.uuid]  # it is remembered, to be collected
    assert findings(world) == [] or harm != "gone"
    assert [line.action.value for line in lines.changes] == ["record", "write", "record"]
    again, no_lines = repaired(world)
    assert [each for each in again if each.changes] == []
    assert no_lines.changes == []


def test_a_key_of_a_copy_that_is_gone_is_one_that_its_record_names(world):
    old = key_of(world, first(world))
    remove(world, old)
    (planned,), _ = repaired(world, keys=[old])
    assert planned.choice.action is Action.OFFLOAD_AGAIN
    assert world.read_all(tiers=[world.source]) == world.entries


def change_context(world, ledger_id, **changes):
    """The record of a ledger says otherwise of its copy."""
    record = ledger_of(world, ledger_id)
    changed = replace(record, context=replace(record.context, **changes))
    world.records.update(NAME, lambda info: info.with_ledger(changed))


@pytest.mark.parametrize("harm", [damage, remove])
@pytest.mark.parametrize("offload_again", [True, False])
@pytest.mark.parametrize("by_key", [True, False])
def test_what_a_record_names_in_another_tier_is_not_replaced(world, harm, *, offload_again, by_key):
    """Whatever lies here under its key: there it may be sound. As after a copy of the bucket that keeps its keys."""
    old = key_of(world, first(world))
    change_context(world, first(world), driver=tier_record(world.target))
    harm(world, old)
    before = world.info
    planned, _ = repaired(world, offload_again=offload_again, keys=[old] if by_key else ())
    assert [each.is_switched for each in planned] == [False]
    assert world.info == before


def test_the_old_copy_is_put_aside_where_that_is_asked_for(world):
    old = key_of(world, first(world))
    damage(world, old)
    repaired(world, quarantine=True)
    assert f"quarantine/{old.data_key}.quarantined" in world.keys(world.source)
    assert old.data_key not in world.keys(world.source)
    assert other_copies(world.info) == ()
    assert findings(world) == []


def test_without_being_asked_the_hot_copy_is_kept_and_a_copy_with_losses_is_not_named(world):
    ledger_id = first(world)
    old = key_of(world, ledger_id)
    damage(world, old)
    before = world.keys(world.source)
    (planned,), lines = repaired(world, offload_again=False)
    assert (planned.choice.action, planned.is_switched, planned.is_marked) == (Action.KEEP_HOT, False, True)
    assert [line.action.value for line in lines.changes] == ["record"]
    assert (key_of(world, ledger_id), world.keys(world.source)) == (old, before)
    assert not delete_hot(world, ledger_id)
    assert ledger_id in world.hot.ledger_ids()
    (again,) = repair_of(world, offload_again=False).plan()
    assert (again.choice.action, again.changes) == (Action.KEEP_HOT, False)
    assert {each.code for each in findings(world)} == {Code.MESSAGE_CHECKSUM, Code.BROKEN_COPY}


def delete_hot(world, ledger_id, **given):
    """As the service does when the lag is over."""
    offloads = RecordedOffloads(world.records, world.hot, KnownTiers(world.source), now_ms=world.clock)
    return offloads.delete_hot_copy(NAME, ledger_id, 0, **given)


def test_a_hot_copy_that_was_kept_goes_once_its_ledger_was_offloaded_again(world):
    ledger_id = first(world)
    damage(world, key_of(world, ledger_id))
    repaired(world, offload_again=False)
    repaired(world, quarantine=True)
    assert delete_hot(world, ledger_id)
    assert world.read_all(tiers=[world.source]) == world.entries
    assert findings(world) == []


def test_a_copy_with_losses_is_named_only_if_that_is_accepted_and_the_hot_copy_stays_all_the_same(world):
    ledger_id = first(world)
    old = key_of(world, ledger_id)
    damage(world, old)
    (planned,), _ = repaired(world, offload_again=False, accept_loss=True)
    assert (planned.choice.action, planned.is_switched) == (Action.SALVAGE, True)
    assert key_of(world, ledger_id) != old
    with pytest.raises(DataLossError, match="lacks entries"):
        delete_hot(world, ledger_id)
    assert ledger_id in world.hot.ledger_ids()
    repaired(world)  # what was lost comes back from the hot copy
    assert delete_hot(world, ledger_id)
    assert world.read_all(tiers=[world.source]) == world.entries


def test_a_copy_of_which_nothing_can_be_saved_keeps_its_hot_copy(world):
    """Its objects are as long as they must be, so that only a repair has seen what is in them."""
    ledger_id = first(world)
    file = path_of(world, key_of(world, ledger_id).data_key)
    file.write_bytes(bytes(file.stat().st_size))
    (planned,), _ = repaired(world, offload_again=False)
    assert (planned.choice.action, planned.is_marked) == (Action.KEEP_HOT, True)
    assert not delete_hot(world, ledger_id)


def hot_is_not_there(world, ledger_id):
    """The hot tier lacks it, whatever the record says."""
    world.hot.delete(ledger_id)


def counts_otherwise(world, ledger_id):
    """The record counts more entries than the hot copy has."""
    record = ledger_of(world, ledger_id)
    changed = replace(record, info=replace(record.info, entries=31))
    world.records.update(NAME, lambda info: info.with_ledger(changed))


def hot_is_gone(world, ledger_id):
    """By the record there is no hot copy."""
    change_context(world, ledger_id, bookkeeper_deleted=True)


@pytest.mark.parametrize("why", [hot_is_not_there, counts_otherwise, hot_is_gone])
def test_a_hot_copy_that_is_not_what_the_record_says_is_not_taken(world, why):
    ledger_id = first(world)
    damage(world, key_of(world, ledger_id))
    why(world, ledger_id)
    key = key_of(world, ledger_id).data_key
    actions = {each.choice.action for each in repair_of(world).plan() if each.key == key}
    assert (Action.KEEP_HOT if why is counts_otherwise else Action.SALVAGE) in actions
    assert Action.OFFLOAD_AGAIN not in actions


def test_a_hot_ledger_says_whose_it_is(world):
    ledger_id = first(world)
    found = find_hot(world.hot, NAME, ledger_id)
    assert found.entry_count == 30
    assert find_hot(world.hot, f"{NAME}-others", ledger_id) is None
    assert find_hot(world.hot, NAME, 4711) is None


class Spoiled(LedgerOffloader):
    """Writes something else than it was given."""

    def offload(self, ledger, uuid, extra, **given):
        return super().offload(_Other(ledger), uuid, extra, **given)


class _Other:
    """A reader whose first entry has another byte."""

    def __init__(self, reader):
        self._reader = reader

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def read(self, *given):
        batch = self._reader.read(*given)
        payloads = [bytes(each) for each in batch]
        if batch.first_entry_id == 0:
            payloads[0] = payloads[7]  # of the same length
        return EntryBatch.of(batch.first_entry_id, payloads)


def test_a_new_copy_that_has_other_entries_is_not_named_and_is_deleted(world):
    ledger_id = first(world)
    old = key_of(world, ledger_id)
    damage(world, old)
    before = world.keys(world.source)
    hot = hot_copies(world, offloader_of=lambda tier, _: Spoiled(tier, max_block_bytes=700))
    work, lines = repair_of(world, hot=hot), Audit()
    (planned,) = work.plan()
    with pytest.raises(DataLossError, match="not that of the hot one"):
        work.do(planned, lines)
    assert key_of(world, ledger_id) == old
    assert world.keys(world.source) == before
    assert other_copies(world.info) == ()
    said = ["delete" if isinstance(line, Deletion) else line.action.value for line in lines.changes]
    assert said == ["record", "write", "record", "delete", "record"]


def test_what_a_filter_left_out_stays_away(tmp_path):
    world = MovedTopic.make(tmp_path)
    ledger_id = world.add_ledger(24)
    world.offload(ledger_id, drops=lambda payload: int(payload[-1] % 4 == 0))
    damage(world, key_of(world, ledger_id))
    hot = hot_copies(world)
    drops = PlainFilter(lambda payload: int(payload[-1] % 4 == 0))
    chosen = ChosenFilter(name="by-test", mode=FilterMode.GAP, filter=drops)
    environment = replace(hot.environment, filter_of=lambda _: chosen)
    repaired(world, hot=replace(hot, environment=environment))
    assert world.read_all(tiers=[world.source]) == world.entries
    (left,) = repair_of(world).plan()  # the old one is no more than remembered
    assert (left.choice.action, left.changes) == (Action.OTHER_COPY, False)
    repaired(world, quarantine=True)
    assert findings(world) == []


def test_segments_are_left_to_the_commands_that_are_named(tmp_path):
    world = MovedTopic.make(tmp_path)
    ledger_id = world.add_ledger(12)
    world.stream((ledger_id, 11))
    (share,) = ledger_of(world, ledger_id).context.segments
    damage(world, ObjectKey(folder="", uuid=share.uuid, ledger_id=None, is_index=False))
    (planned,) = repair_of(world).plan()
    assert planned.choice.action is Action.KEEP_HOT


def begin(world, ledger_id, uuid):
    """Write down that another cold copy is being made."""
    change = partial(
        begin_replacement,
        copy=new_copy(uuid, ledger_id, driver=tier_record(world.source), since_ms=world.clock()),
        lease=lease_from(world.clock(), 60),
    )
    world.records.update(NAME, change)


def test_somebody_elses_attempt_is_left_alone_and_a_dead_one_is_cleaned(world):
    ledger_id, uuid = first(world), uuid4()
    damage(world, key_of(world, ledger_id))
    begin(world, ledger_id, uuid)
    left = f"{uuid}-ledger-{ledger_id}"
    world.source.write_index(left, b"half of a copy")
    work, lines = repair_of(world), Audit()
    planned = [each for each in work.plan() if each.changes]
    before, state = world.info, world.keys(world.source)
    with working_on(uuid), pytest.raises(LiveAttemptError):
        work.do(planned[0], lines)
    assert (world.info, world.keys(world.source), lines.changes) == (before, state, [])
    work.do(planned[0], lines)
    assert left not in world.keys(world.source)
    assert uuid not in {each.uuid for each in other_copies(world.info)}
    assert world.read_all(tiers=[world.source]) == world.entries


def test_the_hot_copy_stays_while_the_ledger_is_offloaded_again(world):
    """The cold one, which a look finds to be there, is damaged: the hot one is the last that is right."""
    ledger_id = first(world)
    damage(world, key_of(world, ledger_id))
    asked: list[tuple[Tier, str, bool]] = []

    def asking(tier, name):
        asked.append((tier, name, delete_hot(world, ledger_id)))
        return offloader_of(tier, name)

    repaired(world, hot=hot_copies(world, offloader_of=asking))
    assert asked == [(world.source, NAME, False)], "it is made as the topic's policies say"
    assert world.read_all(tiers=[world.source]) == world.entries
    assert delete_hot(world, ledger_id)


def test_the_hot_copy_stays_if_another_cold_one_is_begun_after_the_look(world):
    ledger_id, uuid = first(world), uuid4()

    class Begins:
        def record(self, _):
            begin(world, ledger_id, uuid)

    with working_on(uuid):
        assert not delete_hot(world, ledger_id, audit=Begins())
        assert ledger_id in world.hot.ledger_ids()
    assert delete_hot(world, ledger_id)


def test_every_call_may_be_the_last(crash_matrix):
    old = {}

    def scene(folder):
        world = MovedTopic.make(folder)
        world.offload(world.add_ledger(9))
        old[folder] = key_of(world, first(world))
        damage(world, old[folder])
        return world

    def run(world, points):
        world.clock.pass_s(700)  # an attempt before is over
        repaired(world, points, quarantine=True)

    def check(world, where):
        if key_of(world, first(world)) == old[world.folder]:
            assert world.hot.open(first(world)).status().entry_count == 9, where
        else:
            assert world.read_all(tiers=[world.source]) == world.entries, where

    def check_done(world, where):
        assert world.read_all(tiers=[world.source]) == world.entries, where
        named = {str(uuid) for uuid in read_copies(world.info)}
        known = named | {str(each.uuid) for each in other_copies(world.info)}
        there = {key[:36] for key in world.keys(world.source) if not key.startswith("quarantine/")}
        assert named <= there <= known, where
        assert Code.LOST_ENTRIES not in {each.code for each in findings(world)}

    assert len(crash_matrix(scene, run, check=check, check_done=check_done, every=134)) > 25


@pytest.mark.parametrize("again", [True, False])
def test_messages_that_are_not_right_are_compared_with_the_hot_copy(tmp_path, again):
    """Without its magic number a checksum is none, and nothing else tells that the bytes are not those written."""
    world = MovedTopic.make(tmp_path)
    ledger_id = world.add_ledger(20)
    world.offload(ledger_id)
    file = path_of(world, key_of(world, ledger_id).data_key)
    data = bytearray(file.read_bytes())
    data[data.index(b"\x0e\x01", 200)] ^= 1
    file.write_bytes(data)
    (planned,), _ = repaired(world, offload_again=again)
    assert planned.choice.action is (Action.OFFLOAD_AGAIN if again else Action.KEEP_HOT)
    assert delete_hot(world, ledger_id) is again
    if again:
        assert world.read_all(tiers=[world.source]) == world.entries
