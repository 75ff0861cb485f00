"""Topics of a running cluster are offloaded beside its brokers: what is copied, given, taken back and deleted."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import pytest
from crash_points import EACH_CALL, Points, each_turn
from scenes.live_topics import (
    ALL,
    BROKERS_DRIVER,
    NAME,
    TOPIC,
    BucketDriver,
    LiveTopic,
    ModelBrokers,
    offload_due,
)
from tiers import uuid_of

from offload_core.maintenance.live import LiveCopies, LiveTopicOffloads, live_offloads
from offload_core.metadata.policies import parse_policies, resolve_policies
from offload_core.metadata.records import EntryPosition, OffloadContext
from offload_core.metadata.records.live_changes import abandon_own, given_ledgers, own_ledgers
from offload_core.writing.audit import Change, Deletion
from offload_core.writing.managed_ledger import due_ledgers, keep_up
from offload_hooks.errors import (
    DataLossError,
    OffloadError,
    OptionError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnknownTopicError,
)

THEIRS = uuid_of(7)


@pytest.fixture(autouse=True)
def no_power_fails(monkeypatch):
    """The disk would take most of the time; what it keeps is tested with the driver."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def topic(tmp_path):
    return LiveTopic(tmp_path)


def test_sealed_ledgers_are_offloaded_and_brokers_read_them(topic):
    *sealed, last = topic.info().in_order
    done = topic.offload()
    assert done.offloaded == tuple(each.ledger_id for each in sealed)
    assert done.waiting == {last.ledger_id: "it is open"}
    topic.check_done()
    assert all(topic.info().ledger(each).has_hot_copy for each in done.offloaded)
    brokers = ModelBrokers(topic, Points())
    assert (
        brokers.read_entry(TOPIC, EntryPosition(done.offloaded[0], 1)) == topic.payloads[done.offloaded[0]][1]
    )


def test_a_run_without_new_ledgers_changes_and_reloads_nothing(topic):
    for _ in range(3):
        topic.offload()
    before = topic.metadata.get(f"/managed-ledgers/{NAME}")
    points = Points()
    assert topic.offload(points).offloaded == ()
    assert topic.metadata.get(f"/managed-ledgers/{NAME}") == before
    assert not {"broker unload", "begin_data", "put"}.intersection(points.calls)


def test_all_ledgers_are_given_by_one_write(topic, monkeypatch):
    writes = []

    def replaced(*given):
        writes.append(given)
        return topic.metadata.put(*given)

    monkeypatch.setattr(topic.metadata, "replace", replaced)
    assert len(topic.offload().offloaded) > 1
    assert len(writes) == 1


def test_thresholds_count_as_pulsars(topic):
    sizes = {each.ledger_id: each.info.size for each in topic.info().ledgers if each.info.is_closed}
    *_, newest = sorted(sizes)
    kept = resolve_policies(topic=parse_policies({"driver": "aws-s3", "threshold_in_bytes": sizes[newest]}))
    done = topic.offload(thresholds=kept)
    assert done.offloaded == tuple(sorted(sizes))[:-1]
    assert "the threshold" in done.waiting[newest]


def test_the_audit_log_has_each_change_of_the_record_before_it_is_made(topic):
    done = topic.offload()
    changes = [each for each in topic.audit.changes if isinstance(each, Change)]
    assert [each.ledger_id for each in changes] == list(done.offloaded)
    assert {each.managed_ledger for each in changes} == {NAME}
    assert [each.uuid for each in changes] == [
        topic.info().ledger(each).context.uuid for each in done.offloaded
    ]


# --- ledgers that are left out -----------------------------------------------------------------


def test_a_ledger_that_a_broker_has_begun_to_offload_is_left_to_it(topic):
    first, second, *_ = topic.info().in_order
    topic.begin_offload(first.ledger_id, THEIRS)
    done = topic.offload()
    assert f"attempt {THEIRS}" in done.waiting[first.ledger_id]
    assert second.ledger_id in done.offloaded
    assert topic.info().ledger(first.ledger_id).context == OffloadContext(uuid=THEIRS, driver=BROKERS_DRIVER)


