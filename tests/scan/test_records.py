"""Topics read by their records: as Pulsar's clients read them, streaming objects under a name, and what is lost."""

from dataclasses import replace

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from golden import COLUMNS, STREAMING_CASES, TOPICS, as_entries, assert_topic_is_as_expected
from records import (
    MANAGED_LEDGERS,
    closed,
    copied,
    golden_record,
    managed_ledger,
    segment,
    still_open,
    streaming_entries,
    streaming_record,
)
from tiers import TOPIC, Names, lay_out, lay_out_case, put_broker_objects, uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.records import OffloadContext, SegmentLayout, StoredRecord, pack_stored_record
from offload_core.reading.scan import Position
from offload_core.storage.tier import open_store
from offload_hooks.errors import DataLossError, EntryOrderError, UnknownLedgerError, UnknownTopicError
from pulsar_offload import TierReader, open_tier, scan

STREAMED = "persistent://acme/cold/streamed"
NAMELESS = Names(managed_ledger=None)


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    """A tier of what a broker offloaded, without the names of the topics."""
    root = tmp_path_factory.mktemp("nameless")
    with open_store(root) as store:
        put_broker_objects(store, named=False)
    return root


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """A tier of Pulsar's own streaming objects, which name no topic."""
    root = tmp_path_factory.mktemp("streamed")
    for name in STREAMING_CASES:
        lay_out_case(root, "streaming", name)
    return root


def entry_ids(root, *ledgers, fail_on_data_loss=True, **bounds):
    given = {name: {parse_topic(TOPIC): position} for name, position in bounds.items()}
    records = {TOPIC: managed_ledger(*ledgers)}
    with open_tier(root) as tier:
        planned = scan(
            tier, TOPIC, level="entries", records=records, fail_on_data_loss=fail_on_data_loss, **given
        )
        rows = planned.to_table().select(["__ledgerId", "__entryId"]).to_pylist()
    return [(row["__ledgerId"], row["__entryId"]) for row in rows]


def segmented(root, *sizes, ledger_id=5):
    first = 0
    for attempt, size in enumerate(sizes, start=1):
        part = LedgerPart(ledger_id=ledger_id, blocks=[[b"x"] * size], first_entry_id=first)
        lay_out(root, streaming_object([part]), attempt=attempt, names=NAMELESS)
        first += size


# --- golden ------------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"chunk"}))
def test_a_topic_is_read_by_its_record_as_pulsars_clients_read_it(nameless, topic):
    with open_tier(nameless) as tier:
        planned = scan(tier, f"acme/cold/{topic}", columns=COLUMNS, records=golden_record(topic))
        assert_topic_is_as_expected((row for batch in planned for row in batch.to_pylist()), topic)


def test_a_topic_whose_offload_failed_has_nothing_to_read_and_says_so(nameless, caplog):
    with open_tier(nameless) as tier:
        assert scan(tier, "acme/cold/chunk", records=MANAGED_LEDGERS).tasks == ()
    assert caplog.messages == [
        "nothing of persistent://acme/cold/chunk is read: ledgers 29, 58 have no complete copy (ledger 29: "
        "e128f708-2707-40f4-ac18-c98b9d161763-ledger-29: by its record this attempt did not finish; ledger 58: by "
        "its record it is in BookKeeper only)"
    ]


@pytest.mark.parametrize("layout", SegmentLayout)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_pulsars_own_streaming_objects_are_read_under_their_topics_name(streamed, layout, compression):
    record = pack_stored_record(
        StoredRecord(info=streaming_record(), compression=compression), segment_layout=layout
    )
    with open_tier(streamed) as tier:
        assert [topic.name for topic in tier.catalogue().topics] == [None]
        planned = scan(tier, STREAMED, level="entries", records={STREAMED: record})
        rows = [row for batch in planned for row in batch.to_pylist()]
    assert {row["__topic"] for row in rows} == {STREAMED}
    assert as_entries(rows) == streaming_entries()


def test_only_what_is_asked_for_is_looked_up(nameless, monkeypatch):
    asked: list[str] = []
    with open_tier(nameless) as tier:
        stat = tier.store.stat
        monkeypatch.setattr(tier.store, "stat", lambda key: (asked.append(key), stat(key))[1])
        scan(tier, "acme/cold/jstring", records=MANAGED_LEDGERS)
        assert {key.split("-ledger-")[1] for key in asked} == {"42", "42-index"}
        asked.clear()
        scan(tier, ledger=40, records=MANAGED_LEDGERS)
        assert {key.split("-ledger-")[1] for key in asked} == {"40", "40-index"}


