"""Streamed topics in tests: what lies in their complete segments, by the record and the objects alone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from entries import read_object
from managed_ledgers import NAME, Clock

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.codec.filtered_objects import has_gaps
from offload_core.codec.object_format import ObjectKey
from offload_core.managed_ledger import (
    Environment,
    ManagedLedger,
    RolloverPolicy,
    StreamingPool,
    StreamingSettings,
    StreamingStatus,
    open_managed_ledger,
)
from offload_core.metadata import EntryPosition, ManagedLedgerInfo, Segment, segments_of
from offload_core.tier import Tier

SETTINGS = StreamingSettings(max_segment_bytes=1000, max_segment_age_s=60, block_bytes=300)
"""Small: segments of ten entries of 100 bytes, blocks of two."""


class Topic:
    """A topic that is open, and what was added to it; `run` does what is due."""

    def __init__(self, environment: Environment, cold: Path) -> None:
        self.environment, self.cold = environment, cold
        self.added: list[tuple[EntryPosition, bytes]] = []
        self.open()

    def open(self, **given: Any) -> ManagedLedger:
        """Open it anew."""
        rollover = RolloverPolicy(min_age_s=0)
        self.ledger = open_managed_ledger(self.environment, NAME, rollover=rollover, **given)
        return self.ledger

    def add(self, count: int, size: int = 100) -> None:
        """Add entries, each of them another."""
        for _ in range(count):
            payload = (b"%d " % len(self.added)).ljust(size, b".")
            self.added.append((self.ledger.add_entry(payload), payload))

    def run(self) -> None:
        """Do what is due now."""
        assert self.environment.streaming is not None
        self.environment.streaming.run_due()

    @property
    def info(self) -> ManagedLedgerInfo:
        """The record."""
        known = self.environment.records.read(NAME)
        assert known is not None
        return known.info

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Of the record."""
        return segments_of(self.info)

    @property
    def status(self) -> StreamingStatus:
        """How the streaming stands."""
        return self.ledger.streaming_status

    def cold_entries(self) -> list[tuple[EntryPosition, bytes]]:
        """What is in complete segments."""
        return in_segments(self.cold, self.info)

    def left(self) -> set[str]:
        """What lies in the tier and should not."""
        return left_in(self.cold, self.info)


def pool_of(tier: Tier, clock: Clock, **given: Any) -> StreamingPool:
    """A pool without threads; `run_due` drives it."""
    tiers = KnownTiers(tier)
    options = {"threads": 0, "budget_bytes": 1 << 20, "buffer_bytes": 1 << 20, "now_ms": clock}
    return StreamingPool(lambda _: nullcontext(tiers), **(options | given))


def in_segment(cold: Path, segment: Segment) -> list[tuple[EntryPosition, bytes]]:
    """The entries of a segment's object, in their order."""
    key = ObjectKey(folder="", uuid=segment.uuid, ledger_id=None, is_index=False)
    data, index = ((cold / name).read_bytes() for name in (key.data_key, key.index_key))
    found = [
        (EntryPosition(at, entry_id), bytes(payload))
        for at, entry_id, payload in read_object(data, index, key, gaps=is_sparse(cold, segment))
    ]
    return sorted(found)


def is_sparse(cold: Path, segment: Segment) -> bool:
    """Whether a segment's object says that entries may have been left out."""
    about = json.loads((cold / f"{segment.uuid}.metadata.json").read_text())
    return has_gaps(about["user_metadata"])


def in_segments(cold: Path, info: ManagedLedgerInfo) -> list[tuple[EntryPosition, bytes]]:
    """The entries of all complete segments, each of which has what its record says."""
    found: list[tuple[EntryPosition, bytes]] = []
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


def left_in(cold: Path, info: ManagedLedgerInfo) -> set[str]:
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
