"""Every call of metadata and hot tier in the life of transactions fails, is unknown, or ends the process.

After each the topic is opened anew, as another process does, and what it says of its transactions is what its entries
say; each snapshot that was ever persisted is right for its position. Then what was left open is ended.
"""

import pytest
from crash_points import Points
from managed_ledgers import NAME
from scenes.transactions import START, Model, TransactionalStores

from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.managed_ledger import delete_managed_ledger


def lived(_=None):
    world = TransactionalStores()
    world.live(Points())
    return world


def live_and_end(world, points):
    """A process lives in it; the next one ends what it left."""
    if ManagedLedgerRecords(world.metadata).read(NAME) is not None:
        world.end(points)
    else:
        world.live(points)


def check_ended(world, where):
    """What was left open is ended."""
    world.end(Points())
    world.check(f"ended after {where}")
    assert tuple(world.open(Points()).status().open_transactions) == (), where


def delete(world, points):
    delete_managed_ledger(world.environment(points), NAME)


def check_deleted(world, where):
    assert SnapshotStore(world.metadata).read(NAME) is None, where
    assert ManagedLedgerRecords(world.metadata).read(NAME) is None, where


@pytest.mark.parametrize(
    ("scene", "run", "check", "check_done"),
    [
        (lambda _: TransactionalStores(), live_and_end, TransactionalStores.check, check_ended),
        (lived, TransactionalStores.end, TransactionalStores.check, check_ended),
        (lived, delete, lambda *_: None, check_deleted),
    ],
    ids=["live", "repair", "delete"],
)
def test_what_is_said_of_transactions_is_right_wherever_a_process_ends(
    crash_matrix, scene, run, check, check_done
):
    crash_matrix(scene, run, check=check, check_done=check_done, every=10)


def test_a_snapshot_is_right_whenever_it_was_written():
    """All that were ever persisted, in a topic of many transactions."""
    world, written = TransactionalStores(), []
    put = world.metadata.put

    def noticed(path, value, expected_version):
        version = put(path, value, expected_version)
        if path.startswith("/transaction-buffers/"):
            written.append(SnapshotStore(world.metadata).read(NAME))
        return version

    world.metadata.put = noticed
    for _ in range(6):
        world.live(Points())
        world.end(Points())
    model = Model.of(world.open(Points()).topic.read_entries(START, 10_000))
    assert len(written) > 20
    for snapshot in written:
        model.check_snapshot(snapshot, snapshot)
