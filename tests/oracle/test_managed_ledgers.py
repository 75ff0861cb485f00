"""The life of a managed ledger: at each step Pulsar's classes read its record, and all cold copies that it names."""

from __future__ import annotations

import random
from contextlib import closing

from managed_ledgers import environment_of
from oracle import MANAGED_LEDGER

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.managed_ledger_info import join_uuid
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_core.storage.clock import system_now_ms
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers, RolloverPolicy, open_managed_ledger

FIRST_LEDGER = 100
"""Pulsar's reader mixes up ledgers of one id (test_faults); no other test of this JVM has these."""

KEEP_NOTHING = RetentionPolicies(retentionTimeInMinutes=0, retentionSizeInMB=0)


def test_pulsars_classes_read_every_record_and_every_object_of_it(oracle, zookeeper, folder, tmp_path):
    url = f"zk:{zookeeper.host}:{zookeeper.port}/life"
    rng = random.Random(8)
    expected: dict[int, list[bytes]] = {}
    with (
        closing(ZooKeeperStore(url)) as metadata,
        closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot,
        folder.open() as cold,
    ):
        for _ in range(FIRST_LEDGER):
            hot.delete(hot.create({}).ledger_id)
        environment = environment_of(metadata, hot, cold, block_bytes=3000, now_ms=system_now_ms)
        rollover = RolloverPolicy(max_entries=50, min_age_s=0)
        topic = open_managed_ledger(environment, MANAGED_LEDGER, rollover=rollover)

        def as_java_reads():
            """Ledger, whether sealed, in cold storage, gone from the hot tier; each cold copy is read."""
            found = []
            for ledger in oracle.read_record(url, MANAGED_LEDGER)["ledgerInfo"]:
                ledger_id, context = ledger["ledgerId"], ledger.get("offloadContext", {})
                payloads = expected[ledger_id]
                is_sealed, is_cold = "entries" in ledger, context.get("complete", False)
                if is_sealed:
                    assert (ledger["entries"], ledger["size"]) == (len(payloads), sum(map(len, payloads)))
                if is_cold:
                    attempt = join_uuid(context["uidMsb"], context["uidLsb"])
                    last = len(payloads) - 1
                    read = oracle.read(folder, attempt, ledger_id, [(0, last), (last // 2, last)])
                    whole = [(ledger_id, i, payload) for i, payload in enumerate(payloads)]
                    assert read.ended
                    assert read.entries == whole + whole[last // 2 :]
                found.append((ledger_id, is_sealed, is_cold, context.get("bookkeeperDeleted", False)))
            return found

        def produce(count):
            for _ in range(count):
                payload = rng.randbytes(rng.choice([0, 1, 100, 4000]))
                expected.setdefault(topic.add_entry(payload).ledger_id, []).append(payload)

        one, two, three, four = range(FIRST_LEDGER, FIRST_LEDGER + 4)
        produce(120)
        assert as_java_reads() == [(each, each != three, False, False) for each in (one, two, three)]
        topic.offload_prefix(EntryPosition(two, 0))
        assert as_java_reads()[:2] == [(one, True, True, False), (two, True, False, False)]
        assert topic.delete_hot_copies(lag_s=0) == [one]
        assert as_java_reads()[0] == (one, True, True, True)
        topic.close()  # which seals the third

        topic = open_managed_ledger(environment, MANAGED_LEDGER, rollover=rollover)
        produce(20)
        topic.offload_prefix(EntryPosition(1 << 40, 0))
        assert topic.delete_hot_copies(lag_s=0) == [two, three]
        *offloaded, last = as_java_reads()
        assert offloaded == [(each, True, True, True) for each in (one, two, three)]
        assert last == (four, False, False, False)
        assert topic.trim(KEEP_NOTHING, consumed_before=EntryPosition(two, 0)) == [one]
        end = topic.terminate()
        topic.offload_prefix(EntryPosition(1 << 40, 0))
        assert as_java_reads() == [(each, True, True, each != four) for each in (two, three, four)]
        terminated = oracle.read_record(url, MANAGED_LEDGER)["terminatedPosition"]
        assert (terminated["ledgerId"], terminated["entryId"]) == (end.ledger_id, end.entry_id) == (four, 19)
        topic.close()


def test_pulsars_classes_read_the_record_of_a_topic_that_ended_without_an_entry(oracle, zookeeper, tmp_path):
    url = f"zk:{zookeeper.host}:{zookeeper.port}/empty"
    with (
        closing(ZooKeeperStore(url)) as metadata,
        closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot,
    ):
        environment = Environment(records=ManagedLedgerRecords(metadata), hot=HotLedgers(hot))
        topic = open_managed_ledger(environment, MANAGED_LEDGER)
        assert topic.terminate() == EntryPosition(-1, -1)
        properties = dict(topic.read_info().properties)
        assert len(properties) == 1
        record = oracle.read_record(url, MANAGED_LEDGER)
        assert record["terminatedPosition"] == {"ledgerId": -1, "entryId": -1}
        assert {each["key"]: each["value"] for each in record["properties"]} == properties
        topic.close()
