"""A ledger that is whole in another copy is not salvaged: what would be newer, and lack entries, is not made."""

from __future__ import annotations

import pytest
from damage import DAMAGES
from damage.scenes import LEDGER, Scene, one_ledger, pip17
from entries import entry, pip17_object
from scenes.repairs import contents_of, context, findings_of, recorded, repaired

from offload_core.maintenance.repair import Action
from offload_core.maintenance.verify import Code
from offload_core.metadata.stores import ManagedLedgerRecords


def two_copies(*, records: bool = False) -> Scene:
    """A ledger whose newer copy, which its record names, is damaged, and an older one that is right."""
    scene = pip17(records=records)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(one_ledger(), 1, later=-5)
    return scene


def test_what_another_copy_has_is_not_salvaged() -> None:
    scene = two_copies()
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, lines = repaired(scene, tier)
    (one,) = [each for each in planned if each.key == scene.key()]
    assert one.choice.action is Action.OTHER_COPY
    assert one.other == scene.key(1)
    assert not one.changes
    assert (contents_of(tier), lines.lines) == (before, [])


def test_the_damaged_one_is_put_aside_for_the_other() -> None:
    scene = two_copies()
    tier = scene.tier()
    before = contents_of(tier)
    repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert after[f"quarantine/{scene.key()}.quarantined"] == before[scene.key()]
    assert after[scene.key(1)] == before[scene.key(1)]
    assert findings_of(scene, tier) == []
    assert repaired(scene, tier, quarantine=True)[0] == []


def test_what_a_record_names_stays_and_the_other_is_told() -> None:
    scene = two_copies(records=True)
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, _ = repaired(scene, tier, quarantine=True)
    one = next(each for each in planned if each.key == scene.key())
    assert (one.choice.action, one.other) == (Action.OTHER_COPY, scene.key(1))
    assert one.recorded is not None
    assert contents_of(tier) == before


def test_a_record_that_is_ours_goes_on_to_the_other() -> None:
    scene = two_copies(records=True)
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    repaired(scene, tier, ours=records)
    assert context(records).uuid == scene.written[1].key.uuid
    assert context(records).complete
    assert repaired(scene, tier, ours=records)[2].lines == []


def other(payloads: list[bytes]) -> Scene:
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=1000), 1, later=-5)
    return scene


PAYLOADS = [payload for _, _, payload in pip17().written[0].entries]


@pytest.mark.parametrize(
    "payloads",
    [PAYLOADS[:-1], [entry(b"of another ledger" * 9) for _ in PAYLOADS]],
    ids=["fewer-entries", "other-entries"],
)
def test_a_copy_that_lacks_something_is_not_gone_by(payloads: list[bytes]) -> None:
    scene = other(payloads)
    planned, _, _ = repaired(scene, scene.tier())
    assert next(each for each in planned if each.key == scene.key()).choice.action is Action.SALVAGE


@pytest.mark.parametrize("name", ["managedledgername", "pulsarclustername"])
def test_the_ledger_of_another_topic_or_cluster_is_none_of_it(name: str) -> None:
    scene = two_copies()
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata[name] = "acme/cold/persistent/other"
    planned, _, _ = repaired(scene, scene.tier())
    assert next(each for each in planned if each.key == scene.key()).choice.action is Action.SALVAGE


def test_a_damaged_copy_is_not_gone_by() -> None:
    scene = two_copies()
    scene.flip(scene.key(1), scene.frame(15) + 60)
    planned, _, _ = repaired(scene, scene.tier())
    chosen = next(each for each in planned if each.key == scene.key())
    assert chosen.choice.action is Action.SALVAGE
    assert {each.code for each in chosen.findings} >= {Code.BLOCK_BAD_MAGIC}


def test_a_damaged_copy_that_is_older_is_not_salvaged_either() -> None:
    scene = pip17(records=False)
    scene.flip(scene.index_key(), 0)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(one_ledger(), 1, later=5)
    planned, _, _ = repaired(scene, scene.tier())
    assert [each.choice.action for each in planned if each.key == scene.key()] == [Action.OTHER_COPY]
