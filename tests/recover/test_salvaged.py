"""Records of segments that were saved from damaged ones: each stands for the entries that it had, lost ones too."""

from __future__ import annotations

import pytest
from damage.scenes import FOLLOWING, PAYLOADS, streaming
from scenes.repairs import repaired

from offload_core.maintenance.recover import Unknown, recover_records


@pytest.mark.parametrize(
    ("segment", "ledger_id", "entry_id"),
    [(0, 7, 6), (0, 7, 8), (1, 7, 9), (1, 7, 12), (1, 7, 15), (1, 8, 1), (1, 8, 3), (1, 8, 4)],
)
def test_a_segment_that_lacks_entries_stands_for_them(segment: int, ledger_id: int, entry_id: int) -> None:
    scene = streaming(records=False)
    scene.flip(scene.key(segment), scene.frame(entry_id, segment, ledger_id) + 60)
    tier = scene.tier()
    repaired(scene, tier, quarantine=True)
    (topic,) = recover_records(tier, None, None)
    info = topic.rebuilt.info
    assert info is not None
    assert [(each.ledger_id, each.info.entries) for each in info.ledgers] == [
        (7, len(PAYLOADS)),
        (8, len(FOLLOWING)),
    ]
    assert all(each.is_fully_offloaded for each in info.ledgers)
    (fact,) = topic.rebuilt.unknown
    assert (fact.what, fact.ledger_id, fact.detail) == (
        Unknown.LOST_ENTRIES,
        ledger_id,
        f"1 entries: {ledger_id}:{entry_id}",
    )
