"""The ZooKeeper store writes: each write once, whatever is lost; nothing where a live Pulsar's tree is."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from records import closed, copied, managed_ledger
from servers.server import StartServer
from servers.zookeeper import ZooKeeper
from tiers import uuid_of
from zookeeper_proxy import Loss, ZooKeeperProxy

from offload_core.metadata import ManagedLedgerRecords, pack_managed_ledger_info
from offload_core.metadata.zookeeper import ZooKeeperStore
from offload_core.metadata.zookeeper_root import MARK
from offload_core.metadata.zookeeper_writes import MARKERS, MAX_VALUE_BYTES
from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    InvalidKeyError,
    OffloadError,
    OptionError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedVersionError,
    VersionConflictError,
)
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing.forks import in_forked_children
from offload_hooks.testing.threads import together

NAME = "acme/cold/persistent/orders"
PATH = f"/managed-ledgers/{NAME}"
INFO = managed_ledger(closed(3, 2, copied(uuid_of(3))))

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client that may do anything, without a proxy."""
    client = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root() -> str:
    """A root of the test's own, which is not there yet."""
    return f"/writes/{next(_numbers)}"


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: ZooKeeperProxy, root: str) -> Iterator[ZooKeeperStore]:
    """A store behind the proxy."""
    with closing(ZooKeeperStore(f"{proxy.endpoint}{root}")) as store:
        yield store


def tree(client: KazooClient, path: str) -> dict[str, object]:
    """All nodes from a path on, with values and stats."""
    value, stat = client.get(path)
    found: dict[str, object] = {path: (value, stat)}
    for name in client.get_children(path):
        found |= tree(client, f"{path.rstrip('/')}/{name}")
    return found


def expire(client: KazooClient, store: ZooKeeperStore) -> None:
    """End the store's session at the server."""
    session = KazooClient(client_id=store._connection.client().client_id, hosts=",".join(_hosts(client)))
    session.start()
    session.stop()
    session.close()


def _hosts(client: KazooClient) -> list[str]:
    return [f"{host}:{port}" for host, port in client.hosts]


# --- what is lost ------------------------------------------------------------------------------

Prepare = Callable[[WritableMetadataStore], int | None]
Write = Callable[[WritableMetadataStore, "int | None"], "int | None"]


def _nothing(store: WritableMetadataStore) -> None:
    store.put(
        f"{PATH}-other", b"x", None
    )  # else the first transaction would only find that parents are missing


def _a_value(store: WritableMetadataStore) -> int:
    return store.put(PATH, b"one", None)


def _a_value_with_others_below(store: WritableMetadataStore) -> int:
    store.put(f"{PATH}/below", b"x", None)
    return store.put(PATH, b"one", None)


def _put(store: WritableMetadataStore, version: int | None) -> int:
    return store.put(PATH, b"mine", version)


def _delete(store: WritableMetadataStore, version: int | None) -> None:
    assert version is not None
    store.delete(PATH, version)


WRITES = {
    "create": (_nothing, _put),
    "replace": (_a_value, _put),
    "delete": (_a_value, _delete),
    "delete over others": (_a_value_with_others_below, _delete),
}


@pytest.mark.parametrize(
    "losses", [["request"], ["answer"], ["answer", "request"], ["request", "answer", "answer"]]
)
@pytest.mark.parametrize("what", WRITES)
def test_a_write_is_made_once_though_requests_and_answers_are_lost(
    store: ZooKeeperStore,
    proxy: ZooKeeperProxy,
    client: KazooClient,
    root: str,
    what: str,
    losses: list[Loss],
) -> None:
    prepare, write = WRITES[what]
    version = prepare(store)
    before = client.exists(f"{root}{PATH}")
    proxy.lose = iter(losses)
    written = write(store, version)
    assert next(proxy.lose, None) is None
    if written is not None:
        assert store.get(PATH) == (b"mine", written)
        assert client.exists(f"{root}{PATH}").version == (0 if before is None else before.version + 1)
    else:
        assert store.get(PATH) is None


@pytest.mark.parametrize("losses", [["request"], ["answer"]])
def test_a_conflict_is_told_though_an_answer_was_lost(
    store: ZooKeeperStore, proxy: ZooKeeperProxy, zookeeper: ZooKeeper, root: str, losses: list[Loss]
) -> None:
    """Another writer comes in between, with the very same value."""
    version = store.put(PATH, b"one", None)
    assert store.put(f"{PATH}-other", b"x", None)  # a marker is there
    seen: list[int] = []

    def write_first() -> None:
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as other:
            found = other.get(PATH)
            assert found is not None
            seen.append(other.put(PATH, b"mine", found[1]))

    proxy.lose, proxy.on_loss = iter(losses), write_first
    if losses == ["request"]:
        with pytest.raises(VersionConflictError):
            store.put(PATH, b"mine", version)
    else:
        assert version < store.put(PATH, b"mine", version) < seen[0]
    assert store.get(PATH) == (b"mine", seen[0])


