"""The objects of a ledger, written again by our codec with the same entries and the same metadata."""

from __future__ import annotations

from entries import WrittenObject, pip17_object, read_object

from offload_core.codec.decoder import parse_index
from offload_core.codec.ledger_metadata import LedgerMetadata
from offload_core.codec.object_format import ObjectKey
from offload_core.tier import Tier


def read_whole(tier: Tier, key: str) -> bytes:
    """All bytes of a small object."""
    return bytes(tier.read_range(key, 0, tier.stat(key).size_bytes))


def rewritten(data: bytes, index: bytes, key: ObjectKey, max_block_bytes: int) -> WrittenObject:
    """A PIP-17 object with the entries and the ledger metadata of the one that has these bytes."""
    parsed = parse_index(index, key)
    (ledger,) = parsed.ledgers
    assert isinstance(ledger.metadata, LedgerMetadata)
    return pip17_object(
        [payload for _, _, payload in read_object(data, parsed, key)],
        ledger_id=ledger.ledger_id,
        metadata=ledger.metadata,
        max_block_bytes=max_block_bytes,
    )
