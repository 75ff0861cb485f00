"""Encrypted entries: decrypted before they are decompressed, or what the options say becomes of them."""

from __future__ import annotations

import logging
import traceback

import pytest
from entries import CODECS, batch_entry, entry, single
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import decoded_rows, reference_rows, sealed_entry, wrapped, write_keys

from offload_core.format.messages.encryption import DATA_KEYS_KEPT, Decryptor
from offload_core.format.messages.payload_opener import EntryCounts, PayloadOpener
from offload_core.format.messages.pem_keys import PemKeyProvider
from offload_hooks.errors import BadLengthError, DecompressionError, DecryptionError, StoreUnavailableError
from offload_proto.messages_pb2 import LZ4, ZLIB

DATA_KEY = bytes(range(32))
COLUMNS = ["value", "__key", "__batchIndex", "__valueIsRaw"]


class Memory:
    """A provider that has data keys by name, and counts what it is asked."""

    def __init__(self, keys):
        self.keys = keys
        self.asked: list[tuple[str, bytes]] = []

    def decrypt_data_key(self, name, encrypted, _):
        self.asked.append((name, encrypted))
        return self.keys.get(name)


def opener(keys=None, **options):
    return PayloadOpener(decryptor=Decryptor(keys), **{"crypto_failure_action": "FAIL"} | options)


def sealed(payload, **options):
    """An entry whose wrapped data key is never unwrapped for real."""
    names = options.pop("names", ("orders",))
    values = {name: b"wrapped " + name.encode() for name in names}
    return sealed_entry(payload, names=names, data_key=DATA_KEY, values=values, **options)


HAS_KEY = {"orders": DATA_KEY}


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_payload_is_decrypted_and_then_decompressed(codec):
    payload = b"plain text " * 50
    rows = decoded_rows(
        [entry(b"before"), sealed(payload, compression=codec, partition_key="k"), entry(b"after")],
        opener=opener(Memory(HAS_KEY)),
    )
    assert [row["value"] for row in rows] == [b"before", payload, b"after"]
    assert [row["__valueIsRaw"] for row in rows] == [False] * 3
    assert rows[1]["__encryptionKeys"][0]["name"] == "orders"
    assert rows[1]["__key"] == b"k"


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_batch_is_decrypted_and_taken_apart(codec):
    messages = [single(b"a", partition_key="x"), single(None), single(b"c" * 300, properties=[("n", "1")])]
    plain = batch_entry(messages, singles=True, compression=codec)
    secret = sealed(b"".join(messages), compression=codec, num_messages_in_batch=3)
    shown = ["value", "__key", "__messageProperties", "__batchIndex", "__batchSize", "__messageId"]
    assert decoded_rows([secret], columns=shown, opener=opener(Memory(HAS_KEY))) == decoded_rows(
        [plain], columns=shown
    )


@pytest.mark.parametrize("null", [False, True])
def test_an_empty_payload_is_sixteen_bytes_of_ciphertext(null):
    (row,) = decoded_rows([sealed(b"", null_value=null)], opener=opener(Memory(HAS_KEY)))
    assert row["value"] == (None if null else b"")
    assert row["__nullValue"] is null


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.sampled_from(sorted(CODECS)), st.sampled_from("pso")),
        max_size=6,
    )
)
def test_any_mix_of_plain_and_encrypted_entries_reads_as_the_plain_ones(messages):
    plain = [entry(payload, compression=codec) for payload, codec, _ in messages]
    mixed = [
        entry(payload, compression=codec)
        if kind == "p"
        else sealed(payload, compression=codec, names=("orders",) if kind == "s" else ("other", "orders"))
        for payload, codec, kind in messages
    ]
    columns = [name for name in reference_rows([entry(b"")])[0] if not name.startswith("__encryption")]
    assert decoded_rows(mixed, columns=columns, opener=opener(Memory(HAS_KEY))) == [
        {name: row[name] for name in columns} for row in reference_rows(plain)
    ]


# --- no key ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, Memory({}), Memory({"another": DATA_KEY})])
def test_an_entry_without_a_key_fails_with_the_names_and_the_place(keys):
    secret = sealed(b"x", names=("orders", "payments"))
    with pytest.raises(DecryptionError) as caught:
        decoded_rows([entry(b""), secret], first_entry_id=5, opener=opener(keys))
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 6)
    assert caught.value.found == "keys 'orders', 'payments'"


@pytest.mark.parametrize("keys", [None, Memory({})])
def test_an_entry_without_a_key_is_passed_on_as_ciphertext(keys):
    secret = sealed(b"x" * 10, compression=LZ4, num_messages_in_batch=1)
    passing = opener(keys, crypto_failure_action="CONSUME")
    found = decoded_rows([entry(b"1"), secret], opener=passing)
    assert found == reference_rows([entry(b"1"), secret])
    assert [row["__valueIsRaw"] for row in found] == [False, True]
    assert passing.counts == EntryCounts(encrypted=1)


@pytest.mark.parametrize("keys", [None, Memory({})])
def test_an_entry_without_a_key_is_left_out(keys):
    dropping = opener(keys, crypto_failure_action="DISCARD")
    rows = decoded_rows([entry(b"1"), sealed(b"x"), entry(b"2")], columns=COLUMNS, opener=dropping)
    assert [row["value"] for row in rows] == [b"1", b"2"]
    assert dropping.counts == EntryCounts(no_key=1)


# --- a key that does not fit -------------------------------------------------------------------

