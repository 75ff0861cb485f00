"""`offload recover` into a real ZooKeeper: at Pulsar's paths below a root of ours, never into a live Pulsar's tree."""

from contextlib import closing

import pytest
from kazoo.client import KazooClient
from scenes.rollbacks import put_segment, put_whole
from tiers import MANAGED_LEDGER

from offload_core.metadata.records.stored_record import parse_stored_record
from offload_core.storage.tier import open_store


@pytest.fixture(scope="module")
def client(zookeeper):
    with closing(KazooClient(f"{zookeeper.host}:{zookeeper.port}")) as client:
        client.start()
        yield client
        client.stop()


@pytest.fixture
def tier(tmp_path):
    """Ledgers 5 and 6 in a segment, 8 in an object of its own."""
    with open_store(tmp_path / "tier") as store:
        put_segment(store, 1, (5, 0, 3), (6, 0, 4))
        put_whole(store, 2, 8, 2)
    return tmp_path / "tier"


def nodes(client, path):
    """All nodes below a path."""
    below = {f"{path.rstrip('/')}/{name}" for name in client.get_children(path)}
    return below.union(*(nodes(client, each) for each in below))


def test_records_are_written_once_where_pulsar_has_them(offload, zookeeper, client, tier, tmp_path):
    root, log = "/recovered", tmp_path / "audit.jsonl"
    into = ("recover", tier, "--into", f"{zookeeper.endpoint}{root}")
    assert offload(*into).code == 1
    assert client.exists(root) is None
    result = offload(*into, "--yes", "--audit-log", log)
    assert (result.code, result.err) == (0, "")
    value, stat = client.get(f"{root}/managed-ledgers/{MANAGED_LEDGER}")
    assert [each.ledger_id for each in parse_stored_record(value).info.ledgers] == [5, 6, 8]
    again = offload(*into, "--yes", "--audit-log", log)
    assert again.out.splitlines()[0].endswith("there already")
    assert client.get(f"{root}/managed-ledgers/{MANAGED_LEDGER}")[1].mzxid == stat.mzxid
    verified = offload("verify", tier, "--records", f"{zookeeper.endpoint}{root}", "--deep")
    assert verified.code == 0, verified.out


@pytest.mark.parametrize("is_written", [False, True])
def test_a_live_pulsars_tree_is_refused_also_by_a_dry_run(
    offload, zookeeper, client, tier, tmp_path, is_written
):
    root = f"/pulsar-{is_written}"
    for name in ("managed-ledgers/acme/cold/persistent/a", "ledgers/available", "admin/clusters"):
        client.create(f"{root}/{name}", b"", makepath=True)
    before = nodes(client, root)
    told = ("--yes", "--audit-log", tmp_path / "audit.jsonl") if is_written else ()
    result = offload("recover", tier, "--into", f"{zookeeper.endpoint}{root}", *told)
    assert result.code == 2
    assert "a live Pulsar's tree is" in result.err
    assert nodes(client, root) == before
