"""Copies go to each store, and back in another format."""

from __future__ import annotations

import pytest
from scenes.moves import MovedTopic

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import throttled

pytestmark = pytest.mark.sampled(6)


def test_copies_go_there_and_come_back_in_another_format(store, tmp_path):
    world = MovedTopic.make(tmp_path)
    ledgers = [world.add_ledger(count) for count in (30, 20)]
    world.offload(ledgers[0], drops=lambda payload: int(payload[-1] % 3 == 0))
    world.stream((ledgers[1], 7), (ledgers[1], 19))
    with store.open() as tier, throttled(tier, 1 << 30) as limited:
        here = world.source
        world.target = limited
        assert len(world.move_all()) == 3
        assert world.read_all(tiers=[tier]) == world.entries
        world.source, world.target = limited, here
        assert len(world.move_all(world.wanted(ObjectFormat.PIP17))) == 2
        assert world.read_all(tiers=[here]) == world.entries