BROKEN = {
    "changed": (sealed(b"x" * 50, tampered=True), Memory(HAS_KEY)),
    "wrong key": (sealed(b"x" * 50), Memory({"orders": b"y" * 32})),
    "cut off": (sealed(b"", encryption_param=b"v" * 12)[:-1], Memory(HAS_KEY)),
    "no vector": (sealed(b"x", encryption_param=b""), Memory(HAS_KEY)),
    "short vector": (sealed(b"x", encryption_param=b"1234567"), Memory(HAS_KEY)),
    "no key at all": (sealed(b"x"), Memory({"orders": b"not a key"})),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_what_does_not_decrypt_is_an_error_that_names_key_and_place(kind):
    secret, keys = BROKEN[kind]
    with pytest.raises(DecryptionError) as caught:
        decoded_rows([entry(b""), secret], verify_checksums=False, opener=opener(keys))
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)
    assert "'orders'" in str(caught.value.found)


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_what_does_not_decrypt_is_passed_on_with_a_warning(kind, caplog):
    secret, keys = BROKEN[kind]
    permissive = opener(keys, mode="PERMISSIVE")
    with caplog.at_level(logging.WARNING):
        rows = decoded_rows([secret, entry(b"2")], verify_checksums=False, opener=permissive)
    assert rows == reference_rows([secret, entry(b"2")], verify_checksums=False)
    assert permissive.counts == EntryCounts(encrypted=1, undecryptable=1)
    assert "orders" in caplog.text


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_what_does_not_decrypt_is_left_out(kind):
    secret, keys = BROKEN[kind]
    dropping = opener(keys, mode="DROPMALFORMED")
    rows = decoded_rows([secret, entry(b"2")], verify_checksums=False, columns=COLUMNS, opener=dropping)
    assert [row["value"] for row in rows] == [b"2"]
    assert dropping.counts == EntryCounts(undecryptable=1)


def test_every_flipped_bit_of_a_ciphertext_is_noticed():
    secret = sealed(b"short")
    for bit in range(8 * (5 + 16)):
        changed = bytearray(secret)
        changed[len(secret) - 1 - bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecryptionError):
            decoded_rows([bytes(changed)], verify_checksums=False, opener=opener(Memory(HAS_KEY)))


def test_another_key_of_the_entry_serves_where_the_first_does_not_fit():
    keys = Memory({"orders": b"y" * 32, "payments": DATA_KEY})
    (row,) = decoded_rows([sealed(b"x", names=("orders", "payments"))], opener=opener(keys))
    assert row["value"] == b"x"


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"compression": ZLIB, "uncompressed_size": 4}, DecompressionError),
        ({"compression": ZLIB, "uncompressed_size": 2**31}, DecompressionError),
        ({"num_messages_in_batch": 2}, BadLengthError),
    ],
)
def test_a_payload_that_is_wrong_once_decrypted_is_explained(metadata, error):
    with pytest.raises(error) as caught:
        decoded_rows([entry(b""), sealed(b"\0\0\0\x09x", **metadata)], opener=opener(Memory(HAS_KEY)))
    assert caught.value.entry_id == 1


# --- the provider ------------------------------------------------------------------------------


def test_a_data_key_is_asked_for_once():
    keys = Memory(HAS_KEY)
    decoded_rows([sealed(b"x", names=("nobody", "orders")) for _ in range(5)], opener=opener(keys))
    assert keys.asked == [("nobody", b"wrapped nobody"), ("orders", b"wrapped orders")]


def test_no_more_data_keys_are_kept_than_are_allowed():
    keys = Memory(HAS_KEY)
    many = [
        sealed_entry(b"x", data_key=DATA_KEY, values={"orders": b"%d" % i}) for i in range(DATA_KEYS_KEPT + 1)
    ]
    one = opener(keys)
    decoded_rows([*many, many[-1], many[0]], opener=one)
    assert len(keys.asked) == len(many) + 1
    assert len(one._decryptor._ciphers) == DATA_KEYS_KEPT


def test_what_a_provider_raises_is_told_without_its_words():
    class Careless:
        def decrypt_data_key(self, *_):
            raise RuntimeError("the secret is sesame")

    with pytest.raises(DecryptionError) as caught:
        decoded_rows([sealed(b"x")], opener=opener(Careless()))
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "RuntimeError" in shown
    assert "sesame" not in shown.replace('raise RuntimeError("the secret is sesame")', "")


def test_a_provider_that_does_not_answer_is_an_error_in_every_mode():
    class Away:
        def decrypt_data_key(self, *_):
            raise StoreUnavailableError("the keys are not to be had")

    with pytest.raises(StoreUnavailableError):
        decoded_rows(
            [sealed(b"x")], opener=opener(Away(), mode="PERMISSIVE", crypto_failure_action="CONSUME")
        )


def test_keys_in_files_open_what_was_encrypted_for_them(tmp_path):
    keys = PemKeyProvider(directory=str(write_keys(tmp_path / "keys", "orders", "payments")))
    secrets = [sealed_entry(b"1"), sealed_entry(b"2", names=("nobody", "payments"), data_key=b"\7" * 32)]
    rows = decoded_rows(secrets, columns=COLUMNS, opener=opener(keys))
    assert [row["value"] for row in rows] == [b"1", b"2"]


def test_a_data_key_of_another_private_key_does_not_decrypt(tmp_path):
    keys = PemKeyProvider(directory=str(write_keys(tmp_path / "keys", "orders")))
    secret = sealed_entry(b"1", values={"orders": wrapped(b"k" * 32, "payments")})
    with pytest.raises(DecryptionError, match="private key of its name"):
        decoded_rows([secret], opener=opener(keys))


def test_no_key_is_in_an_error_or_repr(tmp_path):
    keys = Memory({"orders": b"y" * 32})
    decrypting = opener(keys)
    with pytest.raises(DecryptionError) as caught:
        decoded_rows([sealed(b"x")], opener=decrypting)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(decrypting)
    assert "yyyy" not in shown
