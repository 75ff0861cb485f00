"""Cold copies of a running cluster's topic are moved beside its brokers: given, taken back, and never lost."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import pytest
from crash_points import EACH_CALL, Killed, Points, each_turn
from scenes.live_topics import (
    BUCKET,
    NAME,
    TOPIC,
    LiveTopic,
    ModelBrokers,
    OtherBucket,
    brokers_driver,
    offload_due,
)
from scenes.transactions import abort, commit, of
from tiers import uuid_of

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.live import LiveCopies, LiveReplacements, LiveTopicOffloads
from offload_core.maintenance.relocate import Mover, Wanted, make_moves
from offload_core.maintenance.relocate.live_moves import plan_live_topic
from offload_core.maintenance.relocate.moving import CopyMaker
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import EntryPosition, other_copies
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.live_changes import own_ledgers
from offload_core.writing.audit import Change, Deletion
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import DataLossError, OffloadError, OptionError, UnresolvedTransactionError

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def no_power_fails(monkeypatch):
    """The disk would take most of the time; what it keeps is tested with the driver."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def offloaded(folder):
    """A topic whose sealed ledgers are offloaded."""
    topic = LiveTopic(folder, entries=(5, 3))
    topic.check_done()
    return topic


@pytest.fixture
def topic(tmp_path):
    return offloaded(tmp_path)


def opened(topic, points=None, *, cluster=None):
    tiers = [topic.tier(points), topic.other_tier(points)]
    return LiveReplacements(cluster or topic.cluster(points), tiers)


def plan(topic, live, *, is_dry=False, **changes):
    source, target = topic.tier(), topic.other_tier()
    wanted = Wanted(source=tier_record(source), target=tier_record(target), **changes)
    return plan_live_topic(live, TOPIC, wanted, target, is_dry=is_dry)


def copy_all(topic, points=None, *, cluster=None, **changes):
    """Plan and make the moves, as a process that ends before they are given."""
    live = opened(topic, points, cluster=cluster)
    mover = Mover(
        RecordRegistry(live.mirror.records, topic.clock),
        topic.tier(points),
        topic.other_tier(points),
        live.mirror.audit,
        now_ms=topic.clock,
    )
    for outcome in make_moves(mover, [plan(topic, live, **changes)], parallel=1):
        if outcome.error is not None:
            raise outcome.error
    return live


def move(topic, points=None, *, cluster=None):
    """Move all to the other tier, by a new process."""
    given = copy_all(topic, points, cluster=cluster).give(TOPIC)
    if given.damaged is not None:
        raise given.damaged
    return given


def cold_of(topic):
    """The cold ledgers of the record, by the bucket of their copies."""
    return {
        each.ledger_id: each.context.driver.get("bucket")
        for each in topic.info().in_order
        if each.has_complete_copy
    }


def check_moved(topic, where=""):
    """All cold copies are in the other bucket and nothing else is, brokers read them, and the mirror has no more."""
    before = None
    while before != (before := topic.info()):
        move(topic)  # the next call finishes what was begun
    topic.check(where)
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}, where
    uuids = {str(each.context.uuid) for each in topic.info().ledgers if each.has_complete_copy}
    assert {key[:36] for key in topic.other_objects()} == uuids, where
    mirror = topic.mirror()
    assert own_ledgers(mirror) == (), where
    assert other_copies(mirror) == (), where
    for ledger_id in cold_of(topic):
        read = ModelBrokers(topic, Points()).read_entry(TOPIC, EntryPosition(ledger_id, 0))
        assert read == topic.payloads[ledger_id][0], where


def test_copies_go_to_another_bucket_by_one_write_and_all_else_stays(topic, monkeypatch):
    before, old, writes = topic.info(), topic.objects(), []

    def replaced(*given):
        writes.append(given)
        return topic.metadata.put(*given)

    monkeypatch.setattr(topic.metadata, "replace", replaced)
    given = move(topic)
    assert given.used == tuple(cold_of(topic))
    assert given.refused == {}
    assert len(writes) == 1
    assert topic.objects() == old, "old copies are not deleted"
    for ledger in topic.info().in_order:
        known = before.ledger(ledger.ledger_id)
        if known is not None and known.has_complete_copy:
            context = replace(
                known.context,
                uuid=ledger.context.uuid,
                timestamp_ms=topic.clock() + 60_000,  # BookKeeper has it still
                driver=brokers_driver(OtherBucket.bucket),
            )
            assert ledger.context == context
    monkeypatch.undo()
    check_moved(topic)


