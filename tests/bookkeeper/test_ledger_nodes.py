"""Where ledgers' nodes are, and values of all versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.bookkeeper.ledger_nodes import (
    BookieAddress,
    is_above_ledgers,
    ledger_id_of,
    ledger_node,
    long_ledger_node,
    parse_bookie_node,
    parse_ledger_node,
)
from offload_core.format.codec.ledger_metadata import DigestType, Ensemble, LedgerState
from offload_hooks.errors import BadLengthError, FormatError, MetadataError, UnsupportedVersionError
from offload_proto.bookie_pb2 import BookieServiceInfoFormat
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat

NODES = {
    0: "/00/0000/L0000",
    1: "/00/0000/L0001",
    2**31 - 2: "/21/4748/L3646",
    2**31 - 1: "/000/0000/0021/4748/L3647",
    2**63 - 1: "/922/3372/0368/5477/L5807",
}
IN_TEXT = b"""quorumSize: 2
ensembleSize: 3
length: 100
lastEntryId: 9
state: CLOSED
segment { ensembleMember: "a:1" ensembleMember: "b:2" ensembleMember: "c:3" firstEntryId: 0 }
digestType: HMAC
password: "geheim"
ackQuorumSize: 2
newField: 7
"""


@pytest.mark.parametrize(("ledger_id", "node"), NODES.items())
def test_a_ledger_has_its_place(ledger_id, node):
    assert ledger_node(ledger_id) == node


@given(st.integers(0, 2**63 - 1))
def test_a_place_is_one_ledgers(ledger_id):
    for node in (ledger_node(ledger_id), long_ledger_node(ledger_id)):
        names = tuple(node[1:].split("/"))
        assert ledger_id_of(names) == ledger_id
        assert all(is_above_ledgers(names[:depth]) for depth in range(len(names)))


@pytest.mark.parametrize(
    "names",
    [("available",), ("idgen",), ("00", "L0000"), ("00", "0000", "L00001"), ("00", "0000", "0000"), ()],
)
def test_other_names_are_no_ledgers(names):
    assert ledger_id_of(names) is None


def version(number, rest):
    return b"BookieMetadataFormatVersion\t%d\n" % number + rest


def test_version_1_has_lines():
    lines = b"2\n3\n100\n0\ta:1\tb:2\tc:3\n7\ta:1\td:4\tc:3\n9\tCLOSED"
    metadata = parse_ledger_node(version(1, lines))
    assert (metadata.write_quorum_size, metadata.ensemble_size, metadata.length) == (2, 3, 100)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 9)
    assert metadata.ensembles == (
        Ensemble(first_entry_id=0, members=("a:1", "b:2", "c:3")),
        Ensemble(first_entry_id=7, members=("a:1", "d:4", "c:3")),
    )


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (b"", LedgerState.OPEN),
        (b"-102\tCLOSED", LedgerState.IN_RECOVERY),
        (b"-1\tCLOSED", LedgerState.CLOSED),
    ],
)
def test_version_1_says_how_a_ledger_ends(end, state):
    metadata = parse_ledger_node(version(1, b"1\n1\n0\n0\ta:1\n" + end))
    assert (metadata.state, metadata.last_entry_id) == (state, None)


def test_version_2_is_text_and_may_have_new_fields():
    metadata = parse_ledger_node(version(2, IN_TEXT))
    assert (metadata.state, metadata.last_entry_id, metadata.ack_quorum_size) == (LedgerState.CLOSED, 9, 2)
    assert (metadata.digest_type, metadata.password) == (DigestType.HMAC, b"geheim")
    assert "geheim" not in repr(metadata)


def test_version_3_may_have_new_fields():
    record = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=0, state="OPEN")
    record.segment.add(ensembleMember=["a:1"], firstEntryId=0)
    data = record.SerializeToString() + b"\xf8\x06\x07"
    assert parse_ledger_node(version(3, bytes([len(data)]) + data)).state is LedgerState.OPEN


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", MetadataError),
        (b"something else", MetadataError),
        (version(4, b""), UnsupportedVersionError),
        (version(0, b""), UnsupportedVersionError),
        (version(1, b"2\n3\n"), MetadataError),
        (version(1, b"x\n3\n1\n"), MetadataError),
        (version(1, b"1\n1\n0\n"), MetadataError),
        (version(1, b"1\n2\n0\n0\ta:1\n"), MetadataError),
        (version(1, b"2\n1\n0\n0\ta:1\n"), MetadataError),
        (version(1, b"1\n1\n0\n5\ta:1\n"), MetadataError),
        (version(1, b"1\n1\n0\n0\ta:1\n0\tb:2\n"), MetadataError),
        (version(2, b"{"), MetadataError),
        (version(2, b"quorumSize: 1"), FormatError),
        (version(3, b"\xff\xff\xff\xff\xff\xff"), MetadataError),
        (version(3, b"\x05abc"), BadLengthError),
        (version(3, b"x" * (1 << 21)), BadLengthError),
    ],
)
def test_what_is_no_description_is_refused(value, error):
    with pytest.raises(error):
        parse_ledger_node(value)


def registration(*endpoints):
    info = BookieServiceInfoFormat()
    for endpoint in endpoints:
        info.endpoints.add(**endpoint)
    return info.SerializeToString()


def test_a_bookie_is_where_its_registration_says():
    value = registration(
        {"id": "httpserver", "protocol": "http", "host": "a", "port": 1},
        {"id": "bookie", "protocol": "bookie-rpc", "host": "b", "port": 2},
    )
    assert parse_bookie_node("bookie-7", value) == BookieAddress(host="b", port=2)
    assert parse_bookie_node("c.d-e:3181", b"") == BookieAddress(host="c.d-e", port=3181)


@pytest.mark.parametrize(
    ("bookie_id", "value"),
    [
        ("bookie-7", b""),
        ("a:0", b""),
        ("a:65536", b""),
        ("a:1", registration({"id": "httpserver", "protocol": "http", "host": "a", "port": 1})),
        ("a:1", registration({"id": "bookie", "protocol": "bookie-rpc", "host": "a", "port": 0})),
        ("a:1", b"\xff"),
    ],
)
def test_a_bookie_without_an_address_is_refused(bookie_id, value):
    with pytest.raises(MetadataError):
        parse_bookie_node(bookie_id, value)
