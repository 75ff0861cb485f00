"""Hot copies are deleted while their segments are: between any two calls of either, one whole copy stays."""

import itertools
from contextlib import suppress

import pytest
from crash_points import Metadata, Points, each_turn, watched
from managed_ledgers import NAME, Audit
from scenes.moves import MovedTopic

from offload_core.maintenance.rollback import Allowed, delete_judged, judge_tier
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_drivers.local import LocalDriver
from offload_hooks.errors import OffloadError


def delete_hot_copy(world, points):
    tier = Tier(LocalDriver(world.folder / "source"), [watched(points)])
    records = ManagedLedgerRecords(Metadata(world.records.store, points))
    offloads = RecordedOffloads(records, world.hot, KnownTiers(tier), now_ms=world.clock)
    with suppress(OffloadError):
        offloads.delete_hot_copy(NAME, 0, 0)


def delete_segments(world, points):
    """As `rollback delete` without `--release`: also segments that records name, of ledgers that have hot copies."""
    tier = Tier(LocalDriver(world.folder / "source"), [watched(points)])
    records = StoreRecords(Metadata(world.records.store, points))
    judged = judge_tier(tier, lambda: records.read([topic_of_managed_ledger(NAME)]))
    delete_judged(tier, judged, Audit(), allowed=Allowed(), read_again=records.read, at_once=1)


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", ["segments", "hot copy"])
@pytest.mark.parametrize("after", [False, True])
def test_between_any_two_calls_a_hot_copy_and_its_segment_are_not_both_deleted(tmp_path, first, after):
    seen, numbers = [], itertools.count()

    def make():
        world = MovedTopic.make(tmp_path / str(next(numbers)))
        world.stream((world.add_ledger(5), 4))
        return world

    delete, delete_other = delete_segments, delete_hot_copy
    if first == "hot copy":
        delete, delete_other = delete_other, delete
    for world, *_ in each_turn(make, delete, lambda world: delete_other(world, Points()), after=after):
        is_hot = (world.folder / "hot" / "0.ledger").exists()
        is_cold = len(list(world.source.list_objects())) == 2
        assert is_hot or is_cold, f"call {len(seen) + 1}"
        assert is_hot == (not world.info.ledgers[0].context.bookkeeper_deleted)
        seen.append((is_hot, is_cold))
    assert len(seen) >= 5
    assert (True, False) in seen or (False, True) in seen
