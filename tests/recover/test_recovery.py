"""Records are rebuilt from objects; what no object tells is said, and what is there is never changed."""

from contextlib import suppress
from dataclasses import replace

import pytest
from crash_points import FAULTS, Killed, Metadata, Points
from damage.scenes import FOLLOWING, PAYLOADS, streaming
from entries import LedgerPart, pip17_object, streaming_object
from managed_ledgers import NAME, Audit
from mapfiles import lay_out_mapfile, mapfile
from records import STANDALONE_RECORDS, knowable, ledger, recover, recovered
from scenes.repairs import repaired
from scenes.rollbacks import NAMED, NAMELESS, put_segment, put_whole
from tiers import CLUSTER, MANAGED_LEDGER, TOPIC, Names, put, put_broker_objects, put_object, uuid_of

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.maintenance.record_recovery import RecoveryOutcome, Unknown, UnknownFact, recover_records
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import (
    EntryPosition,
    ManagedLedgerInfo,
    pack_managed_ledger_info,
    parse_stored_record,
    segments_of,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers, open_managed_ledger
from offload_hooks.errors import StoreError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier, scan

# --- Pulsar's own ------------------------------------------------------------------------------


def test_a_brokers_records_come_back(tier, records):
    put_broker_objects(tier)
    recover(tier, records)
    place = tier_record(tier)
    place = replace(place, properties=tuple(sorted(place.properties)))
    originals = {f"acme/cold/persistent/{path.stem}": path for path in STANDALONE_RECORDS}
    assert set(records.names()) <= set(originals)
    assert len(records.names()) == 13
    for name in records.names():
        theirs = knowable(parse_stored_record(originals[name].read_bytes()).info)
        here = [replace(each, context=replace(each.context, driver=place)) for each in theirs.ledgers]
        assert knowable(records.read(name).info).ledgers == tuple(here)


def test_pulsar_parses_what_is_written(oracle, tier, records):
    put_broker_objects(tier, ["big"])
    put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    recover(tier, records)
    for name in records.names():
        known = records.read(name)
        parsed = oracle.parse("ManagedLedgerInfo", pack_managed_ledger_info(known.info))
        assert [(int(each["ledgerId"]), int(each["entries"])) for each in parsed["ledgerInfo"]] == [
            (each.ledger_id, each.info.entries) for each in known.info.ledgers
        ]
        assert all(each["offloadContext"]["bookkeeperDeleted"] for each in parsed["ledgerInfo"])


# --- what is not known -------------------------------------------------------------------------


def test_the_last_open_ledger_ends_where_its_copy_ends_and_that_is_said(tier):
    open_ = LedgerPart(ledger_id=6, blocks=[[b"abc"] * 3, [b"d"]])
    written = streaming_object([LedgerPart(ledger_id=5, blocks=[[b"x"] * 2]), open_])
    put_object(tier, written, names=NAMED)
    info, unknown = recovered(tier)
    six = ledger(info, 6)
    assert (six.info.entries, six.info.size, six.info.is_closed) == (4, 10, True)
    assert six.is_fully_offloaded
    assert unknown == tuple(
        UnknownFact(what=Unknown.OPEN_LEDGER, ledger_id=ledger_id, last_entry_id=last)
        for ledger_id, last in ((5, 1), (6, 3))
    )
    assert [(each.begin, each.end) for each in segments_of(info)] == [
        (EntryPosition(5, 0), EntryPosition(6, 3))
    ]


def test_entries_without_a_copy_are_named_and_the_ledger_is_not_called_complete(tier):
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (5, 5, 2))
    info, unknown = recovered(tier)
    assert UnknownFact(what=Unknown.GAP, ledger_id=5, first_entry_id=3, last_entry_id=4) in unknown
    five = ledger(info, 5)
    assert (five.context.complete, five.context.bookkeeper_deleted) == (False, True)
    assert [each.end_entry_id for each in five.context.segments] == [2, 6]


def test_of_a_ledger_that_had_ended_the_last_block_tells_where_its_share_ends(tier):
    written = streaming_object([LedgerPart(ledger_id=5, blocks=[[b"a"] * 2, [b"b"] * 2])])
    index = parse_index(written.index, written.key).ledgers[0]
    ended = LedgerInfo(ledger_id=5, entries=10, size=10, timestamp_ms=1_700_000_000_000)
    indexed = replace(written, index=pack_streaming_index([(ended, index.blocks)], len(written.data)))
    put_object(tier, indexed, uuid_of(1), names=NAMED)
    info, unknown = recovered(tier)
    five = ledger(info, 5)
    assert five.info == ended
    assert ([each.end_entry_id for each in five.context.segments], five.context.complete) == ([3], False)
    assert unknown == (UnknownFact(what=Unknown.GAP, ledger_id=5, first_entry_id=4, last_entry_id=9),)


