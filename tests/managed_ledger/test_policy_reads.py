"""Which copy of a ledger is read is what its policies or the call say; and a whole configuration set up."""

import contextlib
from dataclasses import replace

import pytest
from commands import configuration_file, opened_service, opened_topic
from managed_ledgers import NAME, offloads_by, policies_to

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, ReadPriority
from offload_core.reading.read_fallbacks import Copy, FallbackReason
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import (
    PolicyReads,
    PolicyTiers,
    RolloverPolicy,
    delete_managed_ledger,
    open_environment,
    open_managed_ledger,
)
from offload_core.writing.policy_store import open_policies
from offload_hooks.errors import (
    LiveAttemptError,
    NoReadableCopyError,
    OffloadStoppedError,
    OptionError,
    StoreError,
    StoreUnavailableError,
    UnknownLedgerError,
)

START, END = EntryPosition(0, 0), EntryPosition(1 << 40, 0)
ALL = list(ReadPriority)


class Said:
    """Policies that a test may change, and how often they were asked for."""

    def __init__(self, said):
        self.said, self.asked, self.error = said, 0, None

    def __call__(self, _):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.said


@pytest.fixture
def said(tmp_path):
    return Said(policies_to(tmp_path / "cold"))


@pytest.fixture
def told():
    return []


@pytest.fixture
def ticks():
    return [0.0]


@pytest.fixture
def offloads(records, hot, clock, said):
    with offloads_by(said, records, hot, clock) as (offloads, tiers):
        yield offloads, tiers


@pytest.fixture
def reads(hot, offloads, said, told, ticks):
    return PolicyReads(hot, offloads[1], kept_s=10, listener=told.append, clock=lambda: ticks[0])


@pytest.fixture
def by_policy(environment, offloads, reads):
    """With nothing of the newest entries in memory."""
    return replace(
        environment,
        offloads=offloads[0],
        open_reader=reads.open_reader,
        priority_of=reads.priority_of,
        cache_bytes=0,
    )


@pytest.fixture
def topic(by_policy):
    """Of three ledgers of one entry each, the third being open."""
    rollover = RolloverPolicy(max_entries=1, min_age_s=0)
    with open_managed_ledger(by_policy, NAME, rollover=rollover) as topic:
        for payload in (b"a", b"b", b"c"):
            topic.add_entry(payload)
        yield topic


def read(topic, **given):
    return [bytes(payload) for _, payload in topic.read_entries(START, 10, **given)]


@pytest.mark.parametrize("priority", ALL)
def test_when_the_hot_copies_are_gone_only_hot_reads_fail(topic, priority):
    topic.offload_prefix(END)
    topic.delete_hot_copies(0)
    if priority is ReadPriority.BOOKKEEPER_ONLY:
        with pytest.raises(UnknownLedgerError):
            read(topic, priority=priority)
    elif priority is ReadPriority.OFFLOADED_ONLY:
        batch = topic.read_entries(START, 2, priority=priority)
        assert [bytes(payload) for _, payload in batch] == [b"a", b"b"]
        with pytest.raises(UnknownLedgerError):  # the last ledger is open, and nowhere else
            topic.read_entries(batch.next_position, 1, priority=priority)
    else:
        assert read(topic, priority=priority) == [b"a", b"b", b"c"]


def test_the_copy_that_is_named_is_the_one_that_is_read(topic, reads, tmp_path, told):
    topic.offload_prefix(END)
    for file in (tmp_path / "cold").glob("*-ledger-*"):
        file.unlink()
    assert read(topic, priority=ReadPriority.BOOKKEEPER_FIRST) == [b"a", b"b", b"c"]
    assert not told
    assert read(topic, priority=ReadPriority.OFFLOADED_FIRST) == [b"a", b"b", b"c"]
    assert [each.copy.value for each in told] == ["cold", "cold"]
    assert reads.fallback_counts == {(Copy.COLD, FallbackReason.MISSING): 2}


def test_the_newest_entries_in_memory_are_no_cold_copy(by_policy):
    with open_managed_ledger(replace(by_policy, cache_bytes=1 << 20), NAME) as topic:
        added = topic.add_entry(b"d")
        assert [bytes(payload) for _, payload in topic.read_entries(added, 1)] == [b"d"]
        with pytest.raises(UnknownLedgerError):
            topic.read_entries(added, 1, priority=ReadPriority.OFFLOADED_ONLY)


