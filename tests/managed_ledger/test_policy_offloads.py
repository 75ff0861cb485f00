"""Each topic is offloaded to the tier that its policies name; what lies elsewhere is found where its record says."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from managed_ledgers import NAME
from scenes.segments import SegmentedOffloads

from offload_core.metadata.policies import RetentionPolicies, parse_policies, resolve_policies
from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import PolicyOffloads, RolloverPolicy, keep_up, open_managed_ledger
from offload_core.writing.settings import ResolvedPolicies
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, scan

OTHER = "acme/cold/persistent/other"
END = EntryPosition(1 << 40, 0)


def to(folder, **given):
    said = {"driver": "local", "extra_configurations": {"root": str(folder)}, **given}
    return ResolvedPolicies(
        offload=resolve_policies(topic=parse_policies(said)),
        retention=RetentionPolicies(),
        retention_origin="topic",
    )


@pytest.fixture
def said(tmp_path):
    """Policies by managed ledger; a test may change them."""
    return {NAME: to(tmp_path / "one"), OTHER: to(tmp_path / "two")}


@pytest.fixture
def offloads(records, hot, said, clock):
    offloads = PolicyOffloads(records, hot, said.__getitem__, now_ms=clock)
    yield offloads
    offloads.close()


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
    said[NAME] = to(tmp_path / "three")
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
    said[NAME] = to(tmp_path / "three")
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
        with closing(
            PolicyOffloads(records, hot, said.__getitem__, others=[tier.store], now_ms=clock)
        ) as beside:
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
    said[NAME] = to(tmp_path / "three")
    after_restart = PolicyOffloads(records, hot, said.__getitem__, now_ms=clock)
    with pytest.raises(OptionError, match="not configured"):
        after_restart.delete_hot_copy(NAME, first, 0)
    with open_tier(tmp_path / "one") as tier:
        beside = PolicyOffloads(records, hot, said.__getitem__, others=[tier.store], now_ms=clock)
        assert beside.delete_hot_copy(NAME, first, 0)
        beside.close()
        assert list(tier.store.list_objects())  # what it did not open, it does not close
    after_restart.close()
    assert next(iter(hot.ledger_ids())) == second


def test_blocks_and_threads_are_those_of_the_policies(topics, said, tmp_path, monkeypatch):
    seen = []

    class Watched:
        def __init__(self, tier, **given):
            seen.append(given)
            self._offloader = original(tier, **given)

        def __getattr__(self, name):
            return getattr(self._offloader, name)

    from offload_core.writing.managed_ledger import policy_offloads

    original = policy_offloads.LedgerOffloader
    monkeypatch.setattr(policy_offloads, "LedgerOffloader", Watched)
    said[NAME] = to(tmp_path / "one", max_block_size_in_bytes=5 << 20, max_threads=3)
    topics[0].offload_prefix(END)
    assert {(each["max_block_bytes"], each["parts_in_flight"]) for each in seen} == {(5 << 20, 3)}
    assert len({id(each["budget"]) for each in seen}) == 1


def test_checksums_are_written_where_the_policies_say_so(topics, said, tmp_path):
    said[NAME] = to(tmp_path / "one", checksums=True)
    for topic in topics:
        topic.offload_prefix(END)
    counts = [len(list((tmp_path / name).glob("*-checksums"))) for name in ("one", "two")]
    assert counts == [2, 0]


def test_a_rate_limit_slows_the_tier_down(environment, records, hot, clock, tmp_path):
    limited = to(tmp_path / "slow", rate_limit_in_bytes_per_second=100_000)
    offloads = PolicyOffloads(records, hot, lambda _: limited, now_ms=clock)
    with open_managed_ledger(replace(environment, offloads=offloads), NAME) as topic:
        topic.add_entry(bytes(150_000))
        topic.roll()
        began = time.monotonic()
        topic.offload_prefix(END)
        assert time.monotonic() - began > 0.3
    offloads.close()


def test_policies_without_a_driver_offload_nothing(topics, said, clock):
    said[NAME] = replace(to("unused"), offload=resolve_policies())
    with pytest.raises(OptionError, match="no tier is configured"):
        topics[0].offload_prefix(END)
    done = keep_up(topics[0], replace(said[NAME], retention_origin="default"), clock.now_ms)
    assert set(done.skipped.values()) == {"no tier is configured"}
    assert not done.failures


def test_blocks_are_sent_by_a_process_of_a_lower_priority_where_that_is_asked_for(
    records, hot, said, clock, environment, tmp_path
) -> None:
    offloads = PolicyOffloads(records, hot, said.__getitem__, now_ms=clock, upload_niceness=1)
    by_policy = replace(environment, offloads=offloads)
    before = set(psutil.Process().children())
    with closing(offloads), open_managed_ledger(by_policy, NAME) as topic:
        topic.add_entry(b"sent elsewhere")
        topic.roll()
        topic.offload_prefix(END)
        (uploading,) = set(psutil.Process().children()) - before
        assert uploading.nice() == min(psutil.Process().nice() + 1, 19)
        assert b"sent elsewhere" in b"".join(
            path.read_bytes() for path in (tmp_path / "one").glob("*-ledger-*")
        )
    assert not uploading.is_running()
