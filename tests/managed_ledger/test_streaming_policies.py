"""Policies switch a topic's streaming, and whoever has its record can have its segment completed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from managed_ledgers import NAME, environment_in, policies_to
from scenes.segments import pool_of

from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo, segments_of
from offload_core.writing.managed_ledger import (
    StreamingSettings,
    first_unoffloaded,
    keep_up,
    open_managed_ledger,
    request_completion,
    topic_offloads,
)
from offload_core.writing.managed_ledger.owned_record import OWNER_PROPERTY, with_property
from offload_core.writing.managed_ledger.streaming.completion_requests import (
    requests_of,
    with_request,
    without_requests,
)
from offload_hooks.errors import OptionError, StoreTimeoutError, UnknownTopicError

MIB = 1 << 20


def policies(**given):
    """Of the topic: a driver, each sealed ledger at once, and these."""
    return policies_to(**{"driver": "local", "threshold_in_bytes": 0, **given})


STREAMED = policies(
    streaming=True,
    max_segment_size_in_bytes=MIB,
    max_segment_age_in_seconds=7,
    max_block_size_in_bytes=5 * MIB,
)
BY_LEDGERS = policies(streaming=False)


@pytest.fixture
def streaming(environment, cold, clock):
    return replace(environment, streaming=pool_of(cold.store, clock, budget_bytes=32 * MIB))


@pytest.fixture
def topic(streaming):
    with open_managed_ledger(streaming, NAME) as topic:
        yield topic


def test_streaming_is_switched_on_and_off_by_policies(topic, clock):
    assert not keep_up(topic, BY_LEDGERS, clock.now_ms).failures
    assert topic.streaming is None
    assert not keep_up(topic, STREAMED, clock.now_ms).failures
    assert topic.streaming == StreamingSettings(
        max_segment_bytes=MIB, max_segment_age_s=7, block_bytes=5 * MIB
    )
    keep_up(topic, policies(streaming=True), clock.now_ms)
    assert topic.streaming == StreamingSettings()
    keep_up(topic, policies(streaming=True, driver=None), clock.now_ms)
    assert topic.streaming is None


@pytest.mark.parametrize("checksums", [True, False])
def test_segments_have_checksums_where_the_policies_say_so(topic, cold, clock, checksums):
    small = {"streaming": True, "max_block_size_in_bytes": 5 * MIB}
    keep_up(topic, policies(**small, checksums=checksums), clock.now_ms)
    topic.add_entries([b"one", b"two"])
    topic.complete_segment()
    (segment,) = segments_of(topic.read_info())
    keys = {each.key for each in cold.store.list_objects()}
    assert (f"{segment.uuid}" in keys, f"{segment.uuid}-checksums" in keys) == (True, checksums)


def test_a_streamed_topic_is_not_offloaded_by_ledgers_also_not_beside_its_owner(topic, streaming, clock):
    topic.add_entry(b"one")
    topic.roll()
    sealed = topic.read_info().in_order[0].ledger_id
    for each in (topic, topic_offloads(streaming, NAME)):
        done = keep_up(each, STREAMED, clock.now_ms)
        assert (done.offloaded, dict(done.skipped), dict(done.failures)) == (
            (),
            {sealed: "the topic is streamed by its owner"},
            {},
        )
    topic.complete_segment()
    keep_up(topic, BY_LEDGERS, clock.now_ms)
    topic.add_entry(b"two")
    topic.roll()
    assert keep_up(topic, BY_LEDGERS, clock.now_ms).offloaded == (topic.last_position.ledger_id,)


def test_what_an_owner_left_is_finished_also_where_streaming_was_switched_off_since(
    streaming, clock, recorded
):
    pool = streaming.streaming
    with open_managed_ledger(streaming, NAME) as topic:
        keep_up(topic, STREAMED, clock.now_ms)
        topic.add_entries([b"one", b"two"])
        topic.complete_segment()
        topic.add_entry(b"three")  # closed here, the ledger is partly in segments
    clock.pass_s(400)
    with open_managed_ledger(streaming, NAME) as topic:
        done = keep_up(topic, BY_LEDGERS, clock.now_ms)
        assert (done.offloaded, dict(done.failures)) == ((), {})
        pool.run_due()
        assert [segment.is_finished for segment in segments_of(recorded())] == [True, True]
        assert first_unoffloaded(recorded()).entry_id == 3
        assert topic.streaming_status.state == "off"


def test_without_a_pool_a_round_says_that_nothing_is_streamed(opened, clock):
    with opened() as topic:
        done = keep_up(topic, STREAMED, clock.now_ms)
    assert isinstance(done.failures["streaming"], OptionError)


def test_a_round_completes_the_segment_for_those_who_asked_for_it(topic, streaming, clock, recorded):
    keep_up(topic, STREAMED, clock.now_ms)
    topic.add_entries([b"one", b"two"])
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(request_completion, streaming.records, NAME)
        while not requests_of(recorded()):
            assert not asked.done()
        keep_up(topic, STREAMED, clock.now_ms)
        info = asked.result(10)
    (segment,) = segments_of(info)
    assert (segment.is_finished, segment.end) == (True, topic.last_position)
    assert first_unoffloaded(info) == EntryPosition(topic.last_position.ledger_id, 2)
    keep_up(topic, STREAMED, clock.now_ms)
    assert segments_of(recorded()) == (segment,)


def test_a_request_goes_on_waiting_where_the_tier_fails(topic, streaming, cold, clock, recorded, monkeypatch):
    keep_up(topic, STREAMED, clock.now_ms)
    topic.add_entry(b"one")
    streaming.records.update(NAME, partial(with_request, mark="mine"))

    def fail(*_, **__):
        raise OptionError("no such tier")

    with monkeypatch.context() as patch:
        patch.setattr(cold.store, "begin_data", fail)
        assert "streaming" in keep_up(topic, STREAMED, clock.now_ms).failures
    assert requests_of(recorded()) == ("mine",)
    clock.pass_s(100)
    assert not keep_up(topic, STREAMED, clock.now_ms).failures
    assert requests_of(recorded()) == ()
    assert all(segment.is_finished for segment in segments_of(recorded()))


def test_a_request_to_a_topic_that_is_not_streamed_is_answered(topic, streaming, clock, recorded):
    topic.add_entry(b"one")
    streaming.records.update(NAME, partial(with_request, mark="mine"))
    keep_up(topic, BY_LEDGERS, clock.now_ms)
    assert requests_of(recorded()) == ()


# --- whoever has a topic's record can have its owner complete the segment that is written


@pytest.fixture
def records(tmp_path):
    """Of a topic that somebody has open."""
    found = environment_in(tmp_path).records
    found.write(NAME, with_property(ManagedLedgerInfo(), OWNER_PROPERTY, "0" * 32), None)
    return found


def test_marks_come_and_go_by_themselves():
    info = ManagedLedgerInfo()
    both = with_request(with_request(info, "a"), "b")
    assert requests_of(both) == ("a", "b")
    assert with_request(both, "a") == both
    assert requests_of(without_requests(both, ["a"])) == ("b",)
    assert without_requests(both, ["a", "b", "c"]) == info


def test_a_request_waits_until_its_own_mark_is_gone(records):
    records.update(NAME, partial(with_request, mark="another's"))
    looks = []

    def answer(_):
        looks.append(requests_of(records.read(NAME).info))
        assert len(looks[-1]) == 3 - len(looks)
        records.update(NAME, partial(without_requests, marks=[looks[-1][0]]))

    request_completion(records, NAME, wait=answer)
    assert len(looks) == 2


def test_a_request_that_nobody_answers_is_withdrawn(records):
    with pytest.raises(StoreTimeoutError, match=NAME):
        request_completion(records, NAME, timeout_s=0.3)
    assert requests_of(records.read(NAME).info) == ()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_topic_that_nobody_has_open_or_whose_owner_closes_it_is_told_at_once(tmp_path, meanwhile):
    environment = environment_in(tmp_path)
    owner = open_managed_ledger(environment, NAME)
    if not meanwhile:
        owner.close()
    with pytest.raises(OptionError, match="no process has"):
        request_completion(environment.records, NAME, wait=lambda _: owner.close())
    assert requests_of(environment.records.read(NAME).info) == ()


def test_a_topic_that_is_not_there_or_goes_is_told(records):
    with pytest.raises(UnknownTopicError):
        request_completion(records, "acme/cold/persistent/other")

    def delete(_):
        records.delete(NAME, records.read(NAME))

    with pytest.raises(UnknownTopicError, match="meanwhile"):
        request_completion(records, NAME, wait=delete)
