"""A topic in the hot tier whose cold copies get damaged, and repairs that may offload them again."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from crash_points import Metadata, PointedAudit, PointedLedgers, Points
from managed_ledgers import NAME
from relocated import BLOCK_BYTES, World, watched
from repairs import Lines

from offload_core.catalogue.record_source import StoreRecords
from offload_core.codec.object_format import ObjectKey
from offload_core.managed_ledger import Environment, HotLedgers
from offload_core.metadata import LedgerRecord, ManagedLedgerRecords
from offload_core.offload import LedgerOffloader
from offload_core.repair import HotCopies, PlannedRepair, Repair
from offload_core.tier import Tier
from offload_core.verify import Finding, Verification


def ledger_of(world: World, ledger_id: int) -> LedgerRecord:
    """A ledger's record."""
    found = world.info.ledger(ledger_id)
    assert found is not None
    return found


def key_of(world: World, ledger_id: int) -> ObjectKey:
    """The copy that a ledger's record names."""
    context = ledger_of(world, ledger_id).context
    assert context is not None
    assert context.uuid is not None
    return ObjectKey(folder="", uuid=context.uuid, ledger_id=ledger_id, is_index=False)


def path_of(world: World, key: str) -> Path:
    """An object's file."""
    return world.folder / "source" / key


def damage(world: World, key: ObjectKey) -> None:
    """A byte of a message is another."""
    file = path_of(world, key.data_key)
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)


def remove(world: World, key: ObjectKey) -> None:
    """The copy is gone."""
    world.source.delete([key.index_key, key.data_key])


def offloader_of(tier: Tier, _: str) -> LedgerOffloader:
    """With small blocks."""
    return LedgerOffloader(tier, max_block_bytes=BLOCK_BYTES)


def hot_copies(world: World, points: Points | None = None, **given: object) -> HotCopies:
    """The hot tier; its calls may be points."""
    store = world.hot if points is None else PointedLedgers(world.hot, points)
    environment = Environment(records=world.records, hot=HotLedgers(store))  # type: ignore[arg-type]
    return HotCopies(environment=environment, **{"offloader_of": offloader_of, **given})  # type: ignore[arg-type]


def repair_of(world: World, points: Points | None = None, **given: object) -> Repair:
    """A repair that offloads again; calls of all stores may be points."""
    ours, tier = world.records, world.source
    if points is not None:
        ours = ManagedLedgerRecords(Metadata(world.records.store, points))  # type: ignore[arg-type]
        tier = watched(world, "source", points)

    def opened() -> AbstractContextManager[StoreRecords]:
        return nullcontext(StoreRecords(ours.store))

    fields = {
        "records": opened,
        "ours": ours,
        "hot": hot_copies(world, points),
        "offload_again": True,
        "now_ms": world.clock,
    }
    return Repair(tier, **fields | given)  # type: ignore[arg-type]


def repaired(
    world: World, points: Points | None = None, **given: object
) -> tuple[list[PlannedRepair], Lines]:
    """All is done that there is to do."""
    work, lines = repair_of(world, points, **given), Lines()
    audit = lines if points is None else PointedAudit(lines, points)  # type: ignore[arg-type]
    planned = list(work.plan())
    for each in planned:
        if each.changes:
            work.do(each, audit)  # type: ignore[arg-type]
    return planned, lines


def findings(world: World) -> list[Finding]:
    """What a verification says of the tier and the records."""

    def opened() -> AbstractContextManager[StoreRecords]:
        return nullcontext(StoreRecords(world.records.store))

    return list(Verification(world.source, deep=True, records=opened, now_ms=world.clock))


__all__ = [
    "NAME",
    "damage",
    "findings",
    "hot_copies",
    "key_of",
    "ledger_of",
    "path_of",
    "remove",
    "repair_of",
    "repaired",
]
