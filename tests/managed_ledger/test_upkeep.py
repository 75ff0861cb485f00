"""Policies are kept without anybody asking: rollover, offload, deletion of hot copies, retention, round after round."""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from layered import Gate
from managed_ledgers import NAME, policies_to
from scenes.transactions import message

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.policies import RetentionPolicies, parse_policies, resolve_policies
from offload_core.metadata.records import (
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.storage.tier.memory_budget import MemoryBudget
from offload_core.writing.managed_ledger import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    RolloverPolicy,
    SnapshotPolicy,
    TenantThreads,
    TransactionalTopic,
    UpkeepLoop,
    keep_up,
    open_managed_ledger,
    topic_offloads,
)
from offload_core.writing.managed_ledger.upkeep import due_ledgers
from offload_hooks.errors import OptionError, StoreUnavailableError, UnknownTopicError
from offload_hooks.testing import FaultyMetadataStore

FOR_EVER = RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=-1)
OTHER = "acme/cold/persistent/other"


def policies(retention=FOR_EVER, driver="local", **given):
    return policies_to(retention=retention, driver=driver, **given)


AT_ONCE = policies(threshold_in_bytes=0, deletion_lag_in_millis=60_000)


@pytest.fixture
def topic(opened):
    with opened(rollover=RolloverPolicy(max_entries=2, min_age_s=0)) as topic:
        yield topic


def filled(topic, count=5):
    """Add so many entries, two to a ledger; the ids of the ledgers."""
    for i in range(count):
        topic.add_entry(b"%d" % i)
    return [ledger.ledger_id for ledger in topic.read_info().in_order]


def entries_of(topic):
    return [bytes(payload) for _, payload in topic.read_entries(EntryPosition(0, 0), 100)]


def test_a_round_does_all_that_is_due(topic, clock, hot, cold):
    first, second, third = filled(topic)
    done = keep_up(topic, AT_ONCE, clock.now_ms)
    assert (done.rolled, done.trimmed, done.offloaded, done.hot_deleted) == (False, (), (first, second), ())
    assert done.skipped == {third: "it is open"}
    assert not done.failures
    clock.pass_s(60)
    assert keep_up(topic, AT_ONCE, clock.now_ms).hot_deleted == (first, second)
    assert list(hot.ledger_ids()) == [third]
    clock.pass_s(600)
    topic.roll()
    done = keep_up(
        topic, policies(RetentionPolicies(retentionTimeInMinutes=10, retentionSizeInMB=-1)), clock.now_ms
    )
    assert done.trimmed == (first, second)
    assert done.skipped == {third: "no threshold is set"}
    assert not list(cold.store.list_objects())


def test_a_topic_that_another_owns_is_offloaded_beside_it(topic, environment, clock, hot):
    first, second, third = filled(topic, 6)
    beside = topic_offloads(environment, NAME)
    at_once = policies(RetentionPolicies(), threshold_in_bytes=0, deletion_lag_in_millis=0)
    done = keep_up(beside, at_once, clock.now_ms)
    assert (done.rolled, done.trimmed, done.failures) == (False, (), {})
    assert (done.offloaded, done.hot_deleted) == ((first, second), (first, second))
    assert done.skipped == {third: "it is open"}  # though it is full: that is for its owner
    topic.add_entry(b"6")
    assert len(topic.read_info().ledgers) == 4


def test_of_a_topic_that_is_not_there_each_step_says_so(environment, clock):
    done = keep_up(topic_offloads(environment, OTHER), AT_ONCE, clock.now_ms)
    assert {type(error) for error in done.failures.values()} == {UnknownTopicError}


def test_nothing_is_deleted_where_nobody_set_a_retention(topic, clock):
    filled(topic)
    unset = replace(AT_ONCE, retention=RetentionPolicies(), retention_origin="default")
    assert keep_up(topic, unset, clock.now_ms).trimmed == ()
    assert len(entries_of(topic)) == 5
    said = replace(unset, retention_origin="namespace")
    assert len(keep_up(topic, said, clock.now_ms).trimmed) == 2


def test_steps_after_one_that_failed_are_tried(environment, clock):
    without_a_tier = replace(environment, offloads=None)
    with open_managed_ledger(
        without_a_tier, NAME, rollover=RolloverPolicy(max_entries=1, min_age_s=0)
    ) as topic:
        topic.add_entry(b"0")
        topic.add_entry(b"1")
        done = keep_up(topic, AT_ONCE, clock.now_ms)
    assert set(done.failures) == {"offload", "deletion of hot copies"}
    assert isinstance(done.failures["offload"], OptionError)


