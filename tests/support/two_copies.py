"""A ledger with a hot copy in a folder and a cold one in any tier, and readers over both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from records import closed

from offload_core.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.ledgers import FileLedgerStore
from offload_core.metadata import LedgerRecord, OffloadContext
from offload_core.offload import LedgerOffloader
from offload_core.read_handles import ColdReaders, Fallback, ReadMemory, TieredReaders
from offload_core.tier import Tier

PAYLOADS = [b"%04d" % i * 100 for i in range(300)]
WINDOW = 10_000


@dataclass(slots=True, kw_only=True)
class TwoCopies:
    """A sealed ledger of `PAYLOADS` in the folder `hot`, offloaded to `tier`."""

    hot: FileLedgerStore
    tier: Tier
    ledger_id: int
    uuid: UUID
    told: list[Fallback] = field(default_factory=list)

    @classmethod
    def make(cls, hot: FileLedgerStore, tier: Tier, payloads: Sequence[bytes] = PAYLOADS) -> TwoCopies:
        writer = hot.create({})
        writer.append_batch(payloads)
        writer.close()
        uuid = uuid4()
        block_bytes = max(1 << 16, tier.describe().capabilities.min_block_bytes)
        LedgerOffloader(tier, max_block_bytes=block_bytes).offload(hot.open(writer.ledger_id), uuid, {})
        return cls(hot=hot, tier=tier, ledger_id=writer.ledger_id, uuid=uuid)

    @property
    def hot_file(self) -> Path:
        return Path(self.hot.describe().location, f"{self.ledger_id}.ledger")

    @property
    def data_key(self) -> str:
        return f"{self.uuid}-ledger-{self.ledger_id}"

    def record(self, tier: Tier | None = None, *, bookkeeper_deleted: bool = False) -> LedgerRecord:
        """Its record, as if it had been offloaded to that tier."""
        where = tier_record(self.tier if tier is None else tier)
        context = OffloadContext(
            uuid=self.uuid, complete=True, bookkeeper_deleted=bookkeeper_deleted, driver=where
        )
        return closed(self.ledger_id, len(PAYLOADS), context)

    def readers(self, tier: Tier | None = None) -> TieredReaders:
        """Readers over the hot folder and this tier, by windows that are smaller than the ledger."""
        tiers = KnownTiers(self.tier if tier is None else tier)
        cold = ColdReaders(tiers, memory=ReadMemory(), read_buffer_bytes=WINDOW)
        return TieredReaders(self.hot, cold, listener=self.told.append)

    def seen(self) -> list[tuple[str, str, int | None]]:
        """The fallbacks since the last question: which copy failed, why, and at which entry."""
        seen = [(each.copy.value, each.reason.value, each.entry_id) for each in self.told]
        self.told.clear()
        return seen
