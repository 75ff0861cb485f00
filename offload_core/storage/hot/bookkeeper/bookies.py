"""The bookies of a cluster: at which address each answers, and connections to them, no more than are allowed.

A bookie that could not be reached is asked again after a pause only, unless no other has what is wanted; its address
is looked up anew then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from offload_core.format.codec.bookkeeper.ledger_nodes import BookieAddress, address_of_id, parse_bookie_node
from offload_core.storage.hot.bookkeeper.bookie_connection import BookieConnection, BookieSecurity
from offload_core.storage.zookeeper_connection import ZooKeeperConnection
from offload_hooks.errors import MetadataError, StoreTimeoutError, StoreUnavailableError, placed
from offload_hooks.token_bucket import TokenBucket

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_THREADS = 8
"""That read ahead, for all readers of a store; they are started as they are needed."""
_OLD_S = 600.0
_MOST = 1 << 20
_IDLE_S = 30.0
"""A connection that was not used for so long is made anew: firewalls forget such ones."""


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieLimits:
    """How much of the bookies one process may use; brokers need them too.

    Attributes:
        connections: the most to one bookie, each used by one thread at a time.
        requests: the most single reads under way at one bookie.
        requests_per_second, bytes_per_second: of all bookies together; None for no limit.
    """

    connections: int
    requests: int
    requests_per_second: float | None
    bytes_per_second: float | None

    @property
    def requests_at_once(self) -> int:
        """The most single reads under way on one connection."""
        return max(1, self.requests // self.connections)


class Bookies:
    """Connections to the bookies that are registered in ZooKeeper. Threads may share it.

    Args:
        root: the path of all ledgers in ZooKeeper, below which bookies are registered.
    """

    def __init__(
        self, zookeeper: ZooKeeperConnection, root: str, security: BookieSecurity, limits: BookieLimits
    ) -> None:
        self.limits = limits
        self._zookeeper = zookeeper
        self._root = root
        self._security = security
        self._lock = threading.Lock()
        self._bookies: dict[str, _Bookie] = {}
        self._closed = False
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="offload-bookies")
        rates = (limits.requests_per_second, limits.bytes_per_second)
        self._buckets = [None if rate is None else TokenBucket(rate, 1.0, time.monotonic) for rate in rates]

    def in_order(self, bookie_ids: list[str]) -> list[str]:
        """The same bookies, those last that could not be reached a moment ago."""
        now = time.monotonic()
        return sorted(bookie_ids, key=lambda bookie_id: self._bookie(bookie_id).paused_until > now)

    @contextmanager
    def connection(self, bookie_id: str, deadline: float) -> Iterator[BookieConnection]:
        """Lend a connection to a bookie; it is kept for others if it is usable still.

        A thread that needs several at once asks for them in the order of their ids.

        Raises:
            StoreTimeoutError: none is free until the deadline.
            MetadataError: the bookie has no address.
            StoreError: see `BookieConnection`, and `ZooKeeperConnection.ask`.
        """
        bookie = self._bookie(bookie_id)
        if not bookie.free.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StoreTimeoutError("no connection to a bookie is free", key=f"bookie {bookie_id}")
        try:
            connection = bookie.idle() or self._connect(bookie, deadline)
            try:
                yield connection
            finally:
                bookie.keep(connection)
        finally:
            bookie.free.release()

    @contextmanager
    def polling_connection(self, bookie_id: str, deadline: float) -> Iterator[BookieConnection]:
        """A connection for long polls. Errors as `connection`."""
        connection = self._connect(self._bookie(bookie_id), deadline, polls=True)
        try:
            yield connection
        finally:
            connection.close()

    def in_background(self, work: Callable[[], _Result]) -> Future[_Result] | None:
        """Do some reading in a thread; None if all are closed."""
        with suppress(RuntimeError):
            return self._pool.submit(work)
        return None

    def reads_batches(self, bookie_id: str) -> bool:
        """False if a bookie was found to be too old for batch reads, not long ago."""
        return self._bookie(bookie_id).old_until < time.monotonic()

    def mark_old(self, bookie_id: str) -> None:
        """Remember that a bookie does not know batch reads."""
        self._bookie(bookie_id).old_until = time.monotonic() + _OLD_S

    def avoid(self, bookie_id: str) -> None:
        """Put a bookie last for a while: it did not answer in time."""
        self._bookie(bookie_id).pause()

    def most_requests(self, deadline: float) -> int:
        """The most requests that the limits allow until half of the time is over; one at least."""
        rate = self.limits.requests_per_second
        left = max(0.0, deadline - time.monotonic())
        return _MOST if rate is None else max(1, int(min(rate * left / 2, _MOST)))

    def wait_for(self, deadline: float, *, requests: int = 0, received: int = 0) -> None:
        """Wait until the limits allow so many requests, and what was received since the last time."""
        waits = [
            bucket.take(amount)
            for bucket, amount in zip(self._buckets, (requests, received), strict=True)
            if bucket is not None and amount
        ]
        if waits and max(waits) > 0:
            time.sleep(max(0.0, min(max(waits), deadline - time.monotonic())))

    def close(self) -> None:
        """Close all connections, those in use once they are not any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            bookies = list(self._bookies.values())
        for bookie in bookies:
            bookie.close()

    def _bookie(self, bookie_id: str) -> _Bookie:
        with self._lock:
            if bookie_id not in self._bookies:
                self._bookies[bookie_id] = _Bookie(bookie_id, self.limits.connections)
                if self._closed:
                    self._bookies[bookie_id].close()
            return self._bookies[bookie_id]

    def _connect(self, bookie: _Bookie, deadline: float, *, polls: bool = False) -> BookieConnection:
        try:
            address = bookie.address
            if address is None:
                address = bookie.address = self._address_of(bookie.bookie_id)
            connection = BookieConnection(
                bookie.place(address), address, self._security, polls=polls, deadline=deadline
            )
        except (StoreUnavailableError, MetadataError):
            bookie.pause()
            raise
        bookie.resume()
        return connection

    def _address_of(self, bookie_id: str) -> BookieAddress:
        """The address of a bookie by its registration; of one that is not registered, what its id says."""
        for folder in ("available", "available/readonly"):
            found = self._zookeeper.read(f"{self._root}/{folder}/{bookie_id}")
            if found is not None:
                return parse_bookie_node(bookie_id, found[0] or b"")
        with placed(key=f"bookie {bookie_id}"):
            return address_of_id(bookie_id)


