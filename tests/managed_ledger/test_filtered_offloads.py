"""Ledgers whose entries go through a filter: what is left of them, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from entries import entry
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME
from scenes.filters import FilteredTopic, PlainFilter, chosen, positions, short_record
from scenes.repairs import findings

from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import RECORD_KEY
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.filters import FilterMode, parse_filter_record
from offload_core.writing.filters.disabled import OffloadFilterDisable
from offload_hooks.errors import (
    BrokenPluginError,
    UnresolvedTransactionError,
)
from pulsar_offload import TierReader, scan


def objects_of(
    topic: FilteredTopic, ledger: LedgerRecord
) -> tuple[dict[str, str], dict[str, str], LedgerMetadata]:
    """User metadata of data and index object, and the ledger's metadata in the index."""
    assert ledger.context is not None
    assert ledger.context.uuid is not None
    key = ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)
    data, index = topic.tier.stat(key.data_key), topic.tier.stat(key.index_key)
    parsed = read_index(topic.tier, key, index_bytes=index.size_bytes, data_bytes=data.size_bytes)
    metadata = parsed.ledgers[0].metadata
    assert isinstance(metadata, LedgerMetadata)
    return dict(data.user_metadata), dict(index.user_metadata), metadata


# --- what is left ------------------------------------------------------------------------------


STEPS = st.lists(st.sampled_from(["m", "1", "2", "3", "c1", "a2", "a3", "|"]), min_size=1, max_size=25)


@given(steps=STEPS, mode=st.sampled_from(FilterMode), block_bytes=st.sampled_from([200, 400, 5000]))
def test_what_is_left_of_any_history_is_what_a_plain_model_keeps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], mode: FilterMode, block_bytes: int
) -> None:
    topic = FilteredTopic(tmp_path_factory.mktemp("drawn"), mode=mode, block_bytes=block_bytes)
    ended: set[str] = set()
    for step in steps:
        number = step[-1]
        if step[0] in "ca":
            if number in ended or int(number) not in topic.begun:
                continue
            ended.add(number)
        if step == "1" and "1" in ended:  # nothing comes to a transaction after its commit
            continue
        topic.do(step)
    topic.do("|")
    topic.offload()
    for ledger in topic.ledgers:
        if not ledger.has_complete_copy:
            continue
        left, found = topic.left(ledger), topic.cold(ledger)
        count = ledger.info.entries or 0
        record = short_record(ledger)
        assert record is not None
        assert (record.kept.entries, record.total_dropped.entries) == (len(left), count - len(left))
        assert record.kept.payload_bytes == sum(map(len, left.values()))
        assert record.kept.payload_bytes + record.total_dropped.payload_bytes == ledger.info.size
        if mode is FilterMode.TOMBSTONE:
            assert list(found) == list(range(count))
        assert {entry_id: each for entry_id, each in found.items() if entry_id in left} == left
        assert mode is FilterMode.TOMBSTONE or found == left
    known = topic.records.read(NAME)
    assert known is not None
    assert findings(topic.tier, {NAME: known.info}) == []


@pytest.mark.parametrize("mode", FilterMode)
def test_entries_go_from_a_ledgers_begin_its_middle_and_its_end_and_from_whole_blocks(
    tmp_path: Path, mode: FilterMode
) -> None:
    topic = FilteredTopic(tmp_path, mode=mode, block_bytes=300)
    topic.do("1", "1", "m", *["1"] * 12, "m", "m", "m", "m", "a1", "|")
    topic.offload()
    (ledger,) = topic.ledgers
    left = topic.left(ledger)
    assert [i for i in left if i < 19] == [2, 15, 16, 17, 18]
    found = topic.cold(ledger)
    assert {i: found[i] for i in left} == left
    if mode is FilterMode.GAP:
        assert found == left
        assert ledger.context is not None
        assert ledger.context.uuid is not None
        key = ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)
        data, stored = topic.tier.stat(key.data_key), topic.tier.stat(key.index_key)
        index = read_index(topic.tier, key, index_bytes=stored.size_bytes, data_bytes=data.size_bytes)
        first, *others = [block.first_entry_id for block in index.ledgers[0].blocks]
        assert first == 0
        assert others
        assert set(others) <= set(left)


@pytest.mark.parametrize("mode", FilterMode)
def test_a_ledger_of_which_nothing_is_left_is_read_as_empty(tmp_path: Path, mode: FilterMode) -> None:
    topic = FilteredTopic(tmp_path, mode=mode)
    topic.do("1", "1", "a1", "|", "m", "|")
    topic.offload()
    empty, other = topic.ledgers
    assert positions(topic.ledgers) == [0, 1]
    assert len(topic.cold(empty)) == (3 if mode is FilterMode.TOMBSTONE else 0)
    assert topic.cold(other) == topic.left(other)
    assert topic.topic.topic.delete_hot_copies(0) == [empty.ledger_id, other.ledger_id]


