"""What managed ledgers' records tell of a tier: ledgers in order, their copies, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from golden import BROKER, load_case, topic_objects
from records import (
    MANAGED_LEDGERS,
    closed,
    copied,
    failed,
    golden_record,
    managed_ledger,
    segment,
    still_open,
    streaming_record,
)
from tiers import CLUSTER, TOPIC, MemoryDriver, Names, lay_out, put_broker_objects, uuid_of

from offload_core.metadata.catalogue import Problem
from offload_core.metadata.records import OffloadContext
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import StoreError
from pulsar_offload import TierReader, open_tier

PAYLOADS = [b"one", b"", b"three"]
NAMELESS = Names(managed_ledger=None)


def topic_of(root, *ledgers, prefix=""):
    with open_tier(root) as tier:
        (topic,) = tier.catalogue(records={TOPIC: managed_ledger(*ledgers)}, prefix=prefix).topics
    return topic


def ledger_of(root, record):
    (ledger,) = topic_of(root, record).ledgers
    assert ledger.record == record
    return ledger


def segmented(root, *sizes, ledger_id=5):
    """Streaming objects 1, 2, … of one ledger, each with so many entries, one after another."""
    written, first = [], 0
    for attempt, size in enumerate(sizes, start=1):
        part = LedgerPart(ledger_id=ledger_id, blocks=[[b"x"] * size], first_entry_id=first)
        written.append(streaming_object([part]))
        lay_out(root, written[-1], attempt=attempt, names=NAMELESS)
        first += size
    return written


def ranges(ledger):
    return [(extent.first_entry_id, extent.stop_entry_id) for extent in ledger.extents]


# --- what there is -----------------------------------------------------------------------------


def test_a_brokers_records_name_the_ledgers_of_objects_that_name_no_topic(tmp_path):
    with open_store(tmp_path) as store:
        put_broker_objects(store, named=False)
    with open_tier(tmp_path) as tier:
        catalogue = tier.catalogue(records=MANAGED_LEDGERS)
        assert [topic.label for topic in tier.catalogue().topics] == ["(unknown topic)"]
    assert len(catalogue.topics) == 14
    by_name = {topic.label.rpartition("/")[2]: topic for topic in catalogue.topics}
    for name, topic in by_name.items():
        objects = [golden.key.data_key for golden in topic_objects(name)]
        pieces = [extent for ledger in topic.ledgers for extent in ledger.extents]
        assert [extent.key.data_key for extent in pieces] == objects
        assert topic.cluster == ("standalone" if objects else None)
        hot = topic.ledgers[-1]
        assert (hot.extents, hot.attempts, hot.entries) == ((), (), None)
        assert hot.why_not_read == "by its record it is in BookKeeper only"
    assert [(ledger.ledger_id, ledger.entries) for ledger in by_name["nobatch"].ledgers] == [
        (3, 1000), (7, 1000), (8, 500), (96, None),
    ]  # fmt: skip
    assert [stored.problem for stored in catalogue.problems] == [Problem.UNFINISHED]
    assert catalogue.problems[0].detail == "by its record this attempt did not finish"


def test_objects_that_no_record_names_are_not_there(tmp_path):
    for attempt in (1, 2):
        lay_out(tmp_path, pip17_object(PAYLOADS), attempt=attempt)
    ledger = ledger_of(tmp_path, closed(7, 3, copied(uuid_of(1), bookkeeper_deleted=True)))
    assert [stored.key.uuid for stored in ledger.attempts] == [uuid_of(1)]
    assert ledger.superseded == ()
    assert ranges(ledger) == [(0, 3)]
    assert topic_of(tmp_path).ledgers == ()


def test_segments_have_the_ends_that_the_record_knows(tmp_path):
    segmented(tmp_path, 4, 6)
    context = OffloadContext.of_segments(
        [segment(uuid_of(1), 3), segment(uuid_of(2), 9), segment(uuid_of(3), None, complete=False)]
    )
    ledger = ledger_of(tmp_path, still_open(5, context))
    assert ranges(ledger) == [(0, 4), (4, 10)]
    assert [extent.ledger.blocks[-1].end_entry_id for extent in ledger.extents] == [4, 10]
    assert [stored.problem for stored in ledger.attempts] == [None, None, Problem.UNFINISHED]
    assert ledger.attempts[2].detail == "by its record this segment is not offloaded yet"
    assert ledger.record.offloaded_stop == 10


def test_a_failed_segment_is_not_read_even_if_it_is_there(tmp_path):
    segmented(tmp_path, 4, 6, 5)
    parts = [segment(uuid_of(1), 3), failed(segment(uuid_of(2), 9)), segment(uuid_of(3), 14)]
    assert ranges(ledger_of(tmp_path, closed(5, 10, OffloadContext.of_segments(parts[:2])))) == [(0, 4)]
    ledger = ledger_of(tmp_path, closed(5, 15, OffloadContext.of_segments(parts)))
    assert ranges(ledger) == [(0, 10), (10, 15)], "the scan sees the gap"
    stored = ledger.attempts[1]
    assert (stored.problem, stored.index) == (Problem.UNFINISHED, None)
    assert stored.detail == "by its record the offload of this segment failed"
    assert stored.data_bytes == 512


def test_a_segment_of_several_ledgers_is_looked_up_once():
    case = load_case("streaming", "3-ledgers-5-blocks")
    driver = MemoryDriver({case.key.data_key: case.data, case.key.index_key: case.index})
    records = {"a/b/c": streaming_record()}
    (topic,) = TierReader(Tier(driver)).catalogue(records=records).topics
    assert [(ledger.ledger_id, len(ledger.extents)) for ledger in topic.ledgers] == [
        (15, 1), (16, 1), (17, 1), (21, 0), (30, 0), (40, 0),
    ]  # fmt: skip
    assert [each[0] for each in driver.reads] == [case.key.index_key]


def test_objects_in_a_folder_are_found_there(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS), folder="east/old/")
    record = closed(7, 3, copied(uuid_of(0)))
    for prefix in ("east/old/", "east/old"):
        (ledger,) = topic_of(tmp_path, record, prefix=prefix).ledgers
        assert ledger.extents[0].key.data_key == f"east/old/{uuid_of(0)}-ledger-7"
    assert topic_of(tmp_path, record).ledgers[0].extents == ()


def test_the_cluster_is_what_the_objects_say_if_they_agree(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=1), attempt=1)
    first = closed(1, 3, copied(uuid_of(1)))
    assert topic_of(tmp_path, first).cluster == CLUSTER
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=2), attempt=2, names=Names(cluster="west"))
    assert topic_of(tmp_path, first, closed(2, 3, copied(uuid_of(2)))).cluster is None


# --- what is wrong -----------------------------------------------------------------------------


def test_a_copy_that_the_tier_lacks_is_a_problem_that_says_where_the_record_has_it(tmp_path):
    (stored,) = ledger_of(tmp_path, closed(7, 3, copied(uuid_of(0)))).attempts
    assert stored.problem is Problem.MISSING
    assert (stored.data_bytes, stored.index_bytes, stored.modified_at) == (None, None, None)
    assert stored.detail == "its record says that aws-s3 at golden has it; it is not here"


@pytest.mark.parametrize(
    ("parts", "more", "problem"),
    [
        (["data"], b"", Problem.NO_INDEX),
        (["index"], b"", Problem.NO_DATA),
        (["data", "index"], b"x", Problem.WRONG_LENGTH),
    ],
)
def test_a_damaged_copy_has_the_problem_that_it_has_in_a_listing(tmp_path, parts, more, problem):
    written = pip17_object(PAYLOADS)
    lay_out(tmp_path, replace(written, data=written.data + more), parts=parts)
    ledger = ledger_of(tmp_path, closed(7, 3, copied(uuid_of(0))))
    assert [stored.problem for stored in ledger.attempts] == [problem]
    assert ledger.extents == ()


def test_a_format_that_record_and_key_disagree_on_is_a_problem_that_names_both(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    context = OffloadContext.of_segments([segment(uuid_of(1), 2)])
    (stored,) = ledger_of(tmp_path, closed(7, 3, context)).attempts
    assert stored.problem is Problem.OTHER_FORMAT
    assert stored.key.data_key == f"{uuid_of(1)}-ledger-7"
    assert stored.detail == "the formats differ: streaming by its record, pip17 by its key"
    segmented(tmp_path, 3)
    (other,) = ledger_of(tmp_path, closed(5, 3, copied(uuid_of(1)))).attempts
    assert other.detail == "the formats differ: pip17 by its record, streaming by its key"


def test_an_index_of_another_format_than_the_record_says_is_a_problem_that_names_both(tmp_path):
    streaming = streaming_object([LedgerPart(ledger_id=7, blocks=[[b"x"]])])
    lay_out(tmp_path, replace(pip17_object(PAYLOADS), data=streaming.data, index=streaming.index))
    (stored,) = ledger_of(tmp_path, closed(7, 3, copied(uuid_of(0)))).attempts
    assert stored.problem is Problem.BROKEN_INDEX
    assert "(pip17)" in stored.detail
    assert "(streaming)" in stored.detail


def test_an_object_without_the_ledger_is_a_problem_of_that_ledger_only(tmp_path):
    segmented(tmp_path, 3)
    right = closed(5, 3, OffloadContext.of_segments([segment(uuid_of(1), 2)]))
    wrong = closed(6, 3, OffloadContext.of_segments([segment(uuid_of(1), 2)]))
    five, six = topic_of(tmp_path, right, wrong).ledgers
    assert len(five.extents) == 1
    (stored,) = six.attempts
    assert stored.problem is Problem.RECORD_MISMATCH
    assert stored.detail == "by its record it holds entries of ledger 6, by its index none"


def test_a_segment_that_ends_before_its_last_block_begins_is_a_problem(tmp_path):
    lay_out(tmp_path, streaming_object([LedgerPart(ledger_id=5, blocks=[[b"x"] * 4, [b"y"]])]), attempt=1)
    context = OffloadContext.of_segments([segment(uuid_of(1), 3)])
    (stored,) = ledger_of(tmp_path, closed(5, 4, context)).attempts
    assert stored.problem is Problem.RECORD_MISMATCH
    assert stored.detail == (
        "by its record it ends with entry 3 of ledger 5, by its index a block begins with entry 4"
    )


def test_a_store_that_fails_is_an_error_and_not_a_missing_copy(tmp_path):
    class Broken(MemoryDriver):
        def _find(self, key):
            raise StoreError("the store broke", key=key)

    with pytest.raises(StoreError, match="the store broke"):
        TierReader(Tier(Broken({}))).catalogue(records=golden_record("jstring"))


def test_the_golden_records_are_those_of_the_brokers_topics():
    assert golden_record("json").is_file()
    assert {path.stem for path in golden_record("json").parent.iterdir()} == {
        path.name for path in (BROKER / "topics").iterdir()
    }
