"""Each topic is offloaded to the tier that its policies name; tiers are opened once, and found by records."""

import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial

import psutil
import pytest
from managed_ledgers import NAME, offloads_by, policies_to
from scenes.segments import SegmentedOffloads

from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger import RolloverPolicy, keep_up, open_managed_ledger, policy_tiers
from offload_core.writing.managed_ledger.policy_tiers import PolicyTiers
from offload_hooks.errors import OptionError
from offload_hooks.testing.threads import together
from pulsar_offload import open_tier, scan

OTHER = "acme/cold/persistent/other"
END = EntryPosition(1 << 40, 0)
DEADLINE_S = 60.0


@pytest.fixture
def said(tmp_path):
    """Policies by managed ledger; a test may change them."""
    return {NAME: policies_to(tmp_path / "one"), OTHER: policies_to(tmp_path / "two")}


@pytest.fixture
def offloads(records, hot, said, clock):
    with offloads_by(said.__getitem__, records, hot, clock) as (offloads, _):
        yield offloads


@pytest.fixture
def topics(environment, offloads):
    """Two topics with two sealed ledgers of one entry each."""
    given = {"rollover": RolloverPolicy(max_entries=1, min_age_s=0)}
    by_policy = replace(environment, offloads=offloads)
    with (
        open_managed_ledger(by_policy, NAME, **given) as one,
        open_managed_ledger(by_policy, OTHER, **given) as two,
    ):
        for topic in (one, two):
            for payload in (b"a", b"b"):
                topic.add_entry(payload)
            topic.roll()
        yield one, two


def values(folder):
    with open_tier(folder) as tier:
        return sorted(scan(tier, level="entries").to_table()["value"].to_pylist())


def test_each_topic_goes_to_its_own_tier(topics, tmp_path):
    one, two = topics
    one.offload_prefix(END)
    assert not (tmp_path / "two").exists()
    two.offload_prefix(END)
    assert values(tmp_path / "one") == values(tmp_path / "two") == [b"a", b"b"]


def test_a_policy_that_changes_holds_from_the_next_ledger_on_and_older_copies_are_found(
    topics, said, tmp_path, hot
):
    topic, _ = topics
    first, second = (ledger.ledger_id for ledger in topic.read_info().in_order)
    topic.offload_prefix(EntryPosition(second, 0))
    said[NAME] = policies_to(tmp_path / "three")
    topic.offload_prefix(END)
    assert (values(tmp_path / "one"), values(tmp_path / "three")) == ([b"a"], [b"b"])
    assert topic.delete_hot_copies(0) == [first, second]  # each after a look into its own tier
    assert topic.trim(RetentionPolicies()) == [first, second]
    assert (values(tmp_path / "one"), values(tmp_path / "three")) == ([], [])


def test_segments_are_looked_at_and_deleted_where_they_are_whatever_policies_name_now(
    topics, said, tmp_path, records, hot, clock
):
    topic, _ = topics
    first, second = (ledger.ledger_id for ledger in topic.read_info().in_order)
    with open_tier(tmp_path / "one") as tier:
        streamed = SegmentedOffloads(name=NAME, records=records, hot=hot, tier=tier.store, now_ms=clock)
        streamed.offload(EntryPosition(second, 0))
    assert topic.delete_hot_copies(0) == [first, second]
    said[NAME] = policies_to(tmp_path / "three")
    assert topic.trim(RetentionPolicies(), consumed_before=EntryPosition(second, 0)) == [first]
    assert values(tmp_path / "one") == [b"a", b"b"]
    assert topic.trim(RetentionPolicies()) == [second]
    assert values(tmp_path / "one") == []


def test_segments_in_a_tier_that_is_not_configured_keep_their_ledgers(
    topics, environment, said, tmp_path, records, hot, clock
):
    topic, _ = topics
    with open_tier(tmp_path / "elsewhere") as tier:
        streamed = SegmentedOffloads(name=NAME, records=records, hot=hot, tier=tier.store, now_ms=clock)
        streamed.offload(topic.last_position)
        with pytest.raises(OptionError, match="not configured"):
            topic.delete_hot_copies(0)
        with pytest.raises(OptionError, match="not configured"):
            topic.trim(RetentionPolicies())
        assert len(list(tier.store.list_objects())) == 2
        assert [ledger.is_marked_for_deletion for ledger in topic.read_info().ledgers] == [True, True]
        with offloads_by(said.__getitem__, records, hot, clock, others=[tier.store]) as (beside, _):
            by_policy = replace(environment, offloads=beside)
            with open_managed_ledger(by_policy, NAME) as again:
                assert len(again.trim(RetentionPolicies())) == 2
        assert list(tier.store.list_objects()) == []


