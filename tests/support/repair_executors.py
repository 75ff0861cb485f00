"""A folder with damage of several kinds, and what a repair of it plans, whoever verifies and judges."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from damage.scenes import LEDGER, PAYLOADS, closed_ledger, first_segment, one_ledger
from entries import pip17_object
from records import copied, managed_ledger
from tiers import MANAGED_LEDGER, lay_out, uuid_of

from offload_core.catalogue.record_source import StoreRecords
from offload_core.executors import Executor
from offload_core.metadata import LedgerRecord, ManagedLedgerRecords
from offload_core.repair import PlannedRepair, Repair
from offload_core.tier import open_store
from offload_hooks.testing import MemoryMetadataStore


def lay_out_damage(root: Path) -> None:
    """A damaged message, one with another copy that is right, lost indexes, and a record that lies."""
    written = one_ledger()
    spoiled = replace(written, data=written.data[:300] + bytes(20) + written.data[320:])
    lay_out(root, spoiled, attempt=1)
    for number, ledger_id in ((2, 100), (3, 101)):
        lay_out(root, pip17_object(PAYLOADS, ledger_id=ledger_id), attempt=number, parts=("data",))
    other = pip17_object(PAYLOADS, ledger_id=102)
    lay_out(root, replace(other, data=other.data[:300] + bytes(20) + other.data[320:]), attempt=4)
    lay_out(root, other, attempt=5)
    lay_out(root, first_segment(), attempt=6)
    lay_out(root, pip17_object(PAYLOADS, ledger_id=103), attempt=7)


def records() -> MemoryMetadataStore:
    """The records of all but one copy; the last counts otherwise."""

    def record(ledger_id: int, number: int) -> LedgerRecord:
        return closed_ledger(ledger_id, PAYLOADS, copied(uuid_of(number), bookkeeper_deleted=True))

    lying = record(103, 7)
    ledgers = [record(LEDGER, 1), record(100, 2), record(101, 3), record(102, 4)]
    info = managed_ledger(*ledgers, replace(lying, info=replace(lying.info, entries=99)))
    store = MemoryMetadataStore()
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, info, None)
    return store


def planned(root: Path, executor: Executor) -> list[PlannedRepair]:
    """What a repair plans."""
    store = records()

    def opened() -> AbstractContextManager[StoreRecords]:
        return nullcontext(StoreRecords(store))

    with open_store(root) as tier:
        work = Repair(
            tier,
            records=opened,
            ours=ManagedLedgerRecords(store),
            executor=executor,
            now_ms=lambda: 4_000_000_000_000,
        )
        return sorted(work.plan(), key=lambda each: (each.key or "", each.choice.action.value))
