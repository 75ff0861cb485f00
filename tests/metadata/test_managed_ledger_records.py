"""Records in a store of ours: read, changed by compare-and-set, and right whatever the store answers or loses."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from records import (
    STANDALONE_RECORDS,
    ZOOKEEPER_RECORDS,
    closed,
    copied,
    managed_ledger,
    still_open,
    streaming_record,
)
from tiers import uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import (
    ManagedLedgerInfo,
    SegmentLayout,
    managed_ledger_info,
    pack_managed_ledger_info,
    parse_stored_record,
)
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_hooks.errors import (
    InvalidKeyError,
    MetadataError,
    OptionError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnknownPluginError,
    UnknownTopicError,
    VersionConflictError,
)
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore
from offload_hooks.testing.threads import together

NAME = "acme/cold/persistent/orders"
PATH = f"/managed-ledgers/{NAME}"
INFO = managed_ledger(closed(3, 2), closed(4, 9, copied(uuid_of(4))), still_open(5))


def having(info, name):
    """The same with a property of this name, once."""
    return info if (name, "") in info.properties else replace(info, properties=(*info.properties, (name, "")))


def written(store):
    """The bytes of the record in a store."""
    return store.get(PATH)[0]


def info_in(records):
    return records.require(NAME).info


def failing(inner, faults):
    """Records whose calls of the store, by number, fail in these ways."""
    return ManagedLedgerRecords(FaultyMetadataStore(inner, lambda call: faults.get(call.number)))


@pytest.fixture
def store():
    return FaultyMetadataStore(MemoryMetadataStore())


@pytest.fixture
def records(store):
    return ManagedLedgerRecords(store)


# --- one after another -------------------------------------------------------------------------


def test_a_record_is_written_as_pulsar_has_it_and_read(store, records):
    assert records.read(NAME) is None
    stored = records.write(NAME, INFO, None)
    assert stored.info == INFO
    assert store.get(PATH) == (pack_managed_ledger_info(INFO), stored.version)
    assert records.read(NAME) == stored
    assert ManagedLedgerRecords(store).read(NAME) == stored


def test_a_record_is_replaced_where_it_is_as_it_was_read(records):
    first = records.write(NAME, INFO, None)
    second = records.write(NAME, ManagedLedgerInfo(), first)
    for expected in (first, None):
        with pytest.raises(VersionConflictError, match=r"another version .*orders"):
            records.write(NAME, INFO, expected)
    with pytest.raises(VersionConflictError):
        records.delete(NAME, first)
    assert records.read(NAME) == second
    records.delete(NAME, second)
    assert records.read(NAME) is None


def test_a_change_is_made_upon_the_newest_record(store, records):
    records.write(NAME, INFO, None)
    seen: list[ManagedLedgerInfo] = []

    def change(info):
        if not seen:  # while it is being changed, somebody else is faster
            other = ManagedLedgerRecords(store.store)
            other.update(NAME, lambda info: having(info, "other"))
        seen.append(info)
        return having(info, "mine")

    updated = records.update(NAME, change)
    assert seen == [INFO, having(INFO, "other")]
    assert updated == records.read(NAME)
    assert updated.info.properties == (("other", ""), ("mine", ""))


def test_a_change_that_changes_nothing_is_not_written(store, records):
    stored = records.write(NAME, INFO, None)
    assert records.update(NAME, lambda info: info) == stored
    assert [call.method for call in store.calls] == ["put", "get"]


def test_a_change_that_raises_is_not_written(records):
    stored = records.write(NAME, INFO, None)

    def refuse(info):
        raise OptionError("no")

    with pytest.raises(OptionError):
        records.update(NAME, refuse)
    assert records.read(NAME) == stored


def test_what_has_no_record_is_not_changed(records):
    with pytest.raises(UnknownTopicError, match=r"no record of this managed ledger .*persistent/orders"):
        records.update(NAME, lambda info: info)


@pytest.mark.parametrize("name", ["", "a/../b", "/a", "a//b", "a\n"])
def test_names_do_not_lead_elsewhere(records, name):
    with pytest.raises(InvalidKeyError):
        records.read(name)
    with pytest.raises(InvalidKeyError):
        records.write(name, INFO, None)


def test_managed_ledgers_are_listed(records):
    topics = ["acme/cold/a", "acme/cold/x/y z~*-partition-3", "acme/hot/b", "other/ns/ä"]
    names = [managed_ledger_of_topic(TopicName(f"persistent://{topic}")) for topic in topics]
    for name in names:
        records.write(name, INFO, None)
    assert names[1] == "acme/cold/persistent/x%2Fy+z%7E*-partition-3"
    assert sorted(records.names()) == sorted(names)
    assert sorted(records.names(["acme/cold", "none/of"])) == sorted(names[:2])


def test_a_record_that_is_none_is_an_error_with_its_path(store, records):
    store.put(PATH, b"\x0a\x05", None)
    with pytest.raises(MetadataError, match=r"cannot be parsed.*persistent/orders"):
        records.read(NAME)


@pytest.mark.parametrize("path", [*STANDALONE_RECORDS, *ZOOKEEPER_RECORDS], ids=lambda path: path.name)
@pytest.mark.parametrize("compression", Compression)
def test_a_brokers_record_is_read_and_written_in_any_compression(store, path, compression):
    version = store.put(PATH, path.read_bytes(), None)
    records = ManagedLedgerRecords(store, compression=compression)
    read = records.read(NAME)
    assert (read.info, read.version) == (parse_stored_record(path.read_bytes()).info, version)
    records.update(NAME, lambda info: having(info, "mine"))
    stored = parse_stored_record(written(store))
    assert (stored.compression, stored.info) == (compression, having(read.info, "mine"))


def test_fields_that_are_not_known_survive_a_change(store, records):
    """Of a later Pulsar's, in the record, a ledger, its context, its driver and a segment."""
    new = bytes.fromhex("fa3e036e6577")  # field 1007: "new"

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    driver = field(1, b"S3") + new
    segment = bytes.fromhex("0801 1002") + field(7, driver) + new
    context = bytes.fromhex("0801 1002") + field(6, driver) + field(7, segment) + new
    data = field(1, bytes.fromhex("0807 1002") + field(5, context) + new) + new
    store.put(PATH, data, None)
    records.update(NAME, lambda info: having(info, "mine"))
    assert written(store).count(new) == data.count(new) == 6
    records.update(NAME, lambda info: replace(info, properties=()))
    assert written(store) == data


