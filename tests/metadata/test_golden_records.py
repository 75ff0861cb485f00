"""Records that a running Pulsar wrote: read as values, and written back to the same bytes."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from golden import BROKER
from records import STANDALONE_RECORDS, ZOOKEEPER_RECORDS, golden_record

from offload_core.format.messages.compression import Compression
from offload_core.metadata.records import (
    StandaloneHeader,
    pack_managed_ledger_info,
    pack_stored_record,
    parse_managed_ledger_info,
    parse_stored_record,
)

BARE = [*STANDALONE_RECORDS, *(path for path in ZOOKEEPER_RECORDS if path.name.startswith("none"))]


def stored(path):
    return parse_stored_record(path.read_bytes())


@pytest.mark.parametrize("path", BARE, ids=lambda path: path.name)
def test_a_record_is_written_as_pulsar_wrote_it(path):
    assert pack_stored_record(stored(path)) == path.read_bytes()


@pytest.mark.parametrize("path", ZOOKEEPER_RECORDS, ids=lambda path: path.name)
def test_a_compressed_record_is_written_so_that_it_reads_the_same(path):
    """Compressors may choose other bytes: the record inside and the head before it are compared."""
    record = stored(path)
    packed = pack_stored_record(record)
    assert parse_stored_record(packed) == record
    assert record.compression.name.lower() == path.name.split(".")[0].split("-")[0]
    if record.compression is not Compression.NONE:
        assert packed[:11] == path.read_bytes()[:11]
    bare = pack_managed_ledger_info(record.info)
    assert parse_managed_ledger_info(bare) == record.info


def test_the_header_of_a_standalone_is_read():
    assert stored(golden_record("chunk")).standalone == StandaloneHeader(
        version=3, owner=1, created_ms=0x1A1FB331FBE, modified_ms=0x1A1FB3348FB, ephemeral=False
    )


def test_ledgers_keep_their_stored_order_and_are_given_in_that_of_their_ids():
    (path,) = (path for path in ZOOKEEPER_RECORDS if path.name.startswith("none"))
    info = stored(path).info
    assert [ledger.ledger_id for ledger in info.ledgers] == [216, 228, 223]
    assert [ledger.ledger_id for ledger in info.in_order] == [216, 223, 228]


def test_an_offload_context_says_where_the_copy_is():
    (ledger, open_one) = stored(golden_record("jstring")).info.in_order
    context = ledger.context
    assert context.uuid == UUID("0d9eb6e7-8fd6-4e17-af8f-b10422269ceb")
    assert (context.complete, context.bookkeeper_deleted, context.segments) == (True, True, ())
    assert context.driver.name == "aws-s3"
    assert context.driver.get("managedLedgerOffloadDriver") in ("AWS_S3", "S3")
    assert (ledger.info.entries, ledger.info.is_closed) == (100, True)
    assert (open_one.context, open_one.info.entries, open_one.info.is_closed) == (None, None, False)


def test_a_failed_offload_has_a_uuid_and_is_not_complete():
    ledger = stored(golden_record("chunk")).info.in_order[0]
    assert ledger.ledger_id == 29
    assert (ledger.context.uuid is None, ledger.context.complete) == (False, False)


def test_records_agree_with_the_keys_of_the_brokers_objects():
    named = {
        f"{ledger.context.uuid}-ledger-{ledger.ledger_id}"
        for path in STANDALONE_RECORDS
        for ledger in stored(path).info.ledgers
        if ledger.context is not None and ledger.context.complete
    }
    keys = {each["key"] for each in json.loads((BROKER / "objects.json").read_text())}
    assert named == {key for key in keys if not key.endswith("-index")}