def test_a_dry_run_changes_nothing(topic):
    points = Points()
    planned = plan(topic, opened(topic, points), is_dry=True)
    assert len(planned.moves) == len(cold_of(topic))
    assert set(points.calls) <= {"get", "children"}


def test_what_is_moved_is_not_moved_again_and_the_topic_is_left_alone(topic):
    check_moved(topic)
    before, points = topic.metadata.get(f"/managed-ledgers/{NAME}"), Points()
    assert move(topic, points).used == ()
    assert topic.metadata.get(f"/managed-ledgers/{NAME}") == before
    assert not {"broker unload", "begin_data", "put"}.intersection(points.calls)


def test_ledgers_that_are_offloaded_later_go_as_well(topic):
    check_moved(topic)
    topic.send(3)
    topic.roll()
    topic.offload()
    assert set(cold_of(topic).values()) == {BUCKET, OtherBucket.bucket}
    check_moved(topic)


def test_old_copies_are_read_until_the_new_ones_are_given(topic):
    before = topic.info()
    moves = copy_all(topic)
    assert topic.info() == before
    assert topic.other_objects()
    offload_due(topic.cluster())
    assert topic.info() == before, "an offload leaves them to who moves them"
    assert moves.give(TOPIC).used == tuple(cold_of(topic))
    check_moved(topic)


def test_each_change_of_the_record_is_in_the_audit_log_with_what_it_replaces(topic):
    before = topic.info()
    topic.audit.changes.clear()
    given = move(topic)
    changes = [each for each in topic.audit.changes if isinstance(each, Change) and each.after == "offloaded"]
    assert [(each.ledger_id, each.before) for each in changes] == [
        (each, str(before.ledger(each).context.uuid)) for each in given.used
    ]


@pytest.mark.parametrize("format_", [ObjectFormat.STREAMING, ObjectFormat.MAPFILE])
def test_formats_that_the_topics_brokers_do_not_read_are_left(topic, format_):
    planned = plan(topic, opened(topic), format=format_)
    assert planned.moves == ()
    assert all("brokers" in each.why for each in planned.left)
    assert len(planned.left) == len(cold_of(topic))


def test_a_topic_without_a_tier_of_its_own_stays(topic):
    topic.policies["driver"] = None
    planned = plan(topic, opened(topic))
    assert all("no tier" in each.why for each in planned.left)
    assert planned.moves == ()


# --- through the filter of transactions --------------------------------------------------------


def with_transactions(folder):
    """A topic that was offloaded through no filter, with a transaction that was aborted in a later ledger."""
    topic = LiveTopic(folder, entries=(2,))
    gone, kept = (1, 7), (1, 8)
    topic.append(of(gone).pack(1), of(kept).pack(2), of(gone).pack(3))
    topic.roll()
    topic.append(commit(kept).pack(4), abort(gone).pack(5), of(gone).pack(6))
    topic.roll()
    topic.aborted.add(gone)
    topic.check_done()
    return topic


def filtered(topic, points=None, *, cluster=None):
    """Move all to the other tier through the filter, by a new process."""
    given = copy_all(topic, points, cluster=cluster, filter=FilterMode.TOMBSTONE).give(TOPIC)
    if given.damaged is not None:
        raise given.damaged
    return given


def check_filtered(topic, where=""):
    """As `check_moved`; all went through the filter once, and brokers have tombstones."""
    before = None
    while before != (before := topic.info()):
        filtered(topic)
    topic.check(where)
    records = [record for each in topic.info().in_order for record in recorded_filters(each)]
    assert len(records) == len(cold_of(topic)), where
    assert {(each.name, each.mode) for each in records} == {("transactions", FilterMode.TOMBSTONE)}, where
    assert sum(each.total_dropped.entries for each in records) == 3, where
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}, where
    assert own_ledgers(topic.mirror()) == (), where


