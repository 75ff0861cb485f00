"""What real bookies and their ZooKeeper sent is read as it was meant, and nothing that is cut off or changed is."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from offload_core.format.codec.bookkeeper.bookie_frames import (
    AuthAnswer,
    BatchAnswer,
    ReadAnswer,
    pack_auth,
    pack_batch_read,
    pack_read,
    pack_reads,
    parse_frame,
)
from offload_core.format.codec.bookkeeper.digests import EntryDigest
from offload_core.format.codec.bookkeeper.ledger_nodes import parse_bookie_node, parse_ledger_node
from offload_core.format.codec.bookkeeper.protobuf_frames import (
    pack_long_poll,
    pack_start_tls,
    parse_response,
)
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.ledger_metadata import DigestType, LedgerState
from offload_hooks.errors import ChecksumError, EntryOrderError, FormatError, UnsupportedVersionError

GOLDEN = Path(__file__).parents[1] / "golden" / "bookkeeper"
INDEX = json.loads((GOLDEN / "index.json").read_text())
ANSWERS = [each for each in INDEX if each["file"].startswith("v2-") and "expected" in each]
NODES = sorted(path.name for path in GOLDEN.glob("ledger-*"))
CRC32C = EntryDigest(kind=DigestType.CRC32C)


def of(name):
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["file"])
def test_an_answer_is_what_the_bookie_meant(answer):
    expected, found = answer["expected"], parse_frame(memoryview(of(answer["file"])))
    if isinstance(found, AuthAnswer):
        assert (found.plugin, found.payload) == ("AuthDisabledPlugin", b"")
        return
    head = found.head if isinstance(found, BatchAnswer) else found
    assert (head.code, head.ledger_id) == (expected["code"], expected["ledger_id"])
    if isinstance(found, BatchAnswer):
        stored, entries = found.stored, expected["entries"]
        assert (head.first_entry_id, head.request_id) == (expected["entry_id"], expected["request_id"])
    else:
        stored, entries = ([found.stored], [expected["entry"]]) if "entry" in expected else ([], [])
        assert found.entry_id == expected["entry_id"]
    assert len(stored) == len(entries)
    for data, entry in zip(stored, entries, strict=True):
        read = CRC32C.parse(data, head.ledger_id, entry["entry_id"])
        assert (read.last_add_confirmed, read.length) == (entry["last_add_confirmed"], entry["length"])
        assert (len(read.payload), crc32c(bytes(read.payload))) == (
            entry["payload_bytes"],
            entry["payload_crc32c"],
        )


def test_requests_are_those_that_bookies_were_asked():
    assert pack_read(4, 19999) == of("v2-read-tiny.request")
    assert pack_read(8, -1) == of("v2-read-last.request")
    ids = np.array([0, 7, 2**62])
    assert pack_reads(2**40, ids) == b"".join(pack_read(2**40, entry_id) for entry_id in ids.tolist())
    batch = pack_batch_read(4, 100, request_id=77, max_count=5, max_bytes=1 << 20)
    assert batch == of("v2-batch.request")
    assert pack_start_tls(1) == of("v3-start-tls.request")
    plugin = "AuthProviderFactoryFactory.AuthenticationDisabledPlugin"
    assert pack_auth(plugin, b"") == of("v2-auth.request")


def test_a_long_poll_waits_without_a_key():
    assert pack_long_poll(8, 4860, 1000, 1).hex() == "000000210a06080310011801a206160808" + (
        "10ffffffffffffffffff0120fc25" + "28e807" + "a00602"
    )


def test_a_refused_start_of_tls_is_read():
    assert parse_response(of("v3-start-tls.response")[4:]).status == 404


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("v2-*.response")))
def test_an_answer_that_is_cut_off_is_refused(name):
    whole = of(name)
    for length in range(min(len(whole), 400)):
        cut = whole[:length]
        with pytest.raises(FormatError):
            parse_frame(memoryview(cut))
    with pytest.raises(FormatError):
        parse_frame(memoryview(whole + b"\0"))


@pytest.mark.parametrize("name", ["v2-read-last.response", "v2-batch-size.response"])
def test_a_flipped_bit_is_found(name):
    whole = of(name)
    answer = parse_frame(memoryview(whole))
    entry = answer.stored if isinstance(answer, ReadAnswer) else answer.stored[0]
    right = CRC32C.parse(entry, *_ids(entry))
    for bit in range(8 * min(len(entry), 120)):
        changed = bytearray(entry)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((ChecksumError, EntryOrderError)):
            CRC32C.parse(bytes(changed), right.ledger_id, right.entry_id)


def _ids(entry):
    return int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:16], "big")


@pytest.mark.parametrize("version", [0, 1, 3, 127])
def test_another_version_is_refused(version):
    frame = bytearray(of("v2-no-entry.response"))
    frame[4] = version
    with pytest.raises(UnsupportedVersionError):
        parse_frame(memoryview(frame))


# --- z-nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_a_description_is_read(name):
    metadata = parse_ledger_node(of(name))
    assert metadata.digest_type is DigestType.CRC32C
    assert metadata.state is (LedgerState.OPEN if "open" in name else LedgerState.CLOSED)
    assert dict(metadata.custom)["application"] == b"pulsar"
    assert metadata.password == b""


def test_an_ensemble_that_changed_is_read():
    first, second = parse_ledger_node(of("ledger-closed-e2-changed")).ensembles
    assert (first.first_entry_id, second.first_entry_id) == (0, 1570)
    assert first.members == ("127.0.0.1:11313", "127.0.0.1:11312")
    assert second.members == ("127.0.0.1:11313", "127.0.0.1:11311")


@pytest.mark.parametrize("name", NODES)
def test_a_description_that_is_damaged_is_a_value_or_refused(name):
    whole = of(name)
    for length in range(len(whole)):
        with pytest.raises(FormatError):
            parse_ledger_node(whole[:length])
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        with suppress(FormatError):
            parse_ledger_node(bytes(changed))


def test_a_registration_is_read():
    assert str(parse_bookie_node("any", of("available"))) == "127.0.0.1:11311"
