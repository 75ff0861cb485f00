"""Offloads that are stopped: by closing what they belong to, between two ledgers and between two blocks of one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from layered import Gate
from managed_ledgers import NAME, policies_to

from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import UpkeepLoop, open_managed_ledger, topic_offloads
from offload_hooks.errors import LedgerClosedError, OffloadStoppedError

END = EntryPosition(1 << 40, 0)
ENTRIES = [b"%04d" % i * 100 for i in range(20)]
AT_ONCE = policies_to(driver="local", threshold_in_bytes=0)


class Watched:
    """Offloads that tell when a block of a ledger was built, and wait there until they may go on."""

    def __init__(self, offloads, at):
        self._offloads, self._at, self.gate = offloads, at, Gate()

    def __getattr__(self, name):
        return getattr(self._offloads, name)

    def offload(self, name, ledger_id, *, listener, **given):
        def listen(progress):
            if (ledger_id, progress.blocks) == self._at:
                self.gate.hold()
            listener(progress)

        return self._offloads.offload(name, ledger_id, listener=listen, **given)


@pytest.fixture
def watched(environment):
    """It waits in the first block of the topic's second ledger."""
    return Watched(environment.offloads, (1, 1))


@pytest.fixture
def topic(environment, watched):
    """Two sealed ledgers of some blocks."""
    topic = open_managed_ledger(replace(environment, offloads=watched), NAME)
    for _ in range(2):
        topic.add_entries(ENTRIES)
        topic.roll()
    return topic


def begun(pool, topic, watched):
    running = pool.submit(topic.offload_prefix, END)
    watched.gate.wait_for()
    return running


def complete(recorded):
    return [ledger.ledger_id for ledger in recorded().in_order if ledger.has_complete_copy]


def test_a_managed_ledger_that_is_closed_stops_its_offload_and_cleans_up(
    topic, watched, recorded, cold, audit, opened
):
    with ThreadPoolExecutor(2) as pool:
        running = begun(pool, topic, watched)
        closing = pool.submit(topic.close)
        while not topic._offloads._is_closed:
            pass
        watched.gate.open()
        closing.result(60)
        assert running.done()
        with pytest.raises(OffloadStoppedError, match=f"the offload of {NAME} was stopped"):
            running.result()
    assert (topic.offload_status.state, topic.offload_status.offloaded) == ("error", (0,))
    assert isinstance(topic.offload_status.error, OffloadStoppedError)
    assert complete(recorded) == [0]
    assert recorded().in_order[1].context is None
    assert len(list(cold.store.list_objects())) == 2
    assert not list(cold.store.list_uploads())
    assert [(each.ledger_id, each.copy, each.why) for each in audit.deletions] == [
        (1, "cold", "its offload was stopped")
    ]
    with pytest.raises(LedgerClosedError):
        topic.offload_prefix(END)
    assert opened().offload_prefix(END) == EntryPosition(1, len(ENTRIES))


def test_an_offload_that_is_stopped_is_taken_up_again_by_the_next_call(topic, watched, recorded):
    with ThreadPoolExecutor(2) as pool:
        running = begun(pool, topic, watched)
        joined = pool.submit(topic.offload_prefix, EntryPosition(1 << 41, 0))
        while topic.offload_status.target == END:
            pass
        topic.stop_offload()
        watched.gate.open()
        for each in (running, joined):
            with pytest.raises(OffloadStoppedError):
                each.result(60)
    assert complete(recorded) == [0]
    topic.stop_offload()  # nothing runs: nothing is stopped
    assert topic.offload_prefix(END) == EntryPosition(1, len(ENTRIES))


def test_closing_does_not_wait_for_ever_for_an_offload_that_cannot_be_stopped(topic, watched, caplog):
    with ThreadPoolExecutor(1) as pool:
        running = begun(pool, topic, watched)
        topic._offloads.close(0.01)
        assert not running.done()
        assert "did not end in 0.01 s" in caplog.text
        watched.gate.open()
        with pytest.raises(OffloadStoppedError):
            running.result(60)


def test_closing_the_loop_stops_its_offloads_and_the_status_says_so(
    topic, environment, watched, clock, recorded, cold
):
    beside = topic_offloads(replace(environment, offloads=watched), NAME)
    loop = UpkeepLoop(lambda: [beside], lambda _: AT_ONCE, now_ms=clock)
    (running,) = loop.begin_rounds()
    watched.gate.wait_for()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(loop.close, 60)
        while not beside._run.is_stopped:
            pass
        watched.gate.open()
        closing.result(60)
    assert running.done()
    assert isinstance(beside.offload_status.error, OffloadStoppedError)
    last = loop.status(NAME).last
    assert (last.failures, last.offloaded) == ({}, (0,))
    assert "was stopped" in last.skipped[1]
    assert complete(recorded) == [0]
    assert len(list(cold.store.list_objects())) == 2
    assert topic.offload_prefix(END) == EntryPosition(1, len(ENTRIES)), "the topic itself is open"


def test_a_loop_that_was_closed_begins_nothing(topic, clock):
    loop = UpkeepLoop(lambda: [topic], lambda _: AT_ONCE, now_ms=clock)
    loop.close()
    assert loop.begin_rounds() == []
    loop.close()


def test_a_round_that_does_not_end_is_not_waited_for_longer_than_told(topic, clock):
    gate = Gate()

    def policies_of(name):
        gate.hold()
        return policies_to()

    loop = UpkeepLoop(lambda: [topic], policies_of, now_ms=clock)
    (running,) = loop.begin_rounds()
    gate.wait_for()
    loop.close(0.01)
    assert not running.done()
    gate.open()
    running.result(60)
