"""Checksums beside objects follow what is made of these: an index that is made anew, and objects that are put aside."""

from __future__ import annotations

import pytest
from damage import DAMAGES
from damage.scenes import Scene, mapfiles, pip17, streaming
from damage.sealed import checksums_key, sealed
from scenes.repairs import contents_of, findings_of, repaired

from offload_core.maintenance.verify import Code


@pytest.mark.parametrize(
    "scene", [pip17(records=False), streaming(records=False), mapfiles(checksums=False, records=False)]
)
def test_an_index_made_anew_is_the_one_that_the_checksums_know(scene: Scene) -> None:
    tier = sealed(scene).tier()
    tier.delete([scene.index_key()])
    repaired(scene, tier)
    assert findings_of(scene, tier) == []
    assert checksums_key(scene.written[0].key) in contents_of(tier)


def test_the_checksums_of_blocks_stay_as_they_were() -> None:
    scene = pip17(records=False)
    key = checksums_key(sealed(scene).written[0].key)
    tier = scene.tier()
    tier.delete([scene.index_key()])
    before = contents_of(tier)[key]
    repaired(scene, tier)
    after = contents_of(tier)[key]
    assert (len(after), after[36:-4]) == (len(before), before[36:-4])


def test_checksums_go_with_an_object_that_is_put_aside() -> None:
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    sealed_scene = sealed(pip17(records=False))
    key = checksums_key(scene.written[0].key)
    scene.objects[key] = sealed_scene.objects[key]
    tier = scene.tier()
    before = contents_of(tier)
    repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert key not in after
    assert after[f"quarantine/{key}.quarantined"] == before[key]
    assert {each.code for each in findings_of(scene, tier)} == {Code.LOST_ENTRIES}
