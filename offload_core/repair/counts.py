"""How many entries a ledger has by its cold copies, and their bytes: counted where every byte of them is right.

What a record says of it is judged against that; nothing is changed here. A copy tells it if it has every entry from 0
on, its index says that these are all, and nothing of it was lost or filtered. `CountLedgers` is picklable, as are its
tasks and results. Source: docs/repair.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from offload_core.catalogue import RecordedCopy, TopicName, recorded_copies
from offload_core.catalogue.listing import find_pair
from offload_core.metadata import LedgerRecord
from offload_core.metadata.ledger_counts import LedgerCounts, copies_read, counts_of
from offload_core.repair.judging import AS_WRITTEN
from offload_core.tier import Tier
from offload_core.verify.deep import DeepCheck, DeepTask
from offload_core.verify.objects import Examined, LedgerExtent, examine
from offload_hooks.errors import OffloadError, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask:
    """A ledger whose cold copies are to be counted, in the order of its entries."""

    topic: TopicName
    ledger_id: int
    copies: tuple[RecordedCopy, ...]

    @classmethod
    def of(cls, topic: TopicName, ledger: LedgerRecord, folder: str = "") -> CountTask:
        """The task for a ledger; without copies if it is not read from complete ones."""
        named = copies_read(ledger)
        found = {copy.key.uuid: copy for copy in recorded_copies(topic, ledger, folder)}
        return cls(
            topic=topic,
            ledger_id=ledger.ledger_id,
            copies=tuple(found[uuid] for uuid in named if uuid in found),
        )

    @property
    def uuids(self) -> tuple[UUID, ...]:
        """The attempts."""
        return tuple(copy.key.uuid for copy in self.copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What came of a task.

    Attributes:
        counts: None where the copies do not tell, and `why` not, in words.
        failure: why it could not be counted.
    """

    counts: LedgerCounts | None = None
    why: str = ""
    failure: OffloadError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCounts:
    """What a ledger's record says, and what it must say."""

    ledger_id: int
    before: LedgerCounts
    after: LedgerCounts


class _UntoldError(Exception):
    """The copies do not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLedgers:
    """Counts ledgers in a tier; it raises nothing that a store may raise."""

    tier: Tier

    def __call__(self, task: CountTask) -> Counted:
        """Count one ledger."""
        try:
            return Counted(counts=self._count(task))
        except _UntoldError as why:
            return Counted(why=str(why))
        except StoreError as error:
            return Counted(failure=error.at(ledger_id=task.ledger_id))

    def _count(self, task: CountTask) -> LedgerCounts:
        stop = size = 0
        last: LedgerExtent | None = None
        for examined in self._examined(task):
            last, (end, payload_bytes) = self._one(task.ledger_id, examined, stop)
            stop, size = end, size + payload_bytes
        if last is None:
            raise _UntoldError("it is not read from complete copies")
        if last.entries != stop:
            raise _UntoldError("its copy does not tell that it has all of its entries")
        if last.size is not None and last.size != size:
            raise _UntoldError("the index of its copy counts other bytes")
        return LedgerCounts(entries=stop, size_bytes=size)

    def _examined(self, task: CountTask) -> Iterator[Examined]:
        for copy in task.copies:
            pairs = (find_pair(self.tier, key) for key in (copy.key, copy.mapfile_key) if key is not None)
            pair = next((each for each in pairs if each is not None), None)
            examined = None if pair is None else examine(self.tier, pair)
            if examined is None:
                raise _UntoldError("its copy is not here")
            yield examined

    def _one(self, ledger_id: int, examined: Examined, begin: int) -> tuple[LedgerExtent, tuple[int, int]]:
        """One copy: what its index says, one past the last entry, and the bytes of its entries."""
        if examined.lost is not None:
            raise _UntoldError("its copy lacks entries that were lost")
        if examined.is_filtered or examined.has_gaps:
            raise _UntoldError("its copy went through a filter, and does not tell what the ledger had")
        extent = next((each for each in examined.extents if each.ledger_id == ledger_id), None)
        if not examined.is_sound or extent is None:
            raise _UntoldError("its copy is damaged: that is repaired first")
        result = DeepCheck(tier=self.tier)(DeepTask.of(0, examined))
        if result.failure is not None:
            raise result.failure
        found = next((each for each in result.counts if each.ledger_id == ledger_id), None)
        if result.is_gone or found is None or any(each.code not in AS_WRITTEN for each in result.findings):
            raise _UntoldError("its copy is damaged: that is repaired first")
        stop = found.stop_entry_id
        if extent.first_entry_id != begin or stop is None or found.entries != stop - begin:
            raise _UntoldError("its copies do not have every entry once")
        return extent, (stop, found.payload_bytes)


def wrong_counts(ledger: LedgerRecord, counted: LedgerCounts) -> CorrectedCounts | None:
    """What a record must say in place of what it says; None if it says that."""
    before = counts_of(ledger)
    if before == counted:
        return None
    return CorrectedCounts(ledger_id=ledger.ledger_id, before=before, after=counted)