def test_a_last_ledger_that_is_closed_is_not_offloaded(topic):
    """A broker that loads the topic would forget its context."""
    topic.roll()
    info = topic.info()
    topic.records.update(NAME, lambda info: replace(info, ledgers=info.ledgers[:-1]))
    last = info.in_order[-2].ledger_id
    done = topic.offload()
    assert "last ledger" in done.waiting[last]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"entries": 1}, "BookKeeper has 5 entries"), ({"size": 1}, "of 1"), ({"timestamp_ms": 0}, "open")],
)
def test_a_ledger_that_is_not_what_the_record_says_is_not_offloaded(topic, change, why):
    first = topic.info().in_order[0]
    topic.records.update(
        NAME, lambda info: info.with_ledger(replace(first, info=replace(first.info, **change)))
    )
    done = topic.offload()
    assert why in done.waiting[first.ledger_id]


def test_a_ledger_that_bookkeeper_has_no_more_is_skipped(topic):
    first = topic.info().in_order[0].ledger_id
    del topic.ledgers.ledgers[first]
    assert topic.offload().waiting[first] == "BookKeeper has it no more"


def test_an_unknown_topic_is_an_error(tmp_path):
    topic = LiveTopic(tmp_path)
    topic.records.delete(NAME, topic.records.require(NAME))
    with pytest.raises(UnknownTopicError):
        topic.offload()


def test_policies_without_a_tier_are_refused(tmp_path):
    with pytest.raises(OptionError, match="no tier is configured"):
        LiveTopic(tmp_path, policies={"driver": None}).offload()


@pytest.mark.parametrize(
    ("driver", "location"),
    [("aws-s3", "s3://cold/prefix/"), ("local", "s3://cold/"), ("filesystem", "/cold")],
)
def test_a_tier_that_brokers_do_not_read_is_refused(tmp_path, driver, location):
    class Elsewhere(BucketDriver):
        pass

    Elsewhere.location = location
    topic = LiveTopic(tmp_path, driver=Elsewhere, policies={"driver": driver})
    with pytest.raises(OptionError, match="brokers cannot read"):
        topic.offload()
    assert topic.objects() == set()


def test_a_filter_that_leaves_gaps_is_refused(tmp_path):
    topic = LiveTopic(tmp_path)
    cluster = topic.cluster()
    chosen = replace(cluster.mirror.filter_of(NAME), name="transactions")
    gaps = replace(chosen, mode=type(chosen.mode).GAP)
    cluster = replace(cluster, mirror=replace(cluster.mirror, filter_of=lambda _: gaps))
    with pytest.raises(OptionError, match="leave gaps"):
        offload_due(cluster)


# --- what goes wrong ---------------------------------------------------------------------------


def test_a_copy_that_is_damaged_is_deleted_and_never_named(topic, monkeypatch):
    def refuse(*_):
        raise DataLossError("a new copy is not sound")

    monkeypatch.setattr(live_offloads, "check_objects", refuse)
    with pytest.raises(DataLossError):
        topic.offload()
    assert topic.objects() == set()
    assert not any(each.context for each in topic.info().ledgers)
    assert own_ledgers(topic.mirror()) == ()
    monkeypatch.undo()
    topic.offload()
    topic.check_done()


def test_a_broker_that_does_not_read_the_tier_goes_on_with_bookkeeper(topic):
    topic.is_denied = True
    with pytest.raises(DataLossError, match=r"does not read what was offloaded.*no credentials"):
        topic.offload()
    assert not any(each.has_complete_copy for each in topic.info().ledgers)
    assert ModelBrokers(topic, Points()).read_entry(TOPIC, EntryPosition(min(topic.payloads), 0))
    topic.is_denied = False
    topic.offload()
    topic.check_done()


def test_a_copy_that_vanishes_before_it_is_named_is_taken_back(topic, monkeypatch):
    """As by a garbage collection that took it for left."""
    cluster = topic.cluster()
    update = cluster.records.update

    def after_a_deletion(*given, **how):
        for path in topic.cold.rglob("*-index"):
            path.unlink()
        return update(*given, **how)

    monkeypatch.setattr(cluster.records, "update", after_a_deletion)
    with pytest.raises(DataLossError, match="does not match its record"):
        offload_due(cluster)
    topic.check()
    assert not any(each.has_complete_copy for each in topic.info().ledgers)