@pytest.mark.parametrize(("loss", "made"), [("request", False), ("answer", True)])
def test_a_server_that_never_answers_leaves_the_outcome_open(
    store: ZooKeeperStore, proxy: ZooKeeperProxy, loss: Loss, made: bool
) -> None:
    version = store.put(PATH, b"one", None)
    proxy.lose = itertools.repeat(loss)
    with pytest.raises(OutcomeUnknownError, match=r"was lost while it was written to .*persistent/orders"):
        store.put(PATH, b"mine", version)
    found = store.get(PATH)
    assert found is not None
    assert found[0] == (b"mine" if made else b"one")
    proxy.lose = iter(())
    assert store.put(PATH, b"again", found[1]) > found[1]


def test_a_lost_session_with_a_lost_request_is_nothing_written(
    store: ZooKeeperStore, proxy: ZooKeeperProxy, client: KazooClient
) -> None:
    for version in (None, store.put(f"{PATH}-2", b"one", None)):
        path = PATH if version is None else f"{PATH}-2"
        proxy.lose, proxy.on_loss = iter(["request"]), lambda: expire(client, store)
        written = store.put(path, b"mine", version)
        assert store.get(path) == (b"mine", written)


def test_a_lost_session_with_a_lost_answer_leaves_the_outcome_open(
    store: ZooKeeperStore, proxy: ZooKeeperProxy, client: KazooClient
) -> None:
    store.put(f"{PATH}-other", b"x", None)
    proxy.lose, proxy.on_loss = iter(["answer"]), lambda: expire(client, store)
    with pytest.raises(OutcomeUnknownError):
        store.put(PATH, b"mine", None)
    found = store.get(PATH)
    assert found is not None
    assert found[0] == b"mine"


def test_records_resolve_what_the_store_does_not_know(
    store: ZooKeeperStore, proxy: ZooKeeperProxy, client: KazooClient
) -> None:
    records = ManagedLedgerRecords(store)
    first = records.write(NAME, INFO, None)
    proxy.lose, proxy.on_loss = iter(["answer"]), lambda: expire(client, store)
    changed = records.update(NAME, lambda info: replace(info, properties=(("mine", ""),)))
    assert records.read(NAME) == changed
    assert changed.version > first.version
    proxy.lose = iter(["answer"])
    records.delete(NAME, changed)
    assert records.read(NAME) is None


def test_a_session_that_is_lost_between_writes_is_replaced(
    store: ZooKeeperStore, client: KazooClient, root: str
) -> None:
    version = store.put(PATH, b"one", None)
    (marker,) = client.get_children(f"{root}/{MARKERS}")
    expire(client, store)
    version = store.put(PATH, b"two", version)
    assert store.get(PATH) == (b"two", version)
    assert client.get_children(f"{root}/{MARKERS}") != [marker]


@pytest.mark.parametrize("when", ["request", "answer"])
def test_a_server_that_is_killed_while_it_is_written_to(start_server: StartServer, when: Loss) -> None:
    server = start_server(ZooKeeper())
    with (
        ZooKeeperProxy(server.port) as proxy,
        closing(ZooKeeperStore(f"{proxy.endpoint}/ours", timeout_s=60)) as store,
    ):
        version = store.put(PATH, b"one", None)
        empty = store.put(f"{PATH}-empty", b"", None)

        killed = threading.Event()

        def kill() -> None:
            server.kill()
            killed.set()

        proxy.lose, proxy.on_loss = iter([when]), kill
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(store.put, PATH, b"mine", version)
            assert killed.wait(60)
            server.restart()  # a server ends with the thread that started it
            written = writing.result()
        assert store.get(PATH) == (b"mine", written)
        assert store.get(f"{PATH}-empty") == (b"", empty)
        assert store.get("/managed-ledgers") is None


def test_no_increment_is_lost_or_made_twice_though_one_answer_in_four_is(
    zookeeper: ZooKeeper, root: str
) -> None:
    """A number is no good value for a store that guesses by values: two writers write the same."""
    workers, rounds = 4, 12
    dice = random.Random(5)

    def losses() -> Iterator[Loss | None]:
        while True:
            yield dice.choice([None, None, None, None, None, None, "request", "answer", "answer"])

    with ZooKeeperProxy(zookeeper.port) as proxy:
        with closing(ZooKeeperStore(f"{proxy.endpoint}{root}")) as store:
            store.put(PATH, b"0", None)
        proxy.lose = losses()

        def count() -> int:
            made = 0
            with closing(ZooKeeperStore(f"{proxy.endpoint}{root}", attempts=12)) as own:
                while made < rounds:
                    found = own.get(PATH)
                    assert found is not None
                    with suppress(VersionConflictError):
                        own.put(PATH, b"%d" % (int(found[0]) + 1), found[1])
                        made += 1
            return made

        assert sum(together([count] * workers, 240)) == workers * rounds
        assert proxy.transactions > workers * rounds
        proxy.lose = iter(())
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
            found = store.get(PATH)
            assert found is not None
            assert int(found[0]) == workers * rounds


# --- where nothing is written ------------------------------------------------------------------


def pulsars_tree(client: KazooClient, root: str) -> None:
    for name in (
        "managed-ledgers/acme/cold/persistent/a",
        "ledgers/available",
        "admin/clusters",
        "loadbalance",
    ):
        client.create(f"{root}/{name}", b"", makepath=True)


