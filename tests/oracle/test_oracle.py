"""The oracle itself: it writes and reads with Pulsar's classes, and reports their errors."""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import pytest
from golden import GOLDEN
from oracle import TOPIC, OracleError

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    pack_managed_ledger_info,
)
from offload_proto import managed_ledger_pb2
from pulsar_offload import scan

LEDGER = 7
PAYLOADS = [b"one", b"", b"three" * 40]
ENTRIES = [(LEDGER, i, payload) for i, payload in enumerate(PAYLOADS)]
ATTEMPT = UUID("00000000-2222-4222-8333-000000000001")


def test_a_ledger_goes_into_a_folder_and_comes_back(oracle, folder):
    oracle.offload(folder, ATTEMPT, LEDGER, PAYLOADS, managedLedgerOffloadMaxBlockSizeInBytes=400)
    read = oracle.read(folder, ATTEMPT, LEDGER, [(0, 2)])
    assert (read.entries, read.counts, read.ended) == (ENTRIES, [3], True)
    assert (read.last_add_confirmed, read.length) == (2, 203)
    with folder.open_reader() as tier:
        assert scan(tier, TOPIC, level="entries").to_table()["value"].to_pylist() == PAYLOADS


def test_a_ledger_goes_into_a_bucket_and_comes_back(oracle, bucket):
    oracle.offload(bucket, ATTEMPT, LEDGER, PAYLOADS)
    assert oracle.read(bucket, ATTEMPT, LEDGER, [(0, 2)]).entries == ENTRIES
    with bucket.open_reader() as tier:
        assert scan(tier, TOPIC, level="entries").to_table()["value"].to_pylist() == PAYLOADS


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
def test_a_ledger_goes_into_a_map_file_and_comes_back(oracle, tmp_path, compression):
    oracle.offload_files(tmp_path, ATTEMPT, LEDGER, PAYLOADS, io_seqfile_compression_type=compression)
    assert oracle.read_files(tmp_path, ATTEMPT, LEDGER, [(0, 2), (1, 1)]).entries == [*ENTRIES, ENTRIES[1]]


@pytest.mark.parametrize("name", ["small", "300-entries"])
def test_a_golden_map_file_is_read_as_it_was_recorded(oracle, name):
    folder = GOLDEN / "offloader" / "mapfile" / name
    lines = [json.loads(line) for line in (folder / "entries.jsonl").read_text().splitlines()]
    case = json.loads((folder / "case.json").read_text())
    read = oracle.read_files(
        folder / "root",
        UUID(case["uuid"]),
        case["ledger_ids"][0],
        [(0, len(lines) - 1)],
        managed_ledger="public/default/persistent/golden",
    )
    expected = [(line["ledger_id"], line["entry_id"], line["sha256"]) for line in lines]
    assert [
        (ledger, entry, hashlib.sha256(payload).hexdigest()) for ledger, entry, payload in read.entries
    ] == expected


def test_a_range_that_fails_does_not_take_the_others_with_it(oracle, folder):
    oracle.offload(folder, ATTEMPT, LEDGER, PAYLOADS)
    read = oracle.read(folder, ATTEMPT, LEDGER, [(0, 99), (1, 2)])
    assert str(read.counts[0]).startswith(
        "org.apache.bookkeeper.client.BKException$BKIncorrectParameterException"
    )
    assert read.counts[1] == 2
    assert read.entries == ENTRIES[1:]


def test_what_pulsar_raises_is_told_with_its_trace(oracle, folder):
    with pytest.raises(OracleError) as caught:
        oracle.read(folder, ATTEMPT, LEDGER, [(0, 0)])
    assert caught.value.kind == "org.apache.bookkeeper.client.BKException$BKNoSuchLedgerExistsException"
    assert "BlobStoreBackedReadHandleImpl.open" in str(caught.value)


def test_a_command_that_there_is_not_is_refused(oracle):
    with pytest.raises(OracleError, match="no such command: sing"):
        oracle.ask("sing")


def test_records_are_parsed_by_pulsars_classes(oracle):
    driver = DriverMetadata(name="aws-s3", properties=(("bucket", "b"),))
    segment = OffloadSegment(
        uuid=UUID(int=(3 << 64) + 4), assigned_ms=5, offloaded_ms=6, end_entry_id=9, driver=driver
    )
    context = OffloadContext(
        uuid=UUID(int=(1 << 128) - (1 << 64) + 2), complete=True, driver=driver, segments=(segment,)
    )
    record = LedgerRecord(info=LedgerInfo(ledger_id=7, entries=3, size=203, timestamp_ms=1), context=context)
    told = {"name": "aws-s3", "properties": [{"key": "bucket", "value": "b"}]}
    segment_told = {
        "uidMsb": 3,
        "uidLsb": 4,
        "assignedTimestamp": 5,
        "offloadedTimestamp": 6,
        "endEntryId": 9,
        "driverMetadata": told,
    }
    parsed = oracle.parse("ManagedLedgerInfo", pack_managed_ledger_info(ManagedLedgerInfo(ledgers=(record,))))
    (ledger,) = parsed["ledgerInfo"]
    of_ledger = {name: ledger[name] for name in ("ledgerId", "entries", "size", "timestamp")}
    assert of_ledger == {"ledgerId": 7, "entries": 3, "size": 203, "timestamp": 1}
    of_context = ledger["offloadContext"]
    assert {name: of_context[name] for name in ("uidMsb", "uidLsb", "complete", "driverMetadata")} == {
        "uidMsb": -1,
        "uidLsb": 2,
        "complete": True,
        "driverMetadata": told,
    }
    assert of_context["offloadSegment"] == [segment_told]
    assert oracle.parse("OffloadContext", bytes.fromhex("6001")) == {"unknown 12": True}


def test_a_record_of_a_running_pulsars_means_the_same_to_its_classes_and_to_ours(oracle):
    record = (GOLDEN / "metadata" / "none.ml.bin").read_bytes()
    ours = managed_ledger_pb2.ManagedLedgerInfo.FromString(record)
    assert len(ours.ledgerInfo) > 1
    assert oracle.parse("ManagedLedgerInfo", record) == fields_of(ours)


def fields_of(value):
    """A protobuf message as the oracle answers it."""
    if hasattr(value, "ListFields"):
        return {field.name: fields_of(found) for field, found in value.ListFields()}
    return value if isinstance(value, int | str | bool) else [fields_of(each) for each in value]