def test_without_a_priority_the_policies_count_and_soon_after_they_change(topic, said, ticks, tmp_path):
    topic.offload_prefix(END)
    topic.delete_hot_copies(0)
    assert read(topic) == [b"a", b"b", b"c"]
    asked = said.asked
    for _ in range(5):
        read(topic)
    assert said.asked == asked
    said.said = policies_to(tmp_path / "cold", tiered_read_priority="BOOKKEEPER_ONLY")
    assert read(topic) == [b"a", b"b", b"c"]
    ticks[0] += 10
    with pytest.raises(UnknownLedgerError):
        read(topic)


def test_while_the_policies_cannot_be_asked_for_those_that_were_known_hold(topic, said, ticks):
    assert read(topic) == [b"a", b"b", b"c"]
    said.error = StoreUnavailableError("the metadata does not answer")
    ticks[0] += 10
    assert read(topic) == [b"a", b"b", b"c"]
    said.error = None
    said.said = policies_to(tiered_read_priority="OFFLOADED_ONLY")
    ticks[0] += 10
    with pytest.raises(UnknownLedgerError):
        topic.read_entries(topic.last_position, 1)


def test_where_no_tier_is_configured_hot_copies_are_read(topic, said):
    said.said = policies_to()
    assert read(topic) == [b"a", b"b", b"c"]
    with pytest.raises(OptionError, match="no tier is configured"):
        read(topic, priority=ReadPriority.OFFLOADED_ONLY)


def test_after_a_restart_copies_are_read_and_deleted_where_the_policies_say(
    topic, by_policy, said, records, hot, clock, tmp_path
):
    topic.offload_prefix(END)
    topic.delete_hot_copies(0)
    topic.close()
    with offloads_by(said, records, hot, clock) as (offloads, tiers):
        reads = PolicyReads(hot, tiers)
        anew = replace(
            by_policy, offloads=offloads, open_reader=reads.open_reader, priority_of=reads.priority_of
        )
        with open_managed_ledger(anew, NAME) as topic:
            assert read(topic) == [b"a", b"b", b"c"]
            assert len(topic.trim(RetentionPolicies())) == 3
    assert not list((tmp_path / "cold").glob("*-ledger-*"))


# --- a configuration ---------------------------------------------------------------------------------


@pytest.fixture
def counted_environment(tmp_path):
    """By a whole configuration, and what is counted in it."""
    configuration, counted = load_configuration(configuration_file(tmp_path)), Counted()
    with (
        open_policies(configuration) as (store, said),
        open_environment(configuration, store, said, stats=counted) as environment,
    ):
        yield environment, counted


def test_a_configuration_is_all_that_a_topic_needs(counted_environment, tmp_path):
    environment, counted = counted_environment
    with open_managed_ledger(replace(environment, cache_bytes=0), NAME) as topic:
        topic.add_entry(b"a")
        topic.roll()
        topic.offload_prefix(END)
        assert topic.delete_hot_copies(0)
        assert read(topic) == [b"a"]
        assert topic.trim(RetentionPolicies())
    assert {call[1] for call in counted.calls} == {topic_of_managed_ledger(NAME).full}
    assert {call[0] for call in counted.calls} == {
        *("time_ledger_read", "count_offloaded", "count_deletion"),
        *("time_index_read", "time_data_read", "count_read"),
    }
    assert all(call[2] > 0 for call in counted.calls if call[0].startswith("time_"))
    (offloaded,) = (call[2] for call in counted.calls if call[0] == "count_offloaded")
    assert offloaded > 128
    assert offloaded in [call[2] for call in counted.calls if call[0] == "count_read"]
    assert counted.calls[-1][2:] == (True,)
    assert (tmp_path / "audit.jsonl").read_text().count("\n") == 3


def test_with_a_topic_its_policies_go(tmp_path):
    topic = topic_of_managed_ledger(NAME)
    with opened_service(configuration_file(tmp_path)) as (environment, said):
        said.change_topic(topic, lambda level: level.with_fields(max_threads=3))
        open_managed_ledger(environment, NAME).delete()
        assert said.topic(topic).offload is None
        said.change_topic(topic, lambda level: level.with_fields(max_threads=3))
        assert delete_managed_ledger(environment, NAME) is False  # who deleted it may have been cut off
        assert said.topic(topic).offload is None


