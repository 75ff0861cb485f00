"""Reading entries: over all ledgers, from any position, in bounds, from memory and from where the record says."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers, open_managed_ledger
from offload_core.writing.managed_ledger.topic_reader import ENTRY_OVERHEAD_BYTES, TailCache
from offload_hooks.errors import (
    NoReadableCopyError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    UnknownLedgerError,
)
from offload_hooks.testing import MemoryMetadataStore

START = EntryPosition(0, 0)


def read_all(topic, position=START, max_entries=1000, max_bytes=1 << 20):
    """All entries by position, as many reads as it takes."""
    found = {}
    while len(read := topic.read_entries(position, max_entries, max_bytes)):
        assert len(read) == sum(1 for _ in read) <= max_entries
        found |= {at: bytes(payload) for at, payload in read}
        assert read.next_position > position
        position = read.next_position
    return found


class CountedReads:
    """A hot tier that counts what is opened and read."""

    def __init__(self, store):
        self._store = store
        self.calls = Counter()

    def __call__(self, record, *_):
        self.calls["open"] += 1
        reader = self._store.open(record.ledger_id)
        read = reader.read

        def counted(*given):
            self.calls["read"] += 1
            return read(*given)

        reader.read = counted
        return reader


@pytest.fixture
def no_cache(environment):
    return replace(environment, cache_bytes=0)


def test_a_read_keeps_to_its_bounds_but_gives_one_entry_however_large(no_cache):
    topic = open_managed_ledger(no_cache, NAME)
    first = topic.add_entry(b"x" * 100)
    topic.roll()
    topic.add_entry(b"y" * 10)
    topic.add_entry(b"z" * 100)
    sizes = [
        [len(payload) for _, payload in topic.read_entries(first, 10, size)]
        for size in (1, 100, 109, 110, 210)
    ]
    assert sizes == [[100], [100], [100], [100, 10], [100, 10, 100]]
    assert [len(topic.read_entries(first, count)) for count in (1, 2, 3, 4)] == [1, 2, 3, 3]


def test_a_position_at_the_end_reads_on_when_there_is_more(opened):
    topic = opened()
    assert topic.read_entries(START, 10).next_position == START
    first = topic.add_entry(b"a")
    end = topic.read_entries(first, 10).next_position
    assert end == EntryPosition(first.ledger_id, 1)
    assert (len(topic.read_entries(end, 10)), topic.read_entries(end, 10).next_position) == (0, end)
    second = topic.add_entry(b"b")
    assert read_all(topic, end) == {second: b"b"}
    end = topic.read_entries(second, 10).next_position
    topic.roll()
    assert topic.read_entries(end, 10).next_position == end
    third = topic.add_entry(b"c")
    assert third.ledger_id > end.ledger_id
    assert read_all(topic, end) == {third: b"c"}


def test_positions_of_no_ledger_stand_for_the_next_entry(opened, hot):
    hot.create({}).close()
    topic = opened()
    first = topic.add_entry(b"a")
    assert first.ledger_id > 0
    assert read_all(topic, EntryPosition(0, 17)) == {first: b"a"}
    assert read_all(topic, EntryPosition(first.ledger_id, 99)) == {}
    assert read_all(topic, EntryPosition(1 << 40, 0)) == {}


def test_negative_positions_and_reads_of_nothing_are_refused(opened):
    topic = opened()
    for position in (EntryPosition(-1, 0), EntryPosition(0, -1)):
        with pytest.raises(RangeError):
            topic.read_entries(position, 1)
    for bounds in ((0, 1), (-1, 1), (1, 0)):
        with pytest.raises(OptionError):
            topic.read_entries(START, *bounds)


def test_whoever_reads_along_needs_no_disk(environment, hot):
    counted = CountedReads(hot)
    topic = open_managed_ledger(replace(environment, open_reader=counted), NAME)
    position = START
    for i in range(10):
        topic.add_entries([b"%d" % i, b"!" * i])
        read = topic.read_entries(position, 10)
        assert [bytes(payload) for _, payload in read] == [b"%d" % i, b"!" * i]
        position = read.next_position
        if i == 4:
            topic.roll()
    assert counted.calls == {}


def test_what_producers_change_in_their_buffers_afterwards_is_not_read(opened):
    topic, buffer = opened(), bytearray(b"before")
    first = topic.add_entry(buffer)
    topic.add_entries([buffer, memoryview(buffer)])
    buffer[:] = b"after."
    assert set(read_all(topic, first).values()) == {b"before"}


def test_few_readers_stay_open_and_a_copy_that_is_gone_is_an_error(environment, hot):
    counted = CountedReads(hot)
    topic = open_managed_ledger(replace(environment, open_reader=counted, cache_bytes=0), NAME)
    added = []
    for i in range(12):
        added.append(topic.add_entry(b"%d" % i))
        topic.roll()
    for position in [added[0]] * 5:
        topic.read_entries(position, 1)
    assert counted.calls == {"open": 1, "read": 5}
    assert list(read_all(topic)) == added
    assert len(topic._reader.readers._held) <= 8
    hot.delete(added[-1].ledger_id)
    with pytest.raises(UnknownLedgerError) as caught:
        topic.read_entries(added[-1], 1)
    assert caught.value.ledger_id == added[-1].ledger_id
    topic.close()
    assert topic._reader.readers._held == {}


def test_what_was_read_before_a_failure_is_given(environment, hot):
    """By `OFFLOADED_ONLY`, for instance, where offloaded ledgers end."""
    counted = CountedReads(hot)
    topic = open_managed_ledger(replace(environment, open_reader=counted, cache_bytes=0), NAME)
    first = topic.add_entry(b"here")
    topic.roll()
    second = topic.add_entry(b"gone")
    topic.roll()
    hot.delete(second.ledger_id)
    read = topic.read_entries(START, 100)
    assert [at for at, _ in read] == [first]
    with pytest.raises(UnknownLedgerError):
        topic.read_entries(read.next_position, 100)


@pytest.mark.parametrize("error", [NoReadableCopyError, ObjectNotFoundError, UnknownLedgerError])
def test_a_ledger_that_is_trimmed_while_it_is_read_stands_for_the_next(environment, hot, error):
    """Whatever its reader says of copies that go."""

    def open_reader(record, *_):
        reader = hot.open(record.ledger_id)
        if record.ledger_id == first.ledger_id:

            def read(*_):
                topic.trim(RetentionPolicies())
                raise error("it is gone")

            reader.read = read
        return reader

    topic = open_managed_ledger(replace(environment, open_reader=open_reader, cache_bytes=0), NAME)
    first = topic.add_entry(b"trimmed")
    topic.roll()
    second = topic.add_entry(b"kept")
    assert [at for at, _ in topic.read_entries(START, 100)] == [second]


def test_readers_are_opened_for_one_read_after_the_end(environment, hot):
    closed = []

    def open_reader(record, *_):
        reader = hot.open(record.ledger_id)
        reader.close = lambda: closed.append(record.ledger_id)
        return reader

    topic = open_managed_ledger(replace(environment, open_reader=open_reader, cache_bytes=0), NAME)
    at = topic.add_entry(b"here")
    topic.close()
    assert len(topic.read_entries(START, 100)) == 1
    assert closed == [at.ledger_id]


def test_the_last_position_asks_nobody(environment, hot, monkeypatch):
    topic = open_managed_ledger(environment, NAME)
    positions = [topic.add_entry(b"a")]
    topic.roll()
    monkeypatch.setattr(environment.records, "read", None)
    monkeypatch.setattr(hot, "open", None)
    assert topic.last_position == positions[0]


def test_the_cache_keeps_the_newest_entries_within_its_budget():
    cache = TailCache(10 * (ENTRY_OVERHEAD_BYTES + 10))
    for i in range(100):
        cache.put(i // 50, i % 50, [b"%010d" % i])
    assert cache.used_bytes == 10 * (ENTRY_OVERHEAD_BYTES + 10)
    assert cache.get(1, 39, 49, 1 << 20) is None
    assert [bytes(each) for each in cache.get(1, 40, 49, 1 << 20)] == [b"%010d" % i for i in range(90, 100)]
    assert len(cache.get(1, 40, 60, 25)) == 2
    cache.put(1, 50, [b"x" * 10_000])
    assert (cache.used_bytes, cache.get(1, 50, 50, 1 << 20)) == (0, None)


def test_what_is_missing_in_the_cache_is_not_passed_over():
    cache = TailCache(1 << 20)
    cache.put(7, 0, [b"a", b"b"])
    cache.put(7, 3, [b"d"])
    assert [bytes(each) for each in cache.get(7, 0, 3, 1 << 20)] == [b"a", b"b"]
    assert cache.get(7, 2, 3, 1 << 20) is None


@given(data=st.data())
def test_any_read_of_any_topic_matches_a_list(tmp_path_factory, data):
    hot = FileLedgerStore(tmp_path_factory.mktemp("any"), sync="never")
    environment = Environment(
        records=ManagedLedgerRecords(MemoryMetadataStore()),
        hot=HotLedgers(hot),
        cache_bytes=data.draw(st.sampled_from([0, 700, 1 << 20]), label="cache"),
    )
    topic = open_managed_ledger(environment, NAME)
    model = []
    for sizes in data.draw(st.lists(st.lists(st.integers(0, 90), max_size=6), max_size=6), label="ledgers"):
        for size in sizes:
            payload = bytes([len(model) % 251]) * size
            model.append((topic.add_entry(payload), payload))
        topic.roll()
    last = model[-1][0].ledger_id if model else 0
    position = EntryPosition(
        data.draw(st.integers(0, last + 1), label="ledger"), data.draw(st.integers(0, 8), label="entry")
    )
    count = data.draw(st.integers(1, 20), label="entries")
    size = data.draw(st.integers(1, 400), label="bytes")
    wanted = [(at, payload) for at, payload in model if at >= position]
    found = [(at, bytes(payload)) for at, payload in topic.read_entries(position, count, size)]
    assert found == wanted[: len(found)]
    assert len(found) <= count
    assert bool(found) == bool(wanted)
    assert not found or sum(len(payload) for _, payload in found) <= max(size, len(found[0][1]))
    assert list(read_all(topic, position, count, size).items()) == wanted
    hot.close()