def data_of_another(client: KazooClient, root: str) -> None:
    client.create(root, b"something", makepath=True)


def newer_mark(client: KazooClient, root: str) -> None:
    client.create(root, MARK[:-1] + b"2", makepath=True)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (pulsars_tree, BadMagicError, r"where a live Pulsar's tree is .* found admin, ledgers, loadbalance"),
        (data_of_another, BadMagicError, "where something else is"),
        (newer_mark, UnsupportedVersionError, r"expected pulsar-offload metadata 1.*Upgrade"),
    ],
)
def test_what_is_not_ours_is_not_written_to(
    zookeeper: ZooKeeper,
    client: KazooClient,
    root: str,
    make: Callable[[KazooClient, str], None],
    kind: type[OffloadError],
    message: str,
) -> None:
    make(client, root)
    before = tree(client, root)
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        for call in (lambda: store.put(PATH, b"x", None), lambda: store.delete(PATH, 1)):
            with pytest.raises(kind, match=message):
                call()
    assert tree(client, root) == before


@pytest.mark.parametrize("chroot", ["", "/managed-ledgers", "/x/ledgers", "/pulsar/admin/mine"])
def test_a_root_is_none_of_pulsars_nodes(zookeeper: ZooKeeper, client: KazooClient, chroot: str) -> None:
    before = set(client.get_children("/"))
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{chroot}")) as store:
        with pytest.raises(OptionError, match="below a root of its own"):
            store.put(PATH, b"x", None)
        assert store.get(PATH) is None
    assert set(client.get_children("/")) == before


def test_an_empty_root_is_made_ours_and_stays_it(
    zookeeper: ZooKeeper, client: KazooClient, root: str
) -> None:
    client.create(root, b"", makepath=True)
    for turn in range(2):
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
            store.put(f"{PATH}-{turn}", b"x", None)
    assert client.get(root)[0] == MARK


def test_reading_makes_nothing(zookeeper: ZooKeeper, client: KazooClient, root: str) -> None:
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        assert store.get(PATH) is None
        assert store.children("/managed-ledgers") == []
    assert client.exists(root) is None


def test_many_processes_make_one_root(zookeeper: ZooKeeper, root: str) -> None:
    def make(i: int) -> Callable[[], object]:
        def work() -> None:
            with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
                store.put(f"{PATH}-{i}", b"x", None)

        return work

    in_forked_children([make(i) for i in range(6)], 60)
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        assert len(store.children(PATH.rpartition("/")[0])) == 6


# --- nodes -------------------------------------------------------------------------------------


def test_nodes_are_as_pulsar_has_them(zookeeper: ZooKeeper, client: KazooClient, root: str) -> None:
    with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
        records = ManagedLedgerRecords(store)
        written = records.write(NAME, INFO, None)
        value, stat = client.get(f"{root}{PATH}")
        assert (value, stat.mzxid) == (pack_managed_ledger_info(INFO), written.version)
        assert client.get(f"{root}/managed-ledgers/acme")[0] is None
        records.delete(NAME, written)
    assert client.get_children(root) == [MARKERS]
    assert client.get_children(f"{root}/{MARKERS}") == []  # they are ephemeral


def test_a_root_that_is_deleted_meanwhile_is_made_again(
    store: ZooKeeperStore, client: KazooClient, root: str
) -> None:
    version = store.put(PATH, b"one", None)
    client.delete(root, recursive=True)
    with pytest.raises(VersionConflictError, match="found none"):
        store.put(PATH, b"two", version)
    assert store.get(PATH) is None
    again = store.put(PATH, b"three", None)
    assert store.get(PATH) == (b"three", again)
    assert again > version


def test_with_a_login_nobody_else_writes_and_all_read(
    zookeeper: ZooKeeper, client: KazooClient, root: str, tmp_path: Path
) -> None:
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


def test_a_record_that_zookeeper_cannot_have_is_refused(store: ZooKeeperStore) -> None:
    with pytest.raises(OptionError, match=r"too large for ZooKeeper .*orders.*compressed"):
        store.put(PATH, bytes(MAX_VALUE_BYTES + 1), None)
    version = store.put(PATH, bytes(MAX_VALUE_BYTES), None)
    assert store.get(PATH) == (bytes(MAX_VALUE_BYTES), version)


@pytest.mark.parametrize("path", [f"/{MARKERS}", f"/{MARKERS}/x"])
def test_the_stores_own_nodes_are_no_paths(store: ZooKeeperStore, path: str) -> None:
    with pytest.raises(InvalidKeyError):
        store.put(path, b"x", None)


def test_a_server_that_is_gone_is_an_error_of_reading_first(start_server: StartServer) -> None:
    server = start_server(ZooKeeper())
    with closing(ZooKeeperStore(f"{server.endpoint}/ours", attempts=1, timeout_s=1)) as store:
        version = store.put(PATH, b"one", None)
        server.kill()
        with pytest.raises(StoreError) as caught:
            store.put(PATH, b"two", version)
        assert not isinstance(caught.value, OutcomeUnknownError)
        server.restart()
