"""A BookKeeper of three bookies, whose ledgers its own Java client writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from network.bookie_proxy import BookieProxy
from oracle import Oracle, OracleError
from servers.bookies import Bookie, make_cluster
from servers.zookeeper import ZooKeeper
from waiting import wait_for

from offload_core.storage.hot.bookkeeper import BookKeeperLedgerStore
from offload_proto.bookie_pb2 import BookieServiceInfoFormat

_numbers = itertools.count()
_Made = TypeVar("_Made")


def _unless_bookies_are_missing(make: Callable[[], _Made]) -> _Made | None:
    """None where too few bookies answer BookKeeper's client, which then closes the ledger that it writes."""
    try:
        return make()
    except OracleError as error:
        if not any(name in str(error) for name in ("BKNotEnoughBookies", "BKLedgerClosed")):
            raise
        return None


class BookKeeperCluster:
    """Bookies that are registered in a ZooKeeper of others as well.

    Attributes:
        root: the path of all ledgers in ZooKeeper.
        bookies: three of them, which a test may stop and must start again.
    """

    def __init__(self, zookeeper: ZooKeeper, oracle: Oracle, **bookie: Any) -> None:
        self.zookeeper = zookeeper
        self.root = make_cluster(zookeeper)
        self.bookies = [Bookie(zookeeper, self.root, **bookie) for _ in range(3)]
        self._oracle = oracle
        self._closing = ExitStack()

    def start(self, make_folder: Callable[[str], Path]) -> BookKeeperCluster:
        """Start all bookies."""
        for bookie in self.bookies:
            self._closing.enter_context(bookie.start(make_folder("bookie")))
        return self

    def stop(self) -> None:
        """Stop all bookies."""
        self._closing.close()

    # --- ledgers, by BookKeeper's own client ---------------------------------------------------

    def make_ledger(self, payloads: Sequence[bytes], **options: Any) -> int:
        """A closed ledger with these entries; its id. For the options see `create`.

        A bookie that a test has started again is waited for, also by a client that finds it gone while it appends.
        """

        def made() -> tuple[int]:
            ledger_id = self.create(**options)
            self.append(ledger_id, payloads)
            self.close_ledger(ledger_id)
            return (ledger_id,)

        (ledger_id,) = wait_for(lambda: _unless_bookies_are_missing(made))
        return int(ledger_id)

    def create(
        self,
        *,
        ensemble: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: str = "CRC32C",
        password: str = "",
        custom: Mapping[str, str] = {},
        settings: Mapping[str, str] = {},
    ) -> int:
        """An open ledger, which its writer keeps open. A bookie that a test has started again is waited for."""

        def created() -> dict[str, Any]:
            return self._oracle.ask(
                "create_ledger",
                uri=self._uri,
                ensemble=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest=digest,
                password=password,
                custom=dict(custom),
                settings=dict(settings),
            )

        return int(wait_for(lambda: _unless_bookies_are_missing(created))["ledger"])

    def append(self, ledger_id: int, payloads: Sequence[bytes]) -> None:
        """Append entries, all sent before the first is acknowledged."""
        path = self._oracle.save((ledger_id, i, payload) for i, payload in enumerate(payloads))
        self._oracle.ask("append_to_ledger", ledger=ledger_id, entries=str(path))
        path.unlink()

    def close_ledger(self, ledger_id: int) -> None:
        """Close a ledger."""
        self._oracle.ask("close_ledger", ledger=ledger_id)

    def delete_ledger(self, ledger_id: int) -> None:
        """Delete a ledger."""
        self._oracle.ask("delete_ledger", uri=self._uri, ledger=ledger_id)

    @property
    def _uri(self) -> str:
        return f"zk+hierarchical://{self.zookeeper.host}:{self.zookeeper.port}{self.root}"

    # --- ours ----------------------------------------------------------------------------------

    def store(self, **options: Any) -> BookKeeperLedgerStore:
        """Our store."""
        return BookKeeperLedgerStore(self.zookeeper.endpoint, **{"ledgers_path": self.root, **options})

    @contextmanager
    def behind_proxies(
        self, on_request: Callable[[bytes], bytes | None], on_answer: Callable[[bytes], bytes | None]
    ) -> Iterator[tuple[str, list[BookieProxy]]]:
        """Another path with the same ledgers, whose bookies are registered at proxies; see `BookieProxy`."""
        root = f"/proxies-{next(_numbers)}"
        with ExitStack() as stack, self.zookeeper.connected() as client:
            self._copy(client, self.root, root)
            proxies = []
            for bookie in self.bookies:
                proxy = stack.enter_context(BookieProxy(bookie.port, on_request, on_answer))
                proxies.append(proxy)
                info = BookieServiceInfoFormat()
                info.endpoints.add(id="bookie", protocol="bookie-rpc", host=bookie.host, port=proxy.port)
                client.set(f"{root}/available/{bookie.bookie_id}", info.SerializeToString())
            yield root, proxies

    def _copy(self, client: Any, source: str, target: str) -> None:
        client.create(target, client.get(source)[0] or b"")
        for name in client.get_children(source):
            self._copy(client, f"{source}/{name}", f"{target}/{name}")
