"""Records of any content are read as they were written, in both layouts, however they are wrapped."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.messages.compression import Compression
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    SegmentLayout,
    StandaloneHeader,
    StoredRecord,
    pack_managed_ledger_info,
    pack_stored_record,
    parse_managed_ledger_info,
    parse_stored_record,
)

INT64S = st.integers(-(2**63), 2**63 - 1)
TIMES = st.none() | st.integers(2, 2**63 - 1)
TEXT = st.text(max_size=8)
UUIDS = st.uuids(allow_nil=True)
PROPERTIES = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
UNKNOWN = st.sampled_from(
    [b"", bytes([0xFA, 0x3E, 3]) + b"new", bytes([0x80, 0x3F, 7]), bytes([0xFA, 0x3E, 1, 0, 0x80, 0x3F, 0])]
)
"""Nothing; field 1007, bytes; field 1008, a number; both."""

DRIVERS = st.builds(DriverMetadata, name=TEXT, properties=PROPERTIES, unknown_fields=UNKNOWN)
SEGMENT = {
    "uuid": UUIDS,
    "complete": st.booleans(),
    "assigned_ms": TIMES,
    "offloaded_ms": TIMES,
    "end_entry_id": st.none() | INT64S,
    "driver": st.none() | DRIVERS,
    "unknown_fields": UNKNOWN,
}
SEGMENTS = {
    SegmentLayout.SHIPPED: st.builds(OffloadSegment, **SEGMENT)
    | st.builds(OffloadSegment, bookkeeper_deleted=st.booleans(), **(SEGMENT | {"driver": DRIVERS})),
    SegmentLayout.PIP76: st.builds(OffloadSegment, bookkeeper_deleted=st.booleans(), **SEGMENT),
}


def managed_ledgers(layout):
    contexts = st.builds(
        OffloadContext,
        uuid=st.none() | UUIDS,
        complete=st.booleans(),
        bookkeeper_deleted=st.booleans(),
        timestamp_ms=st.none() | INT64S,
        driver=st.none() | DRIVERS,
        segments=st.lists(SEGMENTS[layout], max_size=3).map(tuple),
        unknown_fields=UNKNOWN,
    ).filter(lambda context: not _is_offloaded_anew(context))
    ledgers = st.builds(
        LedgerRecord,
        info=st.builds(
            LedgerInfo,
            ledger_id=INT64S,
            entries=st.none() | INT64S,
            size=st.none() | INT64S,
            timestamp_ms=st.none() | INT64S,
        ),
        context=st.none() | contexts,
        unknown_fields=UNKNOWN,
    )
    return st.builds(
        ManagedLedgerInfo,
        ledgers=st.lists(ledgers, max_size=3, unique_by=lambda ledger: ledger.ledger_id).map(tuple),
        terminated_at=st.none() | st.builds(EntryPosition, INT64S, INT64S),
        properties=PROPERTIES,
        unknown_fields=UNKNOWN,
    )


def _is_offloaded_anew(context):
    """Whether segments are there that another copy took the place of: they are not read, so not written back."""
    uuids = {segment.uuid for segment in context.segments}
    return bool(uuids) and context.complete and context.uuid is not None and context.uuid not in uuids


@pytest.mark.parametrize("layout", SegmentLayout)
@settings(deadline=None)
@given(data=st.data())
def test_a_managed_ledger_is_read_as_it_was_written(layout, data):
    info = data.draw(managed_ledgers(layout))
    packed = pack_managed_ledger_info(info, segment_layout=layout)
    assert parse_managed_ledger_info(packed) == info
    assert pack_managed_ledger_info(parse_managed_ledger_info(packed), segment_layout=layout) == packed


@settings(deadline=None)
@given(
    st.builds(
        StoredRecord,
        info=managed_ledgers(SegmentLayout.SHIPPED),
        compression=st.sampled_from(Compression),
        standalone=st.none()
        | st.builds(
            StandaloneHeader,
            version=INT64S,
            owner=INT64S,
            created_ms=INT64S,
            modified_ms=INT64S,
            ephemeral=st.booleans(),
        ),
    )
)
def test_a_stored_record_is_read_as_it_was_written(record):
    assert parse_stored_record(pack_stored_record(record)) == record


def test_a_record_is_written_byte_for_byte():
    """Fields in Pulsar's order, absent ones left out, what is not known behind."""
    record = ManagedLedgerInfo(
        ledgers=(
            LedgerRecord(
                info=LedgerInfo(ledger_id=7, entries=2, size=9, timestamp_ms=5),
                context=OffloadContext(
                    uuid=UUID("00000000-0000-0001-ffff-ffffffffffff"),
                    complete=True,
                    bookkeeper_deleted=True,
                    timestamp_ms=6,
                    driver=DriverMetadata(name="S3", properties=(("b", "c"),)),
                    unknown_fields=bytes.fromhex("803f01"),
                ),
            ),
        ),
        terminated_at=EntryPosition(7, 1),
        properties=(("k", "v"),),
        unknown_fields=bytes.fromhex("803f02"),
    )
    context = bytes.fromhex(
        "0801 10ffffffffffffffffff01 1801 2001 2806 320c 0a025333 12060a0162120163 803f01"
    )
    ledger = bytes.fromhex("0807 1002 1809 2005 2a") + bytes([len(context)]) + context
    assert pack_managed_ledger_info(record) == bytes([0x0A, len(ledger)]) + ledger + bytes.fromhex(
        "1204 0807 1001 1a06 0a016b 120176 803f02"
    )
