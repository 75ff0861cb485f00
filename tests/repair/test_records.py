"""A record that is ours goes on to what was saved; one that is not is left, and what it must say is told."""

from contextlib import nullcontext
from functools import partial
from uuid import UUID

import pytest
from damage import DAMAGES, scenes
from damage.scenes import LEDGER, NOW_MS, TOPIC
from managed_ledgers import Audit
from records import new_copy
from scenes.repairs import contents_of, context, recorded, repair_of, repaired
from tiers import MANAGED_LEDGER

from offload_core.format.codec.object_format import parse_key
from offload_core.maintenance.repair import Action
from offload_core.maintenance.repair.pair_changes import pulsars_bits
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import (
    DriverMetadata,
    OtherCopy,
    OtherRole,
    abandon_replacement,
    begin_replacement,
    other_copies,
)
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.audit import ChangeAction
from offload_hooks.errors import AttemptError, LiveAttemptError, StoreUnavailableError


def damaged(name, scene):
    """A scene with records, damaged."""
    DAMAGES[name].do(scene)
    return scene


def findings(tier, store):
    records = partial(nullcontext, StoreRecords(store))
    return list(Verification(tier, deep=True, records=records, now_ms=lambda: NOW_MS))


def test_the_record_of_a_ledger_goes_on_to_what_was_saved():
    scene = damaged("a-block-is-zeros", scenes.pip17())
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    (planned,), _, lines = repaired(scene, tier, quarantine=True, ours=records, accept_loss=True)
    key = parse_key(planned.target or "")
    assert context(records).uuid == key.uuid
    assert context(records).complete
    actions = [line.action.value for line in lines.changes]
    assert actions == ["record", "write", "record", *["write", "write"], *["move", "move"], "record"]
    assert {each.code for each in findings(tier, store)} == {Code.LOST_ENTRIES}


def test_the_record_of_a_segment_goes_on_to_what_was_saved():
    scene = damaged("padding-of-a-segment-has-a-flipped-bit", scenes.streaming())
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    (planned,), _, _ = repaired(scene, tier, quarantine=True, ours=records)
    key = parse_key(planned.target or "")
    assert [share.uuid for share in context(records).segments] == [key.uuid, scene.written[1].key.uuid]
    assert findings(tier, store) == []


def test_what_a_record_of_others_names_stays_where_it_is():
    scene = damaged("a-block-is-zeros", scenes.pip17())
    tier = scene.tier()
    before = contents_of(tier)
    (planned,), _, lines = repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert {key: after[key] for key in before} == before
    assert set(after) - set(before) == {planned.target, f"{planned.target}-index"}
    assert (planned.recorded, planned.hot) == (TOPIC, (LEDGER,))
    assert [line.action.value for line in lines.changes] == ["write"]


def test_a_uuid_is_told_as_pulsars_records_have_it():
    assert pulsars_bits(UUID("ffffffff-ffff-ffff-8000-000000000001")) == (-1, -(1 << 63) + 1)
    assert pulsars_bits(UUID("00000000-0000-0001-0000-000000000002")) == (1, 2)


def ours_of(name):
    """A scene with a damaged copy, and its records where they can be written."""
    scene = damaged(name, scenes.pip17())
    return scene, ManagedLedgerRecords(recorded(scene))


def attempt_of(records):
    """The new copy that is recorded as under way."""
    (copy,) = other_copies(records.read(MANAGED_LEDGER).info)
    assert copy.role is OtherRole.REPLACEMENT
    return copy


def test_an_attempt_has_a_lease_while_it_is_written_and_another_repair_keeps_away():
    scene, records = ours_of("a-block-is-zeros")
    tier, seen = scene.tier(), []
    (planned,) = repair_of(scene, tier, ours=records, accept_loss=True).plan()

    class Watching(Audit):
        def record(self, change):
            super().record(change)
            if change.action is ChangeAction.WRITE and not seen:
                seen.append(lease_of(attempt_of(records).driver))
                with pytest.raises(LiveAttemptError):
                    repair_of(scene, tier, ours=records, accept_loss=True).do(planned, Audit())

    repair_of(scene, tier, ours=records, accept_loss=True).do(planned, Watching())
    assert seen[0] is not None
    assert str(context(records).uuid) in (planned.target or "")


def test_an_attempt_that_was_broken_off_is_gone_on_with():
    scene, records = ours_of("a-block-is-zeros")
    tier = scene.tier()
    (planned,) = repair_of(scene, tier, ours=records, accept_loss=True).plan()

    class Failing(Audit):
        def record(self, change):
            if change.action is ChangeAction.WRITE:
                raise StoreUnavailableError("the log is full")

    with pytest.raises(StoreUnavailableError):
        repair_of(scene, tier, ours=records, accept_loss=True).do(planned, Failing())
    key = parse_key(planned.target or "")
    assert attempt_of(records).uuid == key.uuid
    repair_of(scene, tier, ours=records, accept_loss=True).do(planned, Audit())
    assert context(records).uuid == key.uuid


def test_an_attempt_that_somebody_abandoned_is_not_taken_up():
    scene, records = ours_of("a-block-is-zeros")
    tier = scene.tier()
    (planned,) = repair_of(scene, tier, ours=records, accept_loss=True).plan()
    key = parse_key(planned.target or "")
    begin = partial(begin_replacement, copy=new_copy(key.uuid, LEDGER, driver=DriverMetadata(name="memory")))
    records.update(MANAGED_LEDGER, begin)
    records.update(MANAGED_LEDGER, partial(abandon_replacement, uuid=key.uuid))
    before = contents_of(tier)
    with pytest.raises(AttemptError, match="abandoned"):
        repair_of(scene, tier, ours=records, accept_loss=True).do(planned, Audit())
    assert contents_of(tier) == before


def test_another_copy_is_named_in_one_step_so_that_nobody_cleans_it_up():
    scene = damaged("a-block-is-zeros", scenes.pip17())
    other = scene.add(scenes.one_ledger(), 5)
    records = ManagedLedgerRecords(recorded(scene))
    seen: list[tuple[OtherCopy, ...]] = []

    class Watched(ManagedLedgerRecords):
        def write(self, name, info, expected):
            seen.append(tuple(each for each in other_copies(info) if each.role is OtherRole.REPLACEMENT))
            return super().write(name, info, expected)

    planned, _, lines = repaired(scene, scene.tier(), ours=Watched(records.store))
    assert Action.OTHER_COPY in {each.choice.action for each in planned}
    assert context(records).uuid == other.uuid
    assert seen == [()]
    assert [line.action.value for line in lines.changes] == ["record"]