def test_what_was_offloaded_before_a_failure_is_told(topic, clock, hot):
    first, second, third = filled(topic)
    hot.delete(second)
    done = keep_up(topic, AT_ONCE, clock.now_ms)
    assert done.offloaded == (first,)
    assert done.skipped == {third: "it is open"}
    assert set(done.failures) == {"offload"}


def test_a_ledger_that_another_offloads_is_skipped_and_nothing_has_failed(topic, environment, clock):
    first, second, third = filled(topic)
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(environment.offloads.offload, NAME, first, listener=lambda _: gate.hold())
        gate.wait_for()
        loop = UpkeepLoop(lambda: [topic], lambda _: AT_ONCE, now_ms=clock)
        finished(loop)
        status = loop.status(NAME)
        gate.open()
        assert other.result(60)
    assert (status.failures_in_a_row, status.not_before_ms) == (0, clock.now_ms)
    assert (status.last.failures, status.last.offloaded) == ({}, ())
    assert "this process offloads the ledger at the moment" in status.last.skipped[first]
    assert status.last.skipped[second] == f"ledger {first} comes before it"
    assert status.last.skipped[third] == "it is open"
    finished(loop)
    assert loop.status(NAME).last.offloaded == (second,)
    loop.close()


def test_what_was_trimmed_is_told_where_another_ledger_could_not_be(topic, environment, clock, monkeypatch):
    first, second, _ = filled(topic)
    topic.offload_prefix(EntryPosition(second + 1, 0))
    delete = environment.offloads.delete_cold_copy

    def fails(name, key, driver):
        if key.ledger_id == second:
            raise StoreUnavailableError("no answer")
        delete(name, key, driver)

    monkeypatch.setattr(environment.offloads, "delete_cold_copy", fails)
    done = keep_up(topic, policies(RetentionPolicies()), clock.now_ms)
    assert done.trimmed == (first,)
    assert isinstance(done.failures["retention"], StoreUnavailableError)
    assert topic.read_info().in_order[0].ledger_id == second


# --- the loop --------------------------------------------------------------------------------------


def test_the_loop_keeps_what_is_open_until_it_is_closed(topic, clock):
    filled(topic)
    before = entries_of(topic)
    asked = threading.Semaphore(0)

    def policies_of(name):
        asked.release()
        return AT_ONCE

    with UpkeepLoop(lambda: [topic], policies_of, interval_s=0.01, now_ms=clock) as loop:
        for _ in range(3):
            assert asked.acquire(timeout=60)
    assert [each.has_complete_copy for each in topic.read_info().in_order] == [True, True, False]
    assert loop.status(NAME).failures_in_a_row == 0
    assert loop.status(NAME).not_before_ms <= clock.now_ms
    assert loop.status(OTHER) is None
    assert entries_of(topic) == before
    while asked.acquire(blocking=False):
        pass
    assert not asked.acquire(timeout=0.05)  # closed: nobody asks any more


def test_the_loop_goes_on_after_a_fault_of_its_own(topic, clock):
    asked = threading.Semaphore(0)

    def topics():
        asked.release()
        raise RuntimeError("a fault")

    with UpkeepLoop(topics, lambda _: AT_ONCE, interval_s=0.01, now_ms=clock):
        for _ in range(3):
            assert asked.acquire(timeout=10)


def test_a_topic_that_fails_is_left_alone_longer_each_time_and_others_go_on(topic, environment, clock):
    fails = True

    def policies_of(name):
        if name == OTHER and fails:
            raise StoreUnavailableError("the metadata does not answer")
        return AT_ONCE

    with open_managed_ledger(environment, OTHER) as other:
        loop = UpkeepLoop(
            lambda: [topic, other], policies_of, now_ms=clock, uniform=lambda low, high: (low + high) / 2
        )
        waits = []
        for _ in range(9):
            assert len(finished(loop)) == 2
            waits.append((loop.status(OTHER).not_before_ms - clock.now_ms) / 1000)
            assert len(finished(loop)) == 1  # the other topic alone
            clock.pass_s(waits[-1])
        assert waits == [0.75 * min(FIRST_WAIT_S * 2**i, LONGEST_WAIT_S) for i in range(9)]
        assert isinstance(loop.status(OTHER).last.failures["policies"], StoreUnavailableError)
        assert loop.status(NAME).failures_in_a_row == 0
        fails = False
        assert len(finished(loop)) == 2
        assert loop.status(OTHER).failures_in_a_row == 0
        loop.close()