def test_no_broker_has_the_topic_loaded_when_its_record_is_written(topic, monkeypatch):
    """It would close it with entries on their way, which producers send again."""
    cluster = topic.cluster()
    write, loaded = cluster.records.write, []

    def watched(*given):
        loaded.append(topic.loaded)
        return write(*given)

    monkeypatch.setattr(cluster.records, "write", watched)
    topic.load()
    offload_due(cluster)
    topic.is_denied = True
    topic.send(1)
    topic.roll()
    with pytest.raises(DataLossError, match="does not read what was offloaded"):
        offload_due(cluster)
    assert loaded == [None, None, None], "given, given again, and taken back"


def test_a_broker_that_never_loads_the_topic_anew_is_told_and_the_next_run_goes_on(topic, monkeypatch):
    monkeypatch.setattr(ModelBrokers, "unload", lambda *_: None)
    with pytest.raises(StoreTimeoutError, match="does not use the cold copies"):
        topic.offload()
    assert own_ledgers(topic.mirror())
    topic.check()
    monkeypatch.undo()
    topic.offload()
    topic.check_done()


def test_a_broker_that_knows_no_ledger_yet_is_asked_again(topic, monkeypatch):
    """As one that begins to load the topic, perhaps by an older record."""
    offloaded, answers = ModelBrokers.offloaded, []

    def empty_first(brokers, name):
        answers.append({} if len(answers) % 3 == 0 else offloaded(brokers, name))
        return answers[-1]

    monkeypatch.setattr(ModelBrokers, "offloaded", empty_first)
    topic.offload()
    assert answers[0] == {}
    assert any(answers[-1].values())
    monkeypatch.undo()
    topic.check_done()


def test_a_copy_that_no_record_can_get_any_more_is_deleted_by_the_next_run(topic):
    """The broker begins an offload of its own after ours is complete, and before it is given."""
    first = topic.info().in_order[0].ledger_id
    cluster = topic.cluster()
    give = cluster.records.update
    cluster.records.update = lambda *given, **how: (topic.begin_offload(first, THEIRS), give(*given, **how))[
        1
    ]
    done = offload_due(cluster)
    assert f"attempt {THEIRS}" in done.waiting[first]
    assert [each.ledger_id for each in own_ledgers(topic.mirror()) if each.ledger_id == first]
    topic.offload()
    topic.check_done(but=(first,))
    (deletion,) = [each for each in topic.audit.changes if isinstance(each, Deletion)]
    assert deletion.ledger_id == first
    assert "never used" in deletion.why


def test_a_copy_is_not_deleted_that_the_record_gets_meanwhile(topic):
    """Two processes: one takes a copy for surplus, and the other gives it."""
    first = topic.info().in_order[0].ledger_id
    cluster = topic.cluster()
    give = cluster.records.update

    def fail(*_, **__):
        raise OffloadError("before it was given")

    cluster.records.update = fail
    with pytest.raises(OffloadError, match="before it was given"):
        offload_due(cluster)
    cluster.records.update = give
    ours = topic.mirror().ledger(first)
    topic.offload()
    LiveCopies(cluster, NAME).delete(ours, "taken for surplus")
    topic.check()
    assert topic.info().ledger(first).has_complete_copy
    topic.offload()
    topic.check_done()


def test_one_damaged_copy_does_not_hold_up_the_others(topic, monkeypatch):
    first = topic.info().in_order[0].ledger_id
    real = live_offloads.check_objects

    def refuse_first(tier, key):
        if key.ledger_id == first:
            raise DataLossError("a new copy is not sound")
        real(tier, key)

    monkeypatch.setattr(live_offloads, "check_objects", refuse_first)
    with pytest.raises(DataLossError):
        topic.offload()
    topic.check()
    *sealed, _ = topic.info().in_order
    assert [each.ledger_id for each in sealed[:3] if not each.has_complete_copy] == [first]
    monkeypatch.undo()
    topic.check_done()


def killed_after_it_was_given(topic, monkeypatch):
    def fail(*_, **__):
        raise OffloadError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(LiveCopies, "_use", fail)
        with pytest.raises(OffloadError, match="killed here"):
            topic.offload()
    assert given_ledgers(topic.info(), topic.mirror())


