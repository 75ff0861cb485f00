"""The key provider `pem`: private keys in PEM files, by the names that producers gave them.

Data keys are encrypted by RSA-OAEP with SHA-1, as all of Pulsar's clients do it, or for a key of an elliptic curve,
which only the Java client takes, by ECIES. Source: docs/encryption.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from offload_hooks.errors import DecryptionError, OptionError

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_NO_PARAMETERS = bytes(8)
_MOST_NAME_BYTES = 255 - len(".pem")


def decrypt_ecies(private_key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """The data key.

    Raises:
        ValueError: it was encrypted for another key, or its bytes were changed.
    """
    point_bytes = 1 + 2 * ((private_key.curve.key_size + 7) // 8)
    point = encrypted[:point_bytes]
    ciphertext = encrypted[point_bytes:-_MAC_BYTES]
    if len(encrypted) <= point_bytes + _MAC_BYTES:
        raise ValueError("too short")
    ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private_key.curve, point)
    secret = point + private_key.exchange(ec.ECDH(), ephemeral)
    derived = X963KDF(hashes.SHA1(), _MAC_KEY_BYTES + len(ciphertext), None).derive(secret)  # noqa: S303 - Pulsar's
    mac = hmac.HMAC(derived[:_MAC_KEY_BYTES], hashes.SHA1())  # noqa: S303 - Pulsar's
    mac.update(ciphertext + _NO_PARAMETERS)
    try:
        mac.verify(encrypted[-_MAC_BYTES:])
    except InvalidSignature:
        raise ValueError("wrong HMAC") from None
    return bytes(byte ^ mask for byte, mask in zip(ciphertext, derived[_MAC_KEY_BYTES:], strict=True))


_OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)  # noqa: S303 - Pulsar's

_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class PemKeyProvider:
    """Private keys from files; the first of these that there is decrypts the data keys of a name.

    Args:
        private_keys: files by the name of the key; as text `NAME=FILE`, with `;` between them.
        directory: a directory with a file `NAME.pem` for each name.
        default_private_key: the file for all other names.

    A file is a path, a `file:` URL, or a `data:` URL with base64. Files are read when a key is first needed.
    """

    option_aliases: ClassVar[Mapping[str, str]] = {
        "defaultPrivateKey": "default_private_key",
        "privateKeys": "private_keys",
        "private_key_path": "default_private_key",
        "privateKeyPath": "default_private_key",
    }

    def __init__(
        self,
        *,
        private_keys: Mapping[str, str] | str | None = None,
        directory: str | None = None,
        default_private_key: str | None = None,
    ) -> None:
        self._files = _by_name(private_keys or {})
        self._directory = None if directory is None else _path(directory)
        self._default = default_private_key
        if not self._files and directory is None and default_private_key is None:
            raise OptionError(
                "no private keys are named", expected="private_keys, directory or default_private_key"
            )
        self._loaded: dict[str, _PrivateKey] = {}

    def decrypt_data_key(self, name: str, encrypted: bytes, metadata: Mapping[str, str]) -> bytes | None:
        """See `offload_hooks.key_providers.KeyProvider`."""
        del metadata  # files say nothing about versions
        place = self._place(name)
        if place is None:
            return None
        key = self._loaded.get(place)
        if key is None:
            key = self._loaded[place] = _load(name, place)
        try:
            if isinstance(key, rsa.RSAPrivateKey):
                return key.decrypt(encrypted, _OAEP)
            return decrypt_ecies(key, encrypted)
        except ValueError:
            raise DecryptionError(
                "a data key does not decrypt by the private key of its name", found=f"key {name!r}"
            ) from None

    def _place(self, name: str) -> str | None:
        """The file for this name, which may be any text, so that it must not lead out of the directory."""
        if name in self._files:
            return self._files[name]
        is_plain = bool(name) and not any(c in name for c in "/\\\0") and name not in (".", "..")
        is_file_name = is_plain and len(name.encode()) <= _MOST_NAME_BYTES
        if self._directory is not None and is_file_name:
            path = self._directory / f"{name}.pem"
            if path.is_file():
                return str(path)
        return self._default


def _by_name(given: Mapping[str, str] | str) -> dict[str, str]:
    if not isinstance(given, str):
        return dict(given)
    files: dict[str, str] = {}
    for part in given.split(";"):
        name, separator, file = part.partition("=")
        if not separator or not name.strip() or not file.strip():
            raise OptionError("the option 'private_keys' has another form", expected="NAME=FILE;NAME=FILE")
        files[name.strip()] = file.strip()
    return files


def _path(place: str) -> Path:
    parts = urlsplit(place)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else Path(place).expanduser()


def _load(name: str, place: str) -> _PrivateKey:
    what = f"the private key for {name!r}"
    content = _read(what, place)
    try:
        key: Any = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # their text is about the file's content
        raise OptionError(
            f"{what} cannot be read", expected="a PEM file with a private key that has no password"
        ) from None
    if not isinstance(key, _PrivateKey):
        raise OptionError(
            f"{what} is of a kind that is not supported", expected="a private key of RSA or an elliptic curve"
        )
    return key


def _read(what: str, place: str) -> bytes:
    if place.startswith("data:"):
        head, _, content = place.partition(",")
        try:
            if not head.endswith(";base64"):
                raise ValueError(head)
            return base64.b64decode(content, validate=True)
        except (ValueError, binascii.Error):
            raise OptionError(f"{what} is in a data: URL that is not base64") from None
    path = _path(place)
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{what} cannot be read from {path}: {error.strerror}") from error
