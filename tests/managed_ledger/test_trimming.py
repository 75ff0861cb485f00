"""Retention deletes whole ledgers from the oldest on, with all copies, after the record says so."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME, FailingAudit

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    abandon_segment,
    assign_segment,
    complete_segment,
)
from offload_core.writing.managed_ledger import open_managed_ledger
from offload_core.writing.managed_ledger.ledger_deletion import CopyDeletion, ledgers_to_trim
from offload_hooks.errors import AttemptError, OffloadError, OptionError, StoreUnavailableError

MIB = 1 << 20
MINUTE_MS = 60_000
EVERYTHING = RetentionPolicies()
FOR_EVER = RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=-1)


def info_of(ages_and_sizes, now_ms):
    """Sealed ledgers with 10 entries each, by minutes since, and MiB."""
    return ManagedLedgerInfo(
        ledgers=tuple(
            LedgerRecord(
                info=LedgerInfo(
                    ledger_id=i, entries=10, size=size * MIB, timestamp_ms=now_ms - age * MINUTE_MS
                )
            )
            for i, (age, size) in enumerate(ages_and_sizes)
        )
    )


@pytest.mark.parametrize(
    ("minutes", "megabytes", "trimmed"),
    [
        (-1, -1, 0),
        (0, 0, 4),
        (0, -1, 4),
        (-1, 0, 4),
        (30, -1, 2),
        (31, -1, 1),
        (50, -1, 0),
        (-1, 40, 0),
        (-1, 30, 1),
        (-1, 29, 1),
        (-1, 10, 3),
        (30, 10, 3),
        (20, 30, 3),
    ],
)
def test_either_bound_of_retention_is_enough(clock, minutes, megabytes, trimmed):
    info = info_of([(40, 10), (30, 10), (20, 10), (10, 10)], clock.now_ms)
    retention = RetentionPolicies(retentionTimeInMinutes=minutes, retentionSizeInMB=megabytes)
    assert list(ledgers_to_trim(info, retention, now_ms=clock.now_ms, open_bytes=0)) == list(range(trimmed))


@pytest.mark.parametrize(
    ("position", "trimmed"),
    [(None, 3), ((0, 0), 0), ((0, 9), 0), ((0, 10), 1), ((1, 0), 1), ((2, 9), 2), ((2, 10), 3), ((9, 0), 3)],
)
def test_what_is_not_consumed_stays(clock, position, trimmed):
    info = info_of([(9, 1)] * 3, clock.now_ms)
    consumed_before = None if position is None else EntryPosition(*position)
    chosen = ledgers_to_trim(
        info, EVERYTHING, now_ms=clock.now_ms, open_bytes=0, consumed_before=consumed_before
    )
    assert len(chosen) == trimmed


@pytest.mark.parametrize(("segment", "trimmed"), [("offloaded", 3), ("assigned", 1), ("failed", 3)])
def test_ledgers_that_a_segment_is_being_offloaded_of_stay(clock, segment, trimmed):
    info = info_of([(9, 1)] * 3, clock.now_ms)
    info = assign_segment(
        info, UUID(int=7), EntryPosition(1, 0), DriverMetadata(name="S3"), 5, end=EntryPosition(2, 3)
    )
    if segment == "offloaded":
        info = complete_segment(info, UUID(int=7), EntryPosition(2, 3), {1: 9, 2: 3}, 6)
    elif segment == "failed":
        info = abandon_segment(info, UUID(int=7))
    assert len(ledgers_to_trim(info, EVERYTHING, now_ms=clock.now_ms, open_bytes=0)) == trimmed


@given(
    ledgers=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=8),
    minutes=st.integers(-1, 60),
    megabytes=st.integers(-1, 100),
    open_megabytes=st.integers(0, 20),
)
def test_what_is_left_is_what_retention_keeps(ledgers, minutes, megabytes, open_megabytes):
    now_ms = 1 << 40
    info = info_of(sorted(ledgers, reverse=True), now_ms)
    retention = RetentionPolicies(retentionTimeInMinutes=minutes, retentionSizeInMB=megabytes)
    chosen = ledgers_to_trim(info, retention, now_ms=now_ms, open_bytes=open_megabytes * MIB)
    kept = [ledger for ledger in info.ledgers if ledger.ledger_id not in chosen]
    assert list(chosen) == list(range(len(chosen))), "from the oldest on"
    if minutes >= 0:
        assert all(now_ms - ledger.info.timestamp_ms < minutes * MINUTE_MS for ledger in kept)
    if megabytes >= 0 and kept:
        assert sum(ledger.info.size for ledger in kept[1:]) // MIB + open_megabytes < megabytes
    if chosen and minutes < 0:
        assert sum(ledger.info.size for ledger in kept) // MIB + open_megabytes >= megabytes >= 0


@pytest.fixture
def topic(opened):
    """Three sealed ledgers of 10 entries, and one that is written."""
    topic = opened()
    for i in range(3):
        topic.add_entries([b"%d" % i] * 10)
        topic.roll()
    topic.add_entry(b"last")
    return topic


def test_all_copies_of_trimmed_ledgers_go_and_the_rest_is_read_on(
    topic, environment, recorded, hot, audit, objects
):
    ids = [ledger.ledger_id for ledger in recorded().in_order]
    for ledger_id in ids[:2]:
        environment.offloads.offload(NAME, ledger_id)
    environment.offloads.delete_hot_copy(NAME, ids[0], 0)
    assert len(objects()) == 4
    assert topic.trim(FOR_EVER) == []
    assert topic.trim(EVERYTHING, consumed_before=EntryPosition(ids[2], 0)) == ids[:2]
    assert [ledger.ledger_id for ledger in recorded().in_order] == ids[2:] == hot.ledger_ids()
    assert objects() == []
    assert audit.copies() == [(ids[0], "cold"), (ids[0], "hot"), (ids[1], "cold"), (ids[1], "hot")]
    assert {each.why for each in audit.deletions} == {"sealed 0 minutes ago; retention keeps 0 minutes"}
    assert (audit.deletions[3].entries, audit.deletions[3].size_bytes) == (10, 10)
    read = topic.read_entries(EntryPosition(ids[0], 4), 100)
    assert [bytes(payload) for _, payload in read] == [b"2"] * 10 + [b"last"]
    assert topic.trim(EVERYTHING) == ids[2:3]
    assert topic.last_position == EntryPosition(ids[3], 0)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("reopens", [False, True])
def test_a_trim_that_was_cut_off_is_ended_by_the_next(environment, audit, recorded, hot, k, reopens, objects):
    failing = replace(environment, audit=FailingAudit(k, audit))
    topic = open_managed_ledger(failing, NAME)
    for i in range(3):
        position = topic.add_entry(b"%d" % i)
        topic.roll()
    ids = [ledger.ledger_id for ledger in recorded().in_order]
    for ledger_id in ids[:2]:
        environment.offloads.offload(NAME, ledger_id)
    with pytest.raises(StoreUnavailableError):
        topic.trim(EVERYTHING, consumed_before=position)
    gone = (k - 1) // 2  # two copies of each were to be deleted
    assert [ledger.ledger_id for ledger in recorded().in_order] == ids[gone:]
    assert not any(ledger.has_complete_copy for ledger in recorded().ledgers)
    assert [at for at, _ in topic.read_entries(EntryPosition(0, 0), 10)] == [position]
    if reopens:
        topic = open_managed_ledger(environment, NAME)
        assert [at for at, _ in topic.read_entries(EntryPosition(0, 0), 10)] == [position]
    assert topic.trim(FOR_EVER) == ids[gone:2], "what was condemned goes, whatever retention says now"
    assert (objects(), hot.ledger_ids()) == ([], ids[2:])
    assert [ledger.ledger_id for ledger in recorded().ledgers] == ids[2:]


def test_a_ledger_whose_copy_cannot_be_deleted_holds_up_no_other(
    topic, environment, recorded, hot, monkeypatch, objects
):
    ids = [ledger.ledger_id for ledger in recorded().in_order]
    environment.offloads.offload(NAME, ids[0])
    with monkeypatch.context() as broken:

        def delete_cold_copy(name, key, driver):
            if key.ledger_id == ids[0]:
                raise OptionError("a copy lies in a tier that is not configured")

        broken.setattr(environment.offloads, "delete_cold_copy", delete_cold_copy)
        for _ in range(2):
            with pytest.raises(OptionError, match="not configured"):
                topic.trim(EVERYTHING)
            assert hot.ledger_ids() == [ids[0], ids[3]]
            assert [ledger.ledger_id for ledger in recorded().in_order] == [ids[0], ids[3]]
    assert topic.trim(FOR_EVER) == ids[:1]
    assert (objects(), hot.ledger_ids()) == ([], ids[3:])


def test_nothing_is_deleted_where_the_tier_of_a_copy_is_not_configured(environment, recorded, hot, objects):
    topic = open_managed_ledger(replace(environment, offloads=None), NAME)
    position = topic.add_entry(b"a")
    topic.roll()
    environment.offloads.offload(NAME, position.ledger_id)
    with pytest.raises(OptionError, match="no tier is configured"):
        topic.trim(EVERYTHING)
    assert (len(objects()), hot.ledger_ids()) == (2, [position.ledger_id])
    assert open_managed_ledger(environment, NAME).trim(FOR_EVER) == [position.ledger_id]
    assert objects() == []


def test_an_offload_of_a_ledger_that_is_trimmed_meanwhile_leaves_nothing(
    topic, environment, recorded, hot, cold, objects
):
    first = recorded().in_order[0].ledger_id
    trimmed = []

    def trim(progress):
        if not trimmed:
            trimmed.append(topic.trim(EVERYTHING, consumed_before=EntryPosition(first + 1, 0)))

    with pytest.raises(OffloadError):
        environment.offloads.offload(NAME, first, listener=trim)
    assert trimmed == [[first]]
    assert objects() == []
    assert list(cold.store.list_uploads()) == []


def test_a_cold_copy_that_is_recorded_as_complete_is_not_deleted(topic, environment, recorded, objects):
    first = recorded().in_order[0].ledger_id
    environment.offloads.offload(NAME, first)
    with pytest.raises(AttemptError, match="after its record says so"):
        CopyDeletion(environment, NAME, recorded()).delete_copies(recorded().in_order[0], "by hand")
    assert len(objects()) == 2