def test_a_round_that_ends_by_a_fault_of_its_own_has_failed(topic, clock):
    def policies_of(name):
        raise ZeroDivisionError

    loop = UpkeepLoop(lambda: [topic], policies_of, now_ms=clock)
    with pytest.raises(ZeroDivisionError):
        finished(loop)
    status = loop.status(NAME)
    assert "ZeroDivisionError" in str(status.last.failures["upkeep"])
    assert status.failures_in_a_row == 1
    wait_ms = status.not_before_ms - clock.now_ms
    assert FIRST_WAIT_S * 500 <= wait_ms <= FIRST_WAIT_S * 1000
    loop.close()


def test_a_topic_has_one_round_at_a_time(topic, clock):
    gate = Gate()

    def policies_of(name):
        gate.hold()
        return AT_ONCE

    loop = UpkeepLoop(lambda: [topic], policies_of, now_ms=clock)
    running = loop.begin_rounds()
    gate.wait_for()
    assert loop.begin_rounds() == []
    gate.open()
    running[0].result(60)
    assert len(finished(loop)) == 1
    loop.close()


def test_a_topic_that_is_not_open_any_more_has_no_status(topic, clock):
    topics = [topic]
    loop = UpkeepLoop(lambda: topics, lambda _: AT_ONCE, now_ms=clock)
    finished(loop)
    assert loop.status(NAME) is not None
    topics.clear()
    finished(loop)
    assert loop.status(NAME) is None
    loop.close()


def finished(loop):
    """The rounds that began, when they have ended."""
    rounds = loop.begin_rounds()
    for each in rounds:
        each.result(60)
    return rounds


# --- transactions ------------------------------------------------------------------------------


def test_a_round_persists_what_an_idle_topics_transactions_have_settled(environment, topic, clock, records):
    kept = TransactionalTopic(environment, topic, SnapshotPolicy(interval_s=5))
    kept.commit(kept.begin())
    snapshots = SnapshotStore(records.store)
    assert keep_up(kept, AT_ONCE, clock.now_ms).failures == {}
    assert snapshots.read(NAME).stable_position is None
    clock.pass_s(5)
    assert keep_up(kept, AT_ONCE, clock.now_ms).failures == {}
    assert snapshots.read(NAME).stable_position == topic.last_position


def test_snapshots_that_fail_are_told_and_persisted_by_the_next_round(environment, topic, clock):
    store = FaultyMetadataStore(environment.records.store)
    failing = replace(environment, records=ManagedLedgerRecords(store))
    kept = TransactionalTopic(failing, topic, SnapshotPolicy(interval_s=5))
    kept.commit(kept.begin())
    store.choose = lambda call: "unavailable" if "/transaction-buffers/" in call.path else None
    for _ in range(2):
        topic.add_entry(message())
    clock.pass_s(5)
    done = keep_up(kept, AT_ONCE, clock.now_ms)
    assert set(done.failures) == {"transactions"}
    assert len(done.offloaded) == 1, "the other steps were done"
    store.choose = lambda _: None
    assert keep_up(kept, AT_ONCE, clock.now_ms).failures == {}
    assert kept.persisted.stable_position is None, "it is not due again at once"
    clock.pass_s(5)
    assert keep_up(kept, AT_ONCE, clock.now_ms).failures == {}
    assert kept.persisted.stable_position == topic.last_position


def test_what_retention_deletes_was_read_before(environment, topic, clock, records):
    """So a transaction that ended in it does not stay open."""
    kept = TransactionalTopic(environment, topic, SnapshotPolicy(interval_s=5))
    dropped = kept.begin()
    kept.add_entries([message(dropped)])
    kept.abort(dropped)
    clock.pass_s(600)
    topic.roll()
    done = keep_up(kept, policies(RetentionPolicies()), clock.now_ms)
    assert len(done.trimmed) == 1
    assert kept.add_entries([message(dropped)]) == kept.status().stable_position
    assert kept.status().open_transactions == {}


# --- the thresholds of a policy choose the oldest sealed ledgers, as Pulsar's do

NOW_MS = 1_700_000_000_000
OFFLOADED = OffloadContext(complete=True)


def thresholds(size=None, seconds=None, driver="local"):
    given = {"driver": driver, "threshold_in_bytes": size, "threshold_in_seconds": seconds}
    return resolve_policies(topic=parse_policies(given))


def sealed(ledger_id, size=10, age_s=0, context=None):
    info = LedgerInfo(ledger_id=ledger_id, entries=1, size=size, timestamp_ms=NOW_MS - age_s * 1000)
    return LedgerRecord(info=info, context=context)


def due(ledgers, **given):
    return due_ledgers(ManagedLedgerInfo(ledgers=tuple(ledgers)), thresholds(**given), NOW_MS)


