"""A broker whose offloaded ledgers have lost their indexes serves them again once these are made anew."""

from __future__ import annotations

from in_their_place import keys_of
from live.sent import TOPICS
from managed_ledgers import Audit

from offload_core.maintenance.repair import Action, Repair
from offload_core.maintenance.verify import Code, Verification
from offload_core.storage.clock import system_now_ms

AN_HOUR_MS = 3_600_000


def test_a_broker_serves_ledgers_again_whose_indexes_were_lost(live):
    cold = live.new_cold_namespace()
    topic = live.send(cold.topic("repaired"), TOPICS["compression-lz4"])
    keys = keys_of(cold.offload(topic.name))
    assert not [ledger for ledger in live.admin.ledgers(topic.name)[:-1] if ledger.in_bookkeeper]
    live.admin.unload(topic.name)
    with cold.store.open() as tier:
        assert list(Verification(tier, deep=True)) == []
        tier.delete([key.index_key for key in keys])
        assert [each.code for each in Verification(tier, deep=True)] == [Code.NO_INDEX] * len(keys)
        work, lines = Repair(tier, now_ms=lambda: system_now_ms() + AN_HOUR_MS), Audit()
        planned = list(work.plan())
        assert [each.choice.action for each in planned] == [Action.REBUILD_INDEX] * len(keys)
        for each in planned:
            work.do(each, lines)
        assert len(lines.changes) == len(keys)
        assert list(Verification(tier, deep=True)) == []

    live.assert_serves(topic, (1, len(topic.read) // 2, len(topic.read) - 1))
