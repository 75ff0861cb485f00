"""The digest that guards a stored entry: over its head of 32 bytes and its payload, and kept between them.

A stored entry is ledger, entry, last add confirmed and length (int64 each), the digest, the payload. Source:
docs/formats/bookkeeper.md.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from isal import isal_zlib

from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.ledger_metadata import DigestType, LedgerMetadata
from offload_hooks.errors import ChecksumError, EntryOrderError, TruncatedError
from offload_hooks.values import ReadableBuffer

HEAD_BYTES = 32
_HEAD = struct.Struct(">4q")


def _crc32c(data: bytes, key: bytes) -> bytes:
    del key
    return crc32c(data).to_bytes(4, "big")


def _crc32(data: bytes, key: bytes) -> bytes:
    del key
    return int(isal_zlib.crc32(data)).to_bytes(8, "big")


def _hmac(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha1")


def _none(data: bytes, key: bytes) -> bytes:
    del data, key
    return b""


_FUNCTIONS: dict[DigestType, tuple[int, Callable[[bytes, bytes], bytes]]] = {
    DigestType.CRC32C: (4, _crc32c),
    DigestType.CRC32: (8, _crc32),
    DigestType.HMAC: (20, _hmac),
    DigestType.DUMMY: (0, _none),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An entry as a bookie has it, whose digest is right.

    Attributes:
        last_add_confirmed: the last entry that its writer knew to be acknowledged when it sent this one; -1 for none.
        length: payload bytes of the ledger up to and with this entry.
    """

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDigest:
    """The digest of one ledger's entries.

    Attributes:
        payload_offset: where the payload begins in a stored entry.
    """

    kind: DigestType
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of_ledger(cls, metadata: LedgerMetadata) -> EntryDigest:
        """The digest of a ledger; one that does not say has CRC32, which BookKeeper takes then."""
        kind = metadata.digest_type or DigestType.CRC32
        key = hashlib.sha1(b"mac" + metadata.password).digest() if kind is DigestType.HMAC else b""  # noqa: S324
        return cls(kind=kind, key=key)

    @property
    def payload_offset(self) -> int:
        """See above."""
        return HEAD_BYTES + _FUNCTIONS[self.kind][0]

    def parse(self, data: ReadableBuffer, ledger_id: int, entry_id: int | None) -> StoredEntry:
        """Check and decode a stored entry; any entry of the ledger if `entry_id` is None.

        Raises:
            TruncatedError: it is too short.
            EntryOrderError: it is another entry than was asked for: the digest does not tell.
            ChecksumError: it is damaged.
        """
        entry = memoryview(data).cast("B")
        begin = self.payload_offset
        if len(entry) < begin:
            raise TruncatedError(
                "a bookie sent an entry that is too short",
                ledger_id=ledger_id,
                entry_id=entry_id,
                expected=f"at least {begin} bytes",
                found=len(entry),
            )
        found_ledger_id, found_entry_id, last_add_confirmed, length = _HEAD.unpack_from(entry)
        if found_ledger_id != ledger_id or entry_id not in (None, found_entry_id):
            raise EntryOrderError(
                "a bookie sent another entry",
                ledger_id=ledger_id,
                entry_id=entry_id,
                found=f"{found_ledger_id}:{found_entry_id}",
            )
        payload = entry[begin:]
        digest = _FUNCTIONS[self.kind][1](b"".join((entry[:HEAD_BYTES], payload)), self.key)
        if not hmac.compare_digest(digest, entry[HEAD_BYTES:begin]):
            raise ChecksumError(
                "an entry of a bookie is damaged",
                ledger_id=ledger_id,
                entry_id=found_entry_id,
                expected=digest.hex() if self.kind is not DigestType.HMAC else None,
                found=entry[HEAD_BYTES:begin].hex(),
            )
        return StoredEntry(
            ledger_id=found_ledger_id,
            entry_id=found_entry_id,
            last_add_confirmed=last_add_confirmed,
            length=length,
            payload=payload,
        )
