"""Messages in chunks: joined wherever their chunks lie, over ledgers, blocks and tasks."""

import logging
import pickle
from itertools import pairwise
from typing import Any

import pytest
from entries import CODECS, entry, pip17_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import SentMessage, interleaved, readable, write_keys
from tiers import TOPIC, MemoryDriver, Names, in_memory, numbered

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_core.storage.tier import Tier
from offload_hooks.errors import BadLengthError, IncompleteMessageError, OptionError
from offload_proto.messages_pb2 import LZ4, MessageIdData
from pulsar_offload import TierReader, scan

COLUMNS = ["__ledgerId", "__entryId", "value"]
FIRST_LEDGER = 10


def tier_of(entries, cuts=(), max_block_bytes=300):
    """The entries in ledgers, each up to one of the sorted `cuts`."""
    edges = [0, *cuts, len(entries)]
    return in_memory(
        *(
            pip17_object(
                entries[start:stop], ledger_id=FIRST_LEDGER + number, max_block_bytes=max_block_bytes
            )
            for number, (start, stop) in enumerate(pairwise(edges))
        )
    )


def place(index, cuts):
    """Ledger and entry of the entry with this index."""
    ledger = sum(cut <= index for cut in cuts)
    return FIRST_LEDGER + ledger, index - [0, *cuts][ledger]


def rows_of(tier, **options):
    table = scan(tier, TOPIC, columns=COLUMNS, **options).to_table()
    return [(row["__ledgerId"], row["__entryId"], row["value"]) for row in table.to_pylist()]


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 5),
        st.sampled_from(sorted(CODECS)),
        st.integers(0, 60),
        st.one_of(st.just(frozenset()), st.just(frozenset()), st.frozensets(st.integers(0, 4), max_size=2)),
    ),
    max_size=9,
)


def sent(drawn):
    return [
        SentMessage(
            producer=producer,
            number=number,
            value=b"%d:" % number + b"x%d" % number * length,
            chunks=chunks,
            codec=codec,
            lost=frozenset(i for i in lost if i < chunks),
        )
        for number, (producer, chunks, codec, length, lost) in enumerate(drawn)
    ]


@given(MESSAGES, st.lists(st.integers(0, 2), max_size=60), st.data())
def test_all_complete_messages_are_read_at_their_last_chunk(drawn, order, data):
    stored = interleaved(sent(drawn), order)
    if not stored:
        return
    places = range(1, len(stored))
    cuts = sorted(data.draw(st.sets(st.sampled_from(places), max_size=4))) if places else []
    tier = tier_of([each.payload for each in stored], cuts, data.draw(st.sampled_from([150, 300, 2000])))
    start, stop = sorted([data.draw(st.integers(0, len(stored))), data.draw(st.integers(0, len(stored)))])
    options: dict[str, Any] = {
        "min_partitions": data.draw(st.integers(1, 6)),
        "mode": "DROPMALFORMED",
        "start": {TopicName(TOPIC): Position(*place(min(start, len(stored) - 1), cuts))},
    }
    if stop < len(stored):
        options["stop"] = {TopicName(TOPIC): Position(*place(stop, cuts))}
    start = min(start, len(stored) - 1)
    expected = [
        (*place(at, cuts), value)
        for at, value in readable(stored)
        if start <= at and (at < stop or stop == len(stored))
    ]
    assert rows_of(tier, **options) == expected


