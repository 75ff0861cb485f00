"""Records in our stores mean the same to a broker's classes, which read them and update them in our ZooKeeper."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

import pytest
from golden import GOLDEN
from records import DRIVER, STANDALONE_RECORDS, closed, copied, managed_ledger, position, segment, still_open
from tiers import uuid_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import (
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    SegmentLayout,
    begin_attempt,
    complete_attempt,
    mark_hot_copy_deleted,
    pack_managed_ledger_info,
    parse_stored_record,
    renew_attempt,
)
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease
from offload_core.metadata.records.managed_ledger_info import split_uuid
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_proto import managed_ledger_pb2

NAME = "acme/cold/persistent/orders%2F1"
NOW = 1_700_000_009_999
UNKNOWN = bytes.fromhex("fa3e036e6577")  # field 1007: "new"
INFO = ManagedLedgerInfo(
    ledgers=(
        replace(closed(3, 2, copied(uuid_of(3), bookkeeper_deleted=True)), unknown_fields=UNKNOWN),
        closed(5, 9, OffloadContext.of_segments([segment(uuid_of(5), 4), segment(uuid_of(6), None)])),
        closed(4, 7),
        still_open(8),
    ),
    terminated_at=position(8, 2),
    properties=(("k", "v"),),
    unknown_fields=UNKNOWN,
)

_numbers = itertools.count()


@pytest.fixture
def url(zookeeper):
    """A root of the test's own, as Pulsar's `metadataStoreUrl` names it, and as ours."""
    return f"zk:{zookeeper.host}:{zookeeper.port}/records-{next(_numbers)}"


@pytest.fixture
def store(url):
    with closing(ZooKeeperStore(url)) as store:
        yield store


def fields_of(value):
    """A protobuf message as the oracle answers it; bytes are messages that are not parsed yet."""
    if hasattr(value, "ListFields"):
        return {field.name: fields_of(found) for field, found in value.ListFields()}
    if isinstance(value, bytes):
        return fields_of(managed_ledger_pb2.OffloadSegment.FromString(value))
    return value if isinstance(value, int | str | bool) else [fields_of(each) for each in value]


def without_unknown(parsed):
    if isinstance(parsed, dict):
        return {
            name: without_unknown(value) for name, value in parsed.items() if not name.startswith("unknown")
        }
    return [without_unknown(each) for each in parsed] if isinstance(parsed, list) else parsed


def as_read(parsed):
    """A broker that reads a record gives the ledger that is open the time at which it reads."""
    for ledger in parsed["ledgerInfo"]:
        if "entries" not in ledger:
            assert ledger["timestamp"] > 0
            ledger["timestamp"] = 0
    return without_unknown(parsed)


def meant(info):
    return fields_of(managed_ledger_pb2.ManagedLedgerInfo.FromString(pack_managed_ledger_info(info)))


@pytest.mark.parametrize("compression", Compression)
def test_a_broker_reads_what_we_write(oracle, url, store, compression):
    records = ManagedLedgerRecords(store, compression=compression)
    written = records.write(NAME, INFO, None)
    parsed = oracle.read_record(url, NAME)
    assert parsed["ledgerInfo"][0]["unknown 1007"] is True
    assert as_read(parsed) == meant(INFO)
    assert records.read(NAME) == written


@pytest.mark.parametrize("compression", Compression)
def test_we_read_what_a_broker_makes_of_it(oracle, url, store, compression):
    records = ManagedLedgerRecords(store)
    written = records.write(NAME, INFO, None)
    changed = replace(INFO, properties=(("k", "w"),))
    oracle.update_record(url, NAME, pack_managed_ledger_info(changed), compression.name)
    found = records.read(NAME)
    assert found.info == changed
    assert found.version > written.version
    stored = store.get(f"/managed-ledgers/{NAME}")
    assert parse_stored_record(stored[0]).compression is compression


@pytest.mark.parametrize("path", STANDALONE_RECORDS[:4], ids=lambda path: path.name)
def test_a_brokers_own_records_are_the_same_to_it_after_we_kept_them(oracle, url, store, path):
    info = parse_stored_record(path.read_bytes()).info
    ManagedLedgerRecords(store, compression=Compression.ZSTD).write(NAME, info, None)
    assert as_read(oracle.read_record(url, NAME)) == meant(info)


def test_a_record_of_a_running_pulsars_means_the_same_to_its_classes_and_to_ours(oracle):
    record = (GOLDEN / "metadata" / "none.ml.bin").read_bytes()
    ours = managed_ledger_pb2.ManagedLedgerInfo.FromString(record)
    assert len(ours.ledgerInfo) > 1
    assert oracle.parse("ManagedLedgerInfo", record) == fields_of(ours)


def test_each_step_of_an_attempt_is_one_that_a_broker_understands(oracle, url, store):
    records, uuid = ManagedLedgerRecords(store), uuid_of(9)
    records.write(NAME, INFO, None)
    most, least = split_uuid(uuid)
    properties = [{"key": name, "value": value} for name, value in DRIVER.properties]
    own = {"driverMetadata": {"name": DRIVER.name, "properties": properties}}
    context = {"uidMsb": most, "uidLsb": least}
    holder = AttemptHolder(machine=1, process=2, started=3)
    leases = [AttemptLease(holder=holder, until_ms=until_ms) for until_ms in (NOW, NOW + 1)]

    def leased(lease):
        shown = [*properties, {"key": "lease", "value": str(lease)}]
        return {"driverMetadata": {"name": DRIVER.name, "properties": shown}}

    steps = [
        (lambda info: begin_attempt(info, 4, uuid, DRIVER, lease=leases[0]), leased(leases[0])),
        (lambda info: renew_attempt(info, 4, uuid, leases[1]), leased(leases[1])),
        (lambda info: complete_attempt(info, 4, uuid, NOW), {"complete": True, "timestamp": NOW} | own),
        (lambda info: mark_hot_copy_deleted(info, 4, uuid), {"bookkeeperDeleted": True}),
    ]
    for step, adds in steps:
        records.update(NAME, step)
        context |= adds
        ledger = oracle.read_record(url, NAME)["ledgerInfo"][2]
        assert (ledger["ledgerId"], without_unknown(ledger["offloadContext"])) == (4, context)


def test_the_other_layout_of_segments_is_kept_by_pulsars_classes_as_it_is(oracle):
    """They take its times for entries, which is why it is not written unless asked for."""
    record = LedgerRecord(
        info=LedgerInfo(ledger_id=5, entries=9, timestamp_ms=1),
        context=OffloadContext.of_segments([segment(uuid_of(5), 4)]),
    )
    for layout in SegmentLayout:
        packed = pack_managed_ledger_info(managed_ledger(record), segment_layout=layout)
        (parsed,) = oracle.parse("ManagedLedgerInfo", packed)["ledgerInfo"]
        ends = {SegmentLayout.SHIPPED: 4, SegmentLayout.PIP76: segment(uuid_of(5), 4).offloaded_ms}
        assert parsed["offloadContext"]["offloadSegment"][0]["endEntryId"] == ends[layout]


def test_names_are_escaped_as_pulsar_does(oracle):
    topics = [
        "persistent://acme/cold/orders-partition-3",
        "persistent://acme/cold/a b c+d%e~f*g.h_i-j",
        "persistent://acme/cold/ä日本:;=?&#@!$'(),[]",
        "persistent://acme/cold/%2F",
    ]
    ours = [managed_ledger_of_topic(TopicName(topic)) for topic in topics]
    assert oracle.managed_ledger_names(topics) == ours
