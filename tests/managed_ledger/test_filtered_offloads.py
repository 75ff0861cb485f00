"""Ledgers whose entries go through a filter: what is left of them, and what is said of it."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
from entries import entry
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME, policies_to
from scenes.filters import FilteredTopic, PlainFilter, chosen, positions, short_record
from scenes.repairs import findings

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import RECORD_KEY, FilterMode, parse_filter_record
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.managed_ledger import delete_managed_ledger, keep_up, topic_offloads
from offload_core.writing.offload_filters import OffloadFilterDisable
from offload_hooks.errors import (
    BrokenPluginError,
    FormatError,
    OffloadError,
    StoreUnavailableError,
    UnresolvedTransactionError,
)
from pulsar_offload import TierReader, scan

# --- what is left ------------------------------------------------------------------------------


STEPS = st.lists(st.sampled_from(["m", "1", "2", "3", "c1", "a2", "a3", "|"]), min_size=1, max_size=25)


@given(steps=STEPS, mode=st.sampled_from(FilterMode), block_bytes=st.sampled_from([200, 400, 5000]))
def test_what_is_left_of_any_history_is_what_a_plain_model_keeps(tmp_path_factory, steps, mode, block_bytes):
    topic = FilteredTopic(tmp_path_factory.mktemp("drawn"), mode=mode, block_bytes=block_bytes)
    ended = set()
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
        assert (record.kept.entries, record.total_dropped.entries) == (len(left), count - len(left))
        assert record.kept.payload_bytes == sum(map(len, left.values()))
        assert record.kept.payload_bytes + record.total_dropped.payload_bytes == ledger.info.size
        if mode is FilterMode.TOMBSTONE:
            assert list(found) == list(range(count))
        assert {entry_id: each for entry_id, each in found.items() if entry_id in left} == left
        assert mode is FilterMode.TOMBSTONE or found == left
    assert findings(topic.tier, {NAME: topic.records.read(NAME).info}) == []


@pytest.mark.parametrize("mode", FilterMode)
def test_a_ledger_of_which_nothing_is_left_is_read_as_empty(tmp_path, mode):
    topic = FilteredTopic(tmp_path, mode=mode)
    topic.do("1", "1", "a1", "|", "m", "|")
    topic.offload()
    empty, other = topic.ledgers
    assert positions(topic.ledgers) == [0, 1]
    assert len(topic.cold(empty)) == (3 if mode is FilterMode.TOMBSTONE else 0)
    assert topic.cold(other) == topic.left(other)
    assert topic.topic.topic.delete_hot_copies(0) == [empty.ledger_id, other.ledger_id]


@pytest.mark.parametrize("mode", FilterMode)
def test_markers_stay_while_the_tier_has_ledgers_that_went_through_no_filter(tmp_path, mode):
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
    assert (record.kept.entries, record.total_dropped.entries) == (6, 2)
    assert scanned(topic) == [(0, 0), (0, 2), (1, 2), (1, 4)]
    topic.open()
    topic.topic.topic.delete_hot_copies(0)
    topic.environment.records.update(NAME, partial(without_ledger, ledger_id=whole.ledger_id))
    topic.do("5", "c5", "|")
    topic.offload()
    record = short_record(topic.ledgers[-1])
    assert record.kept.entries == (1 if mode is FilterMode.GAP else 2)


def scanned(topic):
    """Where the messages are that a scan of the tier gives a consumer, by the place of their ledger."""
    ledger_ids = [ledger.ledger_id for ledger in topic.ledgers]
    table = scan(TierReader(topic.tier), columns=["__ledgerId", "__entryId"]).to_table()
    pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [(ledger_ids.index(ledger_id), entry_id) for ledger_id, entry_id in pairs]


def without_ledger(info, ledger_id):
    """As if retention had deleted it."""
    return replace(info, ledgers=tuple(each for each in info.ledgers if each.ledger_id != ledger_id))


def test_tombstones_that_are_larger_than_their_entries_have_room(tmp_path):
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


def test_a_topic_without_transactions_goes_as_it_is(tmp_path):
    topic = FilteredTopic(tmp_path, mode=FilterMode.TOMBSTONE)
    topic.do("m", "m", "m", "|")
    topic.offload()
    (ledger,) = topic.ledgers
    assert topic.cold(ledger) == topic.left(ledger)
    record = short_record(ledger)
    assert (record.stop, record.kept.entries, record.total_dropped.entries) == (None, 3, 0)


def test_entries_of_transactions_without_a_snapshot_stay_hot_and_the_error_says_what_to_do(tmp_path):
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


def test_what_a_filter_did_is_said_in_both_objects_the_index_and_the_record(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "1", "1", "2", "a1", "c2", "|", "m", "|")
    topic.offload()
    ledger, _ = topic.ledgers
    key = ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)
    stats = [topic.tier.stat(each) for each in (key.data_key, key.index_key)]
    data, index = (dict(each.user_metadata) for each in stats)
    data_bytes, index_bytes = (each.size_bytes for each in stats)
    parsed = read_index(topic.tier, key, index_bytes=index_bytes, data_bytes=data_bytes)
    metadata = parsed.ledgers[0].metadata
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
    assert record.dropped["marker"].entries == 2
    assert short_record(ledger) == replace(record, dropped=None)


def test_a_later_attempt_puts_its_own_record_in_the_place_of_the_failed_ones(tmp_path):
    topic = FilteredTopic(tmp_path, filter=PlainFilter(lambda _: 7))
    topic.do("m", "m", "|")
    with pytest.raises(BrokenPluginError, match="did not decide"):
        topic.offload()
    assert short_record(topic.ledgers[0]) is None
    topic.filter = PlainFilter(lambda _: True)
    topic.offload()
    record = short_record(topic.ledgers[0])
    assert (record.kept.entries, record.total_dropped.entries) == (0, 2)


# --- which ledgers may go through a filter, and what the others wait for

EXAMPLE = ("1", "2", "2", "c1", "2", "3", "c2", "c3")
"""Of the proposal, with commits where it says that a transaction ends."""


STABLE = (-1, -1, -1, 0, 0, 0, 4, 7)


def cut(steps, cuts):
    """The same, a ledger sealed before each of these, and at the end."""
    parts = [["|", step] if i in cuts else [step] for i, step in enumerate(steps)]
    return [*itertools.chain.from_iterable(parts), "|"]


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (5,), (6, 7), (1, 2, 3, 4, 5, 6, 7)])
def test_of_the_proposals_example_those_ledgers_go_that_end_at_or_before_the_stable_position(tmp_path, cuts):
    topic = FilteredTopic(tmp_path)
    added = 0
    for step in cut(EXAMPLE, cuts):
        topic.do(step)
        added += step != "|"
        if step != "|":
            continue
        first = topic.offload()
        stable, last = STABLE[added - 1], -1
        for ledger in topic.ledgers:
            last += ledger.info.entries
            assert ledger.has_complete_copy == (last <= stable), (cuts, added)
        waiting = topic.topic.topic.offload_status.waiting
        assert set(waiting) == {each.ledger_id for each in topic.ledgers if not each.has_complete_copy}
        if waiting:
            assert first == EntryPosition(min(waiting), 0)
    assert positions(topic.ledgers) == list(range(len(cuts) + 1))
    assert [topic.cold(ledger) for ledger in topic.ledgers] == [
        topic.left(ledger) for ledger in topic.ledgers
    ]


def test_a_ledger_that_waits_says_for_what_and_those_behind_it_for_that_ledger(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "m", "1", "|", "m", "|")
    settled, held, behind = (ledger.ledger_id for ledger in topic.ledgers)
    assert topic.offload() == EntryPosition(held, 0)
    assert positions(topic.ledgers) == [0]
    status = topic.topic.topic.offload_status
    assert status.state == "success"
    assert status.offloaded == (settled,)
    assert status.waiting == {
        held: f"waits for transaction {topic.begun[1]}, open since entry {held}:1",
        behind: f"ledger {held} comes before it",
    }
    topic.do("a1", "|")
    topic.offload()
    assert topic.topic.topic.offload_status.waiting == {}
    assert positions(topic.ledgers) == [0, 1, 2, 3]


def test_a_transaction_that_ends_in_the_open_ledger_is_waited_for(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("1", "|", "c1")
    topic.topic.snapshot()
    topic.offload()
    assert positions(topic.ledgers) == [0]  # its owner persisted what it knows
    topic.do("2", "|", "c2")
    topic.offload()
    assert positions(topic.ledgers) == [0]  # and here it did not


def test_a_topic_that_waits_is_not_read_again_until_there_is_more_to_know(tmp_path, monkeypatch):
    topic = FilteredTopic(tmp_path)
    topic.do("1", "m", "|")
    topic.offload()
    why = topic.topic.topic.offload_status.waiting
    opened = []
    open_hot = topic.hot.open
    monkeypatch.setattr(topic.hot, "open", lambda each: (opened.append(each), open_hot(each))[1])
    topic.offload()
    assert (opened, topic.topic.topic.offload_status.waiting) == ([], why)
    topic.do("3", "a3")
    topic.topic.snapshot()  # settled no farther: what was aborted is behind what is open
    topic.offload()
    assert (opened, topic.topic.topic.offload_status.waiting) == ([], why)
    topic.do("2", "|")  # a ledger more
    topic.offload()
    assert opened
    assert list(topic.topic.topic.offload_status.waiting) == [each.ledger_id for each in topic.ledgers]
    topic.do("c1", "c2")
    topic.topic.snapshot()  # its owner has seen the ends, in the ledger that is open
    topic.offload()
    assert positions(topic.ledgers) == [0, 1]


def test_what_a_topic_waits_for_is_forgotten_with_it(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("1", "m", "|")
    topic.offload()
    ledger = topic.ledgers[0].ledger_id
    known = topic.environment.waits[NAME]
    assert (known.stable_position, known.sealed) == (None, EntryPosition(ledger, 1))
    delete_managed_ledger(topic.environment, NAME)
    assert topic.environment.waits == {}


@pytest.mark.parametrize("trigger", ["threshold_in_bytes", "threshold_in_seconds"])
def test_upkeep_leaves_out_what_waits_and_says_why(tmp_path, trigger):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "1", "|", "m", "|")
    first, held, behind = (ledger.ledger_id for ledger in topic.ledgers)
    for kept in (topic.topic, topic_offloads(topic.environment, NAME)):
        done = keep_up(kept, policies_to(driver="local", **{trigger: 0}), now_ms=1000)
        assert done.failures == {}
        assert list(done.skipped) == [held, behind]
        assert done.skipped[held].startswith("waits for transaction (")
        assert done.skipped[behind] == f"ledger {held} comes before it"
    assert positions(topic.ledgers) == [0]
    assert first == topic.ledgers[0].ledger_id


def test_a_position_that_ends_before_the_waiting_ledger_is_reached_as_without_a_filter(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "1", "|")
    _, held = (ledger.ledger_id for ledger in topic.ledgers)
    assert topic.offload(EntryPosition(held, 0)) == EntryPosition(held, 0)
    assert topic.topic.topic.offload_status.waiting == {}


# --- a filter that fails, or decides what it may not, fails the offload and nothing else


class Failing(PlainFilter):
    """Fails in one of its calls."""

    def __init__(self, where, error):
        super().__init__(lambda _: False)
        self.where, self.error = where, error

    def fail(self, where):
        if where == self.where:
            raise self.error

    def open(self, topic):
        self.fail("open")
        return super().open(topic)

    def look(self, ledger_id, entries):
        self.fail("look")
        return super().look(ledger_id, entries)


@pytest.mark.parametrize("where", ["open", "look"])
@pytest.mark.parametrize("error", [ValueError("bad"), StoreUnavailableError("away"), FormatError("odd")])
def test_whatever_a_filter_raises_fails_the_offload_and_nothing_else(tmp_path, where, error):
    topic = FilteredTopic(tmp_path, filter=Failing(where, error))
    topic.do("m", "|")
    expected = type(error) if isinstance(error, OffloadError) else BrokenPluginError
    with pytest.raises(expected) as caught:
        topic.offload()
    (ledger,) = topic.ledgers
    assert isinstance(caught.value, OffloadError)
    assert caught.value.ledger_id == ledger.ledger_id
    assert ledger.context is None
    assert list(topic.tier.list_objects()) == []
    assert topic.topic.topic.offload_status.error is caught.value
    done = keep_up(topic.topic, policies_to(driver="local", threshold_in_bytes=0), now_ms=1000)
    assert list(done.failures) == ["offload"]
    assert len(topic.hot_entries()) == 1


@pytest.mark.parametrize(
    "broken",
    [
        PlainFilter(lambda _: 2),
        PlainFilter(lambda _: -1),
        PlainFilter(lambda _: 0, stop=("a", 1)),
        PlainFilter(lambda _: 0, stop=(1, 2, 3)),
    ],
)
def test_a_filter_that_gives_no_decision_is_broken(tmp_path, broken):
    topic = FilteredTopic(tmp_path, filter=broken)
    topic.do("m", "|")
    with pytest.raises(BrokenPluginError, match="'transactions'"):
        topic.offload()
    assert topic.ledgers[0].context is None


def test_an_entry_that_is_not_pulsars_is_refused_with_its_place(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m")
    topic.topic.topic.add_entry(b"not of Pulsar")
    topic.do("|")
    with pytest.raises(FormatError) as caught:
        topic.offload()
    assert (caught.value.ledger_id, caught.value.entry_id) == (topic.ledgers[0].ledger_id, 1)


def test_what_a_third_party_drops_is_left_out_and_its_bound_is_kept(tmp_path):
    topic = FilteredTopic(tmp_path)
    topic.do("m", "m", "m", "|", "m", "|")
    unwanted = topic.hot_entries()[1][1]
    _, second = topic.ledgers
    topic.filter = PlainFilter(lambda payload: payload == unwanted, (second.ledger_id, 0), "a sign")
    assert topic.offload() == EntryPosition(second.ledger_id, 0)
    assert list(topic.cold(topic.ledgers[0])) == [0, 2]
    assert topic.topic.topic.offload_status.waiting == {second.ledger_id: "waits for a sign"}
