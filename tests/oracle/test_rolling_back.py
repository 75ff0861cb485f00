"""Pulsar's classes call no streamed ledger complete, nor find it; after a release they read all, as before."""

from __future__ import annotations

from contextlib import closing

import pytest
from managed_ledgers import environment_of
from oracle import MANAGED_LEDGER, OracleError
from scenes.segments import SegmentedOffloads

from offload_core.maintenance.rollback import Allowed, delete_judged, judge_tier, release_recorded
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.managed_ledger_info import join_uuid
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_core.storage.clock import system_now_ms
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.audit import LoggedChanges
from offload_core.writing.managed_ledger import open_managed_ledger

FIRST_LEDGER = 300
"""Pulsar's reader mixes up ledgers of one id (test_faults); no other test of this JVM has these."""


def test_pulsars_classes_before_and_after_a_rollback(oracle, zookeeper, folder, tmp_path):
    url = f"zk:{zookeeper.host}:{zookeeper.port}/back"
    with (
        closing(ZooKeeperStore(url)) as metadata,
        closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot,
        folder.open() as cold,
    ):
        for _ in range(FIRST_LEDGER):
            hot.delete(hot.create({}).ledger_id)
        records = ManagedLedgerRecords(metadata)
        environment = environment_of(metadata, hot, cold, block_bytes=None, now_ms=system_now_ms)
        topic = open_managed_ledger(environment, MANAGED_LEDGER)
        payloads = [[b"%d-%d" % (ledger, i) for i in range(20)] for ledger in range(2)]
        ids = []
        for each in payloads:
            ids.append(topic.add_entries(each).ledger_id)
            topic.roll()
        segments = SegmentedOffloads(
            name=MANAGED_LEDGER, records=records, hot=hot, tier=cold, now_ms=system_now_ms
        )
        segments.offload(EntryPosition(ids[1], 19))

        def context_of(place):
            """What Pulsar's classes read of a ledger's copy in the record."""
            ledgers = {
                each["ledgerId"]: each for each in oracle.read_record(url, MANAGED_LEDGER)["ledgerInfo"]
            }
            return ledgers[ids[place]].get("offloadContext")

        def read_as_a_broker_would(place):
            context = context_of(place)
            attempt = join_uuid(context["uidMsb"], context["uidLsb"])
            return [payload for _, _, payload in oracle.read(folder, attempt, ids[place], [(0, 19)]).entries]

        for place in (0, 1):
            streamed = context_of(place)
            assert "complete" not in streamed, "so a Pulsar reads the hot copy, and offloads the ledger anew"
            assert [each["complete"] for each in streamed["offloadSegment"]] == [True]
            with pytest.raises(OracleError):
                read_as_a_broker_would(place)
        judged = judge_tier(cold, lambda: release_recorded(records, [], dry_run=False).infos)
        delete_judged(cold, judged, LoggedChanges(), allowed=Allowed(recorded=False))
        assert list(cold.list_objects()) == []
        assert [context_of(place) for place in (0, 1)] == [None, None]
        topic.offload_prefix(EntryPosition(1 << 40, 0))
        assert [read_as_a_broker_would(place) for place in (0, 1)] == payloads
        topic.close()