def test_a_copy_in_a_tier_that_nobody_names_any_more_needs_that_tier_beside(
    topics, records, hot, said, clock, environment, tmp_path
):
    topic, _ = topics
    first, second = (ledger.ledger_id for ledger in topic.read_info().in_order)
    topic.offload_prefix(END)
    said[NAME] = policies_to(tmp_path / "three")
    with (
        offloads_by(said.__getitem__, records, hot, clock) as (after_restart, _),
        pytest.raises(OptionError, match="not configured"),
    ):
        after_restart.delete_hot_copy(NAME, first, 0)
    with open_tier(tmp_path / "one") as tier:
        with offloads_by(said.__getitem__, records, hot, clock, others=[tier.store]) as (beside, _):
            assert beside.delete_hot_copy(NAME, first, 0)
        assert list(tier.store.list_objects())  # what it did not open, it does not close
    assert next(iter(hot.ledger_ids())) == second


def test_blocks_and_threads_are_those_of_the_policies(topics, said, tmp_path, monkeypatch):
    seen = []

    class Watched:
        def __init__(self, tier, **given):
            seen.append(given)
            self._offloader = original(tier, **given)

        def __getattr__(self, name):
            return getattr(self._offloader, name)

    original = policy_tiers.LedgerOffloader
    monkeypatch.setattr(policy_tiers, "LedgerOffloader", Watched)
    said[NAME] = policies_to(tmp_path / "one", max_block_size_in_bytes=5 << 20, max_threads=3)
    topics[0].offload_prefix(END)
    assert {(each["max_block_bytes"], each["parts_in_flight"]) for each in seen} == {(5 << 20, 3)}
    assert len({id(each["budget"]) for each in seen}) == 1


def test_checksums_are_written_where_the_policies_say_so(topics, said, tmp_path):
    said[NAME] = policies_to(tmp_path / "one", checksums=True)
    for topic in topics:
        topic.offload_prefix(END)
    counts = [len(list((tmp_path / name).glob("*-checksums"))) for name in ("one", "two")]
    assert counts == [2, 0]


def test_a_rate_limit_slows_the_tier_down(environment, records, hot, clock, tmp_path):
    limited = policies_to(tmp_path / "slow", rate_limit_in_bytes_per_second=100_000)
    with (
        offloads_by(lambda _: limited, records, hot, clock) as (offloads, _),
        open_managed_ledger(replace(environment, offloads=offloads), NAME) as topic,
    ):
        topic.add_entry(bytes(150_000))
        topic.roll()
        began = time.monotonic()
        topic.offload_prefix(END)
        assert time.monotonic() - began > 0.3


def test_policies_without_a_driver_offload_nothing(topics, said, clock):
    said[NAME] = policies_to()
    with pytest.raises(OptionError, match="no tier is configured"):
        topics[0].offload_prefix(END)
    done = keep_up(topics[0], said[NAME], clock.now_ms)
    assert set(done.skipped.values()) == {"no tier is configured"}
    assert not done.failures


def test_blocks_are_sent_by_a_process_of_a_lower_priority_where_that_is_asked_for(
    records, hot, said, clock, environment, tmp_path
):
    before = set(psutil.Process().children())
    with (
        offloads_by(said.__getitem__, records, hot, clock, upload_niceness=1) as (offloads, _),
        open_managed_ledger(replace(environment, offloads=offloads), NAME) as topic,
    ):
        topic.add_entry(b"sent elsewhere")
        topic.roll()
        topic.offload_prefix(END)
        (uploading,) = set(psutil.Process().children()) - before
        assert uploading.nice() == min(psutil.Process().nice() + 1, 19)
        assert b"sent elsewhere" in b"".join(
            path.read_bytes() for path in (tmp_path / "one").glob("*-ledger-*")
        )
    assert not uploading.is_running()


# --- the tiers themselves


@pytest.fixture
def named():
    return {}


@pytest.fixture
def to(named):
    """Names a topic that has policies to a folder."""

    def name(folder=None, **given):
        named[name := f"acme/cold/{len(named)}"] = policies_to(folder, **given)
        return name

    return name


