"""Records of managed ledgers and of BookKeeper, as a running Pulsar stores them."""

from __future__ import annotations

import struct
from itertools import chain

import numpy as np
import pytest
from entries import ledger_metadata
from golden import BROKER, GOLDEN
from hypothesis import given
from hypothesis import strategies as st
from protoc import DEFINITIONS, generate

from offload_core.format.codec.ledger_metadata import (
    DigestType,
    Ensemble,
    LedgerInfo,
    LedgerMetadata,
    LedgerState,
    pack_ledger_info,
    pack_ledger_metadata,
    parse_ledger_info,
    parse_ledger_metadata,
)
from offload_core.format.messages.compression import decompress_into
from offload_hooks.errors import MetadataError
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata, OffloadContext

METADATA = GOLDEN / "metadata"
VALUES = sorted((BROKER / "managed-ledgers").rglob("*.val"))
BOOKKEEPER_HEAD = b"BookieMetadataFormatVersion\t3\n"


def without_store_header(value):
    head = struct.unpack_from(">iiqqqq?", value)
    assert head[:2] == (41, 1)
    return value[41:]


def records():
    found = {path.name: without_store_header(path.read_bytes()) for path in VALUES}
    return found | {"none.ml.bin": (METADATA / "none.ml.bin").read_bytes()}


@pytest.mark.parametrize("name", sorted(records()))
def test_a_managed_ledgers_record_is_written_as_it_was_read(name):
    stored = records()[name]
    record = ManagedLedgerInfo.FromString(stored)
    assert record.ledgerInfo
    assert record.IsInitialized()
    assert record.SerializeToString() == stored


def test_a_records_offload_context_names_its_driver():
    record = ManagedLedgerInfo.FromString(records()["big.val"])
    context = next(info.offloadContext for info in record.ledgerInfo if info.HasField("offloadContext"))
    assert context.complete
    properties = {item.key: item.value for item in context.driverMetadata.properties}
    assert properties["managedLedgerOffloadDriver"] in ("AWS_S3", "S3")
    assert "bucket" in properties


@pytest.mark.parametrize(
    ("name", "compression"), [("lz4.ml.bin", 1), ("lz4-many.ml.bin", 1), ("zstd.ml.bin", 3)]
)
def test_a_compressed_records_head_is_read(name, compression):
    stored = (METADATA / name).read_bytes()
    magic, size = struct.unpack_from(">HI", stored)
    head = ManagedLedgerInfoMetadata.FromString(stored[6 : 6 + size])
    assert magic == 0x4778
    assert head.compressionType == compression
    assert head.SerializeToString() == stored[6 : 6 + size]
    record = np.empty(head.uncompressedSize, dtype=np.uint8)
    decompress_into(head.compressionType, stored[6 + size :], record)
    assert ManagedLedgerInfo.FromString(record.tobytes()).SerializeToString() == record.tobytes()


UNKNOWN = bytes([0xFA, 0x3E, 3]) + b"new" + bytes([0x80, 0x3F, 7])
"""Fields 1007 (bytes) and 1008 (varint), which no record has."""


@pytest.mark.parametrize("record", [ManagedLedgerInfo, OffloadContext, LedgerMetadataFormat])
def test_unknown_fields_survive(record):
    assert record.FromString(UNKNOWN).SerializePartialToString() == UNKNOWN


def test_unknown_fields_of_a_real_record_survive_inside_and_outside():
    record = ManagedLedgerInfo.FromString(records()["big.val"])
    record.ledgerInfo[0].MergeFromString(UNKNOWN)
    record.MergeFromString(UNKNOWN)
    stored = record.SerializeToString()
    assert stored.count(UNKNOWN) == 2
    assert ManagedLedgerInfo.FromString(stored).SerializeToString() == stored


