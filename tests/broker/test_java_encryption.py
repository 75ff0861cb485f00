"""Messages that Pulsar's Java client encrypted, by RSA and elliptic curves: we read what its reader reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from live.clients import rows_as_java_reads

from offload_hooks.errors import DecryptionError

pytestmark = pytest.mark.sampled(12)

END = b"the end"

CASES: dict[str, dict[str, Any]] = {
    "rsa, batched": {"encrypt_for": ["rsa"], "batch": 5, "compression": "ZSTD"},
    "rsa, chunked": {"encrypt_for": ["rsa"], "chunk_bytes": 20_000},
    "P-256, chunked": {"encrypt_for": ["secp256r1"], "chunk_bytes": 20_000, "compression": "ZLIB"},
    "P-384, batched": {"encrypt_for": ["secp384r1"], "batch": 4, "compression": "LZ4"},
    "P-521": {"encrypt_for": ["secp521r1"], "compression": "SNAPPY"},
    "several keys": {"encrypt_for": ["nobody", "secp256r1", "rsa"], "batch": 5},
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with `NAME.pem` and `NAME.pub` of each key, and with `NAME.other`, a private key that does not fit."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("rsa", "nobody", "secp256r1", "secp384r1", "secp521r1"):
        for kind in ("pem", "other"):
            key = new_key(name)
            private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
            (folder / f"{name}.{kind}").write_bytes(private)
            if kind == "pem":
                public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
                (folder / f"{name}.pub").write_bytes(public)
    return folder


def new_key(name):
    curves = {"secp256r1": ec.SECP256R1(), "secp384r1": ec.SECP384R1(), "secp521r1": ec.SECP521R1()}
    if name in curves:
        return ec.generate_private_key(curves[name])
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def messages(seed):
    draw = random.Random(seed)
    return [
        {
            "value": draw.randbytes(draw.choice([0, 1, 15, 16, 3000, 70_000])),
            "key": f"key {i % 3}",
            "properties": {"i": str(i)},
        }
        | ({"event_ms": 1_600_000_000_000 + i} if i % 2 else {})
        for i in range(12)
    ]


def pem(keys, *names, kind="pem"):
    """The key provider with the private keys of these names only."""
    return ("pem", {"private_keys": {name: str(keys / f"{name}.{kind}") for name in names}})


@pytest.mark.parametrize("case", CASES)
def test_encrypted_messages_are_what_the_java_client_decrypts(cold, java_client, keys, case):
    topic = cold.topic("encrypted-" + case.replace(" ", "-").replace(",", ""))
    options = CASES[case]
    names = options["encrypt_for"]
    java_client.produce(topic, messages(case), keys=keys, **options)
    java_client.produce(topic, [{"value": END}])
    read = java_client.consume(topic, keys=keys)
    assert len(read) == 13
    passed_on, left_out = [], []
    if "chunk_bytes" not in options:  # without its key that client comes to no end with chunks
        passed_on = java_client.consume(topic, until=END, crypto_failure_action="CONSUME")
        left_out = java_client.consume(topic, until=END, crypto_failure_action="DISCARD")
    cold.admin.offload_all(topic)

    fits_not = pem(keys, *names, kind="other")
    consuming = {"key_provider": pem(keys, "another"), "crypto_failure_action": "CONSUME"}
    with cold.store.open_reader() as tier:
        for name in set(names) - {"nobody"}:
            assert rows_as_java_reads(tier, topic, key_provider=pem(keys, name)) == read
        if passed_on:
            for how in ({}, consuming, {"key_provider": fits_not, "mode": "PERMISSIVE"}):
                assert rows_as_java_reads(tier, topic, **how) == passed_on
            dropping = {"key_provider": fits_not, "mode": "DROPMALFORMED"}
            for how in ({"crypto_failure_action": "DISCARD"}, dropping):
                assert rows_as_java_reads(tier, topic, **how) == left_out
        providers = [{"key_provider": each} for each in (pem(keys, "another"), fits_not)]
        for how in ({"crypto_failure_action": "FAIL"}, *providers):
            with pytest.raises(DecryptionError, match="|".join(names)):
                rows_as_java_reads(tier, topic, **how)
