"""What lies elsewhere by design is said and stays: copies that wait for a relocation's end, the quarantine, notes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from damage import DAMAGES
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, pip17
from records import copied, managed_ledger
from scenes.garbage import CollectedTier, clock
from scenes.moves import MovedTopic
from scenes.repairs import repaired
from tiers import uuid_of

from offload_core.interfaces.cli.gc import summary_lines
from offload_core.maintenance.gc import Collection, Scope
from offload_core.metadata.catalogue import Records, open_records

WAITS = "the copy that took its place lies in another tier: relocate --delete-source deletes this one"


def test_copies_that_a_relocation_left_behind_are_said_with_their_bytes(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/records.db"
    moved = MovedTopic.make(tmp_path, url)
    for count in (12, 9):
        moved.offload(moved.add_ledger(count))
    sizes = sum(each.size_bytes for each in moved.source.list_objects())
    assert len(moved.move_all()) == 2
    before = moved.keys(moved.source)

    def records() -> AbstractContextManager[Records]:
        return open_records(url, moved.source, {}, {})

    later = int((time.time() + 40 * 86_400) * 1000)
    collection = Collection(moved.source, records, Scope(now_ms=lambda: later))
    assert list(collection.collect(moved.audit)) == []
    summary = collection.summary
    assert (summary.kept[WAITS], summary.kept_bytes[WAITS]) == (2, sizes)
    (line,) = [line for line in summary_lines(summary, is_dry=True) if WAITS in line]
    assert line.startswith(f"  kept: 2, {sizes / 1000:.1f} kB")
    assert moved.keys(moved.source) == before


@pytest.mark.parametrize("prefix", ["", "quarantine/"])
@pytest.mark.parametrize("scope", [{}, {"is_shared": False}, {"is_shared": False, "takes_stand_ins": True}])
def test_what_a_repair_put_aside_and_its_notes_are_never_garbage(scope: dict[str, bool], prefix: str) -> None:
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    world = CollectedTier.of(scene)
    repaired(scene, world.tier, quarantine=True)
    kept = closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(9)))
    world.put_record("acme/cold/persistent/others", managed_ledger(kept))  # the topic itself was deleted
    aside = {key for key in world.keys if key.startswith("quarantine/")}
    assert any(key.endswith(".quarantined") for key in aside)
    assert len(aside) > 2
    world.collect(now_ms=clock(), prefix=prefix, **scope)
    assert aside <= world.keys
    assert not any(key in str(each) for key in aside for each in world.log.changes)
