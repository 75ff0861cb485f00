"""Topics in streaming segments with borders anywhere: any range by any priority, and scans, equal the plain lists."""

import pytest
from entries import read_through
from hypothesis import given
from hypothesis import strategies as st
from scenes.drawn import segmented, segmented_topics
from tiers import TOPIC

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import ReadPriority
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.reading.read_fallbacks import Copy, FallbackReason
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.reading.scan import Position, ScanOptions, Selection, select_catalogue
from offload_core.reading.scan.following import BatchLimit, advance
from offload_hooks.errors import NoReadableCopyError, RangeError, UnknownLedgerError
from pulsar_offload import TierReader, scan

COLD_FIRST, COLD_ONLY = ReadPriority.OFFLOADED_FIRST, ReadPriority.OFFLOADED_ONLY
HOT_FIRST, HOT_ONLY = ReadPriority.BOOKKEEPER_FIRST, ReadPriority.BOOKKEEPER_ONLY


def readers_of(topic):
    cold = ColdReaders(KnownTiers(topic.tier), memory=ReadMemory(), read_buffer_bytes=100)
    return TieredReaders(topic.hot, cold)


def read(reader, first, last, max_bytes):
    """All entries of a range, by id, in as many reads as it takes."""
    found = dict(read_through(reader, first, last, max_bytes))
    assert list(found) == sorted(found)
    return found


def expected(topic, ledger_id, priority, first, last):
    payloads, stop = topic.payloads[ledger_id], topic.cold_stops.get(ledger_id, 0)
    if priority.hot_first or not stop:
        ids = list(range(len(payloads)))
    else:
        ids = [*topic.cold[ledger_id], *range(stop, len(payloads))]
    return {i: payloads[i] for i in ids if first <= i <= last}


@given(topic=segmented_topics(), data=st.data())
def test_any_range_of_any_ledger_by_any_priority_is_the_plain_list(topic, data):
    readers = readers_of(topic)
    for ledger in topic.info.ledgers:
        count, stop = len(topic.payloads[ledger.ledger_id]), topic.cold_stops.get(ledger.ledger_id, 0)
        priority = data.draw(st.sampled_from(ReadPriority))
        if priority is COLD_ONLY:
            count = stop
            if not count:
                with pytest.raises(UnknownLedgerError):
                    readers.open(ledger, priority)
                continue
        reader = readers.open(ledger, priority)
        for _ in range(3):
            first = data.draw(st.integers(0, count - 1))
            last = data.draw(st.integers(first, count - 1))
            found = read(reader, first, last, data.draw(st.sampled_from([1, 40, 1 << 20])))
            assert found == expected(topic, ledger.ledger_id, priority, first, last)
    assert readers.fallback_counts == {}


@given(topic=segmented_topics(gaps=False), data=st.data())
def test_what_one_copy_cannot_give_the_other_does(topic, data):
    if data.draw(st.booleans()):
        for key in [each for each in topic.driver.objects if data.draw(st.booleans())]:
            del topic.driver.objects[key]
    else:
        for ledger in topic.info.ledgers:
            if ledger.is_fully_offloaded:
                topic.hot.delete(ledger.ledger_id)
    readers = readers_of(topic)
    for ledger in topic.info.ledgers:
        reader = readers.open(ledger, data.draw(st.sampled_from([COLD_FIRST, HOT_FIRST])))
        last = len(topic.payloads[ledger.ledger_id]) - 1
        assert list(read(reader, 0, last, 60).values()) == topic.payloads[ledger.ledger_id]