def test_what_no_record_has_is_unknown(nameless):
    with open_tier(nameless) as tier:
        with pytest.raises(
            UnknownTopicError, match=r"no topic persistent://acme/cold/nosuch.*acme/cold/avro"
        ):
            scan(tier, "acme/cold/nosuch", records=MANAGED_LEDGERS)
        with pytest.raises(UnknownLedgerError, match=r"no record has this ledger \(ledger 5\)"):
            scan(tier, "acme/cold/json", ledger=5, records=MANAGED_LEDGERS)


# --- loss --------------------------------------------------------------------------------------


def test_a_ledger_in_bookkeeper_only_is_a_gap_in_the_middle_and_a_warning_at_the_end(tmp_path, caplog):
    for number in (1, 3):
        lay_out(tmp_path, pip17_object([b"a"], ledger_id=number), attempt=number)
    one, three = (closed(number, 1, copied(uuid_of(number))) for number in (1, 3))
    assert entry_ids(tmp_path, one, three, closed(4, 1), still_open(5)) == [(1, 0), (3, 0)]
    assert caplog.messages == [
        f"{TOPIC} is read up to 3:1: ledgers 4, 5 have no complete copy (ledger 4: by its record it is in BookKeeper "
        "only; ledger 5: by its record it is in BookKeeper only)"
    ]
    lost = r"no complete copy \(ledger 2\): expected positions 2:0 to 2:6, found .*in BookKeeper only"
    with pytest.raises(DataLossError, match=lost):
        entry_ids(tmp_path, one, closed(2, 7), three)
    assert entry_ids(tmp_path, one, closed(2, 1), three, fail_on_data_loss=False) == [(1, 0), (3, 0)]


def test_a_ledger_without_entries_is_no_gap(tmp_path, caplog):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=3))
    assert entry_ids(tmp_path, closed(2, 0), closed(3, 1, copied(uuid_of(0)))) == [(3, 0)]
    assert caplog.messages == []


@pytest.mark.parametrize("following", [(), (still_open(9),)], ids=["last", "before-the-open-one"])
def test_a_recorded_copy_that_is_not_there_is_loss_at_the_end_as_well(tmp_path, following):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=1), attempt=1)
    one, two = (closed(number, 1, copied(uuid_of(number))) for number in (1, 2))
    with pytest.raises(DataLossError, match=r"\(ledger 2\).*aws-s3 at golden has it; it is not here"):
        entry_ids(tmp_path, one, two, *following)
    assert entry_ids(tmp_path, one, two, *following, fail_on_data_loss=False) == [(1, 0)]


def test_a_segment_that_is_not_there_is_loss_in_the_middle_and_at_the_end(tmp_path):
    segmented(tmp_path, 4, 6, 5)
    segments = [segment(uuid_of(number), end) for number, end in ((1, 3), (2, 9), (3, 14))]
    whole = OffloadContext.of_segments(segments, complete=True)
    assert len(entry_ids(tmp_path, closed(5, 15, whole))) == 15
    for missing, lost in ((2, "entries 4 to 9"), (3, "entries 10 to 14")):
        other = [
            replace(each, uuid=uuid_of(9)) if each.uuid == uuid_of(missing) else each for each in segments
        ]
        context = OffloadContext.of_segments(other, complete=True)
        with pytest.raises(DataLossError, match=lost):
            entry_ids(tmp_path, closed(5, 15, context))
        assert len(entry_ids(tmp_path, closed(5, 15, context), fail_on_data_loss=False)) == (
            9 if missing == 2 else 10
        )
    first = OffloadContext.of_segments([segment(uuid_of(9), 3), *segments[1:]], complete=True)
    with pytest.raises(DataLossError, match=r"the first entries .* have no copy here"):
        entry_ids(tmp_path, closed(5, 15, first))


def test_the_rest_of_the_last_ledger_may_still_be_on_its_way(tmp_path, caplog):
    segmented(tmp_path, 4)
    context = OffloadContext.of_segments([segment(uuid_of(1), 3), segment(uuid_of(2), None, complete=False)])
    ids = [(5, entry) for entry in range(4)]
    assert entry_ids(tmp_path, still_open(5, context)) == ids
    assert caplog.messages == [
        f"{TOPIC} is read up to 5:4: of ledger 5, from entry 4 on are not offloaded yet"
    ]
    caplog.clear()
    assert entry_ids(tmp_path, closed(5, 15, context), still_open(6)) == ids
    assert caplog.messages == [
        f"{TOPIC} is read up to 5:4: ledger 6 has no complete copy (by its record it is in BookKeeper only)",
        f"{TOPIC} is read up to 5:4: of ledger 5, entries 4 to 14 are not offloaded yet",
    ]
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=6), attempt=6)
    with pytest.raises(DataLossError, match="entries 4 to 14"):
        entry_ids(tmp_path, closed(5, 15, context), closed(6, 1, copied(uuid_of(6))))


