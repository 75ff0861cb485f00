"""Key providers, which decrypt the data keys of encrypted messages.

Its entry-point group is `pulsar_offload.key_providers`. Each encrypted entry carries its data key, encrypted for one or
several names of keys. A provider knows the private keys of some names, or a service that does. It is a class or factory
whose keyword arguments are its options; they may all be text. It is constructed where messages are decrypted, once for
each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class KeyProvider(Protocol):
    """Decrypts data keys, by the name of the key that they were encrypted for."""

    def decrypt_data_key(self, name: str, encrypted: bytes, metadata: Mapping[str, str]) -> bytes | None:
        """The data key itself, or None if the provider has no key of this name.

        It is asked for each encrypted data key once, and again after many others. It may be called in any thread, by
        one at a time.

        Args:
            name: the producer's name of its public key. It comes from stored data: it may be any text.
            encrypted: the data key, encrypted by the public key of this name.
            metadata: notes of the producer's key reader about its key, a version for instance.

        Raises:
            DecryptionError: there is a key of this name, and it does not decrypt this.
            StoreError: the keys cannot be read now.
            OptionError, MissingExtraError: the options name a thing that cannot be used.
        """