class _Bookie:
    """What is known of one bookie."""

    def __init__(self, bookie_id: str, connections: int) -> None:
        self.bookie_id = bookie_id
        self.address: BookieAddress | None = None
        self.free = threading.BoundedSemaphore(connections)
        self.paused_until = float("-inf")
        self.old_until = float("-inf")
        self._pause_s = 0.0
        self._lock = threading.Lock()
        self._idle: list[tuple[float, BookieConnection]] = []
        self._closed = False

    def place(self, address: BookieAddress) -> str:
        """The bookie, for errors."""
        name = f"bookie {self.bookie_id}"
        return name if str(address) == self.bookie_id else f"{name} at {address}"

    def idle(self) -> BookieConnection | None:
        """The connection that was used last, if that was not too long ago."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _IDLE_S:
                    return connection
                connection.close()
        return None

    def keep(self, connection: BookieConnection) -> None:
        """Keep a connection for others if it is usable; where one is lost, all that wait may be."""
        if not connection.is_usable:
            connection.close()
            self._close_idle()
            return
        with self._lock:
            if not self._closed:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def pause(self) -> None:
        """Put it last for a while, longer each time, and look its address up anew."""
        self.address = None
        self._pause_s = min(max(_FIRST_PAUSE_S, 2 * self._pause_s), _LONGEST_PAUSE_S)
        self.paused_until = time.monotonic() + self._pause_s
        self._close_idle()  # they lead to where it was

    def resume(self) -> None:
        """It answers again."""
        self._pause_s, self.paused_until = 0.0, float("-inf")

    def close(self) -> None:
        """Close what is idle, and what will be."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()