@pytest.mark.parametrize("mode", FilterMode)
def test_markers_stay_while_the_tier_has_ledgers_that_went_through_no_filter(
    tmp_path: Path, mode: FilterMode
) -> None:
    topic = FilteredTopic(tmp_path, mode=mode)
    topic.do("1", "2", "3", "|")
    topic.open(filter_of=lambda _: chosen(mode, OffloadFilterDisable(), "disabled"))
    topic.offload()
    topic.do("c1", "a2", "3", "c3", "m", "4", "4", "a4", "|")
    topic.open(filter_of=lambda _: chosen(mode))
    topic.offload()
    whole, filtered = topic.ledgers
    assert (short_record(whole), positions(topic.ledgers)) == (None, [0, 1])
    record = short_record(filtered)
    assert record is not None
    assert (record.kept.entries, record.total_dropped.entries) == (6, 2)
    assert scanned(topic) == [(0, 0), (0, 2), (1, 2), (1, 4)]
    topic.open()
    topic.topic.topic.delete_hot_copies(0)
    topic.environment.records.update(NAME, partial(without_ledger, ledger_id=whole.ledger_id))
    topic.do("5", "c5", "|")
    topic.offload()
    record = short_record(topic.ledgers[-1])
    assert record is not None
    assert record.kept.entries == (1 if mode is FilterMode.GAP else 2)


def scanned(topic: FilteredTopic) -> list[tuple[int, int]]:
    """Where the messages are that a scan of the tier gives a consumer, by the place of their ledger."""
    ledger_ids = [ledger.ledger_id for ledger in topic.ledgers]
    table = scan(TierReader(topic.tier), columns=["__ledgerId", "__entryId"]).to_table()
    pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [(ledger_ids.index(ledger_id), entry_id) for ledger_id, entry_id in pairs]


def without_ledger(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """As if retention had deleted it."""
    return replace(info, ledgers=tuple(each for each in info.ledgers if each.ledger_id != ledger_id))


def test_tombstones_that_are_larger_than_their_entries_have_room(tmp_path: Path) -> None:
    topic = FilteredTopic(
        tmp_path, mode=FilterMode.TOMBSTONE, filter=PlainFilter(lambda _: True), block_bytes=100_000
    )
    tiny = entry(b"", checksum=False, producer_name="", publish_time=1)
    topic.topic.topic.add_entries([tiny] * 500)
    topic.do("|")
    topic.offload()
    (ledger,) = topic.ledgers
    found = topic.cold(ledger)
    assert list(found) == list(range(500))
    assert min(map(len, found.values())) > len(tiny)


def test_a_topic_without_transactions_goes_as_it_is(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path, mode=FilterMode.TOMBSTONE)
    topic.do("m", "m", "m", "|")
    topic.offload()
    (ledger,) = topic.ledgers
    assert topic.cold(ledger) == topic.left(ledger)
    record = short_record(ledger)
    assert record is not None
    assert (record.stop, record.kept.entries, record.total_dropped.entries) == (None, 3, 0)


def test_entries_of_transactions_without_a_snapshot_stay_hot_and_the_error_says_what_to_do(
    tmp_path: Path,
) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "1", "a1", "|")
    SnapshotStore(topic.records.store).delete(NAME)
    with pytest.raises(UnresolvedTransactionError, match="no snapshot") as caught:
        topic.offload()
    (ledger,) = topic.ledgers
    assert (caught.value.ledger_id, caught.value.entry_id) == (ledger.ledger_id, 1)
    assert "--reset" in (caught.value.hint or "")
    assert ledger.context is None
    assert list(topic.tier.list_objects()) == []
    SnapshotStore(topic.records.store).reset(NAME)
    topic.offload()
    assert topic.cold(topic.ledgers[0]) == topic.left(ledger)


# --- what is said ------------------------------------------------------------------------------


def test_what_a_filter_did_is_said_in_both_objects_the_index_and_the_record(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "1", "1", "2", "a1", "c2", "|", "m", "|")
    topic.offload()
    ledger, _ = topic.ledgers
    data, index, metadata = objects_of(topic, ledger)
    stop = EntryPosition(topic.ledgers[1].ledger_id, 1)
    said = {
        "pulsaroffloadfiltered": "transactions",
        "pulsaroffloadfilteredmode": "gap",
        "pulsaroffloadfilteredstop": str(stop),
    }
    assert said.items() <= data.items()
    assert not {"pulsaroffloadfilteredkept", "pulsaroffloadfiltereddropped"} & set(data)
    left, sizes = topic.left(ledger), [len(payload) for _, payload in topic.hot_entries()]
    assert index["pulsaroffloadfilteredkept"] == f"2 entries, {sizes[0] + sizes[3]} bytes"
    assert index["pulsaroffloadfiltereddropped"] == f"4 entries, {sum(sizes[:6]) - sizes[0] - sizes[3]} bytes"
    assert said.items() <= index.items()
    assert len(left) == 2
    assert (metadata.last_entry_id, metadata.length) == (5, ledger.info.size)
    record = parse_filter_record(dict(metadata.custom)[RECORD_KEY])
    assert (record.name, record.mode, record.stop) == ("transactions", FilterMode.GAP, stop)
    assert record.aborted == {topic.begun[1]: 2}
    assert record.dropped is not None
    assert record.dropped["marker"].entries == 2
    assert short_record(ledger) == replace(record, dropped=None)


def test_a_later_attempt_puts_its_own_record_in_the_place_of_the_failed_ones(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path, filter=PlainFilter(lambda _: 7))
    topic.do("m", "m", "|")
    with pytest.raises(BrokenPluginError, match="did not decide"):
        topic.offload()
    assert short_record(topic.ledgers[0]) is None
    topic.filter = PlainFilter(lambda _: True)
    topic.offload()
    record = short_record(topic.ledgers[0])
    assert record is not None
    assert (record.kept.entries, record.total_dropped.entries) == (0, 2)
