"""The oracle itself: what it reads of golden objects and records, and how it reports errors of Pulsar's classes."""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import pytest
from golden import GOLDEN
from oracle import OracleError

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    pack_managed_ledger_info,
)

LEDGER = 7
PAYLOADS = [b"one", b"", b"three" * 40]
ENTRIES = [(LEDGER, i, payload) for i, payload in enumerate(PAYLOADS)]
ATTEMPT = UUID("00000000-2222-4222-8333-000000000001")


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
    found = [(ledger, entry, hashlib.sha256(payload).hexdigest()) for ledger, entry, payload in read.entries]
    assert found == [(line["ledger_id"], line["entry_id"], line["sha256"]) for line in lines]


def test_a_range_that_fails_does_not_take_the_others_with_it(oracle, folder):
    oracle.offload(folder, ATTEMPT, LEDGER, PAYLOADS)
    read = oracle.read(folder, ATTEMPT, LEDGER, [(0, 99), (1, 2)])
    failed, whole = read.counts
    assert failed.startswith("org.apache.bookkeeper.client.BKException$BKIncorrectParameterException")
    assert whole == 2
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
    ledger_told = {"ledgerId": 7, "entries": 3, "size": 203, "timestamp": 1}
    assert {name: ledger[name] for name in ledger_told} == ledger_told
    context_told = {"uidMsb": -1, "uidLsb": 2, "complete": True, "driverMetadata": told}
    of_context = ledger["offloadContext"]
    assert {name: of_context[name] for name in context_told} == context_told
    assert of_context["offloadSegment"] == [segment_told]
    assert oracle.parse("OffloadContext", bytes.fromhex("6001")) == {"unknown 12": True}