def test_a_copy_that_was_given_before_a_kill_is_looked_at_by_the_next_run(topic, monkeypatch, caplog):
    """Its broker cannot read it, and goes on with BookKeeper's; nothing else is left."""
    killed_after_it_was_given(topic, monkeypatch)
    topic.is_denied = True
    topic.offload()
    assert "it is taken back" in caplog.text
    assert not any(each.has_complete_copy for each in topic.info().ledgers)
    with pytest.raises(DataLossError, match="does not read what was offloaded"):
        topic.offload()
    assert not any(each.has_complete_copy for each in topic.info().ledgers)
    topic.is_denied = False
    topic.offload()
    topic.check_done()


def test_a_copy_that_the_live_record_has_is_not_touched_by_one_that_takes_it_for_surplus(topic, monkeypatch):
    killed_after_it_was_given(topic, monkeypatch)
    first = topic.mirror().in_order[0]
    before, points = topic.objects(), Points()
    LiveCopies(topic.cluster(points), NAME).delete(first, "taken for surplus")
    assert "delete" not in points.calls
    assert topic.objects() == before
    assert not [each for each in topic.audit.changes if isinstance(each, Deletion)]
    topic.check_done()


def test_a_round_of_upkeep_finishes_what_a_kill_left_though_nothing_is_due(topic, monkeypatch):
    killed_after_it_was_given(topic, monkeypatch)
    offloads = LiveTopicOffloads(topic.cluster(), NAME)
    assert offloads.is_unfinished
    assert due_ledgers(offloads.read_info(), ALL, topic.clock()).target is None
    done = keep_up(offloads, topic.resolved(), topic.clock())
    assert done.failures == {}
    assert not offloads.is_unfinished
    topic.check_done()


def test_a_copy_that_another_process_abandons_while_it_is_given_is_taken_back(topic):
    first = topic.info().in_order[0].ledger_id
    cluster = topic.cluster()
    give = cluster.records.update
    mirror = topic.mirrors

    def give_and_abandon(*given, **how):
        written = give(*given, **how)
        (uuid,) = written.info.ledger(first).copy_uuids or (THEIRS,)
        mirror.update(NAME, lambda info: abandon_own(info, first, uuid))
        return written

    cluster.records.update = give_and_abandon
    done = offload_due(cluster)
    assert "another process" in done.waiting[first]
    assert first not in done.offloaded
    assert not topic.info().ledger(first).has_complete_copy
    topic.check_done()


def test_a_copy_that_another_process_deleted_before_it_was_given_is_taken_back_at_once(topic, monkeypatch):
    """Before anything is waited for: the process may end there, and no other would look at it."""
    cluster = topic.cluster()
    give = cluster.records.update
    first = topic.info().in_order[0].ledger_id

    def delete_and_give(*given, **how):
        cluster.records.update = give
        LiveCopies(topic.cluster(), NAME).delete(topic.mirror().ledger(first), "taken for surplus")
        return give(*given, **how)

    cluster.records.update = delete_and_give
    monkeypatch.setattr(
        ModelBrokers, "unload", lambda *_: None
    )  # so that the topic is never seen to be loaded anew
    with pytest.raises(StoreTimeoutError):
        offload_due(cluster)
    topic.check()
    monkeypatch.undo()
    topic.check_done()


def test_a_copy_that_another_process_confirms_while_it_is_given_stays(topic):
    cluster = topic.cluster()
    give = cluster.records.update

    def give_and_confirm(*given, **how):
        cluster.records.update = give
        written = give(*given, **how)
        topic.offload()
        assert own_ledgers(topic.mirror()) == ()
        return written

    cluster.records.update = give_and_confirm
    done = offload_due(cluster)
    assert done.offloaded == (0, 1, 2)
    topic.check_done()


def test_a_copy_in_a_tier_that_policies_name_no_more_is_not_given(topic):
    class OtherBucket(BucketDriver):
        location = "s3://other/"
        bucket = "other"

    first = topic.info().in_order[0].ledger_id
    cluster = topic.cluster()

    def fail(*_, **__):
        raise OffloadError("before it was given")

    cluster.records.update = fail
    with pytest.raises(OffloadError, match="before it was given"):
        offload_due(cluster)
    topic.driver = OtherBucket
    done = topic.offload()
    assert "a tier that is not configured" in done.waiting[first]
    assert not topic.info().ledger(first).has_complete_copy


