"""The ZooKeeper store writes: each write once, whatever is lost."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from kazoo.client import KazooClient
from network.proxies import ZooKeeperProxy
from records import closed, copied, managed_ledger
from servers.zookeeper import ZooKeeper
from tiers import uuid_of

from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.zookeeper import MARKERS, ZooKeeperStore
from offload_hooks.errors import OutcomeUnknownError, StoreError, VersionConflictError
from offload_hooks.testing.threads import together

NAME = "acme/cold/persistent/orders"
PATH = f"/managed-ledgers/{NAME}"
INFO = managed_ledger(closed(3, 2, copied(uuid_of(3))))


@pytest.fixture
def store(proxy, root):
    """A store behind the proxy."""
    with closing(ZooKeeperStore(f"{proxy.endpoint}{root}")) as store:
        yield store


def expire(client, store):
    """End the store's session at the server."""
    session = KazooClient(client_id=store._connection.client().client_id, hosts=",".join(_hosts(client)))
    session.start()
    session.stop()
    session.close()


def _hosts(client):
    return [f"{host}:{port}" for host, port in client.hosts]


# --- what is lost ------------------------------------------------------------------------------


def _nothing(store):
    store.put(
        f"{PATH}-other", b"x", None
    )  # else the first transaction would only find that parents are missing


def _a_value(store):
    return store.put(PATH, b"one", None)


def _a_value_with_others_below(store):
    store.put(f"{PATH}/below", b"x", None)
    return store.put(PATH, b"one", None)


def _put(store, version):
    return store.put(PATH, b"mine", version)


def _delete(store, version):
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
def test_a_write_is_made_once_though_requests_and_answers_are_lost(store, proxy, client, root, what, losses):
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
def test_a_conflict_is_told_though_an_answer_was_lost(store, proxy, zookeeper, root, losses):
    """Another writer comes in between, with the very same value."""
    version = store.put(PATH, b"one", None)
    assert store.put(f"{PATH}-other", b"x", None)  # a marker is there
    seen: list[int] = []

    def write_first():
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as other:
            found = other.get(PATH)
            seen.append(other.put(PATH, b"mine", found[1]))

    proxy.lose, proxy.on_loss = iter(losses), write_first
    if losses == ["request"]:
        with pytest.raises(VersionConflictError):
            store.put(PATH, b"mine", version)
    else:
        assert version < store.put(PATH, b"mine", version) < seen[0]
    assert store.get(PATH) == (b"mine", seen[0])


@pytest.mark.parametrize(("loss", "made"), [("request", False), ("answer", True)])
def test_a_server_that_never_answers_leaves_the_outcome_open(store, proxy, loss, made):
    version = store.put(PATH, b"one", None)
    proxy.lose = itertools.repeat(loss)
    with pytest.raises(OutcomeUnknownError, match=r"was lost while it was written to .*persistent/orders"):
        store.put(PATH, b"mine", version)
    found = store.get(PATH)
    assert found[0] == (b"mine" if made else b"one")
    proxy.lose = iter(())
    assert store.put(PATH, b"again", found[1]) > found[1]


def test_a_lost_session_with_a_lost_request_is_nothing_written(store, proxy, client):
    for path, version in ((PATH, None), (f"{PATH}-2", store.put(f"{PATH}-2", b"one", None))):
        proxy.lose, proxy.on_loss = iter(["request"]), lambda: expire(client, store)
        written = store.put(path, b"mine", version)
        assert store.get(path) == (b"mine", written)


def test_a_lost_session_with_a_lost_answer_leaves_the_outcome_open(store, proxy, client):
    store.put(f"{PATH}-other", b"x", None)
    proxy.lose, proxy.on_loss = iter(["answer"]), lambda: expire(client, store)
    with pytest.raises(OutcomeUnknownError):
        store.put(PATH, b"mine", None)
    assert store.get(PATH)[0] == b"mine"


def test_records_resolve_what_the_store_does_not_know(store, proxy, client):
    records = ManagedLedgerRecords(store)
    first = records.write(NAME, INFO, None)
    proxy.lose, proxy.on_loss = iter(["answer"]), lambda: expire(client, store)
    changed = records.update(NAME, lambda info: replace(info, properties=(("mine", ""),)))
    assert records.read(NAME) == changed
    assert changed.version > first.version
    proxy.lose = iter(["answer"])
    records.delete(NAME, changed)
    assert records.read(NAME) is None


def test_a_session_that_is_lost_between_writes_is_replaced(store, client, root):
    version = store.put(PATH, b"one", None)
    (marker,) = client.get_children(f"{root}/{MARKERS}")
    expire(client, store)
    version = store.put(PATH, b"two", version)
    assert store.get(PATH) == (b"two", version)
    assert client.get_children(f"{root}/{MARKERS}") != [marker]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("when", ["request", "answer"])
def test_a_server_that_is_killed_while_it_is_written_to(start_server, when):
    server = start_server(ZooKeeper())
    with (
        ZooKeeperProxy(server.port) as proxy,
        closing(ZooKeeperStore(f"{proxy.endpoint}/ours", timeout_s=60)) as store,
    ):
        version = store.put(PATH, b"one", None)
        empty = store.put(f"{PATH}-empty", b"", None)

        killed = threading.Event()

        def kill():
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


def test_no_increment_is_lost_or_made_twice_though_one_answer_in_four_is(zookeeper, root):
    """A number is no good value for a store that guesses by values: two writers write the same."""
    workers, rounds = 4, 12
    dice = random.Random(5)

    def losses():
        while True:
            yield dice.choice([None, None, None, None, None, None, "request", "answer", "answer"])

    with ZooKeeperProxy(zookeeper.port) as proxy:
        with closing(ZooKeeperStore(f"{proxy.endpoint}{root}")) as store:
            store.put(PATH, b"0", None)
        proxy.lose = losses()

        def count():
            made = 0
            with closing(ZooKeeperStore(f"{proxy.endpoint}{root}", attempts=12)) as own:
                while made < rounds:
                    value, version = own.get(PATH)
                    with suppress(VersionConflictError):
                        own.put(PATH, b"%d" % (int(value) + 1), version)
                        made += 1
            return made

        assert sum(together([count] * workers, 240)) == workers * rounds
        assert proxy.transactions > workers * rounds
        proxy.lose = iter(())
        with closing(ZooKeeperStore(f"{zookeeper.endpoint}{root}")) as store:
            assert int(store.get(PATH)[0]) == workers * rounds


def test_a_server_that_is_gone_is_an_error_of_reading_first(start_server):
    server = start_server(ZooKeeper())
    with closing(ZooKeeperStore(f"{server.endpoint}/ours", attempts=1, timeout_s=5)) as store:
        version = store.put(PATH, b"one", None)
        server.kill()
        with pytest.raises(StoreError) as caught:
            store.put(PATH, b"two", version)
        assert not isinstance(caught.value, OutcomeUnknownError)
        server.restart()
