"""Every call of metadata and hot tier in the life of transactions fails, is unknown, or ends the process.

After each the topic is opened anew, as another process does, and what it says of its transactions is what its entries
say; each snapshot that was ever persisted is right for its position. Then what was left open is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from crash_points import FAULTS, Killed, Points
from effort import Sample
from managed_ledgers import NAME
from scenes.transactions import START, Model, TransactionalStores

from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_hooks.errors import OffloadError


def calls_of(
    act: Callable[[TransactionalStores, Points], None], before: Callable[[TransactionalStores], None]
) -> Sequence[int]:
    world, points = TransactionalStores(), Points()
    before(world)
    act(world, points)
    return range(1, len(points.calls) + 1)


def failing(
    act: Callable[[TransactionalStores, Points], None],
    before: Callable[[TransactionalStores], None],
    fault: str,
    sample: Sample[int],
) -> None:
    for at in sample(calls_of(act, before), 5):
        world, points = TransactionalStores(), Points(at, fault)  # type: ignore[arg-type]
        before(world)
        where = ""
        try:
            act(world, points)
        except (OffloadError, Killed) as error:
            where = f"{fault} {at}, {points.calls[-1]}: {error!r}"
        world.check(where)
        world.end(Points())
        world.check(f"ended after {where}")
        topic = world.open(Points())
        assert tuple(topic.status().open_transactions) == (), where


def nothing(_: TransactionalStores) -> None:
    pass


def lived(world: TransactionalStores) -> None:
    world.live(Points())


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_said_of_transactions_is_right_wherever_the_process_ends(
    fault: str, sample: Sample[int]
) -> None:
    failing(TransactionalStores.live, nothing, fault, sample)


@pytest.mark.parametrize("fault", FAULTS)
def test_so_it_is_where_the_process_that_repairs_it_ends(fault: str, sample: Sample[int]) -> None:
    failing(TransactionalStores.end, lived, fault, sample)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_snapshot_stays_behind_a_topic_that_is_deleted(fault: str, sample: Sample[int]) -> None:
    def delete(world: TransactionalStores, points: Points) -> None:
        delete_managed_ledger(world.environment(points), NAME)

    for at in sample(calls_of(delete, lived), 5):
        world, points = TransactionalStores(), Points(at, fault)  # type: ignore[arg-type]
        lived(world)
        try:
            delete(world, points)
        except (OffloadError, Killed):
            delete(world, Points())
        assert SnapshotStore(world.metadata).read(NAME) is None
        assert ManagedLedgerRecords(world.metadata).read(NAME) is None


def test_a_snapshot_is_right_whenever_it_was_written() -> None:
    """All that were ever persisted, in a topic of many transactions."""
    world, written = TransactionalStores(), []
    put = world.metadata.put

    def noticed(path: str, value: bytes, expected_version: int | None) -> int:
        version = put(path, value, expected_version)
        if path.startswith("/transaction-buffers/"):
            written.append(SnapshotStore(world.metadata).read(NAME))
        return version

    world.metadata.put = noticed  # type: ignore[method-assign]
    for _ in range(6):
        world.live(Points())
        world.end(Points())
    model = Model.of(world.open(Points()).topic.read_entries(START, 10_000))
    assert len(written) > 20
    for snapshot in written:
        model.check_snapshot(snapshot, snapshot)
