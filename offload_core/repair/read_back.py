"""The entries of an object that was written, as its index and its frames have them: nothing is guessed here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from offload_core.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.codec.frames import walk_frames
from offload_core.codec.index import ObjectIndex
from offload_core.repair.contents import Contents
from offload_core.tier import Tier

_Entry = tuple[int, int, bytes]
"""Ledger, entry, payload."""


def has_entries(tier: Tier, key: str, index: ObjectIndex, contents: Contents) -> bool:
    """Whether an object of blocks holds these entries, each byte for byte, and no others.

    Raises:
        StoreError: the tier fails. FormatError: a block is not right.
    """
    saved = (
        (ledger.ledger_id, entry.entry_id, contents.payload(entry))
        for ledger in contents.ledgers
        for entry in ledger.entries
    )
    return all(one == two for one, two in zip_longest(_entries(tier, key, index), saved))


def _entries(tier: Tier, key: str, index: ObjectIndex) -> Iterator[_Entry]:
    for ledger in index.ledgers:
        for block in ledger.blocks:
            data = tier.read_range(key, block.offset, block.length)
            frames = walk_frames(data, BLOCK_HEADER_BYTES, block.length, block.first_entry_id, gaps=True)
            for frame in frames:
                payload = data[frame.offset : frame.offset + frame.length]
                yield ledger.ledger_id, frame.entry_id, bytes(payload)