def test_a_segment_goes_up_to_where_the_next_begins(tier):
    put_segment(tier, 1, (5, 0, 5))
    put_segment(tier, 2, (5, 3, 4))
    info, _ = recovered(tier)
    five = ledger(info, 5)
    assert ([each.end_entry_id for each in five.context.segments], five.is_fully_offloaded) == ([2, 6], True)


def test_a_managed_ledger_goes_on_behind_recovered_ledgers_only(tmp_path, tier, records):
    put_segment(tier, 1, (5, 0, 3))
    recover(tier, records)
    hot = FileLedgerStore(tmp_path / "hot", sync="never")
    managed = open_managed_ledger(Environment(records=records, hot=HotLedgers(hot)), NAME)
    with pytest.raises(StoreError, match="an id that is smaller"):
        managed.add_entry(b"x")
    hot.skip_ids(5)
    managed = open_managed_ledger(Environment(records=records, hot=HotLedgers(hot)), NAME)
    assert managed.add_entry(b"x").ledger_id > 5
    hot.close()


def test_a_trimmed_ledger_is_left_out(tier):
    put_segment(tier, 1, (5, 4, 3), (6, 0, 2))
    info, unknown = recovered(tier)
    assert [each.ledger_id for each in info.ledgers] == [6]
    assert unknown[0] == UnknownFact(what=Unknown.TRIMMED, ledger_id=5, first_entry_id=0, last_entry_id=3)


def test_of_several_copies_the_newest_is_taken_and_it_is_said_whether_they_differ(tier):
    for number, ledger_id, entries in ((1, 5, 3), (2, 5, 3), (3, 6, 3), (4, 6, 4)):
        put_whole(tier, number, ledger_id, entries)
    info, unknown = recovered(tier)
    contexts = {each.ledger_id: each.context for each in info.ledgers}
    taken = {ledger_id: context.uuid for ledger_id, context in contexts.items() if context}
    assert taken == {5: uuid_of(2), 6: uuid_of(4)}
    assert [(each.ledger_id, each.what) for each in unknown] == [
        (5, Unknown.SEVERAL_COPIES),
        (6, Unknown.COPIES_DIFFER),
    ]


def test_what_makes_no_record_is_said(tier, records):
    put_segment(tier, 1, (5, 0, 3), names=NAMELESS)
    put_segment(tier, 2, (6, 0, 3), parts=["data"])
    put_segment(tier, 3, (7, 0, 3), folder="elsewhere/")
    half = pip17_object([b"x"], ledger_id=8)
    put(tier, f"{uuid_of(4)}-ledger-8", half.data, NAMED.as_metadata("data"))
    topic, nameless, strays = recover(tier, records)
    assert [each.what for each in topic.rebuilt.unknown] == [Unknown.FOLDER, Unknown.NO_COPY]
    assert [each.what for each in nameless.rebuilt.unknown] == [Unknown.NO_TOPIC]
    assert [each.key for each in strays.rebuilt.unknown] == [str(uuid_of(2))]
    assert {each.outcome for each in (topic, nameless, strays)} == {RecoveryOutcome.NONE}
    assert records.names() == []


def test_of_several_clusters_one_is_named(tier, records):
    for number, cluster in enumerate([CLUSTER, "west"]):
        put_segment(tier, number, (5 + number, 0, 3), names=Names(cluster=cluster))
    (one,) = recover(tier, records)
    assert one.outcome is RecoveryOutcome.NONE
    assert [each.what for each in one.rebuilt.unknown] == [Unknown.CLUSTERS]
    (one,) = recover(tier, records, cluster="west")
    assert [each.ledger_id for each in one.rebuilt.info.ledgers] == [6]


def test_a_mapfile_is_recorded_so_that_it_is_found(tmp_path, records):
    lay_out_mapfile(tmp_path, mapfile([b"a", b"bc"], ledger_id=2))
    with open_tier(tmp_path) as cold:
        (one,) = recover(cold.store, records)
        table = scan(cold, TOPIC, level="entries", records={TOPIC: one.rebuilt.info}).to_table()
        assert table["value"].to_pylist() == [b"a", b"bc"]


