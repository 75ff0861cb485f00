"""Managed ledgers whose entries go to a tier by streaming segments, step by step, with their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from entries import read_object
from managed_ledgers import NAME

from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import (
    EntryPosition,
    assign_segment,
    complete_segment,
    extend_segment,
    segments_of,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    StreamingPool,
    StreamingSettings,
    open_managed_ledger,
)
from offload_core.writing.offload import OfferResult, SegmentOffloader
from offload_hooks.ledger_stores import LedgerStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedOffloads:
    """Offloads a managed ledger by segments: its record, its ledgers in the hot tier, and where they go."""

    name: str
    records: ManagedLedgerRecords
    hot: LedgerStore
    tier: Tier
    now_ms: Callable[[], int]
    max_block_bytes: int = 300

    @property
    def info(self):
        """The record."""
        return self.records.read(self.name).info

    def begin(self):
        """The begin of the next segment: after the last one, or with the first ledger."""
        info = self.info
        segments = segments_of(info)
        if not segments:
            return EntryPosition(info.in_order[0].ledger_id, 0)
        end = segments[-1].end
        ledger = info.ledger(end.ledger_id)
        if ledger.info.is_closed and end.entry_id + 1 >= (ledger.info.entries or 0):
            following = next(each for each in info.in_order if each.ledger_id > end.ledger_id)
            return EntryPosition(following.ledger_id, 0)
        return EntryPosition(end.ledger_id, end.entry_id + 1)

    def offload(self, end, *, begin=None, uuid=None, history=False, completes=True):
        """A segment up to this entry.

        `history` records all its ledgers at once; without `completes` it stays assigned, with its objects.
        """
        begin, uuid = begin or self.begin(), uuid or uuid4()
        assign = partial(
            assign_segment,
            uuid=uuid,
            begin=begin,
            driver=tier_record(self.tier),
            assigned_ms=self.now_ms(),
            end=end if history else None,
        )
        info = self.records.update(self.name, assign).info
        with ThreadPoolExecutor(1) as executor:
            offloader = SegmentOffloader(
                self.tier,
                budget=MemoryBudget(),
                executor=executor,
                max_block_bytes=self.max_block_bytes,
                parts_in_flight=1,
            )
            handle = offloader.open_segment(uuid, begin, {"managedledgername": self.name})
            for ledger, first, last in _parts(info, begin, end):
                if ledger.ledger_id > begin.ledger_id and not history:
                    extend = partial(extend_segment, uuid=uuid, ledger_id=ledger.ledger_id)
                    self.records.update(self.name, extend)
                self._offer(handle, ledger, first, last)
            handle.close()
            offloaded = handle.result().result()
        assert offloaded.end == end
        if completes:
            ends = {"end": offloaded.end, "end_entry_ids": offloaded.end_entry_ids}
            complete = partial(complete_segment, uuid=uuid, **ends, offloaded_ms=self.now_ms())
            self.records.update(self.name, complete)
        return uuid

    def _offer(self, handle, ledger, first, last):
        with closing(self.hot.open(ledger.ledger_id)) as reader:
            while first <= last:
                batch = reader.read(first, last)
                offered = handle.offer_entries(ledger.ledger_id, batch)
                assert offered == (len(batch), OfferResult.ACCEPTED)
                first = batch.stop_entry_id
        if ledger.info.is_closed and last + 1 == ledger.info.entries:
            assert handle.end_ledger(ledger.info) is OfferResult.ACCEPTED


def _parts(info, begin, end):
    """The ledgers from one entry to another, and the first and last entry of each in between."""
    for ledger in info.in_order:
        if begin.ledger_id <= ledger.ledger_id <= end.ledger_id:
            first = begin.entry_id if ledger.ledger_id == begin.ledger_id else 0
            is_last = ledger.ledger_id == end.ledger_id
            yield ledger, first, end.entry_id if is_last else (ledger.info.entries or 0) - 1


def segment_keys(uuids):
    """The keys of the objects of these segments, in order."""
    return sorted(key for uuid in uuids for key in (str(uuid), f"{uuid}-index"))


# --- Streamed topics in tests: what lies in their complete segments, by the record and the objects alone.


SETTINGS = StreamingSettings(max_segment_bytes=1000, max_segment_age_s=60, block_bytes=300)
"""Small: segments of ten entries of 100 bytes, blocks of two."""


class Topic:
    """An open topic, and the entries added to it; `run` does the work that is due."""

    def __init__(self, environment, cold):
        self.environment, self.cold = environment, cold
        self.added = []
        self.open()

    def open(self, **given):
        """Open it again."""
        rollover = RolloverPolicy(min_age_s=0)
        self.ledger = open_managed_ledger(self.environment, NAME, rollover=rollover, **given)
        return self.ledger

    def add(self, count, size=100):
        """Add entries, each of them another."""
        for _ in range(count):
            payload = (b"%d " % len(self.added)).ljust(size, b".")
            self.added.append((self.ledger.add_entry(payload), payload))

    def run(self):
        """Do the work that is due."""
        self.environment.streaming.run_due()

    @property
    def info(self):
        """The record."""
        return self.environment.records.read(NAME).info

    @property
    def segments(self):
        """Of the record."""
        return segments_of(self.info)

    @property
    def status(self):
        """The state of the streaming."""
        return self.ledger.streaming_status

    def cold_entries(self):
        """The entries in complete segments."""
        return in_segments(self.cold, self.info)

    def left(self):
        """Leftovers in the tier."""
        return left_in(self.cold, self.info)


def pool_of(tier, clock, **given):
    """A pool without threads; `run_due` drives it."""
    tiers = KnownTiers(tier)
    options = {"threads": 0, "budget_bytes": 1 << 20, "buffer_bytes": 1 << 20, "now_ms": clock} | given
    return StreamingPool(lambda _: nullcontext(tiers), **options)


def in_segment(cold, segment):
    """The entries of a segment's object, in their order."""
    key = ObjectKey(folder="", uuid=segment.uuid, ledger_id=None, is_index=False)
    data, index = ((cold / name).read_bytes() for name in (key.data_key, key.index_key))
    found = [
        (EntryPosition(at, entry_id), bytes(payload))
        for at, entry_id, payload in read_object(data, index, key, gaps=is_sparse(cold, segment))
    ]
    return sorted(found)


