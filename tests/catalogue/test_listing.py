"""What a bucket alone tells: topics, ledgers, copies, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import struct
from datetime import timedelta
from pathlib import Path

import pytest
from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from golden import BROKER
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

import offload_core.catalogue.listing as listing
from offload_core import open_tier
from offload_core.catalogue import Catalogue, Problem, StoredObject, list_catalogue
from offload_core.codec.object_format import ObjectFormat
from offload_core.tier import Tier, open_store
from offload_hooks import hookimpl
from offload_hooks.errors import StoreError

PAYLOADS = [b"one", b"", b"three"]


def catalogue_of(root: Path, *, prefix: str = "") -> Catalogue:
    with open_tier(root) as tier:
        return tier.catalogue(prefix=prefix)


def only_problem(root: Path) -> StoredObject:
    (stored,) = catalogue_of(root).problems
    assert stored.index is None
    assert not stored.is_complete
    return stored


def with_bytes(
    written: WrittenObject, *, data: bytes | None = None, index: bytes | None = None
) -> WrittenObject:
    return WrittenObject(
        key=written.key,
        data=written.data if data is None else data,
        index=written.index if index is None else index,
        entries=written.entries,
    )


# --- what there is -----------------------------------------------------------------------------


def test_a_brokers_bucket_shows_its_topics_and_ledgers_in_order(tmp_path: Path) -> None:
    lay_out_broker_objects(tmp_path)
    catalogue = catalogue_of(tmp_path)
    assert {topic.cluster for topic in catalogue.topics} == {"standalone"}
    assert [topic.label.removeprefix("persistent://acme/cold/") for topic in catalogue.topics] == [
        "avro", "batch", "big", "comp-lz4", "comp-none", "comp-snappy", "comp-zstd",
        "jkv-inline", "jmisc", "json", "jstring", "nobatch", "txn",
    ]  # fmt: skip
    by_name = {topic.label.rpartition("/")[2]: topic for topic in catalogue.topics}
    assert [ledger.ledger_id for ledger in by_name["nobatch"].ledgers] == [3, 7, 8]
    assert [(ledger.ledger_id, ledger.entries) for ledger in by_name["big"].ledgers] == [
        (34, 1000),
        (35, 300),
    ]
    assert [(ledger.ledger_id, ledger.entries) for ledger in by_name["avro"].ledgers] == [
        (21, 1000),
        (24, 265),
    ]
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


def test_an_object_shows_names_sizes_and_time(tmp_path: Path) -> None:
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
    assert [(piece.first_entry_id, piece.stop_entry_id) for piece in ledger.pieces] == [(0, 3)]


def test_ledgers_are_ordered_by_number_not_by_text(tmp_path: Path) -> None:
    for attempt, ledger_id in enumerate([100, 9, 20, 0]):
        lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=ledger_id), attempt=attempt)
    (topic,) = catalogue_of(tmp_path).topics
    assert [ledger.ledger_id for ledger in topic.ledgers] == [0, 9, 20, 100]


def test_topics_are_ordered_by_name_and_unknown_ones_are_last(tmp_path: Path) -> None:
    names = [None, "b/n/persistent/x", "a/n/persistent/x", "a/n/persistent/x-partition-1"]
    for attempt, name in enumerate(names):
        lay_out(
            tmp_path,
            pip17_object(PAYLOADS, ledger_id=attempt),
            attempt=attempt,
            names=Names(managed_ledger=name),
        )
    assert [topic.label for topic in catalogue_of(tmp_path).topics] == [
        "persistent://a/n/x",
        "persistent://a/n/x-partition-1",
        "persistent://b/n/x",
        "(unknown topic)",
    ]


def test_two_clusters_with_the_same_ledger_ids_are_kept_apart(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object([b"east"]), attempt=1, names=Names(cluster="east"))
    lay_out(tmp_path, pip17_object([b"west", b"west"]), attempt=2, names=Names(cluster="west"))
    catalogue = catalogue_of(tmp_path)
    assert [(topic.cluster, topic.label) for topic in catalogue.topics] == [("east", TOPIC), ("west", TOPIC)]
    assert [[ledger.entries for ledger in topic.ledgers] for topic in catalogue.topics] == [[1], [2]]
    assert all(not ledger.superseded for topic in catalogue.topics for ledger in topic.ledgers)


def test_two_topics_with_the_same_ledger_id_are_kept_apart(tmp_path: Path) -> None:
    for attempt, name in enumerate(["a/b/persistent/x", "a/b/persistent/y"]):
        lay_out(tmp_path, pip17_object(PAYLOADS), attempt=attempt, names=Names(managed_ledger=name))
    assert [[ledger.ledger_id for ledger in topic.ledgers] for topic in catalogue_of(tmp_path).topics] == [
        [7],
        [7],
    ]


def test_keys_under_a_folder_are_listed_and_a_prefix_narrows_to_one(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=1), attempt=1, folder="east/pulsar/")
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=2), attempt=2, folder="west/")
    (both,) = catalogue_of(tmp_path).topics
    assert [ledger.ledger_id for ledger in both.ledgers] == [1, 2]
    (one,) = catalogue_of(tmp_path, prefix="west/").topics
    (ledger,) = one.ledgers
    assert ledger.attempts[0].key.data_key == f"west/{uuid_of(2)}-ledger-2"
    assert catalogue_of(tmp_path, prefix="north/").topics == ()


def test_the_same_uuid_in_two_folders_is_two_objects(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS), folder="a/")
    lay_out(tmp_path, pip17_object(PAYLOADS), folder="b/", parts=["data"])
    catalogue = catalogue_of(tmp_path)
    assert [stored.key.data_key for stored in catalogue.problems] == [f"b/{uuid_of(0)}-ledger-7"]


def test_objects_of_others_are_passed_over(tmp_path: Path) -> None:
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


def test_an_empty_tier_has_no_topics(tmp_path: Path) -> None:
    assert catalogue_of(tmp_path).topics == ()


def test_objects_without_user_metadata_belong_to_an_unknown_topic(tmp_path: Path) -> None:
    nameless = Names(managed_ledger=None, cluster=None, version=None)
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=4), names=nameless)
    (topic,) = catalogue_of(tmp_path).topics
    assert (topic.name, topic.cluster, topic.label) == (None, None, "(unknown topic)")
    with open_tier(tmp_path) as tier:
        rows = tier.scan(ledger=4, level="entries").to_table().to_pylist()
    assert rows == [
        {"value": payload, "__topic": None, "__ledgerId": 4, "__entryId": i}
        for i, payload in enumerate(PAYLOADS)
    ]


def test_objects_of_an_unknown_topic_are_not_read_with_all_topics(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=4), names=Names(managed_ledger=None))
    with open_tier(tmp_path) as tier:
        assert tier.scan(level="entries").tasks == ()


# --- several copies ----------------------------------------------------------------------------


def test_of_several_complete_copies_the_newest_is_read(tmp_path: Path) -> None:
    for attempt, days in [(1, 0), (2, 2), (3, 1)]:
        lay_out(
            tmp_path,
            pip17_object([b"attempt %d" % attempt]),
            attempt=attempt,
            modified_at=MODIFIED_AT + timedelta(days=days),
        )
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [piece.stored.key.uuid for piece in ledger.pieces] == [uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.attempts] == [uuid_of(1), uuid_of(3), uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(1), uuid_of(3)]
    with open_tier(tmp_path) as tier:
        assert tier.scan(level="entries", columns=["value"]).to_table().to_pydict() == {
            "value": [b"attempt 2"]
        }


def test_copies_of_the_same_time_are_ordered_by_key(tmp_path: Path) -> None:
    for attempt in (2, 1):
        lay_out(tmp_path, pip17_object(PAYLOADS), attempt=attempt)
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [piece.stored.key.uuid for piece in ledger.pieces] == [uuid_of(2)]


def test_a_scan_warns_of_complete_copies_that_it_does_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older = lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=2)
    with open_tier(tmp_path) as tier:
        tier.scan()
    assert caplog.messages == [
        f"ledger 7 of {TOPIC} has 1 complete copies that are not read, since newer ones are: {older}"
    ]


def test_a_newer_attempt_that_is_not_complete_does_not_replace_an_older_copy(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    later = MODIFIED_AT + timedelta(days=1)
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=2, modified_at=later, parts=["data"])
    catalogue = catalogue_of(tmp_path)
    (ledger,) = catalogue.topics[0].ledgers
    assert [piece.stored.key.uuid for piece in ledger.pieces] == [uuid_of(1)]
    assert ledger.superseded == ()
    assert [stored.key.uuid for stored in catalogue.problems] == [uuid_of(2)]


# --- streaming objects -------------------------------------------------------------------------


def segment(first: int, count: int, *, ledger_id: int = 7) -> WrittenObject:
    payloads = [b"%d:%d" % (ledger_id, first + i) for i in range(count)]
    return streaming_object([LedgerPart(ledger_id=ledger_id, blocks=[payloads], first_entry_id=first)])


def test_a_streaming_object_shows_each_of_its_ledgers(tmp_path: Path) -> None:
    parts = [LedgerPart(ledger_id=9, blocks=[[b"a"], [b"b", b"c"]]), LedgerPart(ledger_id=8, blocks=[[b"d"]])]
    lay_out(tmp_path, streaming_object(parts))
    (topic,) = catalogue_of(tmp_path).topics
    assert [(ledger.ledger_id, ledger.entries, ledger.data_bytes) for ledger in topic.ledgers] == [
        (8, 1, 512),
        (9, 3, 1024),
    ]
    assert {ledger.formats for ledger in topic.ledgers} == {(ObjectFormat.STREAMING,)}


def test_streaming_objects_without_a_managed_ledger_belong_to_an_unknown_topic(tmp_path: Path) -> None:
    lay_out(tmp_path, segment(0, 3), names=Names(managed_ledger=None))
    (topic,) = catalogue_of(tmp_path).topics
    assert (topic.name, topic.cluster) == (None, CLUSTER)
    with open_tier(tmp_path) as tier:
        table = tier.scan(ledger=7, level="entries").to_table()
    assert table["value"].to_pylist() == [b"7:0", b"7:1", b"7:2"]


def test_segments_of_a_ledger_are_its_pieces_in_order(tmp_path: Path) -> None:
    for attempt, first in enumerate([5, 0, 9]):
        lay_out(tmp_path, segment(first, 5), attempt=attempt)
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [(piece.first_entry_id, piece.stop_entry_id) for piece in ledger.pieces] == [
        (0, 5),
        (5, 9),
        (9, None),
    ]
    assert ledger.entries == 14
    assert ledger.superseded == ()


def test_of_two_attempts_at_a_segment_the_newer_is_read(tmp_path: Path) -> None:
    lay_out(tmp_path, segment(0, 4), attempt=1)
    lay_out(tmp_path, segment(4, 4), attempt=2, modified_at=MODIFIED_AT + timedelta(days=2))
    lay_out(tmp_path, segment(4, 4), attempt=3, modified_at=MODIFIED_AT + timedelta(days=1))
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert [piece.stored.key.uuid for piece in ledger.pieces] == [uuid_of(1), uuid_of(2)]
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(3)]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_whole_copy_is_preferred_to_segments_however_old(tmp_path: Path, days: int) -> None:
    lay_out(tmp_path, segment(0, 4), attempt=1)
    whole = pip17_object([b"w"] * 8)
    lay_out(tmp_path, whole, attempt=2, modified_at=MODIFIED_AT + timedelta(days=days))
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert ledger.formats == (ObjectFormat.PIP17,)
    assert [stored.key.uuid for stored in ledger.superseded] == [uuid_of(1)]


# --- what is wrong -----------------------------------------------------------------------------


def test_a_data_object_without_an_index_is_reported(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS), parts=["data"])
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.NO_INDEX
    assert stored.problem.value == "no-index"
    assert stored.detail == "the data object has no index: an attempt that did not finish"
    assert (stored.data_bytes, stored.index_bytes) == (172, None)
    assert stored.managed_ledger == MANAGED_LEDGER


def test_an_index_without_a_data_object_is_reported(tmp_path: Path) -> None:
    written = pip17_object(PAYLOADS)
    lay_out(tmp_path, written, parts=["index"])
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.NO_DATA
    assert stored.problem.value == "no-data"
    assert stored.detail == "the index has no data object"
    assert (stored.data_bytes, stored.index_bytes) == (None, len(written.index))
    assert stored.managed_ledger == MANAGED_LEDGER


@pytest.mark.parametrize("data", [b"x", pip17_object(PAYLOADS).data[:-1], pip17_object(PAYLOADS).data + b"x"])
def test_a_data_object_of_another_length_than_its_index_says_is_reported(tmp_path: Path, data: bytes) -> None:
    lay_out(tmp_path, with_bytes(pip17_object(PAYLOADS), data=data))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.WRONG_LENGTH
    assert stored.problem.value == "wrong-length"
    assert stored.detail == f"the data object has {len(data)} bytes, its index says 172"


@pytest.mark.parametrize(
    ("index", "detail"),
    [
        (b"", "an index is cut off"),
        (b"\xde\x47\xde\x47", "an index is cut off"),
        (pip17_object(PAYLOADS).index[:-1], "an index is cut off"),
        (b"\0" * 100, "this is not the index that it should be"),
        (streaming_object([LedgerPart(ledger_id=7, blocks=[[b"a"]])]).index, "found 3D1FB0BC (streaming)"),
    ],
)
def test_a_broken_index_is_reported_with_what_is_wrong(tmp_path: Path, index: bytes, detail: str) -> None:
    key = lay_out(tmp_path, with_bytes(pip17_object(PAYLOADS), index=index))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.BROKEN_INDEX
    assert stored.problem.value == "broken-index"
    assert stored.detail is not None
    assert detail in stored.detail
    assert f"{key}-index" in stored.detail


def test_a_newer_format_version_is_reported_and_not_read(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS), names=Names(version="2"))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.UNKNOWN_VERSION
    assert stored.problem.value == "unknown-version"
    assert stored.detail == "format version 2; this program reads 1"


def test_a_ledger_without_a_complete_copy_is_listed_without_pieces(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=3), parts=["data"])
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert (ledger.ledger_id, ledger.pieces, ledger.entries, ledger.data_bytes) == (3, (), None, 0)
    assert (ledger.formats, ledger.superseded) == ((), ())


def test_a_streaming_object_that_cannot_be_read_is_a_stray(tmp_path: Path) -> None:
    key = lay_out(tmp_path, segment(0, 3), parts=["data"])
    catalogue = catalogue_of(tmp_path)
    assert catalogue.topics == ()
    assert [(stored.key.data_key, stored.problem) for stored in catalogue.strays] == [(key, Problem.NO_INDEX)]
    assert catalogue.problems == catalogue.strays


def test_problems_are_listed_once_each_by_key(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=5), attempt=2, parts=["data"])
    lay_out(tmp_path, segment(0, 3), attempt=3, parts=["index"])
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=1), attempt=1, parts=["index"])
    assert [stored.key.uuid for stored in catalogue_of(tmp_path).problems] == [
        uuid_of(1),
        uuid_of(2),
        uuid_of(3),
    ]


def test_a_scan_passes_over_what_is_reported(tmp_path: Path) -> None:
    lay_out(tmp_path, pip17_object([b"good"], ledger_id=1), attempt=1)
    lay_out(tmp_path, pip17_object([b"bad"], ledger_id=1), attempt=2, parts=["data"])
    with open_tier(tmp_path) as tier:
        assert tier.scan(level="entries", columns=["value"]).to_table().to_pydict() == {"value": [b"good"]}


# --- while others write and delete -------------------------------------------------------------


class VanishingDriver(MemoryDriver):
    """Deletes an object after it was listed, at the first request that names another."""

    def __init__(self, objects: dict[str, bytes], vanishes: str) -> None:
        super().__init__(objects)
        self.vanishes = vanishes

    @hookimpl
    def list_objects(self, prefix: str, start_after: str):  # type: ignore[no-untyped-def]
        listed = list(super().list_objects(prefix, start_after))
        self.objects.pop(self.vanishes, None)
        return iter(listed)


def objects_of(*written: WrittenObject) -> dict[str, bytes]:
    objects = {}
    for each in written:
        objects |= {each.key.data_key: each.data, each.key.index_key: each.index}
    return objects


@pytest.mark.parametrize("suffix", ["", "-index"])
def test_an_object_that_vanishes_after_the_listing_was_never_there(suffix: str) -> None:
    gone, kept = pip17_object(PAYLOADS, ledger_id=1), pip17_object(PAYLOADS, ledger_id=2)
    driver = VanishingDriver(objects_of(gone, kept), gone.key.data_key + suffix)
    catalogue = list_catalogue(Tier(driver))
    assert [ledger.ledger_id for topic in catalogue.topics for ledger in topic.ledgers] == [2]
    assert catalogue.problems == ()


def test_an_object_that_vanishes_before_it_is_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    key = lay_out(tmp_path, pip17_object(PAYLOADS))
    with open_tier(tmp_path) as tier:
        scan = tier.scan()
        tier.store.delete([key])
        with pytest.raises(FileNotFoundError) as caught:
            scan.to_table()
    assert getattr(caught.value, "key", None) == key


def test_an_error_of_the_store_is_not_taken_for_an_absence() -> None:
    written = pip17_object(PAYLOADS)
    with pytest.raises(StoreError, match="the store broke"):
        list_catalogue(Tier(MemoryDriver(objects_of(written), fail_at=0)))


def test_an_index_larger_than_the_limit_is_reported_and_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = pip17_object(PAYLOADS, ledger_id=1), pip17_object(PAYLOADS, ledger_id=2)
    large = with_bytes(large, index=large.index + b"\0")
    monkeypatch.setattr(listing, "MAX_INDEX_BYTES", len(small.index))
    driver = MemoryDriver(objects_of(large, small))
    (stored,) = list_catalogue(Tier(driver)).problems
    assert stored.key == large.key
    assert stored.problem is Problem.BROKEN_INDEX
    assert stored.detail == f"the index is larger than {len(small.index)} bytes"
    assert driver.reads == [(small.key.index_key, 0, len(small.index))]


def test_the_limit_of_an_index_is_far_above_what_a_ledger_needs() -> None:
    assert listing.MAX_INDEX_BYTES == 64 * 1024 * 1024


def test_bytes_after_an_indexs_end_are_tolerated(tmp_path: Path) -> None:
    written = pip17_object(PAYLOADS)
    lay_out(tmp_path, with_bytes(written, index=written.index + b"\xe1\xd3\xe1\xd3 a fork's directory"))
    catalogue = catalogue_of(tmp_path)
    assert catalogue.problems == ()
    assert catalogue.topics[0].ledgers[0].entries == 3


def test_the_length_in_the_listing_is_compared_with_the_one_in_the_index(tmp_path: Path) -> None:
    """An index that declares more than the data object has is found without reading data."""
    written = pip17_object(PAYLOADS)
    longer = written.index[:8] + struct.pack(">q", len(written.data) + 1) + written.index[16:]
    driver = MemoryDriver(objects_of(with_bytes(written, index=longer)))
    (stored,) = list_catalogue(Tier(driver)).problems
    assert stored.problem is Problem.WRONG_LENGTH
    assert {key for key, _, _ in driver.reads} == {written.key.index_key}


def test_a_golden_index_is_read_to_its_blocks(tmp_path: Path) -> None:
    lay_out_broker_objects(tmp_path, topics=["big"])
    (topic,) = catalogue_of(tmp_path).topics
    first = topic.ledgers[0].pieces[0]
    data = gzip.decompress((BROKER / "objects" / f"{first.stored.key.data_key}.gz").read_bytes())
    assert [data[block.offset : block.offset + 4].hex() for block in first.ledger.blocks] == ["fbdbabcb"] * 3
    assert first.data_bytes == len(data)
