"""Keys, and entries that are encrypted by them as Pulsar's clients do it."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from entries import CODECS, PUBLISH_TIME_MS, frame_entry, key_values

from offload_proto.messages_pb2 import EncryptionKeys, MessageMetadata

OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)


@functools.cache
def private_key(name: str) -> rsa.RSAPrivateKey:
    """The key of this name, made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(name: str, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """The private key of this name, as PEM."""
    return private_key(name).private_bytes(Encoding.PEM, form, NoEncryption())


def public_pem(name: str) -> bytes:
    """The public key of this name, as PEM."""
    key = private_key(name).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def write_keys(folder: Path, *names: str) -> Path:
    """A folder with a file `NAME.pem` for each name."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.pem").write_bytes(private_pem(name))
    return folder


def wrapped(data_key: bytes, name: str) -> bytes:
    """A data key, encrypted for the key of this name."""
    return private_key(name).public_key().encrypt(data_key, OAEP)


def seal(
    payload: bytes,
    *,
    names: tuple[str, ...] = ("orders",),
    data_key: bytes = b"k" * 32,
    values: Mapping[str, bytes] | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """The ciphertext of a payload, and the fields of `MessageMetadata` about it: the data key is wrapped for `names`.

    `values` are wrapped data keys to say instead.
    """
    vector = os.urandom(12)
    keys = [
        EncryptionKeys(key=name, value=(values or {}).get(name) or wrapped_once(data_key, name))
        for name in names
    ]
    ciphertext = AESGCM(data_key).encrypt(vector, payload, None)
    return ciphertext, {"encryption_keys": keys, "encryption_param": vector}


def sealed_entry(
    payload: bytes,
    *,
    compression: int = 0,
    tampered: bool = False,
    names: tuple[str, ...] = ("orders",),
    data_key: bytes = b"k" * 32,
    values: Mapping[str, bytes] | None = None,
    **metadata: Any,
) -> bytes:
    """An entry whose payload is compressed, then encrypted as `seal` does it."""
    sealed, about = seal(CODECS[compression](payload), names=names, data_key=data_key, values=values)
    ciphertext = bytearray(sealed)
    if tampered:
        ciphertext[len(ciphertext) // 2] ^= 1
    if compression:
        about |= {"compression": compression, "uncompressed_size": len(payload)}
    if "properties" in metadata:
        metadata["properties"] = key_values(metadata["properties"])
    return stored_entry(bytes(ciphertext), **about | metadata)


def stored_entry(payload: bytes, **metadata: Any) -> bytes:
    """An entry of this payload as it is, whatever the metadata declares."""
    fields = {"producer_name": "producer", "sequence_id": 0, "publish_time": PUBLISH_TIME_MS} | metadata
    return frame_entry(MessageMetadata(**fields).SerializeToString(), payload)


@functools.cache
def wrapped_once(data_key: bytes, name: str) -> bytes:
    """As a producer does, which wraps a data key once for many messages."""
    return wrapped(data_key, name)