def test_copies_go_through_the_filter_and_brokers_read_tombstones(tmp_path):
    topic = with_transactions(tmp_path)
    old, count = topic.objects(), len(cold_of(topic))
    assert len(filtered(topic).used) == count
    assert topic.objects() == old, "old copies are not deleted"
    check_filtered(topic)
    calls = Points()
    filtered(topic, calls)
    assert not {"broker unload", "begin_data"}.intersection(calls.calls), "they go through it once"


def test_a_transaction_that_is_open_keeps_its_ledger_and_all_after_it(tmp_path):
    topic = with_transactions(tmp_path)
    topic.append(of((1, 9)).pack(9))
    topic.roll()
    topic.send(2)
    topic.roll()
    topic.offload()
    *_, waiting, last = sorted(cold_of(topic))
    with pytest.raises(UnresolvedTransactionError, match="is open") as caught:
        copy_all(topic, filter=FilterMode.TOMBSTONE)
    assert caught.value.ledger_id == waiting
    given = opened(topic).give(TOPIC)
    assert given.used == tuple(each for each in sorted(cold_of(topic)) if each < waiting)
    assert cold_of(topic)[last] == BUCKET
    topic.append(abort((1, 9)).pack(11))
    topic.roll()
    topic.offload()
    topic.aborted.add((1, 9))
    filtered(topic)
    topic.check()
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}


def test_gaps_are_refused(tmp_path):
    topic = with_transactions(tmp_path)
    with pytest.raises(OptionError, match="leave gaps"):
        plan(topic, opened(topic), filter=FilterMode.GAP)


def test_filtered_moves_may_end_at_every_call(crash_matrix):
    calls = crash_matrix(
        with_transactions, filtered, check=LiveTopic.check, check_done=check_filtered, every=48
    )
    assert {"put", "write_block", "broker read"} <= set(calls)


# --- what goes wrong ---------------------------------------------------------------------------


def test_brokers_that_do_not_read_the_new_bucket_read_the_old_one_again(topic):
    before, bucket = topic.info(), cold_of(topic)
    topic.denied_bucket = OtherBucket.bucket
    with pytest.raises(DataLossError, match=r"does not read what was offloaded.*no credentials"):
        move(topic)
    assert cold_of(topic) == bucket
    for ledger_id in bucket:
        context = topic.info().ledger(ledger_id).context
        assert replace(context, timestamp_ms=0) == replace(before.ledger(ledger_id).context, timestamp_ms=0)
        assert ModelBrokers(topic, Points()).read_entry(TOPIC, EntryPosition(ledger_id, 0))
    topic.denied_bucket = None
    check_moved(topic)


def test_where_brokers_read_bookkeeper_first_only_what_it_has_no_more_is_asked_for(topic, caplog):
    topic.policies["managedLedgerDataReadPriority"] = "bookkeeper-first"
    topic.denied_bucket = OtherBucket.bucket
    assert move(topic).used
    assert "read BookKeeper first" in caplog.text


def test_a_new_copy_that_vanishes_before_it_is_given_is_taken_back(topic):
    """As by a garbage collection that took it for left."""
    bucket = cold_of(topic)
    moves = copy_all(topic)
    for path in topic.other.rglob("*-index"):
        path.unlink()
    given = moves.give(TOPIC)
    assert "does not match its record" in str(given.damaged)
    assert given.used == ()
    assert cold_of(topic) == bucket
    topic.check()
    assert own_ledgers(topic.mirror()) == (), "it is made anew"
    check_moved(topic)


def test_a_new_copy_that_vanishes_while_it_is_given_is_taken_back(topic, monkeypatch):
    bucket = cold_of(topic)
    cluster = topic.cluster()
    live = copy_all(topic, cluster=cluster)
    update = cluster.records.update

    def after_a_deletion(*given, **how):
        for path in topic.other.rglob("*-index"):
            path.unlink()
        return update(*given, **how)

    monkeypatch.setattr(cluster.records, "update", after_a_deletion)
    given = live.give(TOPIC)
    monkeypatch.undo()
    assert "does not match its record" in str(given.damaged)
    assert cold_of(topic) == bucket
    check_moved(topic)