@pytest.mark.parametrize("path", sorted(METADATA.glob("bk-ledger-*.bin")), ids=lambda path: path.stem)
def test_bookkeepers_ledger_metadata_is_read(path):
    stored = path.read_bytes()
    assert stored.startswith(BOOKKEEPER_HEAD)
    size, at, shift = 0, len(BOOKKEEPER_HEAD), 0
    while True:
        size |= (stored[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if stored[at - 1] < 128:
            break
    assert at + size == len(stored)
    metadata = parse_ledger_metadata(stored[at:])
    assert metadata.state is (LedgerState.OPEN if "OPEN" in path.name else LedgerState.CLOSED)
    assert (metadata.last_entry_id is None) == (metadata.length == 0)
    assert metadata.ensembles[0].first_entry_id == 0
    assert ("application", b"pulsar") in metadata.custom
    assert LedgerMetadataFormat.FromString(stored[at:]).SerializeToString() == stored[at:]


# --- round trips -------------------------------------------------------------------------------

INT32S = st.integers(-(2**31), 2**31 - 1)
INT64S = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=10)

LEDGER_METADATA = st.builds(
    LedgerMetadata,
    write_quorum_size=INT32S,
    ensemble_size=INT32S,
    length=INT64S,
    state=st.sampled_from(LedgerState),
    last_entry_id=st.none() | st.integers(0, 2**63 - 1),
    ack_quorum_size=st.none() | INT32S,
    ensembles=st.lists(
        st.builds(Ensemble, first_entry_id=INT64S, members=st.lists(TEXT, max_size=3).map(tuple)), max_size=3
    ).map(tuple),
    digest_type=st.none() | st.sampled_from(DigestType),
    ctime_ms=st.none() | INT64S,
    custom=st.lists(st.tuples(TEXT, st.binary(max_size=10)), max_size=3).map(tuple),
)
LEDGER_INFO = st.builds(
    LedgerInfo,
    ledger_id=INT64S,
    entries=st.none() | INT64S,
    size=st.none() | INT64S,
    timestamp_ms=st.none() | INT64S,
    properties=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)


@given(LEDGER_METADATA)
def test_ledger_metadata_is_read_as_it_was_written(metadata):
    assert parse_ledger_metadata(pack_ledger_metadata(metadata)) == metadata


@given(LEDGER_INFO)
def test_ledger_info_is_read_as_it_was_written(info):
    assert parse_ledger_info(pack_ledger_info(info)) == info


@pytest.mark.parametrize(("timestamp", "closed"), [(None, False), (0, False), (1, True)])
def test_a_ledger_info_with_a_close_time_is_of_a_closed_ledger(timestamp, closed):
    assert LedgerInfo(ledger_id=1, timestamp_ms=timestamp).is_closed == closed


def test_ledger_metadata_is_written_byte_for_byte_without_secrets():
    metadata = LedgerMetadata(
        write_quorum_size=2,
        ensemble_size=3,
        length=300,
        state=LedgerState.CLOSED,
        last_entry_id=9,
        ack_quorum_size=1,
        ensembles=(Ensemble(first_entry_id=0, members=("b:1",)),),
        digest_type=DigestType.CRC32C,
        ctime_ms=5,
        custom=(("k", b"v"),),
    )
    written = bytes.fromhex(
        "0802 1003 18ac02 2009 2803 3207 0a03623a31 1000 3803 4801 5005 5a06 0a016b 120176"
    )
    assert pack_ledger_metadata(metadata) == written
    secrets = bytes.fromhex("4203") + b"pwd" + bytes.fromhex("6001")
    assert pack_ledger_metadata(parse_ledger_metadata(written + secrets)) == written


def test_an_empty_ledger_has_no_last_entry():
    packed = pack_ledger_metadata(ledger_metadata([], last_entry_id=None))
    assert bytes.fromhex("20ffffffffffffffffff01") in packed
    assert parse_ledger_metadata(packed).last_entry_id is None


def test_records_are_refused_at_every_length_that_lacks_something():
    packed = pack_ledger_metadata(ledger_metadata([b"abc"]))
    required_end = packed.index(bytes.fromhex("2803")) + 2
    for length in range(required_end):
        with pytest.raises(MetadataError):
            parse_ledger_metadata(packed[:length])
    for length in chain(range(2), [3, 5]):
        with pytest.raises(MetadataError):
            parse_ledger_info(pack_ledger_info(LedgerInfo(ledger_id=1, entries=1, size=1))[:length])


@pytest.mark.parametrize("field", ["segment { }", "state: 9"])
def test_a_record_without_what_is_required_is_refused(field):
    full = LedgerMetadataFormat.FromString(pack_ledger_metadata(ledger_metadata([b"abc"])))
    if field == "state: 9":
        full.ClearField("state")
        packed = full.SerializePartialToString() + b"\x28\x09"
    else:
        packed = full.SerializeToString() + b"\x32\x00"
    with pytest.raises(MetadataError, match="lacks what is required"):
        parse_ledger_metadata(packed)


# --- generated code ----------------------------------------------------------------------------


def test_generated_modules_are_what_protoc_makes_of_the_definitions(tmp_path):
    assert len([*DEFINITIONS.glob("*.proto")]) == 4
    generate(tmp_path)
    made = sorted(path.name for path in (tmp_path / DEFINITIONS.name).iterdir())
    kept = sorted(path.name for path in DEFINITIONS.iterdir() if "_pb2" in path.name)
    assert made == kept
    for name in made:
        assert (tmp_path / DEFINITIONS.name / name).read_text() == (DEFINITIONS / name).read_text(), name