def test_copies_in_a_tier_that_no_policy_names_any_more_are_found_if_it_is_configured(tmp_path):
    file = configuration_file(tmp_path)
    with opened_topic(file, NAME) as (_, topic):
        topic.add_entry(b"a")
        topic.roll()
        topic.offload_prefix(END)
        assert topic.delete_hot_copies(0)
    file.write_text(file.read_text().replace(f"{tmp_path}/cold", f"{tmp_path}/other"))
    with (
        opened_topic(file, NAME) as (_, topic),
        pytest.raises(NoReadableCopyError, match="Configure that tier"),
    ):
        read(topic)
    with file.open("a") as config:
        config.write(f'[[tiers]]\ndriver = "local"\noptions.root = "{tmp_path}/cold"\n')
    with opened_topic(file, NAME) as (_, topic):
        assert read(topic) == [b"a"]
        assert topic.trim(RetentionPolicies())
    assert not list((tmp_path / "cold").glob("*-ledger-*"))


@pytest.fixture
def counted_topic(environment, records, hot, clock, tmp_path):
    """One with a sealed ledger, its offloads, and what is counted of them."""
    counted, to_cold = Counted(), policies_to(tmp_path / "cold")
    with (
        offloads_by(lambda _: to_cold, records, hot, clock, stats=counted) as (offloads, _),
        open_managed_ledger(replace(environment, offloads=offloads), NAME) as topic,
    ):
        topic.add_entry(b"a")
        topic.roll()
        yield topic, offloads, counted


def test_an_offload_that_fails_is_counted(counted_topic, tmp_path):
    topic, _, counted = counted_topic
    (tmp_path / "cold").touch()
    with pytest.raises(StoreError):
        topic.offload_prefix(END)
    full = topic_of_managed_ledger(NAME).full
    assert counted.calls == [("count_write_error", full), ("count_offload_error", full)]


def test_an_offload_that_another_is_at_or_that_is_stopped_has_not_failed(counted_topic):
    topic, offloads, counted = counted_topic
    ledger_id = topic.last_position.ledger_id

    def listen(_):
        with pytest.raises(LiveAttemptError):
            offloads.offload(NAME, ledger_id)
        raise OffloadStoppedError("enough")

    with pytest.raises(OffloadStoppedError):
        offloads.offload(NAME, ledger_id, listener=listen)
    kinds = [kind for kind, *_ in counted.calls]
    assert "count_offloaded" in kinds
    assert "count_offload_error" not in kinds


def test_reads_that_fail_and_turn_to_the_other_copy_are_counted(counted_environment, tmp_path):
    environment, counted = counted_environment
    with open_managed_ledger(environment, NAME) as topic:
        topic.add_entry(b"a")
        topic.roll()
        topic.offload_prefix(END)
    for file in (tmp_path / "cold").glob("*-ledger-*"):
        file.unlink()
    counted.calls.clear()
    with open_managed_ledger(environment, NAME) as again:
        assert read(again) == [b"a"]
    assert ("count_fallback", "cold", "missing") in counted.calls
    assert ("count_read_error", topic_of_managed_ledger(NAME).full) in counted.calls


def test_a_reader_keeps_its_tier_open_until_it_is_closed(topic, hot, said, tmp_path):
    topic.offload_prefix(END)
    record = topic.read_info().in_order[0]
    with contextlib.closing(PolicyTiers(said, most_idle=0)) as tiers:
        reader = PolicyReads(hot, tiers).open_reader(record, ReadPriority.OFFLOADED_ONLY, NAME)
        assert tiers.open_count == 1
        said.said = policies_to(tmp_path / "other")
        tiers.lease(NAME).close()
        assert tiers.open_count == 1
        assert bytes(reader.read(0, 0)[0]) == b"a"
        reader.close()
        reader.close()
        assert tiers.open_count == 0
        with pytest.raises(UnknownLedgerError):
            PolicyReads(hot, tiers).open_reader(
                topic.read_info().in_order[-1], ReadPriority.OFFLOADED_ONLY, NAME
            )
        assert tiers.open_count == 0


def test_a_configuration_without_a_hot_tier_is_refused(tmp_path):
    configuration = load_configuration(
        None, {"metadata": {"url": f"sqlite:{tmp_path}/r.db", "options": {"create": True}}}
    )
    with (
        open_policies(configuration) as (store, said),
        pytest.raises(OptionError, match="hot tier"),
        open_environment(configuration, store, said),
    ):
        pass


class Counted:
    """What was counted, in order."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if not name.startswith(("count_", "time_")):
            raise AttributeError(name)
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))