@pytest.fixture
def tiers(named):
    with closing(PolicyTiers(named.__getitem__, most_idle=1)) as tiers:
        yield tiers


def where(tier):
    return tier.describe().location


def test_a_tier_is_opened_once_for_the_same_options(tiers, to, tmp_path):
    with tiers.lease(to(tmp_path)) as one, tiers.lease(to(tmp_path, threshold_in_bytes=5)) as two:
        assert one.current is two.current
        assert tiers.open_count == 1
        with tiers.lease(to(tmp_path, rate_limit_in_bytes_per_second=9)) as limited:
            assert limited.current is not one.current
            assert tiers.open_count == 2


def test_those_that_nobody_uses_are_closed_beyond_a_few_the_longest_unused_first(tiers, to, tmp_path):
    a, b, c = (to(tmp_path / name) for name in "abc")
    with tiers.lease(a), tiers.lease(b), tiers.lease(c) as held:
        last = held.current
        assert tiers.open_count == 3
    assert tiers.open_count == 1
    with tiers.lease(a), tiers.lease(b):
        pass
    with tiers.lease(c) as again:
        assert again.current is not last


def test_one_that_is_in_use_stays_open(tiers, to, tmp_path):
    with tiers.lease(to(tmp_path / "held")) as held:
        for number in range(5):
            tiers.lease(to(tmp_path / str(number))).close()
        assert tiers.open_count == 2
        with tiers.lease(to(tmp_path / "held")) as again:
            assert again.current is held.current


def test_a_copy_is_found_where_a_policy_once_pointed_though_that_tier_was_closed(tiers, to, tmp_path):
    with tiers.lease(to(tmp_path / "old")) as old:
        record = tier_record(old.current)
    for number in range(3):
        tiers.lease(to(tmp_path / str(number))).close()
    lease = tiers.lease(to(tmp_path / "now"))
    found = lease.tiers.find(record)
    assert where(found) == where(open_store(str(tmp_path / "old")))
    assert tiers.open_count == 3  # both, and an idle one
    lease.close()
    lease.close()
    assert tiers.open_count == 1


def test_without_a_driver_there_are_only_those_that_were_known(tiers, to, named, tmp_path):
    assert tiers.find_lease(to()) is None
    with pytest.raises(OptionError, match="no tier is configured in which"):
        tiers.lease(to())
    tiers.lease(to(tmp_path / "once")).close()
    with tiers.lease(to()) as known:
        assert where(known.current).endswith("/once")
    with open_store(str(tmp_path / "beside")) as other:
        beside = PolicyTiers(named.__getitem__, [other])
        with beside.lease(to()) as known:
            assert known.current is other
            assert known.find(tier_record(other)) is other
        with beside.lease(to(tmp_path)) as known, pytest.raises(OptionError, match="not configured"):
            known.find(tier_record(open_store(str(tmp_path / "nowhere"))))
        beside.close()
        assert beside.open_count == 0


def test_a_tier_that_takes_long_to_open_holds_nobody_up(tiers, to, tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow_store(name, **given):
        if given["root"].endswith("slow"):
            begun.set()
            assert go_on.wait(DEADLINE_S)
        return open_store(name, **given)

    monkeypatch.setattr(policy_tiers, "open_store", slow_store)

    def fast():
        assert begun.wait(DEADLINE_S)
        tiers.lease(to(tmp_path / "fast")).close()
        go_on.set()

    together([lambda: tiers.lease(to(tmp_path / "slow")).close(), fast], deadline_s=2 * DEADLINE_S)


def test_many_who_want_the_same_tier_get_the_same(tiers, to, tmp_path):
    leases = []
    together(
        [partial(lambda: leases.append(tiers.lease(to(tmp_path)))) for _ in range(8)], deadline_s=DEADLINE_S
    )
    assert len({id(lease.tiers.current) for lease in leases}) == 1
    assert tiers.open_count == 1
    for lease in leases:
        lease.close()


def test_a_tier_that_cannot_be_opened_is_told_and_not_kept(tiers, to):
    with pytest.raises(OptionError, match="root"):
        tiers.lease(to(driver="local"))
    assert tiers.open_count == 0


def test_options_are_in_no_repr(tmp_path):
    assert "hunter2" not in repr(policy_tiers._Options("s3", (("secret", "hunter2"),), None))