def test_the_layout_of_segments_is_as_asked_for(store):
    records = ManagedLedgerRecords(store, segment_layout=SegmentLayout.PIP76)
    records.write(NAME, INFO, None)
    assert written(store) == pack_managed_ledger_info(INFO, segment_layout=SegmentLayout.PIP76)


# --- what older versions wrote -----------------------------------------------------------------

SHARE = bytes.fromhex("0801 1002 1801 2003 2804 3001 3a04 0a025333")
GONE_SHARE = bytes.fromhex("0801 1002 1801 2003 2804 3001 3a1f 0a025333 1219") + bytes.fromhex(
    "0a11626f6f6b6b656570657244656c65746564 120474727565"
)


def one_streamed_ledger(*, complete, gone, share):
    """The record of ledger 7, both entries of which are in one segment, byte for byte."""
    flags = (b"\x18\x01" if complete else b"") + (b"\x20\x01" if gone else b"")
    head, place = bytes.fromhex("0801 1002"), bytes.fromhex("2804 3204 0a025333")
    context = head + flags + place + b"\x3a" + bytes([len(share)]) + share
    ledger = bytes.fromhex("0807 1002 1809 2005 2a") + bytes([len(context)]) + context
    return bytes([0x0A, len(ledger)]) + ledger


@pytest.mark.parametrize("gone", [False, True])
def test_the_next_write_takes_complete_from_a_ledger_with_segments(store, records, gone):
    """Two processes of today and a lost answer do not matter: it is one compare-and-set, and its result stays."""
    old = one_streamed_ledger(complete=True, gone=gone, share=SHARE)
    new = one_streamed_ledger(complete=False, gone=gone, share=GONE_SHARE if gone else SHARE)
    store.put(PATH, old, None)
    read = records.read(NAME)
    (ledger,) = read.info.ledgers
    assert (ledger.is_fully_offloaded, ledger.has_hot_copy) == (True, not gone)
    assert store.get(PATH) == (old, read.version), "reading changes nothing"

    found = [records.update(NAME, lambda info: info) for records in (records, ManagedLedgerRecords(store))]
    assert found[0] == found[1]
    stored = store.get(PATH)
    assert stored == (new, found[0].version)
    (ledger,) = found[0].info.ledgers
    assert (ledger.is_fully_offloaded, ledger.has_hot_copy) == (True, not gone)
    assert records.read(NAME) == found[0]
    with pytest.raises(VersionConflictError):
        records.write(NAME, read.info, read)
    assert records.write(NAME, read.info, found[0]).info == found[0].info


