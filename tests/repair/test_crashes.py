"""Wherever a repair ends, what was readable is; the next one goes on, to the same end."""

from dataclasses import dataclass

import pytest
from crash_points import Metadata, PointedAudit, Points, Watch
from damage import DAMAGES, Scene
from damage.scenes import in_memory_tier, pip17, streaming
from managed_ledgers import Audit
from scenes.repairs import contents_of, recorded, repair_of
from tiers import MANAGED_LEDGER

from offload_core.maintenance.repair import QUARANTINE
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore, MemoryTier
from offload_hooks.values import Capabilities


@dataclass(slots=True)
class DamagedTier:
    """A scene in a tier, with a metadata store if its records are ours."""

    scene: Scene
    memory: MemoryTier
    store: MemoryMetadataStore | None

    @classmethod
    def of(cls, name, *, ours):
        scene, _ = DAMAGES[name].make() if not ours else (recorded_damage(name), None)
        return cls(scene, in_memory_tier(scene.objects), recorded(scene) if ours else None)

    def tier(self, points=None):
        """The tier, its calls counted."""
        layers = [] if points is None else [Layer(name="points", make=lambda _: Watch(points))]
        return Tier(MemoryDriver(self.memory, Capabilities()), layers)

    def run(self, points):
        """All is done that there is to do."""
        ours = None if self.store is None else ManagedLedgerRecords(Metadata(self.store, points))
        work = repair_of(self.scene, self.tier(points), quarantine=True, ours=ours)
        audit = PointedAudit(Audit(), points)
        for each in list(work.plan()):
            if each.changes:
                work.do(each, audit)

    def state(self):
        """All objects but notes, which have a time, and which copies the records name."""
        objects = {k: v for k, v in contents_of(self.tier()).items() if not k.endswith(".json")}
        if self.store is None:
            return objects, None
        found = ManagedLedgerRecords(self.store).read(MANAGED_LEDGER)
        contexts = [ledger.context for ledger in found.info.ledgers if ledger.context is not None]
        return objects, [(each.uuid, each.complete, [s.uuid for s in each.segments]) for each in contexts]


def recorded_damage(name):
    """The same damage to a scene with records."""
    scene = streaming() if "segment" in name else pip17()
    DAMAGES[name].do(scene)
    return scene


def nothing_is_lost(before, after):
    """Each data object's bytes are there, under its key or put aside; of an index that is replaced as well."""
    return all(
        after.get(key) == data or after.get(f"{QUARANTINE}{key}.quarantined") == data
        for key, data in before.items()
    )


CASES = [
    ("index-is-cut-off", False),
    ("a-block-is-zeros", False),
    ("mapfile-index-has-a-flipped-bit", False),
    ("mapfile-is-cut-off", False),
    ("a-block-is-zeros", True),
    ("padding-of-a-segment-has-a-flipped-bit", True),
]


@pytest.mark.parametrize(("name", "ours"), CASES)
def test_every_call_may_be_the_last(name, ours, crash_matrix):
    clean = DamagedTier.of(name, ours=ours)
    before = clean.state()[0]
    clean.run(Points())
    end, end_records = clean.state()

    def check(world, where):
        assert nothing_is_lost(before, world.state()[0]), where

    def check_done(world, where):
        world.run(Points())
        objects, records = world.state()
        assert records == end_records, where
        if ours:  # what was replaced by then is known to the record, and collected as garbage
            objects |= {key: data for key, data in end.items() if key.startswith(QUARANTINE)}
            objects = {key: data for key, data in objects.items() if key in end or key not in before}
        assert objects == end, (where, objects.keys() ^ end.keys())

    crash_matrix(
        lambda _: DamagedTier.of(name, ours=ours),
        DamagedTier.run,
        check=check,
        check_done=check_done,
        every=118,
    )