@given(MESSAGES, st.lists(st.integers(0, 2), max_size=60), st.integers(1, 6))
def test_nothing_is_wrong_where_nothing_is_lost(drawn, order, tasks):
    stored = interleaved(sent([(*message[:4], frozenset()) for message in drawn]), order)
    if stored:
        tier = tier_of([each.payload for each in stored], [len(stored) // 2] if len(stored) > 1 else [])
        found = rows_of(tier, min_partitions=tasks, mode="FAILFAST")
        assert [value for _, _, value in found] == [value for _, value in readable(stored)]


# --- by example --------------------------------------------------------------------------------


def message(number=0, producer="a", chunks=4, **fields):
    return SentMessage(
        producer=producer, number=number, value=b"value %d " % number * 5, chunks=chunks, **fields
    )


def entries_of(*messages):
    return [each.payload for each in interleaved(messages, ())]


def test_a_joined_message_has_the_facts_of_its_last_chunk():
    tier = tier_of(entries_of(message(codec=LZ4)))
    facts = {"__entryId": 3, "__uuid": "a-0", "__chunkId": 3, "__numChunks": 4}
    facts |= {"__batchIndex": -1, "__sequenceId": 0, "__valueIsRaw": False}
    assert scan(tier, columns=list(facts)).to_table().to_pylist() == [facts]


@pytest.mark.parametrize("tasks", [1, 4])
def test_the_id_of_a_message_also_says_where_it_begins(tasks):
    tier = tier_of(entries_of(message(1, chunks=1), message()), [2])
    ids = scan(tier, columns=["__messageId"], min_partitions=tasks).to_table()["__messageId"].to_pylist()
    plain, chunked = (MessageIdData.FromString(each) for each in ids)
    assert not plain.HasField("first_chunk_message_id")
    assert (chunked.ledgerId, chunked.entryId) == (11, 2)
    first = chunked.first_chunk_message_id
    assert (first.ledgerId, first.entryId, first.HasField("partition")) == (10, 1, False)


def test_chunks_are_passed_on_one_by_one_when_asked_for():
    sent_message = message(chunks=3)
    rows = scan(
        tier_of(entries_of(sent_message)), columns=["value", "__chunkId", "__valueIsRaw"], chunks="raw"
    )
    found = rows.to_table().to_pylist()
    assert b"".join(row["value"] for row in found) == sent_message.value
    assert [(row["__chunkId"], row["__valueIsRaw"]) for row in found] == [(0, True), (1, True), (2, True)]


def test_each_chunk_is_decrypted_by_itself(tmp_path):
    keys = ("pem", {"directory": str(write_keys(tmp_path / "keys", "orders"))})
    secret = [message(key_name="orders", codec=LZ4), message(1, "b", key_name="orders")]
    tier = tier_of([each.payload for each in interleaved(secret, [0, 1] * 4)], [3], 900)
    found = rows_of(tier, key_provider=keys, min_partitions=3)
    assert [value for _, _, value in found] == [each.value for each in secret]


@pytest.mark.parametrize("tasks", [1, 9])
def test_a_message_that_lost_a_chunk_is_an_error_that_names_it(tasks):
    tier = tier_of(entries_of(message(), message(1, lost=frozenset({2}))), [2])
    with pytest.raises(IncompleteMessageError) as caught:
        rows_of(tier, min_partitions=tasks)
    assert (caught.value.ledger_id, caught.value.entry_id) == (11, 3)
    assert caught.value.expected == "4 chunks of 'a-1' by 'a'"
    assert caught.value.found == 2


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_message_that_lost_a_chunk_is_counted_in_a_warning_and_perhaps_named(mode, caplog):
    tier = tier_of(entries_of(message(0, lost=frozenset({2})), message(1)))
    with caplog.at_level(logging.WARNING):
        found = rows_of(tier, mode=mode)
    assert [value for _, _, value in found] == [message(1).value]
    *named, counted = caplog.messages
    assert ["a-0" in each for each in named] == ([True] if mode == "PERMISSIVE" else [])
    assert counted == f"{TOPIC}: 1 chunked messages are incomplete, and left out"


@pytest.mark.parametrize("lost", [{0}, {0, 1}, {3}, {2, 3}])
def test_a_message_that_the_ends_of_a_topic_cut_is_a_warning(lost, caplog):
    with caplog.at_level(logging.WARNING):
        assert rows_of(tier_of(entries_of(message(lost=frozenset(lost))))) == []
    (warning,) = caplog.messages
    assert warning.startswith(f"{TOPIC}: 1 chunked messages")


@pytest.mark.parametrize("tasks", [1, 40])
def test_a_message_that_its_producer_never_finished_is_an_error(tasks):
    others = [entry(b"%d" % i * 50) for i in range(40)]
    tier = tier_of([*entries_of(message(lost=frozenset({2, 3}))), *others])
    with pytest.raises(IncompleteMessageError, match="no more of it follows within 500 bytes") as caught:
        rows_of(tier, min_partitions=tasks, chunk_look_back_bytes=500)
    assert (caught.value.entry_id, caught.value.found) == (1, 2)


def test_a_message_that_begins_too_far_back_is_incomplete():
    chunks = entries_of(message(chunks=2))
    others = [entry(b"%d" % i * 50) for i in range(40)]
    tier = tier_of([chunks[0], *others, chunks[1]])
    assert len(rows_of(tier, min_partitions=40, chunk_look_back_bytes=20_000)) == 41
    with pytest.raises(IncompleteMessageError):
        rows_of(tier, min_partitions=40, chunk_look_back_bytes=500)


def test_chunks_that_were_sent_again_are_passed_over():
    first, second = entries_of(message()), entries_of(message(1, chunks=2))
    again = [*first[:3], *first[1:3], first[3], *first[2:], *second, *first[1:2]]
    for tasks in (1, 9):
        found = rows_of(tier_of(again, [4]), min_partitions=tasks)
        assert [value for _, _, value in found] == [message().value, message(1).value]


def test_a_message_that_is_begun_anew_is_read_once():
    chunks = entries_of(message())
    found = rows_of(tier_of([*chunks[:2], *chunks], [1, 3]), min_partitions=9)
    assert [(entry_id, value) for _, entry_id, value in found] == [(2, message().value)]


def test_producers_may_use_the_same_uuid():
    both = interleaved([message(producer="a"), message(producer="b")], [0, 1] * 4)
    mixed = [stored.payload.replace(b"b-0", b"a-0") for stored in both]
    assert len(rows_of(tier_of(mixed), verify_checksums=False)) == 2


def test_neighbours_are_read_only_where_a_beginning_or_an_end_is_missing():
    reads = []
    for chunks in ("joined", "raw"):
        whole = pip17_object(
            [*entries_of(message()), *(entry(b"x" * 50) for _ in range(20))], max_block_bytes=600
        )
        driver = MemoryDriver(numbered(whole), metadata=Names().as_metadata("data"), range_bytes=600)
        planned = scan(TierReader(Tier(driver)), min_partitions=20, chunks=chunks)
        driver.reads.clear()
        planned.to_table()
        reads.append(sorted(driver.reads))
    joined, raw = reads
    assert any(task.neighbours for task in scan(TierReader(Tier(driver)), min_partitions=20).tasks)
    assert joined == raw


def test_a_neighbours_index_is_read_once_for_each_side_of_a_task_that_needs_it():
    cut = [each.payload for each in interleaved([message(i, f"p{i}") for i in range(4)], list(range(4)) * 4)]
    whole = pip17_object([*cut, *(entry(b"x" * 50) for _ in range(20))], max_block_bytes=300)
    driver = MemoryDriver(numbered(whole), metadata=Names().as_metadata("data"))
    planned = scan(TierReader(Tier(driver)), min_partitions=20, isolation="uncommitted")
    driver.reads.clear()
    assert len(planned.to_table()) == 24
    indexes = [read for read in driver.reads if read[0].endswith("-index")]
    last_chunk = len(cut) - 1
    concerned = [task for task in planned.tasks if task.extents[0].blocks[0].first_entry_id <= last_chunk]
    assert 0 < len(indexes) <= 2 * len(concerned) < 2 * len(planned.tasks)


def test_tasks_with_neighbours_travel():
    planned = scan(tier_of(entries_of(message(), message(1)), [3]), min_partitions=4)
    assert pickle.loads(pickle.dumps(planned.tasks)) == planned.tasks


def test_a_message_larger_than_is_allowed_is_refused():
    with pytest.raises(BadLengthError, match="option max_message_bytes"):
        rows_of(tier_of(entries_of(message())), max_message_bytes=20)


def test_no_more_is_held_of_incomplete_messages_than_is_allowed():
    many = [message(i, f"p{i}") for i in range(5)]
    tier = tier_of([each.payload for each in interleaved(many, list(range(5)) * 4)])
    assert len(rows_of(tier)) == 5
    with pytest.raises(IncompleteMessageError, match="maxPendingChunkBytes"):
        rows_of(tier, max_pending_chunk_bytes=100)


@pytest.mark.parametrize(
    "options", [{"mode": "STRICT"}, {"chunks": "some"}, {"crypto_failure_action": "IGNORE"}]
)
def test_words_that_there_are_not_are_refused(options):
    with pytest.raises(OptionError, match="there is no such"):
        rows_of(tier_of(entries_of(message())), **options)