# --- whatever the store answers, or loses ------------------------------------------------------


def test_each_call_may_fail_in_each_way(store, records):
    """An update is made, or says that it was not, or that it does not know; and never made twice."""
    records.write(NAME, INFO, None)
    records.update(NAME, lambda info: having(info, "first"))
    calls = len(store.calls) - 1
    outcomes = []
    for number in range(1, calls + 1):
        for fault in ("unavailable", "unknown-before", "unknown-after"):
            inner = MemoryMetadataStore()
            ManagedLedgerRecords(inner).write(NAME, INFO, None)
            try:
                failing(inner, {number: fault}).update(NAME, lambda info: having(info, "mine"))
                outcomes.append("made")
            except StoreUnavailableError:
                outcomes.append("not made")
            made = having(INFO, "mine") if outcomes[-1] == "made" else INFO
            assert info_in(ManagedLedgerRecords(inner)) == made
    assert outcomes == ["not made"] * 4 + ["made"] * 2


@pytest.mark.parametrize("fault", ["unknown-before", "unknown-after"])
def test_what_cannot_be_read_back_stays_unknown(fault):
    records = failing(MemoryMetadataStore(), {1: fault, 2: "unavailable"})
    with pytest.raises(OutcomeUnknownError):
        records.write(NAME, INFO, None)
    assert (records.read(NAME) is None) == (fault == "unknown-before")


def test_a_store_that_never_knows_is_not_asked_for_ever():
    store = FaultyMetadataStore(
        MemoryMetadataStore(), lambda call: "unknown-before" if call.method == "put" else None
    )
    with pytest.raises(OutcomeUnknownError):
        ManagedLedgerRecords(store).write(NAME, INFO, None)
    assert sum(call.method == "put" for call in store.calls) == 4


@pytest.mark.parametrize("fault", ["unknown-before", "unknown-after"])
def test_what_others_wrote_after_a_lost_answer_is_a_conflict(fault):
    inner = MemoryMetadataStore()
    others = ManagedLedgerRecords(inner)
    first = others.write(NAME, INFO, None)

    def choose(call):
        if call.number == 2:  # reading back
            others.update(NAME, lambda info: having(info, "other"))
        return fault if call.number == 1 else None

    records = ManagedLedgerRecords(FaultyMetadataStore(inner, choose))
    with pytest.raises(VersionConflictError, match="while the answer to a write was lost"):
        records.write(NAME, having(INFO, "mine"), first)
    made = having(INFO, "mine") if fault == "unknown-after" else INFO
    assert info_in(others) == having(made, "other")


@pytest.mark.parametrize("fault", ["unknown-before", "unknown-after"])
def test_a_deletion_whose_answer_is_lost_is_made_once(fault):
    records = failing(MemoryMetadataStore(), {2: fault})
    records.delete(NAME, records.write(NAME, INFO, None))
    assert records.read(NAME) is None


def test_a_record_made_anew_is_not_deleted_by_a_late_repetition():
    inner = MemoryMetadataStore()
    first = ManagedLedgerRecords(inner).write(NAME, INFO, None)

    def choose(call):
        if call.number == 2:  # reading back
            ManagedLedgerRecords(inner).write(NAME, INFO, None)
        return "unknown-after" if call.number == 1 else None

    records = ManagedLedgerRecords(FaultyMetadataStore(inner, choose))
    with pytest.raises(VersionConflictError):
        records.delete(NAME, first)
    assert records.read(NAME) is not None