def test_a_brokers_deletion_lag_begins_after_a_grace(topic):
    done = topic.offload()
    for ledger_id in done.offloaded:
        assert topic.info().ledger(ledger_id).context.timestamp_ms == topic.clock() + 60_000


def test_copies_are_given_later_where_the_broker_offloads_the_topic(topic):
    topic.is_offloading = True
    done = topic.offload()
    assert done.offloaded == ()
    assert "given later" in done.waiting[topic.info().in_order[0].ledger_id]
    assert not any(each.has_complete_copy for each in topic.info().ledgers)
    topic.is_offloading = False
    topic.check_done()


def test_a_topic_of_which_brokers_show_no_entry_is_offloaded_unseen(topic, monkeypatch, caplog):
    """As of encrypted messages that are compressed."""

    def refuse(*_):
        raise StoreUnavailableError("500")

    monkeypatch.setattr(ModelBrokers, "read_entry", refuse)
    assert topic.offload().offloaded
    assert "show no entry" in caplog.text


def test_brokers_that_answer_nothing_at_all_are_not_ones_that_show_no_entry(topic, monkeypatch, caplog):
    def refuse(*_):
        raise StoreUnavailableError("503")

    with monkeypatch.context() as patch:
        for name in ("read_entry", "offloaded"):
            patch.setattr(ModelBrokers, name, refuse)
        with pytest.raises(StoreUnavailableError, match="503"):
            topic.offload()
    assert not any(each.has_complete_copy for each in topic.info().ledgers)
    assert "show no entry" not in caplog.text
    assert topic.offload().offloaded
    topic.check_done()


def test_what_is_left_of_a_deleted_topic_is_forgotten(topic):
    cluster = topic.cluster()

    def fail(*_, **__):
        raise OffloadError("before it was given")

    cluster.records.update = fail
    with pytest.raises(OffloadError, match="before it was given"):
        offload_due(cluster)
    offloads = LiveTopicOffloads(topic.cluster(), NAME)
    offloads.forget()
    assert topic.objects()
    topic.records.delete(NAME, topic.records.require(NAME))
    offloads.forget()
    assert topic.objects() == set()
    assert topic.mirror() is None
    offloads.forget()


# --- beside other processes --------------------------------------------------------------------


def _load(topic):
    topic.loaded = None
    topic.load()


def _begin(topic):
    topic.begin_offload(min(topic.payloads), THEIRS)


def _trim(topic):
    topic.trim(min(topic.payloads))


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "happens", [LiveTopic.roll, _load, LiveTopic.offload], ids=["roll", "load", "offload"]
)
def test_nothing_is_lost_whatever_happens_at_any_call(tmp_path, happens, after, sample):
    numbers = iter(range(10_000))

    def run(topic, points):
        try:
            return topic.offload(points)
        except OffloadError as error:
            return error

    def guarded(topic):
        with suppress(OffloadError):
            happens(topic)

    for topic, result, _ in each_turn(
        lambda: LiveTopic(tmp_path / str(next(numbers))),
        run,
        guarded,
        after=after,
        calls=sample(EACH_CALL, 48),
    ):
        topic.check(str(result))
        topic.offload()
        topic.check_done(str(result))


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("happens", [_begin, _trim], ids=["begin", "trim"])
def test_a_ledger_that_the_broker_takes_at_any_call_is_left_to_it(tmp_path, happens, after, sample):
    numbers = iter(range(10_000))

    def run(topic, points):
        try:
            return topic.offload(points)
        except OffloadError as error:
            return error

    def once(topic):
        known = topic.info().ledger(min(topic.payloads))
        if known is not None and not known.has_complete_copy:
            happens(topic)
            return True
        return False

    for topic, result, taken in each_turn(
        lambda: LiveTopic(tmp_path / str(next(numbers))), run, once, after=after, calls=sample(EACH_CALL, 48)
    ):
        first = min(topic.payloads)
        topic.check(str(result))
        topic.offload()
        is_begun = taken and happens is _begin
        topic.check_done(str(result), but=(first,) if is_begun else ())
        if is_begun:
            assert topic.info().ledger(first).context.uuid == THEIRS