def test_an_open_ledger_neither_counts_nor_goes():
    chosen = due([sealed(1), LedgerRecord(info=LedgerInfo(ledger_id=2, size=1000))], size=10)
    assert chosen.ledger_ids == ()
    assert chosen.skipped[2] == "it is open"


def test_the_status_says_why_a_ledger_does_not_go():
    segments = OffloadContext(segments=(OffloadSegment(uuid=UUID(int=1)),))
    empty = sealed(2)
    empty = replace(empty, info=replace(empty.info, entries=0))
    ledgers = [sealed(1, context=segments), empty, sealed(3, age_s=5)]
    assert due(ledgers, size=10, seconds=6).skipped == {
        1: "it is offloaded by segments",
        2: "it has no entries",
        3: "10 bytes from it on; the threshold is 10 bytes, and sealed 5 s ago; the threshold is 6 s",
    }
    assert due([sealed(1)]).skipped == {1: "no threshold is set"}
    assert due([sealed(1)], size=0, driver=None).skipped == {1: "no tier is configured"}


def test_the_target_is_behind_the_newest_ledger_that_is_due():
    chosen = due([sealed(1, age_s=9), sealed(7, age_s=9), sealed(8)], seconds=9)
    assert chosen.target == EntryPosition(8, 0)
    assert due([sealed(1)]).target is None


THREE = [(10, 10, False)] * 3
"""Of 10 bytes each, sealed 30, 20 and 10 s ago."""


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans()), max_size=12),
    st.one_of(st.none(), st.integers(-1, 200)),
    st.one_of(st.none(), st.integers(-1, 60)),
)
@example(THREE, 10, None)
@example(THREE, 9, 31)
@example(THREE, None, 20)
@example(THREE, 29, 21)
@example(THREE, -1, -1)
def test_either_threshold_is_enough_for_what_is_larger_or_as_old(drawn, size, seconds):
    age, ledgers = sum(step for _, step, _ in drawn), []
    for i, (held, step, offloaded) in enumerate(drawn):
        ledgers.append(sealed(i, size=held, age_s=age, context=OFFLOADED if offloaded else None))
        age -= step
    expected = {
        ledger.ledger_id
        for i, ledger in enumerate(ledgers)
        if not ledger.has_complete_copy
        and (
            (size is not None and 0 <= size < sum(later.info.size for later in ledgers[i:]))
            or (seconds is not None and 0 <= seconds * 1000 <= NOW_MS - ledger.info.timestamp_ms)
        )
    }
    chosen = due(ledgers, size=size, seconds=seconds)
    assert chosen.ledger_ids == tuple(sorted(expected))
    assert (
        set(chosen.skipped) == {each.ledger_id for each in ledgers if not each.has_complete_copy} - expected
    )


def test_a_tenant_whose_work_never_ends_leaves_a_thread_to_others():
    threads, end = TenantThreads(2, "test"), threading.Event()
    stuck = [threads.submit("acme", lambda: end.wait() and None) for _ in range(5)]
    done = threading.Event()
    for _ in range(3):
        threads.submit("zeta", done.set).result(timeout=30)
        assert done.is_set()
        done.clear()
    assert not any(each.done() for each in stuck)
    end.set()
    for each in stuck:
        each.result(timeout=30)
    threads.shutdown()


def test_an_error_is_its_futures_and_the_next_is_begun():
    threads = TenantThreads(1, "test")

    def fail():
        raise ValueError("no")

    failed, after = threads.submit("acme", fail), threads.submit("acme", lambda: None)
    with pytest.raises(ValueError, match="no"):
        failed.result(timeout=30)
    assert after.result(timeout=30) is None
    threads.shutdown()


def test_what_waits_is_cancelled_when_no_more_is_begun():
    threads, gate = TenantThreads(1, "test"), Gate()
    running, waiting = threads.submit("acme", gate.hold), threads.submit("acme", lambda: None)
    gate.wait_for()
    threads.shutdown()
    with pytest.raises(CancelledError):
        waiting.result(timeout=30)
    gate.open()
    running.result(timeout=30)
    with pytest.raises(RuntimeError):
        threads.submit("acme", lambda: None)


def test_a_part_of_a_budget_leaves_the_rest_to_others():
    whole = MemoryBudget(150)
    acme, zeta = whole.share("acme", 100), whole.share("zeta", 100)
    acme.take(100)
    assert not acme.try_take(1)
    zeta.take(50)
    assert not zeta.try_take(1)
    assert (acme.taken_bytes, zeta.taken_bytes, whole.taken_bytes) == (100, 50, 150)
    acme.give_back(100)
    assert zeta.try_take(50)
    assert (acme.taken_bytes, zeta.taken_bytes, whole.taken_bytes) == (0, 100, 100)
