"""Where the ZooKeeper store writes: below a root of its own, and what it makes there."""

from __future__ import annotations

from contextlib import closing

import pytest
from records import closed, copied, managed_ledger
from tiers import uuid_of

from offload_core.metadata.records import pack_managed_ledger_info
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.zookeeper import MARK, MARKERS, MAX_VALUE_BYTES, ZooKeeperStore
from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    InvalidKeyError,
    OptionError,
    UnsupportedVersionError,
    VersionConflictError,
)

NAME = "acme/cold/persistent/orders"
PATH = f"/managed-ledgers/{NAME}"
INFO = managed_ledger(closed(3, 2, copied(uuid_of(3))))


@pytest.fixture
def store(zookeeper, root):
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        yield store


def tree(client, path):
    """All nodes from a path on, with values and stats."""
    value, stat = client.get(path)
    found: dict[str, object] = {path: (value, stat)}
    for name in client.get_children(path):
        found |= tree(client, f"{path.rstrip('/')}/{name}")
    return found


# --- where nothing is written ------------------------------------------------------------------


def pulsars_tree(client, root):
    for name in (
        "managed-ledgers/acme/cold/persistent/a",
        "ledgers/available",
        "admin/clusters",
        "loadbalance",
    ):
        client.create(f"{root}/{name}", b"", makepath=True)


def data_of_another(client, root):
    client.create(root, b"something", makepath=True)


def newer_mark(client, root):
    client.create(root, MARK[:-1] + b"2", makepath=True)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (pulsars_tree, BadMagicError, r"where a live Pulsar's tree is .* found admin, ledgers, loadbalance"),
        (data_of_another, BadMagicError, "where something else is"),
        (newer_mark, UnsupportedVersionError, r"expected pulsar-offload metadata 1.*Upgrade"),
    ],
)
def test_what_is_not_ours_is_not_written_to(zookeeper, client, root, make, kind, message):
    make(client, root)
    before = tree(client, root)
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        for call in (lambda: store.put(PATH, b"x", None), lambda: store.delete(PATH, 1)):
            with pytest.raises(kind, match=message):
                call()
    assert tree(client, root) == before


@pytest.mark.parametrize("chroot", ["", "/managed-ledgers", "/x/ledgers", "/pulsar/admin/mine"])
def test_a_root_is_none_of_pulsars_nodes(zookeeper, client, chroot):
    before = set(client.get_children("/"))
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{chroot}")) as store:
        with pytest.raises(OptionError, match="below a root of its own"):
            store.put(PATH, b"x", None)
        assert store.get(PATH) is None
    assert set(client.get_children("/")) == before


def test_an_empty_root_is_made_ours_and_stays_it(zookeeper, client, root):
    client.create(root, b"", makepath=True)
    for turn in range(2):
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
            store.put(f"{PATH}-{turn}", b"x", None)
    assert client.get(root)[0] == MARK


def test_reading_makes_and_changes_nothing(zookeeper, client, root):
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        assert store.get(PATH) is None
        assert store.children("/managed-ledgers") == []
        assert client.exists(root) is None
        pulsars_tree(client, root)
        before = tree(client, root)
        assert store.get("/managed-ledgers/acme/cold/persistent/a")[0] == b""
        assert store.children("/managed-ledgers") == ["acme"]
    assert tree(client, root) == before


# --- nodes -------------------------------------------------------------------------------------


def test_nodes_are_as_pulsar_has_them(zookeeper, client, root):
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        records = ManagedLedgerRecords(store)
        written = records.write(NAME, INFO, None)
        value, stat = client.get(f"{root}{PATH}")
        assert (value, stat.mzxid) == (pack_managed_ledger_info(INFO), written.version)
        assert client.get(f"{root}/managed-ledgers/acme")[0] is None
        records.delete(NAME, written)
    assert client.get_children(root) == [MARKERS]
    assert client.get_children(f"{root}/{MARKERS}") == []  # they are ephemeral


def test_a_root_that_is_deleted_meanwhile_is_made_again(store, client, root):
    version = store.put(PATH, b"one", None)
    client.delete(root, recursive=True)
    with pytest.raises(VersionConflictError, match="found none"):
        store.put(PATH, b"two", version)
    assert store.get(PATH) is None
    again = store.put(PATH, b"three", None)
    assert store.get(PATH) == (b"three", again)
    assert again > version


def test_with_a_login_nobody_else_writes_and_all_read(zookeeper, client, root, tmp_path):
    (tmp_path / "digest").write_text("writer:geheim")
    url = f"{zookeeper.endpoint}{root}"
    with (
        closing(ZooKeeperStore(url, digest_file=str(tmp_path / "digest"))) as mine,
        closing(ZooKeeperStore(url)) as other,
    ):
        version = mine.put(PATH, b"mine", None)
        assert other.get(PATH) == (b"mine", version)
        for write in (lambda: other.put(PATH, b"x", version), lambda: other.delete(PATH, version)):
            with pytest.raises(AccessDeniedError):
                write()
        assert mine.put(PATH, b"again", version) > version


def test_a_record_that_zookeeper_cannot_have_is_refused(store):
    with pytest.raises(OptionError, match=r"too large for ZooKeeper .*orders.*compressed"):
        store.put(PATH, bytes(MAX_VALUE_BYTES + 1), None)
    version = store.put(PATH, bytes(MAX_VALUE_BYTES), None)
    assert store.get(PATH) == (bytes(MAX_VALUE_BYTES), version)


@pytest.mark.parametrize("path", [f"/{MARKERS}", f"/{MARKERS}/x"])
def test_the_stores_own_nodes_are_no_paths(store, path):
    with pytest.raises(InvalidKeyError):
        store.put(path, b"x", None)
