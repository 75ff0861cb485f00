"""Encrypted payloads → payloads: the data key by a key provider, then AES-GCM.

A producer encrypts a payload (compressed before, a chunk by itself) by a data key with AES-256-GCM, and puts the
initialisation vector and the data key, encrypted for each of its key names, into the entry's metadata.
Source: docs/encryption.md.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import DecryptionError, MissingExtraError, OffloadError
from offload_hooks.key_providers import KeyProvider
from offload_proto.messages_pb2 import MessageMetadata

CryptoFailureAction = Literal["FAIL", "DISCARD", "CONSUME"]
"""Treatment of an entry for which there is no key: Pulsar's words of `ConsumerCryptoFailureAction`."""

CRYPTO_FAILURE_ACTIONS: tuple[CryptoFailureAction, ...] = ("FAIL", "DISCARD", "CONSUME")

DATA_KEYS_KEPT = 1024
"""Number of data keys that are remembered. A producer makes a new one every few hours."""


class UndecryptableError(Exception):
    """Internal: the reason why an entry is not decrypted, and whether its key is missing."""

    def __init__(self, error: DecryptionError, *, no_key: bool) -> None:
        super().__init__(error)
        self.error = error
        self.no_key = no_key


class Decryptor:
    """Decrypts payloads, by one provider's keys. Data keys are cached, and are in no repr or error."""

    def __init__(self, provider: KeyProvider | None) -> None:
        self._provider = provider
        self._ciphers: BoundedCache[bytes, Any] = BoundedCache(DATA_KEYS_KEPT)

    @property
    def has_keys(self) -> bool:
        """True if there is a provider at all."""
        return self._provider is not None

    def decrypt(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """The payload of an entry that has encryption keys.

        Raises:
            UndecryptableError: there is no key for it, or it does not decrypt.
        """
        names = ", ".join(repr(key.key) for key in metadata.encryption_keys)
        if self._provider is None:
            unknown = DecryptionError(
                "an entry is encrypted",
                found=f"keys {names}",
                hint="Name a {key_provider} (docs/encryption.md).",
            )
            raise UndecryptableError(unknown, no_key=True)
        refused: DecryptionError | None = None
        for key in metadata.encryption_keys:
            cipher = self._cipher(key.key, key.value, {item.key: item.value for item in key.metadata})
            if isinstance(cipher, DecryptionError):
                refused = DecryptionError(cipher.what, expected=cipher.expected, found=cipher.found)
            elif cipher is not None:
                try:
                    return _open(cipher, metadata.encryption_param, payload)
                except DecryptionError as error:
                    error.found = f"key {key.key!r}"
                    refused = error
        if refused is not None:
            raise UndecryptableError(refused, no_key=False)
        unknown = DecryptionError(
            "an entry is encrypted, and the key provider has no key for it", found=f"keys {names}"
        )
        raise UndecryptableError(unknown, no_key=True)

    def _cipher(self, name: str, encrypted: bytes, about: dict[str, str]) -> Any:
        """AES-GCM by this data key, None if the provider has no key of this name; why not, if that was an error."""
        place = hashlib.sha256(hashlib.sha256(name.encode()).digest() + encrypted).digest()

        def make() -> Any:
            try:
                return self._new_cipher(name, encrypted, about)
            except DecryptionError as error:
                return error

        return self._ciphers.load(place, make)

    def _new_cipher(self, name: str, encrypted: bytes, about: dict[str, str]) -> Any:
        assert self._provider is not None
        try:
            data_key = self._provider.decrypt_data_key(name, encrypted, about)
        except OffloadError:
            raise
        except Exception as error:  # a plugin's own code; its text may quote a key, so only its type is shown
            raise DecryptionError(
                f"the key provider cannot decrypt a data key: {type(error).__name__}", found=f"key {name!r}"
            ) from None
        return None if data_key is None else _aes(name, data_key)


def _open(cipher: Any, vector: bytes, payload: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        opened: bytes = cipher.decrypt(vector, payload, None)
    except InvalidTag:
        raise DecryptionError(
            "an entry does not decrypt: its bytes were changed, or the key is another"
        ) from None
    except ValueError:
        raise DecryptionError(
            "an entry has an initialisation vector that AES-GCM does not take", expected="8 to 128 bytes"
        ) from None
    return opened


def _aes(name: str, data_key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtraError(
            "encrypted messages need the module 'cryptography', which is not installed",
            hint="Install it: pip install 'pulsar-offload[encryption]'",
        ) from error
    try:
        return AESGCM(data_key)
    except (ValueError, TypeError):
        raise DecryptionError(
            "a data key has another length than AES keys have",
            expected="16, 24 or 32 bytes",
            found=f"{len(data_key)} bytes of key {name!r}",
        ) from None
