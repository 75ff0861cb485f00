"""Topics that are streamed by threads: producers, stores and turns at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

import pytest
from layered import layer
from managed_ledgers import NAME
from scenes.segments import in_segments, left_in
from waiting import wait_for

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition, segments_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import (
    Environment,
    HotLedgers,
    RolloverPolicy,
    StreamingPool,
    StreamingSettings,
    open_managed_ledger,
)
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import OffloadStoppedError
from offload_hooks.testing import MemoryMetadataStore
from offload_hooks.testing.fault_plan import FaultPlan
from offload_hooks.testing.faults import FaultLayer
from offload_hooks.testing.threads import together

SOON_S = 60
PRODUCERS, CALLS = 4, 300
SETTINGS = StreamingSettings(max_segment_bytes=60_000, max_segment_age_s=0.2, block_bytes=8000)


@pytest.fixture
def environment(tmp_path):
    with closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot:
        records = ManagedLedgerRecords(MemoryMetadataStore())
        yield Environment(records=records, hot=HotLedgers(hot), cache_bytes=20_000)


def tier_with(folder, faults):
    return Tier(LocalDriver(str(folder)), [layer(FaultLayer, plan=FaultPlan.parse(faults))])


def pool_over(tier, **given):
    tiers = KnownTiers(tier)
    return StreamingPool(lambda _: nullcontext(tiers), **given)


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("faults", ["delay any 30% 0.01", "delay any 10% 0.01; fail-after any 3%"])
def test_many_producers_and_a_store_that_is_slow_or_fails(environment, tmp_path, faults, monkeypatch):
    monkeypatch.setattr("offload_core.writing.managed_ledger.streaming.topic_streaming.FIRST_RETRY_S", 0.01)
    monkeypatch.setattr("offload_core.writing.managed_ledger.streaming.topic_streaming.LONGEST_RETRY_S", 0.05)
    added = []
    with pool_over(tier_with(tmp_path / "cold", faults), buffer_bytes=30_000, budget_bytes=100_000) as pool:
        rollover = RolloverPolicy(max_entries=500, min_age_s=0)
        topic = open_managed_ledger(replace(environment, streaming=pool), NAME, rollover=rollover)
        topic.set_streaming(SETTINGS)

        def produce(number):
            for i in range(CALLS):
                payloads = [b"%d %d %d" % (number, i, j) + b"." * 100 for j in range(1 + i % 3)]
                first = topic.add_entries(payloads)
                added.extend(
                    (EntryPosition(first.ledger_id, first.entry_id + j), payload)
                    for j, payload in enumerate(payloads)
                )

        together([partial(produce, number) for number in range(PRODUCERS)], SOON_S)
        wait_for(lambda: topic.streaming_status.last_end == topic.last_position, SOON_S)
        info = topic.read_info()
        assert in_segments(tmp_path / "cold", info) == sorted(added)
        assert len(segments_of(info)) >= 3
        topic.close()
        assert pool.budget.taken_bytes == pool.buffer_budget.taken_bytes == 0
        assert left_in(tmp_path / "cold", info) == set()


def test_one_that_waits_for_its_segment_gives_up_in_time_and_closing_tells_others(environment, tmp_path):
    gate = threading.Event()

    class Held:
        @hookimpl(wrapper=True)
        def commit_data(self):
            assert gate.wait(SOON_S)
            return (yield)

    with pool_over(Tier(LocalDriver(str(tmp_path / "cold")), [layer(lambda _: Held())])) as pool:
        topic = open_managed_ledger(replace(environment, streaming=pool), NAME)
        topic.set_streaming(replace(SETTINGS, max_segment_age_s=600))
        topic.add_entry(b"x")
        with pytest.raises(OffloadStoppedError, match="not complete yet"):
            topic.complete_segment(timeout_s=0.2)
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(topic.complete_segment)
            wait_for(lambda: len(topic._streaming._waiters._waiting) == 2)
            closing_it = threads.submit(topic.close)
            gate.set()
            closing_it.result(SOON_S)
            with pytest.raises(OffloadStoppedError, match=f"^the streaming of {NAME} was stopped$"):
                waiting.result(SOON_S)
        info = environment.records.read(NAME)
        assert in_segments(tmp_path / "cold", info.info) == [(EntryPosition(0, 0), b"x")]


def test_a_pool_has_few_threads_however_many_topics_there_are(environment, tmp_path):
    before = threading.active_count()
    with pool_over(Tier(LocalDriver(str(tmp_path / "cold"))), threads=3) as pool:
        streamed = replace(environment, streaming=pool)
        topics = [open_managed_ledger(streamed, f"acme/cold/persistent/{i}") for i in range(12)]
        for topic in topics:
            topic.set_streaming(SETTINGS)
            topic.add_entry(b"x")
        for topic in topics:
            topic.complete_segment()
        assert (
            threading.active_count() <= before + 1 + 2 + 3 + 2
        )  # the clock, turns, stores, the ledgers' own
        for topic in topics:
            topic.close()
    assert threading.active_count() <= before + 2
