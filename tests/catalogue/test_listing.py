"""What a bucket alone tells: topics, ledgers and their copies."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from golden import BROKER
from mapfiles import mapfile
from tiers import (
    CLUSTER,
    MANAGED_LEDGER,
    MODIFIED_AT,
    TOPIC,
    MemoryDriver,
    Names,
    lay_out,
    lay_out_broker_objects,
    put,
    uuid_of,
)

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.catalogue.listing import list_pairs, stream_attempts
from offload_core.storage.tier import Tier, open_store
from pulsar_offload import TierReader, open_tier, scan

PAYLOADS = [b"one", b"", b"three"]


def catalogue_of(root, *, prefix=""):
    with open_tier(root) as tier:
        return tier.catalogue(prefix=prefix)


# --- what there is -----------------------------------------------------------------------------


def test_a_brokers_bucket_shows_its_topics_and_ledgers_in_order(tmp_path):
    lay_out_broker_objects(tmp_path)
    catalogue = catalogue_of(tmp_path)
    assert {topic.cluster for topic in catalogue.topics} == {"standalone"}
    assert [topic.label.removeprefix("persistent://acme/cold/") for topic in catalogue.topics] == [
        "avro", "batch", "big", "comp-lz4", "comp-none", "comp-snappy", "comp-zstd",
        "jkv-inline", "jmisc", "json", "jstring", "nobatch", "txn",
    ]  # fmt: skip
    by_name = {topic.label.rpartition("/")[2]: topic for topic in catalogue.topics}
    assert [ledger.ledger_id for ledger in by_name["nobatch"].ledgers] == [3, 7, 8]
    for name, entries in (("big", {34: 1000, 35: 300}), ("avro", {21: 1000, 24: 265})):
        assert {ledger.ledger_id: ledger.entries for ledger in by_name[name].ledgers} == entries
    stored = {each["key"]: each for each in json.loads((BROKER / "objects.json").read_text())}
    for topic in catalogue.topics:
        for ledger in topic.ledgers:
            (attempt,) = ledger.attempts
            assert attempt.data_bytes == stored[attempt.key.data_key]["size"]
            assert attempt.index_bytes == stored[attempt.key.index_key]["size"]
            assert ledger.data_bytes == attempt.data_bytes
            assert ledger.formats == (ObjectFormat.PIP17,)
            assert ledger.superseded == ()
    assert catalogue.problems == ()
    assert catalogue.strays == ()


def test_an_object_shows_names_sizes_and_time(tmp_path):
    written = pip17_object(PAYLOADS, ledger_id=12)
    key = lay_out(tmp_path, written, attempt=3)
    (topic,) = catalogue_of(tmp_path).topics
    (ledger,) = topic.ledgers
    (stored,) = ledger.attempts
    assert (topic.label, topic.cluster) == (TOPIC, CLUSTER)
    assert (stored.managed_ledger, stored.cluster) == (MANAGED_LEDGER, CLUSTER)
    assert stored.key.data_key == key == "00000000-0000-4000-8000-000000000003-ledger-12"
    assert (stored.data_bytes, stored.index_bytes) == (128 + 3 * 12 + 8, len(written.index))
    assert stored.modified_at == MODIFIED_AT
    assert (ledger.ledger_id, ledger.entries, ledger.data_bytes) == (12, 3, 172)
    assert [(extent.first_entry_id, extent.stop_entry_id) for extent in ledger.extents] == [(0, 3)]


def test_topics_are_ordered_by_name_and_their_ledgers_by_number(tmp_path):
    topics = [None, "b/n/persistent/x", "a/n/persistent/x", "a/n/persistent/x-partition-1"]
    ledgers = [100, 9, 20, 0]
    for attempt, (topic, ledger_id) in enumerate(itertools.product(topics, ledgers)):
        written = pip17_object(PAYLOADS, ledger_id=ledger_id)
        lay_out(tmp_path, written, attempt=attempt, names=Names(managed_ledger=topic))
    found = catalogue_of(tmp_path).topics
    assert [topic.label for topic in found] == [
        "persistent://a/n/x",
        "persistent://a/n/x-partition-1",
        "persistent://b/n/x",
        "(unknown topic)",
    ]
    for topic in found:
        assert [ledger.ledger_id for ledger in topic.ledgers] == [0, 9, 20, 100]


def test_two_clusters_with_the_same_ledger_ids_are_kept_apart(tmp_path):
    lay_out(tmp_path, pip17_object([b"east"]), attempt=1, names=Names(cluster="east"))
    lay_out(tmp_path, pip17_object([b"west", b"west"]), attempt=2, names=Names(cluster="west"))
    catalogue = catalogue_of(tmp_path)
    assert [(topic.cluster, topic.label) for topic in catalogue.topics] == [("east", TOPIC), ("west", TOPIC)]
    ledgers = [ledger for topic in catalogue.topics for ledger in topic.ledgers]
    assert [(ledger.entries, ledger.superseded) for ledger in ledgers] == [(1, ()), (2, ())]


def test_keys_under_a_folder_are_listed_and_a_prefix_narrows_to_one(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=1), attempt=1, folder="east/pulsar/")
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=2), attempt=2, folder="west/")
    (both,) = catalogue_of(tmp_path).topics
    assert [ledger.ledger_id for ledger in both.ledgers] == [1, 2]
    (one,) = catalogue_of(tmp_path, prefix="west/").topics
    (ledger,) = one.ledgers
    assert ledger.attempts[0].key.data_key == f"west/{uuid_of(2)}-ledger-2"
    assert catalogue_of(tmp_path, prefix="north/").topics == (), "nothing is there"


def test_the_same_uuid_in_two_folders_is_two_objects(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS), folder="a/")
    lay_out(tmp_path, pip17_object(PAYLOADS), folder="b/", parts=["data"])
    catalogue = catalogue_of(tmp_path)
    assert [stored.key.data_key for stored in catalogue.problems] == [f"b/{uuid_of(0)}-ledger-7"]


def test_objects_of_others_are_passed_over(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS))
    with open_store(tmp_path) as store:
        for key in (
            "readme.txt",
            "folder/data.parquet",
            f"{uuid_of(1)}.tmp",
            f"{uuid_of(1)}-ledger-x",
            f"{uuid_of(1)}-ledger-07",
            str(uuid_of(1)).replace("8000", "BEEF"),
            f"{uuid_of(1)}-index-index",
        ):
            put(store, key, b"something else", {})
    catalogue = catalogue_of(tmp_path)
    assert [len(topic.ledgers) for topic in catalogue.topics] == [1]
    assert catalogue.problems == ()
    assert catalogue.strays == ()


def test_objects_without_user_metadata_belong_to_an_unknown_topic(tmp_path):
    nameless = Names(managed_ledger=None, cluster=None, version=None)
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=4), names=nameless)
    (topic,) = catalogue_of(tmp_path).topics
    assert (topic.name, topic.cluster, topic.label) == (None, None, "(unknown topic)")
    with open_tier(tmp_path) as tier:
        assert scan(tier, level="entries").tasks == (), "not read with all topics"
        rows = scan(tier, ledger=4, level="entries").to_table().to_pylist()
    assert rows == [
        {"value": payload, "__topic": None, "__ledgerId": 4, "__entryId": i}
        for i, payload in enumerate(PAYLOADS)
    ]


# --- several copies ----------------------------------------------------------------------------


def test_of_several_complete_copies_the_newest_is_read(tmp_path):
    for attempt, days in [(1, 0), (2, 2), (3, 1)]:
        written, at = pip17_object([b"attempt %d" % attempt]), MODIFIED_AT + timedelta(days=days)
        lay_out(tmp_path, written, attempt=attempt, modified_at=at)
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [extent.key.uuid for extent in ledger.extents] == [uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.attempts] == [uuid_of(1), uuid_of(3), uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(1), uuid_of(3)]
    with open_tier(tmp_path) as tier:
        assert scan(tier, level="entries").to_table()["value"].to_pylist() == [b"attempt 2"]


def test_a_scan_warns_of_complete_copies_that_it_does_not_read(tmp_path, caplog):
    older = lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=2)
    with open_tier(tmp_path) as tier:
        scan(tier)
    assert caplog.messages == [
        f"ledger 7 of {TOPIC} has 1 complete copies that are not read, since newer ones are: {older}"
    ]


def test_a_newer_attempt_that_is_not_complete_does_not_replace_an_older_copy(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    later = MODIFIED_AT + timedelta(days=1)
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=2, modified_at=later, parts=["data"])
    catalogue = catalogue_of(tmp_path)
    (ledger,) = catalogue.topics[0].ledgers
    assert [extent.key.uuid for extent in ledger.extents] == [uuid_of(1)]
    assert ledger.superseded == ()
    assert [stored.key.uuid for stored in catalogue.problems] == [uuid_of(2)]


# --- streaming objects -------------------------------------------------------------------------


def segment(first, count, *, ledger_id=7):
    payloads = [b"%d:%d" % (ledger_id, first + i) for i in range(count)]
    return streaming_object([LedgerPart(ledger_id=ledger_id, blocks=[payloads], first_entry_id=first)])


def test_a_streaming_object_shows_each_of_its_ledgers(tmp_path):
    parts = [LedgerPart(ledger_id=9, blocks=[[b"a"], [b"b", b"c"]]), LedgerPart(ledger_id=8, blocks=[[b"d"]])]
    lay_out(tmp_path, streaming_object(parts))
    (topic,) = catalogue_of(tmp_path).topics
    assert [(ledger.ledger_id, ledger.entries, ledger.data_bytes) for ledger in topic.ledgers] == [
        (8, 1, 512),
        (9, 3, 1024),
    ]
    assert {ledger.formats for ledger in topic.ledgers} == {(ObjectFormat.STREAMING,)}


def test_segments_of_a_ledger_are_its_pieces_in_order(tmp_path):
    for attempt, first in enumerate([5, 0, 9]):
        lay_out(tmp_path, segment(first, 5), attempt=attempt)
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    ranges = [(extent.first_entry_id, extent.stop_entry_id) for extent in ledger.extents]
    assert ranges == [(0, 5), (5, 9), (9, None)]
    assert ledger.entries == 14
    assert ledger.superseded == ()


def test_of_two_attempts_at_a_segment_the_newer_is_read(tmp_path):
    lay_out(tmp_path, segment(0, 4), attempt=1)
    lay_out(tmp_path, segment(4, 4), attempt=2, modified_at=MODIFIED_AT + timedelta(days=2))
    lay_out(tmp_path, segment(4, 4), attempt=3, modified_at=MODIFIED_AT + timedelta(days=1))
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [extent.key.uuid for extent in ledger.extents] == [uuid_of(1), uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(3)]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_whole_copy_is_preferred_to_segments_however_old(tmp_path, days):
    lay_out(tmp_path, segment(0, 4), attempt=1)
    whole = pip17_object([b"w"] * 8)
    lay_out(tmp_path, whole, attempt=2, modified_at=MODIFIED_AT + timedelta(days=days))
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert ledger.formats == (ObjectFormat.PIP17,)
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(1)]


# --- checksums beside objects --------------------------------------------------------------------


@pytest.mark.parametrize("written", [pip17_object(PAYLOADS, ledger_id=7), mapfile(PAYLOADS, ledger_id=7)])
def test_checksums_are_no_objects_and_those_of_none_are_passed_over(written):
    keys = [replace(written.key, uuid=uuid_of(number)) for number in range(3)]
    objects = {key.block_checksums_key: b"checksums" for key in keys}
    objects |= {keys[1].data_key: written.data, keys[1].index_key: written.index}
    with TierReader(Tier(MemoryDriver(objects, metadata=Names().as_metadata("data")))) as tier:
        (pair,) = list_pairs(tier.store)
        assert pair.data is not None
        assert pair.index is not None
        assert pair.block_checksums is not None
        assert [each.key.data_key for each in stream_attempts(tier.store)] == [key.data_key for key in keys]
        (topic,) = tier.catalogue().topics
    assert [len(ledger.attempts) for ledger in topic.ledgers] == [1]


@pytest.mark.parametrize("names", [(".data.crc",), (".index.crc",), (".data.crc", ".index.crc")])
def test_a_mapfiles_own_checksums_are_found_beside_it_and_alone(names):
    written = mapfile(PAYLOADS, ledger_id=7)
    keys = [replace(written.key, uuid=uuid_of(number)) for number in range(3)]
    beside = [[f"{key.data_key.removesuffix('data')}{name}" for name in names] for key in keys]
    objects = dict.fromkeys(itertools.chain(*beside), b"crc") | {
        "acme/cold/persistent/.data.crc": b"another's"
    }
    objects |= {keys[1].data_key: written.data, keys[1].index_key: written.index}
    tier = Tier(MemoryDriver(objects))
    (pair,) = list_pairs(tier)
    assert [each.key for each in pair.checksums] == beside[1]
    found = list(stream_attempts(tier))
    assert [(each.key.data_key, each.is_lone) for each in found] == [
        (key.data_key, key is not keys[1]) for key in keys
    ]
    assert [[each.key for each in attempt.checksums] for attempt in found] == beside
