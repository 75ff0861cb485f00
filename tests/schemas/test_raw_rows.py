"""Messages that have no typed columns, of every kind, under each `mode`: an error, bytes beside nulls, left out."""

from __future__ import annotations

import json

import pytest
from entries import batch_entry, entry, marker, pip17_object
from scenes.messages import SentMessage, sealed_entry, write_keys
from scenes.schemas import record, write
from tiers import TOPIC, in_memory

from offload_hooks.errors import DecryptionError, IncompleteMessageError, PayloadError
from pulsar_offload import scan

FLAT = record(id="long", name="string")
SCHEMAS = json.dumps(FLAT)
COLUMNS = ["__entryId", "id", "name"]
RAW = "_corrupt_record"
VERSION = bytes(8)


def avro(number):
    return write(FLAT, {"id": number, "name": f"n{number}"})


def chunked(number, chunks=2):
    return SentMessage(producer="p", number=number, value=avro(number), chunks=chunks).entries()


def read(entries, columns=None, **options):
    """The rows; with the mode PERMISSIVE also their raw column, unless columns are named."""
    raw = [RAW] if options.get("mode") == "PERMISSIVE" else []
    tier = in_memory(pip17_object(entries))
    planned = scan(
        tier, TOPIC, columns=[*COLUMNS, *raw] if columns is None else columns, schemas=SCHEMAS, **options
    )
    return [tuple(row.values()) for row in planned.to_table().to_pylist()]


GOOD = entry(avro(1), schema_version=VERSION)
SEALED = sealed_entry(avro(2), names=("orders",))
UNKNOWN_KEY = sealed_entry(avro(2), names=("payments",))
CHANGED = sealed_entry(avro(2), names=("orders",), tampered=True)
WRONG = entry(b"\xff", schema_version=VERSION)
WRONG_IN_BATCH = batch_entry([avro(5), b"\xff", avro(6)])
NULL = entry(b"", null_value=True)


def stored(sealed):
    """What of an encrypted entry is passed on."""
    (row,) = scan(in_memory(pip17_object([sealed])), columns=["value"]).to_table().to_pylist()
    return bytes(row["value"])


def test_the_raw_column_has_what_cannot_be_decoded_and_nothing_else(tmp_path):
    keys = ("pem", {"directory": str(write_keys(tmp_path / "keys", "orders"))})
    entries = [GOOD, SEALED, UNKNOWN_KEY, CHANGED, WRONG, WRONG_IN_BATCH, NULL, *chunked(7)]
    found = read(entries, mode="PERMISSIVE", key_provider=keys, crypto_failure_action="CONSUME")
    assert found == [
        (0, 1, "n1", None),
        (1, 2, "n2", None),
        (2, None, None, stored(UNKNOWN_KEY)),
        (3, None, None, stored(CHANGED)),
        (4, None, None, b"\xff"),
        (5, 5, "n5", None),
        (5, None, None, b"\xff"),
        (5, 6, "n6", None),
        (6, None, None, None),
        (8, 7, "n7", None),
    ]
    left = read(entries, mode="DROPMALFORMED", key_provider=keys, crypto_failure_action="CONSUME")
    assert left == [row[:3] for row in found if row[3] is None]


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_without_keys_ciphertext_counts_as_what_cannot_be_decoded(mode):
    if mode == "FAILFAST":
        with pytest.raises(PayloadError, match=r"encrypted, or a chunk.*entry 1.*key_provider"):
            read([GOOD, SEALED], mode=mode)
        return
    raw = [(1, None, None, stored(SEALED))] if mode == "PERMISSIVE" else []
    good = (0, 1, "n1", None) if mode == "PERMISSIVE" else (0, 1, "n1")
    assert read([GOOD, SEALED], mode=mode) == [good, *raw]


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_a_key_that_is_missing_is_by_its_own_option(tmp_path, mode):
    keys = ("pem", {"directory": str(write_keys(tmp_path / "keys", "orders"))})
    with pytest.raises(DecryptionError):
        read([GOOD, UNKNOWN_KEY], mode=mode, key_provider=keys)
    found = read([GOOD, UNKNOWN_KEY], mode=mode, key_provider=keys, crypto_failure_action="DISCARD")
    assert [row[:3] for row in found] == [(0, 1, "n1")]


def test_each_kind_fails_fast_with_its_own_error(tmp_path):
    keys = ("pem", {"directory": str(write_keys(tmp_path / "keys", "orders"))})
    for wrong, error in ((CHANGED, DecryptionError), (WRONG, PayloadError), (WRONG_IN_BATCH, PayloadError)):
        with pytest.raises(error) as caught:
            read([GOOD, wrong], key_provider=keys)
        assert caught.value.entry_id == 1
    with pytest.raises(IncompleteMessageError):
        read([chunked(1, chunks=3)[0], chunked(1, chunks=3)[2], GOOD])


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_chunks_that_are_asked_for_raw_have_no_types(mode):
    entries = [GOOD, *chunked(3)]
    with pytest.raises(PayloadError, match="a chunk"):
        read(entries, chunks="raw")
    found = read(entries, chunks="raw", mode=mode)
    if mode == "DROPMALFORMED":
        assert found == [(0, 1, "n1")]
    else:
        assert [row[:3] for row in found[1:]] == [(1, None, None), (2, None, None)]
        assert b"".join(row[3] for row in found[1:]) == avro(3)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([RAW], [(None,), (b"\xff",)]),
        (["name"], [("n1",), (None,)]),
        ([RAW, "id"], [(None, 1), (b"\xff", None)]),
        (["__entryId"], [(0,), (1,)]),
    ],
)
def test_columns_choose_from_types_and_raw(columns, expected):
    assert read([GOOD, WRONG], columns, mode="PERMISSIVE") == expected


def test_types_and_transactions_together():
    """What was aborted is not decoded; what is not right is by `mode`."""
    of_transaction = {"txnid_most_bits": 0, "txnid_least_bits": 1}
    entries = [GOOD, entry(b"\xff", **of_transaction), marker(22, **of_transaction), entry(avro(2))]
    assert read(entries) == [(0, 1, "n1"), (3, 2, "n2")]
    with pytest.raises(PayloadError):
        read(entries, isolation="uncommitted")