@given(topic=segmented_topics(), data=st.data())
def test_a_scan_reads_what_lies_in_complete_segments(topic, data):
    tier = TierReader(topic.tier)

    def scanned(info):
        planned = scan(tier, TOPIC, level="entries", records={TOPIC: info})
        columns = ["__ledgerId", "__entryId", "value"]
        rows = planned.to_table().select(columns).to_pylist()
        return [(row["__ledgerId"], row["__entryId"], row["value"]) for row in rows]

    assert scanned(topic.info) == topic.cold_entries()
    first = data.draw(st.sampled_from(topic.info.ledgers)).ledger_id
    trimmed = mark_for_deletion(topic.info, [each for each in topic.payloads if each <= first])
    left = [each for each in topic.cold_entries() if each[0] > first]
    assert scanned(trimmed) == left
    topics = select_catalogue(
        tier, Selection(topics_pattern=".*"), ScanOptions(records={TOPIC: trimmed})
    ).topics
    reached = advance(topics, {}, BatchLimit(), fail_on_data_loss=True)
    stops = {ledger: stop for ledger, stop in topic.cold_stops.items() if ledger > first}
    last = Position(max(stops), stops[max(stops)] - 1) if stops else Position(0, 0)
    assert all(position > last for position in reached.values()), "a stream comes as far"
    assert bool(reached) == bool(stops)


# --- a ledger that is cold in part -------------------------------------------------------------


def partly_cold(*, is_open):
    """A ledger of six entries, four of which lie in a segment."""
    topic = segmented(sizes=[6], segments=[4], last_is_open=is_open)
    return topic, topic.info.ledgers[0]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("priority", [COLD_FIRST, HOT_FIRST, HOT_ONLY])
def test_a_range_that_crosses_the_border_is_read_in_order(is_open, priority):
    topic, ledger = partly_cold(is_open=is_open)
    readers = readers_of(topic)
    reader = readers.open(ledger, priority)
    assert list(read(reader, 2, 5, 1 << 20).values()) == topic.payloads[ledger.ledger_id][2:]
    assert len(reader.read(2, 5)) == (2 if priority is COLD_FIRST else 4)
    assert reader.copy is (Copy.COLD if priority is COLD_FIRST else Copy.HOT), "it did not turn to another"
    assert reader.status().entry_count == 6
    for first, last in ((4, 6), (6, 6), (3, 2), (-1, 3)):
        with pytest.raises(RangeError):
            reader.read(first, last)
    assert readers.fallback_counts == {}


@pytest.mark.parametrize("is_open", [True, False])
def test_without_the_hot_tier_what_is_cold_is_read(is_open):
    topic, ledger = partly_cold(is_open=is_open)
    topic.hot.delete(ledger.ledger_id)
    for priority in (COLD_FIRST, HOT_FIRST):
        readers = readers_of(topic)
        reader = readers.open(ledger, priority)
        assert len(reader.read(2, 5)) == 2
        assert reader.copy is Copy.COLD
        with pytest.raises(UnknownLedgerError):
            reader.read(4, 4)
        assert len(reader.read(0, 3)) == 4
        assert set(readers.fallback_counts) <= {(Copy.HOT, FallbackReason.MISSING)}


def test_without_its_objects_all_is_read_hot():
    topic, ledger = partly_cold(is_open=True)
    topic.driver.objects.clear()
    readers = readers_of(topic)
    reader = readers.open(ledger, COLD_FIRST)
    assert list(read(reader, 0, 5, 1 << 20).values()) == topic.payloads[ledger.ledger_id]
    assert readers.fallback_counts == {(Copy.COLD, FallbackReason.MISSING): 1}
    topic.hot.delete(ledger.ledger_id)
    with pytest.raises(NoReadableCopyError):
        readers.open(ledger, COLD_FIRST).read(0, 3)


def test_what_is_written_meanwhile_is_read_by_the_reader_that_is_open():
    topic, ledger = partly_cold(is_open=True)
    reader = readers_of(topic).open(ledger, COLD_FIRST)
    assert len(reader.read(0, 3)) == 4
    topic.hot.shared.find(ledger.ledger_id).entries.append(b"later")
    assert [bytes(each) for each in reader.read(6, 6)] == [b"later"]
    assert len(reader.read(0, 6)) == 4
