"""Segments as tests offer them, in any batches, and a reference implementation of their objects."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from entries import read_through
from hypothesis import strategies as st
from records import CLOSED_AT_MS, segment

from offload_core.format.codec.block_layout import pack_frames, padding
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import EntryPosition, LedgerRecord, OffloadContext
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.offload import OfferResult, SegmentOffloader
from offload_drivers.local import LocalDriver
from offload_hooks import Capabilities, hookimpl
from offload_hooks.ledger_stores import EntryBatch
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo

NAMES = {"managedledgername": "acme/cold/persistent/orders"}
UUID_1 = UUID("00000000-1111-4222-8333-000000000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A ledger's part of a segment: payloads from `first_entry_id` on, and whether the ledger ends with them."""

    ledger_id: int
    payloads: Sequence[bytes]
    first_entry_id: int = 0
    ended: bool = True

    @property
    def stop_entry_id(self):
        """One past the last."""
        return self.first_entry_id + len(self.payloads)

    @property
    def info(self):
        """The ledger as its managed ledger describes it when it has ended."""
        size = sum(map(len, self.payloads)) + 100 * self.first_entry_id
        return LedgerInfo(
            ledger_id=self.ledger_id, entries=self.stop_entry_id, size=size, timestamp_ms=CLOSED_AT_MS
        )


class LimitedDriver(LocalDriver):
    """A local tier with the limits of another store."""

    def __init__(self, root, **limits):
        super().__init__(str(root))
        self._limits = Capabilities(stale_uploads=True, **limits)

    @hookimpl
    def describe(self):
        return replace(super().describe(), capabilities=self._limits)


@contextmanager
def offloader_of(tier, budget=None, **options):
    """An offloader with threads of its own; all memory is given back when its segments have ended."""
    budget = MemoryBudget() if budget is None else budget
    with ThreadPoolExecutor(4) as executor:
        yield SegmentOffloader(tier, budget=budget, executor=executor, **options)
    assert budget.taken_bytes == 0


def begin_of(parts):
    """The first position of a segment of these parts."""
    return EntryPosition(parts[0].ledger_id, parts[0].first_entry_id)


def offer(handle, part, cuts=()):
    """Offer a part in batches that end before these of its payloads; all must be accepted."""
    borders = sorted({0, len(part.payloads), *(cut for cut in cuts if cut < len(part.payloads))})
    for first, stop in pairwise(borders):
        batch = EntryBatch.of(part.first_entry_id + first, part.payloads[first:stop])
        offered = handle.offer_entries(part.ledger_id, batch)
        assert offered == (stop - first, OfferResult.ACCEPTED)
    if part.ended:
        assert handle.end_ledger(part.info) is OfferResult.ACCEPTED


def offer_on(handle, ledger_id, entries):
    """Offer until all is accepted, or the buffer is not the reason that it is not; how it ended."""
    while True:
        offered = handle.offer_entries(ledger_id, entries)
        if offered.result is not OfferResult.BUFFER_FULL:
            return offered.result
        entries = EntryBatch(
            entries.first_entry_id + offered.accepted, entries.data, entries.offsets[offered.accepted :]
        )


@st.composite
def parts_of_segments(draw):
    """Parts of a few ledgers; the first may begin anywhere and have no entry left, the last may go on."""
    made, ledger_id = [], draw(st.integers(0, 5))
    first = draw(st.sampled_from([0, 0, 7]))
    for _ in range(draw(st.integers(1, 4))):
        sizes = draw(st.lists(st.integers(0, 400), min_size=0, max_size=12))
        payloads = [bytes([i % 251 + 1]) * size for i, size in enumerate(sizes)]
        made.append(Part(ledger_id=ledger_id, payloads=payloads, first_entry_id=first))
        ledger_id, first = ledger_id + draw(st.integers(1, 3)), 0
    last = Part(ledger_id=ledger_id, payloads=[b"last"], first_entry_id=first, ended=draw(st.booleans()))
    return [*made, last]


# --- the reference implementation --------------------------------------------------------------


def plain_object(parts, *, max_block_bytes, min_block_bytes):
    """The data and the index object of a segment of these parts, if memory is never short."""
    blocks = []
    for part in parts:
        length = max_block_bytes
        for entry_id, payload in enumerate(part.payloads, part.first_entry_id):
            length += 12 + len(payload)
            if length > max_block_bytes:
                blocks.append((part.ledger_id, entry_id, []))
                length = 128 + 12 + len(payload) + 4
            blocks[-1][2].append(payload)
    data, offsets = b"", []
    for number, (ledger_id, first, payloads) in enumerate(blocks, 1):
        content = pack_frames(payloads, first)
        least = min_block_bytes if number < len(blocks) else 0
        length = max(least, 128 + len(content) + 4)
        header = struct.pack(">Iqqqq", 0x26A66D32, 128, length, first, ledger_id).ljust(128, b"\0")
        offsets.append(len(data))
        data += header + content + padding(length - 128 - len(content))
    index = b""
    for part in parts:
        mine = [
            struct.pack(">qiq", first, number, offsets[number - 1])
            for number, (ledger_id, first, _) in enumerate(blocks, 1)
            if ledger_id == part.ledger_id
        ]
        if mine:
            info = _record(part).SerializeToString()
            index += struct.pack(">qii", part.ledger_id, len(mine), len(info)) + info + b"".join(mine)
    return data, struct.pack(">Iiqq", 0x3D1FB0BC, 24 + len(index), len(data), 128) + index


def _record(part):
    if not part.ended:
        return ManagedLedgerInfo.LedgerInfo(ledgerId=part.ledger_id, entries=part.stop_entry_id)
    return ManagedLedgerInfo.LedgerInfo(
        ledgerId=part.ledger_id,
        entries=part.stop_entry_id,
        size=part.info.size,
        timestamp=part.info.timestamp_ms,
    )


# --- read back ---------------------------------------------------------------------------------


def stored(tier, uuid):
    """The data and the index object."""
    keys = (str(uuid), f"{uuid}-index")
    data, index = (bytes(tier.read_range(key, 0, tier.stat(key).size_bytes)) for key in keys)
    return data, index


def read_back(tier, uuid, part):
    """A part's payloads by a read handle, by the record that its segment would have."""
    context = OffloadContext.of_segments(
        [segment(uuid, part.stop_entry_id - 1, driver=tier_record(tier))], complete=True
    )
    readers = ColdReaders(KnownTiers(tier), memory=ReadMemory(), read_buffer_bytes=1000)
    reader = readers.open(LedgerRecord(info=part.info, context=context))
    return [payload for _, payload in read_through(reader, part.first_entry_id, part.stop_entry_id - 1)]