@pytest.mark.parametrize("recorded_end", [2, 4])
def test_a_segment_that_does_not_end_where_its_record_says_is_noticed(tmp_path, recorded_end):
    """A streaming index does not say where its last block ends; the record does."""
    segmented(tmp_path, 4)
    context = OffloadContext.of_segments([segment(uuid_of(1), recorded_end)])
    with pytest.raises(EntryOrderError, match=r"does not end with the entry .*ledger 5"):
        entry_ids(tmp_path, closed(5, recorded_end + 1, context))


def test_a_copy_shorter_than_its_record_says_is_loss(tmp_path):
    lay_out(tmp_path, pip17_object([b"a", b"b"], ledger_id=5), attempt=1)
    with pytest.raises(DataLossError, match="entries 2 to 4"):
        entry_ids(tmp_path, closed(5, 5, copied(uuid_of(1))))


def test_positions_may_begin_in_a_ledger_that_is_in_bookkeeper_only(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=1))
    records = {TOPIC: managed_ledger(closed(1, 1, copied(uuid_of(0))), still_open(2))}
    with TierReader(open_store(tmp_path)) as tier:
        planned = scan(tier, TOPIC, start={parse_topic(TOPIC): Position(2, 0)}, records=records)
    assert planned.tasks == ()


# --- what is not offloaded yet, by positions ---------------------------------------------------


def test_a_stop_is_loss_as_soon_as_it_asks_for_what_is_not_offloaded_yet(tmp_path):
    lay_out(tmp_path, pip17_object([b"a", b"b"], ledger_id=1), attempt=1)
    ledgers = (closed(1, 2, copied(uuid_of(1))), closed(2, 5), still_open(3))
    for stop in (Position(1, 2), Position(2, 0)):
        assert entry_ids(tmp_path, *ledgers, stop=stop) == [(1, 0), (1, 1)]
    for stop, positions in (
        (Position(2, 3), "positions 2:0 to 2:2"),
        (Position(2, 3, 1), "positions 2:0 to 2:3"),
        (Position(3, 0), "positions 2:0 to 2:4"),
        (Position(3, 8), "positions 2:0 to 3:7"),
        (Position(9, 0), "positions from 2:0 on, to ledger 3"),
    ):
        with pytest.raises(DataLossError, match=r"complete copy \(ledger 2\)") as caught:
            entry_ids(tmp_path, *ledgers, stop=stop)
        assert caught.value.expected == positions
    with pytest.raises(DataLossError) as caught:
        entry_ids(tmp_path, *ledgers, start=Position(2, 1), stop=Position(2, 3))
    assert caught.value.expected == "positions 2:1 to 2:2"


def test_a_stop_in_the_part_of_the_last_ledger_that_is_not_offloaded_yet_is_loss(tmp_path):
    segmented(tmp_path, 4)
    context = OffloadContext.of_segments([segment(uuid_of(1), 3), segment(uuid_of(2), None, complete=False)])
    for ledger in (still_open(5, context), closed(5, 15, context)):
        assert len(entry_ids(tmp_path, ledger, stop=Position(5, 4))) == 4
        with pytest.raises(DataLossError, match="expected entries 4 to 6"):
            entry_ids(tmp_path, ledger, stop=Position(5, 7))


def test_a_start_in_a_ledger_that_retention_has_trimmed_is_loss(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=7))
    ledger = closed(7, 1, copied(uuid_of(0)))
    assert entry_ids(tmp_path, ledger) == [(7, 0)]
    with pytest.raises(DataLossError, match="asked for from 3:2:0, but begins with ledger 7 now"):
        entry_ids(tmp_path, ledger, start=Position(3, 2))


def test_many_ledgers_of_a_gap_are_not_all_named(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=99))
    hot = [closed(number, 2) for number in range(1, 31)]
    with pytest.raises(DataLossError, match=r"30 ledgers of .* have no complete copy") as caught:
        entry_ids(tmp_path, *hot, closed(99, 1, copied(uuid_of(0))))
    assert caught.value.expected == "positions 1:0 to 30:1"
    assert str(caught.value.found).endswith("; and 20 more")
