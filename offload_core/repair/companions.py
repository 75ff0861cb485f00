"""The checksums beside a pair whose index is made anew: those of the blocks stay, that of the index is another."""

from __future__ import annotations

from dataclasses import replace

from offload_core.catalogue.listing import Pair
from offload_core.catalogue.reading import read_block_checksums
from offload_core.codec.block_checksums import crc32c, pack_block_checksums
from offload_core.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError


def checksums_with_index(tier: Tier, pair: Pair, index: bytes) -> bytes | None:
    """What is to lie beside a pair that has this index; None if nothing of its data object does.

    Raises:
        StoreError: the tier fails.
    """
    if pair.block_checksums is None or pair.data is None:
        return None
    try:
        known = read_block_checksums(tier, pair.key, pair.block_checksums.size_bytes)
    except (FormatError, ObjectNotFoundError):
        return None  # verification says it, and makes others
    if known.data_length != pair.data.size_bytes:
        return None
    return pack_block_checksums(replace(known, index_length=len(index), index_crc=crc32c(index)))