def is_sparse(cold, segment):
    """Return whether a segment's object is marked as having gaps."""
    about = json.loads((cold / f"{segment.uuid}.metadata.json").read_text())
    return ObjectMarks.of(about["user_metadata"]).has_gaps


def in_segments(cold, info):
    """The entries of all complete segments, each as its record has it."""
    found = []
    for segment in segments_of(info):
        if segment.is_finished:
            entries = in_segment(cold, segment)
            assert segment.end is not None
            if is_sparse(cold, segment):
                assert all(segment.begin <= position <= segment.end for position, _ in entries)
            else:
                assert (entries[0][0], entries[-1][0]) == (segment.begin, segment.end)
            found += entries
    return found


def left_in(cold, info):
    """Objects and uploads that no complete copy of the record has; a name that a kill cut off means nothing."""
    keys = {str(segment.uuid) for segment in segments_of(info) if segment.is_finished}
    keys |= {
        f"{ledger.context.uuid}-ledger-{ledger.ledger_id}"
        for ledger in info.ledgers
        if ledger.context is not None and ledger.context.complete and not ledger.context.segments
    }
    known = {f"{key}{suffix}" for key in keys for suffix in ("", "-index")}
    files = {str(path.relative_to(cold)) for path in cold.rglob("*") if path.is_file()}
    files -= {name for name in files if name == ".offload-uploads/lock" or name.endswith(".tmp")}
    return {name for name in files if name.removesuffix(".metadata.json") not in known}