def test_a_block_that_cannot_be_read_is_said(tier, records):
    written = streaming_object([LedgerPart(ledger_id=5, blocks=[[b"x"] * 3])])
    damaged = replace(written, data=written.data[:140] + b"\xff" * 4 + written.data[144:])
    put_object(tier, damaged, names=NAMED)
    (one,) = recover(tier, records)
    assert one.outcome is RecoveryOutcome.NONE
    assert [each.what for each in one.rebuilt.unknown] == [Unknown.BROKEN_DATA]


# --- writing -----------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_says_the_same(tier, records):
    put_segment(tier, 1, (5, 0, 3))
    dry = list(recover_records(tier, records, None))
    assert [each.outcome for each in dry] == [RecoveryOutcome.NEW]
    assert records.names() == []
    assert recover(tier, records) == dry
    assert records.names() == [MANAGED_LEDGER]


def test_a_record_that_is_there_stays_as_it_is(tier, records):
    put_segment(tier, 1, (5, 0, 3))
    other = ManagedLedgerInfo(properties=(("a", "b"),))
    records.write(MANAGED_LEDGER, other, None)
    audit = Audit()
    assert [each.outcome for each in recover_records(tier, records, audit)] == [RecoveryOutcome.OTHER]
    assert (records.read(MANAGED_LEDGER).info, audit.changes) == (other, [])


def test_only_wanted_topics_are_recovered(tier, records):
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (5, 0, 3), names=Names(managed_ledger="acme/cold/persistent/other"))
    wanted = parse_topic("acme/cold/other")
    recover(tier, records, wanted=lambda topic: topic == wanted)
    assert records.names() == ["acme/cold/persistent/other"]


class Refusing:
    def record(self, change):
        raise StoreError(f"no room for {change.managed_ledger}")


def test_what_cannot_be_recorded_in_the_audit_log_is_not_written(tier, records):
    put_segment(tier, 1, (5, 0, 3))
    with pytest.raises(StoreError, match="no room"):
        list(recover_records(tier, records, Refusing()))
    assert records.names() == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(1, 10))
def test_a_recovery_that_is_cut_off_anywhere_is_made_again(tier, records, fault, at):
    for number, name in enumerate(["a", "b"]):
        put_segment(tier, number, (5, 0, 3), names=Names(managed_ledger=f"acme/cold/persistent/{name}"))
    recover(tier, records)
    store, audit = MemoryMetadataStore(), Audit()
    with suppress(StoreError, Killed):
        list(recover_records(tier, ManagedLedgerRecords(Metadata(store, Points(at, fault))), audit))
    written = ManagedLedgerRecords(store)
    assert {each.managed_ledger for each in audit.changes} >= set(written.names())
    outcomes = {each.outcome for each in recover(tier, written)}
    assert outcomes <= {RecoveryOutcome.NEW, RecoveryOutcome.SAME}
    whole = {name: records.read(name).info for name in records.names()}
    assert {name: written.read(name).info for name in written.names()} == whole


# --- Records of segments that were saved from damaged ones: each stands for the entries that it had, lost ones too.


@pytest.mark.parametrize(
    ("segment", "ledger_id", "entry_id"),
    [(0, 7, 6), (0, 7, 8), (1, 7, 9), (1, 7, 12), (1, 7, 15), (1, 8, 1), (1, 8, 3), (1, 8, 4)],
)
def test_a_segment_that_lacks_entries_stands_for_them(segment, ledger_id, entry_id):
    scene = streaming(records=False)
    scene.flip(scene.key(segment), scene.frame(entry_id, segment, ledger_id) + 60)
    tier = scene.tier()
    repaired(scene, tier, quarantine=True)
    (topic,) = recover_records(tier, None, None)
    info = topic.rebuilt.info
    entries = {each.ledger_id: each.info.entries for each in info.ledgers}
    assert entries == {7: len(PAYLOADS), 8: len(FOLLOWING)}
    assert all(each.is_fully_offloaded for each in info.ledgers)
    (fact,) = topic.rebuilt.unknown
    assert (fact.what, fact.ledger_id) == (Unknown.LOST_ENTRIES, ledger_id)
    assert fact.detail == f"1 entries: {ledger_id}:{entry_id}"