def test_a_copy_in_a_tier_that_is_not_known_here_is_not_given(topic):
    """Another process moves to another bucket, or repairs."""
    copy_all(topic)
    before = topic.info()
    given = LiveReplacements(topic.cluster(), [topic.tier()]).give(TOPIC)
    assert given.used == ()
    assert all("not configured" in why for why in given.refused.values())
    assert topic.info() == before
    check_moved(topic)


def test_a_dry_run_tells_what_is_not_given_yet(topic):
    copy_all(topic)
    (left,) = plan(topic, opened(topic), is_dry=True).left
    assert left.ledger_ids == tuple(cold_of(topic))
    assert "not given" in left.why


def test_what_a_dead_attempt_left_is_deleted_by_an_offload_that_knows_its_tier(topic, monkeypatch):
    def killed(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(CopyMaker, "make", killed)
        with pytest.raises(Killed):
            copy_all(topic)
    assert other_copies(topic.mirror())
    offload_due(knows_both(topic))
    assert other_copies(topic.mirror()) == ()


def test_what_was_replaced_is_not_put_back_when_it_is_gone(topic, monkeypatch, caplog):
    """Another process collects the old copies as soon as the record names the new ones."""
    topic.denied_bucket = OtherBucket.bucket
    moves = copy_all(topic)
    read, deleted = ModelBrokers.read_entry, []

    def collected(brokers, *given):
        if not deleted and OtherBucket.bucket in cold_of(topic).values():
            deleted.append(topic.tier().delete(sorted(topic.objects())))
        return read(brokers, *given)

    monkeypatch.setattr(ModelBrokers, "read_entry", collected)
    with pytest.raises(DataLossError, match="Only the new copies are there"):
        moves.give(TOPIC)
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}
    assert "not there any more" in caplog.text
    topic.check()


def test_what_is_collected_while_it_is_put_back_is_replaced_again(topic):
    topic.denied_bucket = OtherBucket.bucket
    cluster = topic.cluster()
    live = copy_all(topic, cluster=cluster)
    update, calls = cluster.records.update, []

    def collected_before_the_second(*given, **how):
        calls.append(given)
        if len(calls) == 2:
            topic.tier().delete(sorted(topic.objects()))
        return update(*given, **how)

    cluster.records.update = collected_before_the_second
    with pytest.raises(DataLossError, match="Only the new copies are there"):
        live.give(TOPIC)
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}
    topic.check()


def test_a_broker_that_loaded_the_topic_before_the_write_loads_it_once_more(topic):
    cluster = topic.cluster()
    live = copy_all(topic, cluster=cluster)
    update = cluster.records.update

    def loaded_before(*given, **how):
        topic.load()
        return update(*given, **how)

    cluster.records.update = loaded_before
    used = live.give(TOPIC).used
    assert used
    for ledger_id in used:
        assert topic.loaded[0].ledger(ledger_id).context == topic.info().ledger(ledger_id).context


def killed_after_it_was_given(topic, monkeypatch):
    def fail(*_, **__):
        raise OffloadError("killed here")

    moves = copy_all(topic)
    with monkeypatch.context() as patched:
        patched.setattr(LiveCopies, "_use", fail)
        with pytest.raises(OffloadError, match="killed here"):
            moves.give(TOPIC)
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}


def test_a_copy_that_was_given_before_a_kill_is_looked_at_by_the_next_run(topic, monkeypatch, caplog):
    bucket = cold_of(topic)
    killed_after_it_was_given(topic, monkeypatch)
    topic.denied_bucket = OtherBucket.bucket
    with pytest.raises(DataLossError, match="does not read what was offloaded"):
        move(topic)  # it is taken back, and moved again, and not read again
    assert "it is taken back" in caplog.text
    assert cold_of(topic) == bucket
    topic.denied_bucket = None
    check_moved(topic)


