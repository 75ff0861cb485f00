"""Offloads up to a position: which ledgers, calls at once, progress, failures, and the deletion of hot copies."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from managed_ledgers import NAME

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, OffloadContext, abandon_attempt
from offload_core.writing.managed_ledger import open_managed_ledger
from offload_hooks.errors import (
    DataLossError,
    LedgerClosedError,
    OptionError,
    OwnershipLostError,
    StoreUnavailableError,
)
from pulsar_offload import scan

END = EntryPosition(1 << 40, 0)
ENTRIES = [b"%04d" % i * 100 for i in range(10)]


class Gated:
    """Offloads that wait to be let go on, or fail once."""

    def __init__(self, offloads):
        self._offloads = offloads
        self.began = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.calls = []
        self.error = None

    def __getattr__(self, name):
        return getattr(self._offloads, name)

    def offload(self, name, ledger_id, **given):
        self.calls.append(ledger_id)
        self.began.release()
        assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return self._offloads.offload(name, ledger_id, **given)


def fill(topic, ledgers=3):
    """Sealed ledgers, and one that is written; the ids of the former."""
    ids = []
    for _ in range(ledgers):
        ids.append(topic.add_entries(ENTRIES).ledger_id)
        topic.roll()
    topic.add_entry(b"hot")
    return ids


def complete(recorded):
    return [ledger.ledger_id for ledger in recorded().in_order if ledger.has_complete_copy]


def values(cold):
    return scan(cold, level="entries", columns=["value"]).to_table()["value"].to_pylist()


@pytest.mark.parametrize(
    ("ledger", "entry", "count"),
    [(0, 0, 0), (0, 9, 0), (0, 10, 1), (1, 0, 1), (2, 10, 3), (3, 0, 3), (99, 0, 3)],
)
def test_sealed_ledgers_wholly_before_the_position_are_offloaded(
    opened, recorded, cold, ledger, entry, count
):
    topic = opened()
    ids = fill(topic)
    assert ids == [0, 1, 2]
    assert topic.offload_prefix(EntryPosition(ledger, entry)) == EntryPosition(count, 0)
    assert complete(recorded) == ids[:count]
    assert not count or sorted(values(cold)) == sorted(ENTRIES * count)
    status = topic.offload_status
    assert (status.state, status.offloaded) == ("success", tuple(ids[:count]))
    assert (status.first_unoffloaded, status.progress, status.error) == (EntryPosition(count, 0), None, None)


def test_an_offload_again_does_nothing_and_a_topic_that_is_all_cold_ends_behind_its_last_entry(
    opened, recorded
):
    topic = opened()
    assert topic.offload_prefix(END) == EntryPosition(0, 0)
    fill(topic, 2)
    assert topic.offload_prefix(END) == EntryPosition(2, 0)
    before = recorded()
    assert topic.offload_prefix(END) == EntryPosition(2, 0)
    assert (recorded(), topic.offload_status.offloaded) == (before, ())
    topic.roll()
    assert topic.offload_prefix(END) == EntryPosition(2, 1)


def test_without_a_tier_every_offload_says_so(environment):
    topic = open_managed_ledger(replace(environment, offloads=None), NAME)
    fill(topic)
    for _ in range(2):
        for call in (lambda: topic.offload_prefix(END), lambda: topic.delete_hot_copies(0)):
            with pytest.raises(OptionError, match=f"no tier is configured to which {NAME}"):
                call()
    assert topic.offload_status.state == "not run"


def test_calls_at_once_join_and_go_as_far_as_the_farthest_wants(environment, recorded):
    gated = Gated(environment.offloads)
    topic = open_managed_ledger(replace(environment, offloads=gated), NAME)
    ids = fill(topic)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(topic.offload_prefix, EntryPosition(ids[1], 0))
        assert gated.began.acquire(timeout=60)
        near = [pool.submit(topic.offload_prefix, EntryPosition(ids[0], 0)) for _ in range(2)]
        far = [pool.submit(topic.offload_prefix, END) for _ in range(2)]
        while topic.offload_status.target != END:
            assert topic.offload_status.state == "running"
        for _ in ids:
            gated.gate.release()
        results = {each.result(timeout=60) for each in (first, *near, *far)}
    assert gated.calls[:3] == ids == complete(recorded)
    assert len(gated.calls) == 3
    assert results == {EntryPosition(3, 0)}


def test_those_who_joined_are_told_of_a_failure_and_the_next_call_goes_on(environment, recorded, cold):
    gated = Gated(environment.offloads)
    topic = open_managed_ledger(replace(environment, offloads=gated), NAME)
    ids = fill(topic)
    gated.gate.release()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(topic.offload_prefix, END)]
        for _ in range(2):
            assert gated.began.acquire(timeout=60)
        gated.error = StoreUnavailableError("no answer")
        calls.append(pool.submit(topic.offload_prefix, EntryPosition(1 << 41, 0)))
        while topic.offload_status.target == END:
            pass
        gated.gate.release()
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="no answer"):
                call.result(timeout=60)
    status = topic.offload_status
    assert (status.state, status.offloaded, status.error) == ("error", (ids[0],), gated.error)
    gated.error = None
    for _ in ids[1:]:
        gated.gate.release()
    assert topic.offload_prefix(END) == EntryPosition(3, 0)
    assert complete(recorded) == ids
    assert topic.offload_status.error is None


def test_progress_is_seen_while_a_ledger_is_on_its_way(environment):
    class Watched:
        def offload(self, name, ledger_id, *, listener, **given):
            def watch(progress):
                listener(progress)
                seen.append(topic.offload_status)

            return environment.offloads.offload(name, ledger_id, listener=watch, **given)

    topic, seen = open_managed_ledger(replace(environment, offloads=Watched()), NAME), []
    (ledger_id,) = fill(topic, 1)
    topic.offload_prefix(END)
    assert {status.state for status in seen} == {"running"}
    assert [status.progress.blocks for status in seen] == list(range(1, len(seen) + 1))
    assert len(seen) > 3
    assert seen[-1].progress.ledger_id == ledger_id
    assert seen[-1].progress.data_bytes >= sum(map(len, ENTRIES))


def test_a_ledger_that_was_trimmed_meanwhile_stops_nobody(environment, recorded):
    class Trims(Gated):
        def offload(self, name, ledger_id, **given):
            if not self.calls:
                self.calls.append(ledger_id)
                topic.trim(RetentionPolicies(), consumed_before=EntryPosition(ledger_id, 10))
            return self._offloads.offload(name, ledger_id, **given)

    topic = open_managed_ledger(replace(environment, offloads=Trims(environment.offloads)), NAME)
    ids = fill(topic)
    assert topic.offload_prefix(END) == EntryPosition(3, 0)
    assert complete(recorded) == ids[1:]


def test_who_does_not_own_the_topic_any_more_does_not_offload_it(opened):
    former = opened()
    fill(former)
    owner = opened()
    with pytest.raises(OwnershipLostError):
        former.offload_prefix(END)
    owner.close()
    with pytest.raises(LedgerClosedError):
        owner.offload_prefix(END)


# --- hot copies --------------------------------------------------------------------------------


def test_hot_copies_go_when_the_lag_is_over_and_the_audit_log_says_so(
    opened, environment, recorded, hot, clock, audit
):
    topic = opened()
    ids = fill(topic)
    assert environment.offloads.delete_hot_copy(NAME, ids[0], 0) is False
    topic.offload_prefix(EntryPosition(ids[2], 0))
    clock.pass_s(10)
    topic.offload_prefix(END)
    assert topic.delete_hot_copies(11) == []
    clock.pass_s(1)
    assert topic.delete_hot_copies(11) == ids[:2]
    assert topic.delete_hot_copies(11) == []
    assert hot.ledger_ids() == [2, 3]
    contexts = [ledger.context for ledger in recorded().in_order]
    assert [context and context.bookkeeper_deleted for context in contexts] == [True, True, False, None]
    assert audit.copies() == [(ids[0], "hot"), (ids[1], "hot")]
    assert audit.deletions[0].why == "it was offloaded, and the deletion lag is over"


@pytest.mark.parametrize("harm", ["data gone", "index gone", "data cut"])
def test_a_hot_copy_whose_cold_one_is_not_as_recorded_stays_and_others_go(
    opened, recorded, hot, tmp_path, harm
):
    topic = opened()
    ids = fill(topic)
    topic.offload_prefix(END)
    suffix = "-index" if harm == "index gone" else ""
    (harmed,) = (tmp_path / "cold").glob(f"*-ledger-{ids[1]}{suffix}")
    if harm == "data cut":
        harmed.write_bytes(harmed.read_bytes()[:-1])
    else:
        harmed.unlink()
    with pytest.raises(DataLossError) as caught:
        topic.delete_hot_copies(0)
    assert caught.value.ledger_id == ids[1]
    assert hot.ledger_ids() == [ids[1], 3]
    assert not recorded().in_order[1].context.bookkeeper_deleted


def test_a_hot_copy_whose_deletion_cannot_be_recorded_stays_a_copy(environment, hot, recorded):
    class Fails:
        def record(self, _):
            raise StoreUnavailableError("no audit")

    topic = open_managed_ledger(replace(environment, audit=Fails()), NAME)
    ids = fill(topic, 1)
    topic.offload_prefix(END)
    with pytest.raises(StoreUnavailableError):
        topic.delete_hot_copies(0)
    assert ids[0] in hot.ledger_ids()
    assert not recorded().in_order[0].context.bookkeeper_deleted


def test_an_attempt_that_named_no_tier_is_cleaned_in_the_current_one(opened, records, recorded):
    """An older Pulsar's; whoever took it over ended when it was abandoned."""
    topic = opened()
    topic.add_entry(b"a")
    topic.roll()
    ledger, uuid = recorded().in_order[0], uuid4()
    began = replace(ledger, context=OffloadContext(uuid=uuid))
    records.update(NAME, lambda info: info.with_ledger(began))
    records.update(NAME, lambda info: abandon_attempt(info, ledger.ledger_id, uuid))
    topic.offload_prefix(END)
    assert recorded().in_order[0].has_complete_copy
