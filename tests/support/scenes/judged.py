"""Ledgers for Pulsar's classes to judge: drawn by Hypothesis, stored by our own writers, and read back by our scan."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from entries import LedgerPart, WrittenObject, streaming_object
from hypothesis import strategies as st
from oracle import MANAGED_LEDGER, Entry
from records import segment
from stores import Store
from tiers import Names, uuid_of

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES, PADDING
from offload_core.format.codec.decoder import parse_index
from offload_core.metadata.records import OffloadContext, SegmentLayout
from offload_core.metadata.records.managed_ledger_info import context_record
from offload_core.storage.tier import upload_blocks
from pulsar_offload import scan

FRAME_ROOM = BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES
"""The bytes of a block of one entry besides its payload."""

LEAST_PART_BYTES = 5 << 20
"""The smallest part that S3 takes, and Pulsar's smallest block there."""

_ledger_ids = itertools.count(1000)
_attempts = itertools.count(1)


def new_ledger_id() -> int:
    """An id that no other ledger of these tests has: Pulsar's reader mixes up ledgers of one id (test_faults)."""
    return next(_ledger_ids)


def new_attempt() -> UUID:
    """A uuid of its own for each object."""
    return uuid_of(next(_attempts))


# --- drawn -------------------------------------------------------------------------------------


@st.composite
def payload_lists(draw: st.DrawFn, block_bytes: int, largest: int, *, most: int = 25) -> list[bytes]:
    """Payloads of 0 to `largest` bytes, a few or hundreds; many fill a block of `block_bytes`, or nearly."""
    sizes: list[int] = []
    used = BLOCK_HEADER_BYTES
    for _ in range(draw(st.integers(1, most))):
        rest = block_bytes - used - FRAME_HEADER_BYTES
        kind = draw(st.sampled_from(["empty", "small", "any", "fills the block", "fills the block"]))
        spare = draw(st.integers(0, 14)) if kind == "fills the block" else 0
        if kind == "fills the block" and 0 <= rest - spare <= largest:
            size = rest - spare
        else:
            size = (
                0
                if kind == "empty"
                else draw(st.integers(0, min(60, largest) if kind == "small" else largest))
            )
        sizes.append(size)
        used = (used if size <= rest else BLOCK_HEADER_BYTES) + FRAME_HEADER_BYTES + size
    times = draw(st.sampled_from([1, 1, 1, 12]))
    return contents(sizes * times, draw(st.integers(0, 1 << 30)))


def contents(sizes: Sequence[int], seed: int) -> list[bytes]:
    """Payloads of these sizes: random bytes, and some that look like padding."""
    rng = random.Random(seed)
    return [
        (PADDING * (size // 4 + 1))[:size] if rng.random() < 0.2 else rng.randbytes(size) for size in sizes
    ]


def ranges(count: int) -> st.SearchStrategy[tuple[int, int]]:
    """First and last entry id of a read, in a ledger of `count` entries."""
    return st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).map(
        lambda pair: (min(pair), max(pair))
    )


@st.composite
def segments(draw: st.DrawFn) -> list[list[LedgerPart]]:
    """Segments of some ledgers in order, each a part of a ledger or several ledgers; a block for each list in a part.

    A part begins before entry 128, which is what Pulsar's reader can open.
    """
    made: list[list[LedgerPart]] = [[]]
    for _ in range(draw(st.integers(1, 3))):
        ledger_id, first = new_ledger_id(), 0
        for _ in range(draw(st.integers(1, 3))):
            blocks = draw(st.lists(payload_lists(700, 700, most=8), min_size=1, max_size=3))
            made[-1].append(LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first))
            first += sum(map(len, blocks))
            if first >= BLOCK_HEADER_BYTES:
                break
            made.append([])
        if made[-1] and draw(st.booleans()):
            made.append([])
    return [parts for parts in made if parts]


# --- stored by us ------------------------------------------------------------------------------


def store_object(store: Store, written: WrittenObject) -> UUID:
    """Upload an object block by block, as a new attempt."""
    key = replace(written.key, uuid=new_attempt())
    index = parse_index(written.index, key)
    starts = sorted(block.offset for ledger in index.ledgers for block in ledger.blocks)
    blocks = [memoryview(written.data)[a:b] for a, b in pairwise([*starts, len(written.data)])]
    with store.open() as tier:
        upload_blocks(
            tier,
            key.data_key,
            blocks,
            block_bytes=max(map(len, blocks)),
            total_bytes=len(written.data),
            user_metadata=Names(managed_ledger=MANAGED_LEDGER).as_metadata("data"),
        )
        about = Names(managed_ledger=MANAGED_LEDGER).as_metadata("index")
        tier.write_index(key.index_key, written.index, user_metadata=about)
    return key.uuid


def store_segments(
    store: Store, drawn: Sequence[Sequence[LedgerPart]], *, min_block_bytes: int = 512
) -> dict[int, bytes]:
    """Upload each segment as a streaming object; the offload context of each ledger, serialised."""
    segments_of: dict[int, list[tuple[UUID, int]]] = {}
    for parts in drawn:
        attempt = store_object(store, streaming_object(parts, min_block_bytes=min_block_bytes))
        for part in parts:
            end = part.first_entry_id + sum(map(len, part.blocks)) - 1
            segments_of.setdefault(part.ledger_id, []).append((attempt, end))
    return {ledger_id: segmented(*segments) for ledger_id, segments in segments_of.items()}


def segmented(*attempts: tuple[UUID, int]) -> bytes:
    """The offload context, serialised, of a ledger whose segments are these attempts up to these entries."""
    segments = [segment(attempt, end_entry_id) for attempt, end_entry_id in attempts]
    context = OffloadContext.of_segments(segments, complete=True)
    return context_record(context, SegmentLayout.SHIPPED).SerializeToString()


# --- read by us --------------------------------------------------------------------------------


def entries_of(ledger_id: int, payloads: Sequence[bytes], first_entry_id: int = 0) -> list[Entry]:
    """A ledger's entries."""
    return [(ledger_id, i, payload) for i, payload in enumerate(payloads, start=first_entry_id)]


def entries_of_parts(drawn: Sequence[Sequence[LedgerPart]], ledger_id: int) -> list[Entry]:
    """The entries of one ledger, from all its segments."""
    payloads = [
        payload
        for parts in drawn
        for part in parts
        if part.ledger_id == ledger_id
        for block in part.blocks
        for payload in block
    ]
    return entries_of(ledger_id, payloads)


def scanned(store: Store, ledger_id: int) -> list[Entry]:
    """A ledger's entries by our scan."""
    with store.open_reader() as tier:
        table = scan(tier, ledger=ledger_id, level="entries").to_table()
    columns = (table[name].to_pylist() for name in ("__ledgerId", "__entryId", "value"))
    return list(zip(*columns, strict=True))