def test_an_offload_leaves_a_copy_alone_whose_tier_it_does_not_know(topic, monkeypatch, caplog):
    killed_after_it_was_given(topic, monkeypatch)
    assert not LiveTopicOffloads(topic.cluster(), NAME).is_unfinished, "upkeep leaves it alone"
    offload_due(topic.cluster())
    assert "is not looked at" in caplog.text
    topic.check()
    check_moved(topic)


def test_a_ledger_that_brokers_delete_meanwhile_leaves_nothing(topic):
    first = min(cold_of(topic))
    moves = copy_all(topic)
    topic.trim(first)
    topic.payloads.pop(first)
    del topic.ledgers.ledgers[first]
    assert moves.give(TOPIC).refused == {first: "the topic has it no more"}
    check_moved(topic)


def test_a_copy_that_brokers_replaced_meanwhile_stays(topic):
    first = min(cold_of(topic))
    moves = copy_all(topic)
    ledger = topic.info().ledger(first)
    theirs = replace(ledger, context=replace(ledger.context, uuid=uuid_of(9)))
    topic.records.update(NAME, lambda info: info.with_ledger(theirs))
    assert moves.give(TOPIC).refused == {first: "it has a cold copy"}
    assert topic.info().ledger(first).context == theirs.context


def knows_both(topic):
    """A process whose settings name the other tier as well."""
    cluster = topic.cluster()
    environment = cluster.mirror
    tiers = KnownTiers(topic.tier(), [topic.other_tier()])
    offloads = RecordedOffloads(environment.records, environment.hot.store, tiers)
    return replace(cluster, mirror=replace(environment, offloads=offloads))


def test_an_offload_finishes_a_move_whose_tier_it_knows(topic, monkeypatch):
    killed_after_it_was_given(topic, monkeypatch)
    offload_due(knows_both(topic))
    assert own_ledgers(topic.mirror()) == ()
    assert set(cold_of(topic).values()) == {OtherBucket.bucket}
    check_moved(topic)


def test_what_is_left_of_a_deleted_topic_is_forgotten(topic, monkeypatch):
    """A new copy that was not given, and one that was not finished."""
    real, made = CopyMaker.make, []

    def killed(maker, order, check):
        made.append(real(maker, order, check))
        if len(made) > 1:
            raise Killed
        return made[0]

    with monkeypatch.context() as patched:
        patched.setattr(CopyMaker, "make", killed)
        with pytest.raises(Killed):
            copy_all(topic)
    assert own_ledgers(topic.mirror())
    assert other_copies(topic.mirror())
    assert len(topic.other_objects()) == 4
    offloads = LiveTopicOffloads(knows_both(topic), NAME)
    topic.records.delete(NAME, topic.records.require(NAME))
    offloads.forget()
    assert topic.other_objects() == set()
    assert topic.mirror() is None
    assert len([each for each in topic.audit.changes if isinstance(each, Deletion)]) == 2


# --- beside other processes --------------------------------------------------------------------


def run(topic, points):
    try:
        return move(topic, points)
    except OffloadError as error:
        return error


def _load(topic):
    topic.loaded = None
    topic.load()


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "happens", [LiveTopic.roll, _load, LiveTopic.offload, move], ids=["roll", "load", "offload", "move"]
)
def test_nothing_is_lost_whatever_happens_at_any_call(tmp_path, happens, after, sample):
    numbers = iter(range(10_000))

    def guarded(topic):
        with suppress(OffloadError):
            happens(topic)

    for topic, result, _ in each_turn(
        lambda: offloaded(tmp_path / str(next(numbers))),
        run,
        guarded,
        after=after,
        calls=sample(EACH_CALL, 48),
    ):
        topic.check(str(result))
        topic.offload()
        check_moved(topic, str(result))


def test_a_move_may_end_at_every_call(crash_matrix):
    calls = crash_matrix(offloaded, move, check=LiveTopic.check, check_done=check_moved, every=48)
    assert {*("put", "audit", "write_index"), *("broker unload", "broker stats", "broker read")} <= set(calls)
