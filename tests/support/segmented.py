"""Managed ledgers whose entries go to a tier by streaming segments, step by step as a test says, with their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

from offload_core.catalogue.known_tiers import tier_record
from offload_core.metadata import (
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    ManagedLedgerRecords,
    assign_segment,
    complete_segment,
    extend_segment,
    segments_of,
)
from offload_core.offload import OfferResult, OffloadHandle, SegmentOffloader
from offload_core.tier import MemoryBudget, Tier
from offload_hooks.ledger_stores import LedgerStore

DEFAULT_BLOCK_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedOffloads:
    """Offloads a managed ledger by segments: its record, its ledgers in the hot tier, and where they go."""

    name: str
    records: ManagedLedgerRecords
    hot: LedgerStore
    tier: Tier
    now_ms: Callable[[], int]
    max_block_bytes: int = DEFAULT_BLOCK_BYTES

    @property
    def info(self) -> ManagedLedgerInfo:
        """The record."""
        known = self.records.read(self.name)
        assert known is not None
        return known.info

    def begin(self) -> EntryPosition:
        """Where the next segment begins: behind the last one, or with the first ledger."""
        info = self.info
        segments = segments_of(info)
        if not segments:
            return EntryPosition(info.in_order[0].ledger_id, 0)
        end = segments[-1].end
        assert end is not None
        ledger = info.ledger(end.ledger_id)
        assert ledger is not None
        if ledger.info.is_closed and end.entry_id + 1 >= (ledger.info.entries or 0):
            following = next(each for each in info.in_order if each.ledger_id > end.ledger_id)
            return EntryPosition(following.ledger_id, 0)
        return EntryPosition(end.ledger_id, end.entry_id + 1)

    def offload(
        self,
        end: EntryPosition,
        *,
        begin: EntryPosition | None = None,
        uuid: UUID | None = None,
        history: bool = False,
        completes: bool = True,
    ) -> UUID:
        """A segment up to this entry.

        `history` records all its ledgers at once; without `completes` it stays assigned, with its objects.
        """
        begin, uuid = begin or self.begin(), uuid or uuid4()
        driver, now = tier_record(self.tier), self.now_ms()
        assign = partial(
            assign_segment,
            uuid=uuid,
            begin=begin,
            driver=driver,
            assigned_ms=now,
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
                    self.records.update(
                        self.name, partial(extend_segment, uuid=uuid, ledger_id=ledger.ledger_id)
                    )
                self._offer(handle, ledger, first, last)
            handle.close()
            offloaded = handle.result().result()
        assert offloaded.end == end
        if completes:
            self.records.update(
                self.name,
                partial(
                    complete_segment,
                    uuid=uuid,
                    end=offloaded.end,
                    end_entry_ids=offloaded.end_entry_ids,
                    offloaded_ms=self.now_ms(),
                ),
            )
        return uuid

    def _offer(self, handle: OffloadHandle, ledger: LedgerRecord, first: int, last: int) -> None:
        with closing(self.hot.open(ledger.ledger_id)) as reader:
            while first <= last:
                batch = reader.read(first, last)
                offered = handle.offer_entries(ledger.ledger_id, batch)
                assert offered == (len(batch), OfferResult.ACCEPTED)
                first = batch.stop_entry_id
        if ledger.info.is_closed and last + 1 == ledger.info.entries:
            assert handle.end_ledger(ledger.info) is OfferResult.ACCEPTED


def _parts(
    info: ManagedLedgerInfo, begin: EntryPosition, end: EntryPosition
) -> Iterator[tuple[LedgerRecord, int, int]]:
    """The ledgers from one entry to another, and the first and last entry of each in between."""
    for ledger in info.in_order:
        if begin.ledger_id <= ledger.ledger_id <= end.ledger_id:
            first = begin.entry_id if ledger.ledger_id == begin.ledger_id else 0
            is_last = ledger.ledger_id == end.ledger_id
            yield ledger, first, end.entry_id if is_last else (ledger.info.entries or 0) - 1


def segment_keys(uuids: Sequence[UUID]) -> list[str]:
    """The keys of the objects of these segments, in order."""
    return sorted(key for uuid in uuids for key in (str(uuid), f"{uuid}-index"))