def test_many_writers_over_a_store_that_loses_answers_lose_nothing():
    dice = random.Random(7)
    faults = [None, None, None, "unknown-before", "unknown-after"]
    store = FaultyMetadataStore(
        MemoryMetadataStore(), lambda call: dice.choice(faults) if call.method == "put" else None
    )
    records = ManagedLedgerRecords(store)
    inner = ManagedLedgerRecords(store.store)
    inner.write(NAME, INFO, None)
    tries = [f"{who}-{i}" for who in range(6) for i in range(5)]

    def add(name):
        while True:
            try:
                records.update(NAME, lambda info: having(info, name))
                return
            except OutcomeUnknownError:
                continue

    together([lambda name=name: add(name) for name in tries], 60)
    assert sorted(info_in(inner).properties) == sorted((name, "") for name in tries)


# --- stores by URL -----------------------------------------------------------------------------


def test_what_is_no_store_or_only_reads_is_refused():
    with pytest.raises(OptionError, match="'http' only reads"):
        open_metadata_store("http://127.0.0.1:1")
    with pytest.raises(UnknownPluginError, match="'etcd'"):
        open_metadata_store("etcd:x")
    with pytest.raises(OptionError, match="begins with the name of a metadata store"):
        open_metadata_store("/a/path")


# --- what did not change is not parsed again ---------------------------------------------------


def many(count):
    return managed_ledger(*(closed(number, 9, copied(uuid_of(number))) for number in range(count)))


def test_ledgers_that_did_not_change_are_those_that_were_read_before(store):
    records, other = ManagedLedgerRecords(store), ManagedLedgerRecords(store)
    records.write(NAME, many(5), None)
    before = info_in(records)
    changed = closed(3, 9, copied(uuid_of(9)))
    other.update(NAME, lambda info: info.with_ledger(changed))
    after = info_in(records)
    assert after == info_in(ManagedLedgerRecords(store)) == before.with_ledger(changed)
    assert [old is new for old, new in zip(before.ledgers, after.ledgers, strict=True)] == [
        *(True, True, True, False, True)
    ]


def test_bytes_of_what_did_not_change_stay_as_another_wrote_them(store):
    """A broker may order the fields of a ledger as it likes."""
    first = managed_ledger(closed(7, 9))
    plain = pack_managed_ledger_info(first)
    size = plain[1]
    ledger, rest = plain[2 : 2 + size], plain[2 + size :]
    assert (plain[0], ledger[0], rest) == (0x0A, 0x08, b"")
    turned = bytes([0x0A, size]) + ledger[2:] + ledger[:2]
    store.put(PATH, turned, None)
    records = ManagedLedgerRecords(store)
    records.update(NAME, lambda info: having(info, "touched"))
    assert written(store).startswith(turned)
    assert info_in(records).ledgers == first.ledgers
    changed = closed(7, 9, copied(uuid_of(9)))
    records.update(NAME, lambda info: info.with_ledger(changed))
    assert not written(store).startswith(turned)
    assert info_in(ManagedLedgerRecords(store)).ledgers == (changed,)


def test_segments_in_the_other_layout_are_written_in_the_asked_for(store):
    info = as_written(streaming_record())
    other = pack_managed_ledger_info(info, segment_layout=SegmentLayout.PIP76)
    shipped = pack_managed_ledger_info(info)
    assert other != shipped
    for stored, layout, expected in (
        (other, SegmentLayout.SHIPPED, shipped),
        (shipped, SegmentLayout.PIP76, other),
    ):
        for records in (ManagedLedgerRecords(store, segment_layout=layout),) * 2:
            found = store.get(PATH)
            store.put(PATH, stored, None if found is None else found[1])
            known = records.require(NAME)
            records.write(NAME, known.info, known)
            assert written(store) == expected


def test_a_change_of_a_long_record_parses_and_packs_that_ledger_alone(store, monkeypatch):
    records = ManagedLedgerRecords(store)
    records.write(NAME, many(300), None)
    records.read(NAME)
    counted = []
    for name in ("_read_ledger", "_pack_ledger"):
        real = getattr(managed_ledger_info, name)
        monkeypatch.setattr(
            managed_ledger_info,
            name,
            lambda *given, real=real, name=name: (counted.append(name), real(*given))[1],
        )
    for number in range(3):
        changed = closed(number, 9, copied(uuid_of(900 + number)))
        records.update(NAME, lambda info, changed=changed: info.with_ledger(changed))
    assert counted == ["_pack_ledger"] * 3
    assert info_in(ManagedLedgerRecords(store)) == info_in(records)
