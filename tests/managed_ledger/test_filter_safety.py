"""Before a hot copy goes: what a filter took out of the cold one was right, by what is persisted, and is recorded."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from managed_ledgers import NAME, Audit, policies_to
from records import closed, managed_ledger
from scenes.filters import FilteredTopic, PlainFilter, chosen

from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import DriverMetadata, EntryPosition, OffloadContext, OffloadSegment
from offload_core.metadata.records.filter_record import (
    MARKER_CAUSE,
    RECORD_KEY,
    DroppedEntries,
    FilterMode,
    FilterRecord,
    aborted_cause,
    parse_filter_record,
)
from offload_core.reading.transaction_buffers import BufferSnapshot, SnapshotStore
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.audit import PROGRAM_LOG, FileAuditLog
from offload_core.writing.managed_ledger import keep_up, settle_transactions
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.offload.hot_copy_check import check_settled
from offload_core.writing.offload.recorded_segments import RecordedSegments, StreamingSettings
from offload_core.writing.offload.segment_offloader import SegmentFilter
from offload_core.writing.offload_filters import settled_by_filters
from offload_hooks.errors import DataLossError, OffloadError, StoreError

PREFIX = EntryPosition(1 << 40, 0)
STEPS = ("m", "1", "2", "2", "a2", "c1", "|")


def by_ledgers(topic):
    topic.offload()


def by_segments(topic):
    """Each sealed ledger in two segments."""
    with ThreadPoolExecutor(1) as executor:
        segments = RecordedSegments(
            topic.records,
            NAME,
            lambda change: topic.records.update(NAME, change).info,
            lambda: nullcontext(topic.tiers),
            executor=executor,
            budget=MemoryBudget(),
            audit=PROGRAM_LOG,
            now_ms=lambda: 1000,
            lease_s=30,
        )
        for ledger in topic.ledgers:
            if ledger.has_complete_copy:
                continue
            stop = ledger.info.entries or 0
            for first, end in ((0, stop // 2), (stop // 2, stop)):
                at, last = EntryPosition(ledger.ledger_id, first), EntryPosition(ledger.ledger_id, end - 1)
                run = open_filter(topic.environment, NAME, last, topic.topic.topic.read_info())
                bounds = StreamingSettings(max_segment_bytes=1 << 20, block_bytes=4096)
                segment = segments.assign(at, bounds, last, SegmentFilter(run, None))
                entries = topic.hot.open(ledger.ledger_id).read(first, end - 1)
                assert segment.offer(ledger.ledger_id, entries).accepted == end - first
                segment.close()
                segment.complete()


WAYS = pytest.mark.parametrize("offload", [by_ledgers, by_segments])


@pytest.fixture(params=[FilterMode.GAP, FilterMode.TOMBSTONE])
def topic(request, tmp_path):
    """One with an aborted transaction of two entries, a committed one, and a message."""
    topic = FilteredTopic(tmp_path / "cold", mode=request.param)
    topic.do(*STEPS)
    return topic


def put_snapshot(topic, snapshot):
    """As if it had been persisted."""
    snapshots = SnapshotStore(topic.records.store)
    snapshots.delete(NAME)
    if snapshot is not None:
        snapshots.write(NAME, snapshot)


def refused(topic, match):
    """The hot copy stays, however often it is tried, and nothing is recorded."""
    audit = Audit()
    topic.open(audit=audit)
    for _ in range(2):
        with pytest.raises(DataLossError, match=match) as caught:
            topic.topic.topic.delete_hot_copies(0)
        assert caught.value.ledger_id == topic.ledgers[0].ledger_id
    assert topic.ledgers[0].ledger_id in topic.hot.ledger_ids()
    assert audit.deletions == []


# --- what is right goes, and is recorded -------------------------------------------------------


@WAYS
def test_what_was_dropped_is_recorded_when_the_hot_copy_goes(topic, offload, tmp_path):
    topic.open(audit=FileAuditLog(tmp_path / "audit.jsonl", now_ms=lambda: 1000))
    first = topic.ledgers[0]
    sizes = [len(payload) for _, payload in topic.hot_entries()]
    offload(topic)
    assert topic.topic.topic.delete_hot_copies(0) == [each.ledger_id for each in topic.ledgers]
    line = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[0])
    assert (line["copy"], line["ledger_id"]) == ("hot", first.ledger_id)
    records = [parse_filter_record(json.dumps(each)) for each in line["filtered"]]
    assert len(records) == (1 if offload is by_ledgers else 2)
    aborted = DroppedEntries(entries=2, payload_bytes=sum(sizes[2:4]))
    markers = DroppedEntries(entries=2, payload_bytes=sum(sizes[4:]))
    kept = DroppedEntries(entries=2, payload_bytes=sum(sizes[:2]))
    if topic.mode is FilterMode.TOMBSTONE:  # which markers are as good as
        kept, markers = kept + markers, DroppedEntries()
    assert sum((each.kept for each in records), DroppedEntries()) == kept
    dropped = {}
    for record in records:
        for cause, each in (record.dropped or {}).items():
            dropped[cause] = dropped.get(cause, DroppedEntries()) + each
    assert dropped.pop(MARKER_CAUSE, DroppedEntries()) == markers
    assert dropped == {aborted_cause(topic.begun[2]): aborted}
    assert {each.mode for each in records} == {topic.mode}


@WAYS
def test_it_is_checked_by_what_is_persisted_then_also_by_others(topic, offload):
    offload(topic)
    topic.do("3", "m", "|")
    settle_transactions(topic.environment, NAME)
    topic.open()
    assert topic.topic.topic.delete_hot_copies(0) == [topic.ledgers[0].ledger_id]


@WAYS
def test_an_aborted_transaction_is_known_as_long_as_a_ledger_has_its_entries(topic, offload):
    """Also when the ledgers before it are gone, and many others were aborted."""
    topic.do("4", "a4", "|", "5", "a5", "|")
    offload(topic)
    second = topic.ledgers[1]
    topic.topic.topic.trim(RetentionPolicies(), consumed_before=EntryPosition(second.ledger_id, 0))
    topic.do("m")
    assert set(topic.topic.snapshot().aborted) == {topic.begun[4], topic.begun[5]}
    assert topic.topic.topic.delete_hot_copies(0)[0] == second.ledger_id


def test_where_nothing_was_dropped_nothing_needs_to_be_known(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "1", "|", "c1", "|")
    by_ledgers(topic)
    put_snapshot(topic, None)
    first, *_ = topic.ledgers
    with pytest.raises(DataLossError):  # the second one had a marker
        topic.topic.topic.delete_hot_copies(0)
    assert first.ledger_id not in topic.hot.ledger_ids()


def test_a_filter_that_knows_of_no_transactions_needs_none(tmp_path):
    topic = FilteredTopic(tmp_path, filter=PlainFilter(lambda payload: payload.endswith(b"0")))
    topic.do("m", "m", "|")
    by_ledgers(topic)
    assert SnapshotStore(topic.records.store).read(NAME) is None
    assert len(topic.topic.topic.delete_hot_copies(0)) == 1


def other(topic):
    """The same topic, its filter one of another name."""
    named = chosen(topic.mode, topic.filter, name="by-age")
    topic.open(filter_of=lambda _: named)
    return topic


def test_another_filters_own_bound_is_not_one_of_transactions(tmp_path):
    topic = other(FilteredTopic(tmp_path, filter=PlainFilter(lambda _: 1, stop=(1 << 40, 0))))
    topic.do("m", "m", "|")
    by_ledgers(topic)
    assert len(topic.topic.topic.delete_hot_copies(0)) == 1


def test_what_another_filter_let_go_ends_no_transaction(tmp_path):
    topic = other(FilteredTopic(tmp_path, filter=PlainFilter(lambda _: 0, stop=(1 << 40, 0))))
    topic.do("1", "m", "|")
    by_ledgers(topic)
    topic.open()
    status = topic.topic.status()
    assert (tuple(status.open_transactions), status.stable_position) == ((topic.begun[1],), None)


# --- what is not, or is not known, stays -------------------------------------------------------


@WAYS
def test_without_a_snapshot_it_stays_and_upkeep_says_so_and_goes_on(topic, offload):
    offload(topic)
    put_snapshot(topic, None)
    refused(topic, "there is no snapshot")
    done = keep_up(topic.topic, policies_to(driver="local", deletion_lag_in_millis=0), 1000)
    assert set(done.failures) == {"deletion of hot copies"}
    assert "there is no snapshot" in str(done.failures["deletion of hot copies"])


@WAYS
def test_what_is_not_settled_any_more_stays(topic, offload):
    """As of a topic that was reset, and has not been read since."""
    offload(topic)
    ledger_id, aborted = topic.ledgers[0].ledger_id, {topic.begun[2]: PREFIX}
    whole = BufferSnapshot(stable_position=EntryPosition(ledger_id, 5), aborted=aborted)
    for stable in (None, EntryPosition(ledger_id, 1), EntryPosition(ledger_id, 4)):
        put_snapshot(topic, replace(whole, stable_position=stable))
        with pytest.raises(DataLossError, match="took transactions as settled that are not"):
            topic.topic.topic.delete_hot_copies(0)
    assert topic.hot.ledger_ids()
    put_snapshot(topic, whole)
    assert topic.topic.topic.delete_hot_copies(0) == [ledger_id]


@WAYS
def test_entries_of_a_transaction_that_was_not_aborted_stay(topic, offload):
    offload(topic)
    put_snapshot(topic, BufferSnapshot(stable_position=PREFIX))
    refused(topic, rf"that were not aborted.*found \({topic.begun[2].most_bits},")


def changed_record(topic, change):
    """What the offload contexts say of filters, changed."""

    def of_ledger(ledger):
        context = ledger.context
        if context is None or not ledger.is_fully_offloaded:
            return ledger
        drivers = [share.driver for share in context.segments] or [context.driver]
        made = []
        for driver in drivers:
            record = change(parse_filter_record(driver.get(RECORD_KEY) or ""))
            made.append(driver.with_property(RECORD_KEY, record and record.pack(short=True)))
        if not context.segments:
            return replace(ledger, context=replace(context, driver=made[0]))
        shares = [replace(share, driver=driver) for share, driver in zip(context.segments, made, strict=True)]
        return replace(ledger, context=replace(context, segments=tuple(shares)))

    return lambda info: replace(info, ledgers=tuple(map(of_ledger, info.ledgers)))


@pytest.mark.sampled(8)
@WAYS
@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda record: replace(record, name="another"),
        lambda record: replace(record, stop=EntryPosition(0, 1)),
        lambda record: replace(record, kept=record.kept + DroppedEntries(entries=1)),
        lambda record: replace(record, total_dropped=DroppedEntries()),
    ],
    ids=["none", "name", "stop", "kept", "dropped"],
)
def test_a_record_that_is_not_the_indexs_is_refused(topic, offload, change):
    offload(topic)
    topic.records.update(NAME, changed_record(topic, change))
    refused(topic, "an index does not say of a filter what the offload context says")


def test_a_record_that_cannot_be_read_is_an_error_and_the_hot_copy_stays(topic):
    by_ledgers(topic)

    def damaged(info):
        (ledger, *others) = info.ledgers
        driver = ledger.context.driver.with_property(RECORD_KEY, "{")
        return replace(
            info, ledgers=(replace(ledger, context=replace(ledger.context, driver=driver)), *others)
        )

    topic.records.update(NAME, damaged)
    with pytest.raises(DataLossError, match="what is told of a filter cannot be read"):
        topic.topic.topic.delete_hot_copies(0)
    assert topic.hot.ledger_ids()


# --- wherever it ends --------------------------------------------------------------------------


@pytest.mark.parametrize("reopens", [False, True])
def test_a_deletion_that_is_made_again_is_recorded_again(topic, reopens):
    """It was recorded in full before anything was changed."""
    by_ledgers(topic)
    audit = Audit()
    topic.open(audit=audit)
    ledger_id = topic.ledgers[0].ledger_id
    delete = topic.hot.delete

    def fails(_):
        raise StoreError("no")

    topic.hot.delete = fails
    with pytest.raises(StoreError, match="no"):
        topic.topic.topic.delete_hot_copies(0)
    topic.hot.delete = delete
    put_snapshot(topic, None)  # what was decided is not asked again
    assert ledger_id in topic.hot.ledger_ids()
    if reopens:
        topic.open()
    else:
        assert topic.topic.topic.delete_hot_copies(1 << 30) == [ledger_id], "the record says that it is gone"
    assert ledger_id not in topic.hot.ledger_ids()
    assert audit.copies() == [(ledger_id, "hot")] * 2
    whole, again = audit.deletions
    dropped = 4 if topic.mode is FilterMode.GAP else 2
    assert [each.total_dropped.entries for each in (*whole.filtered, *again.filtered)] == [dropped] * 2
    assert whole.filtered[0].aborted == {topic.begun[2]: 2}
    assert again.filtered[0].dropped is None, "of a deletion that was begun the context tells"


ONE = TransactionId(0, 1)


def record_of(dropped, stop):
    causes = {aborted_cause(ONE): DroppedEntries(entries=dropped)} if dropped else {}
    return FilterRecord.of("transactions", FilterMode.GAP, stop, DroppedEntries(), causes)


@pytest.mark.parametrize(
    ("record", "stable", "aborted", "right"),
    [
        (record_of(1, EntryPosition(3, 2)), EntryPosition(3, 1), [ONE], True),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(3, 0), [ONE], False),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(4, 0), [ONE], True),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(4, 0), [], False),
        (record_of(1, None), None, [ONE], True),
        (record_of(1, None), None, [], False),
        (record_of(0, EntryPosition(3, 2)), None, [], True),
        (record_of(1, EntryPosition(0, 0)), None, [ONE], True),
    ],
)
def test_what_is_settled_is_what_the_snapshot_says(record, stable, aborted, right):
    check = partial(check_settled, [record], ledger_id=7)
    snapshot = BufferSnapshot(stable_position=stable, aborted=dict.fromkeys(aborted, PREFIX))
    if right:
        check(snapshot=snapshot)
    else:
        with pytest.raises(OffloadError) as caught:
            check(snapshot=snapshot)
        assert caught.value.ledger_id == 7


def test_settled_by_filters_is_what_is_complete_and_was_bounded():
    def share(number, record, *, complete=True):
        driver = DriverMetadata(name="local")
        text = None if record is None else record.pack(short=True)
        return OffloadSegment(
            uuid=UUID(int=number),
            complete=complete,
            end_entry_id=number,
            driver=driver.with_property(RECORD_KEY, text),
        )

    def settled(*shares):
        return settled_by_filters(managed_ledger(closed(7, 9, OffloadContext.of_segments(shares))))

    bounded, unbounded = record_of(0, EntryPosition(7, 9)), record_of(0, None)
    assert settled(share(1, bounded), share(3, bounded)) == EntryPosition(7, 3)
    assert settled(share(1, bounded), share(3, unbounded)) == EntryPosition(7, 1)
    assert settled(share(1, bounded), share(3, bounded, complete=False)) == EntryPosition(7, 1)
    assert settled(share(1, None)) is None
    assert settled(share(1, None), share(3, bounded)) is None, "that before it has its markers"
    whole = OffloadContext.of_segments((share(8, bounded),))
    later = closed(8, 9, OffloadContext.of_segments((share(8, bounded),)))
    assert settled_by_filters(managed_ledger(closed(7, 9, whole), later)) == EntryPosition(8, 8)
    assert settled_by_filters(managed_ledger(closed(7, 9), later)) == EntryPosition(8, 8)


def test_a_transaction_with_entries_on_either_side_of_what_is_settled_stays_open(tmp_path):
    """Its marker is in the ledger that is written; the topic is followed anew, by what the hot tier has."""
    topic = FilteredTopic(tmp_path)
    topic.do("1", "|", "1", "m", "|", "m", "a1")
    topic.topic.snapshot()
    second = topic.ledgers[1].ledger_id
    topic.offload(EntryPosition(second, 0))
    assert [ledger.has_complete_copy for ledger in topic.ledgers[:2]] == [True, False]
    topic.environment.snapshots.reset(NAME)
    settled = settle_transactions(topic.environment, NAME)
    assert settled.stable_position < EntryPosition(second, 0)
    topic.do("|")
    assert set(settle_transactions(topic.environment, NAME).aborted) == {topic.begun[1]}
