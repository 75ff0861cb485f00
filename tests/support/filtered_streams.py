"""A streamed topic with a filter that drops entries by their numbers, and what must be left of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from filtered import PlainFilter, chosen
from managed_ledgers import NAME
from streamed_topics import SETTINGS, Topic

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.filters import ChosenFilter, FilterMode
from offload_core.managed_ledger import Environment, StreamingPool
from offload_core.metadata import EntryPosition
from offload_core.offload.hot_copy_check import check_cold_copies
from offload_core.read_handles import ColdReaders
from offload_core.tier import Tier
from offload_hooks.errors import OffloadError


class Asked(PlainFilter):
    """Counts how often it is opened; drops entries by their numbers."""

    def __init__(self) -> None:
        super().__init__(lambda payload: int(payload.split()[0]) in self.unwanted, waits_for="a sign")
        self.unwanted: set[int] = set()
        self.opened = 0
        self.error: OffloadError | None = None

    def open(self, topic: object) -> PlainFilter:
        self.opened += 1
        if self.error is not None:
            raise self.error
        return super().open(topic)

    def stop_at(self, position: EntryPosition | None) -> None:
        self.stop = None if position is None else (position.ledger_id, position.entry_id)


class Filtered(Topic):
    """A streamed topic, and what must be in its complete segments."""

    choice: ChosenFilter
    filter: Asked
    tier: Tier

    @classmethod
    def streamed(cls, environment: Environment, pool: StreamingPool, tier: Tier, folder: Path) -> Filtered:
        """One whose filter leaves gaps, and drops nothing yet."""
        topic = cls(replace(environment, streaming=pool, filter_of=lambda _: topic.choice), folder)
        topic.filter, topic.tier = Asked(), tier
        topic.choice = chosen(FilterMode.GAP, topic.filter, "numbers")
        topic.ledger.set_streaming(SETTINGS)
        return topic

    def sparse_entries(self) -> list[tuple[EntryPosition, bytes]]:
        """What the tier has of it, by its record, which tells no more and no less."""
        found = []
        tiers = KnownTiers(self.tier)
        for ledger in self.info.in_order:
            context = ledger.context
            if context is None or not any(share.complete for share in context.segments):
                continue
            ends = [share.end_entry_id for share in context.segments if share.complete]
            begin, last = 0, max(end for end in ends if end is not None)
            reader = ColdReaders(tiers).open(ledger)
            while begin <= last:
                read = reader.read_sparse(begin, last, 500)
                for batch in read.runs():
                    found += [
                        (EntryPosition(ledger.ledger_id, i), bytes(each))
                        for i, each in enumerate(batch, batch.first_entry_id)
                    ]
                begin = read.stop_entry_id
            if ledger.is_fully_offloaded:
                check_cold_copies(tiers, NAME, ledger)
        return found

    def kept(self, count: int | None = None) -> list[tuple[EntryPosition, bytes]]:
        """What must be left of the first entries."""
        return [each for i, each in enumerate(self.added[:count]) if i not in self.filter.unwanted]

    def position(self, number: int) -> EntryPosition:
        return self.added[number][0]
