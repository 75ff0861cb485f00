"""Which format an object has: by its index's magic, its key and its record, which must agree."""

from __future__ import annotations

import pytest
from entries import LedgerPart, pip17_object, streaming_object

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectFormat, parse_key, resolve_format
from offload_core.format.codec.streaming import pack_streaming_index
from offload_hooks.errors import BadMagicError, OptionError

UUID = "00000000-1111-4222-8333-0000000000aa"
PIP17 = pip17_object([b"first", b"last"])
STREAMING = streaming_object([LedgerPart(ledger_id=30, blocks=[[b"a", b"bc"]])])


@pytest.mark.parametrize(
    ("written", "key", "expected", "found"),
    [
        (PIP17, UUID, "3D1FB0BC (streaming)", "DE47DE47 (pip17)"),
        (STREAMING, f"{UUID}-ledger-7", "DE47DE47 (pip17)", "3D1FB0BC (streaming)"),
    ],
)
def test_a_key_that_contradicts_the_magic_is_refused(written, key, expected, found):
    with pytest.raises(BadMagicError) as caught:
        parse_index(written.index, parse_key(key))
    error = caught.value
    assert (error.key, error.offset) == (f"{key}-index", 0)
    assert (error.expected, error.found) == (expected, found)


@pytest.mark.parametrize("head", [bytes(4), bytes.fromhex("fbdbabcb"), b"\xff" * 30])
def test_an_unknown_magic_is_refused(head):
    with pytest.raises(BadMagicError) as caught:
        resolve_format(head, PIP17.key)
    assert caught.value.found == head[:4].hex().upper()


@pytest.mark.parametrize("recorded", [None, ObjectFormat.PIP17])
def test_a_record_that_agrees_is_followed(recorded):
    index = parse_index(PIP17.index, PIP17.key, recorded=recorded)
    assert index.object_format is ObjectFormat.PIP17
    assert index.ledgers[0].ledger_id == 7


def test_a_record_that_contradicts_the_magic_is_refused():
    with pytest.raises(BadMagicError) as caught:
        parse_index(PIP17.index, PIP17.key, recorded=ObjectFormat.STREAMING)
    assert "offload context" in caught.value.what
    assert (caught.value.expected, caught.value.found) == ("3D1FB0BC (streaming)", "DE47DE47 (pip17)")


def test_a_record_that_contradicts_the_key_is_refused():
    with pytest.raises(OptionError) as caught:
        parse_index(PIP17.index, parse_key(UUID), recorded=ObjectFormat.PIP17)
    assert (caught.value.expected, caught.value.found) == ("pip17 by the context", "streaming by the key")


def test_an_index_is_packed_byte_for_byte():
    index = pack_streaming_index(
        [(LedgerInfo(ledger_id=30), [BlockEntry(first_entry_id=4, part_number=1, offset=0)])], 400
    )
    assert index == bytes.fromhex(
        "3d1fb0bc 0000003e 0000000000000190 0000000000000080"
        "000000000000001e 00000001 00000002 081e"
        "0000000000000004 00000001 0000000000000000"
    )
