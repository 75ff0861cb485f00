"""A proxy before a ZooKeeper that loses transactions, or their answers: it knows where each request begins.

    with ZooKeeperProxy(server.port) as proxy:
        proxy.lose = iter(["answer"])   # of the next transaction

A connection is cut where something is lost, so the client does not know. Requests of other kinds are let through.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Loss = Literal["request", "answer"]

MULTI = 14
"""The type of a request that is a transaction."""


class ZooKeeperProxy:
    """A proxy on a free loopback port.

    Attributes:
        lose: what is lost of each transaction from now on; None of one that is let through. At its end all are.
        transactions: how many there were.
        on_loss: called before the connection is cut, when the server has done all that it will.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.lose: Iterator[Loss | None] = iter(())
        self.transactions = 0
        self.on_loss: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def endpoint(self) -> str:
        """The URL of our metadata store."""
        return f"zk://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut(*self._sockets)
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(lambda client=client: self._serve(client))

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        self._sockets |= {client, server}
        lost_answers: set[int] = set()
        self._start(lambda: self._answers(client, server, lost_answers))
        try:
            server.sendall(_frame(client))  # the beginning of a session
            while True:
                frame = _frame(client)
                xid, kind = struct.unpack_from(">ii", frame, 4)
                loss = self._next_loss() if kind == MULTI else None
                if loss == "request":
                    self.on_loss()
                    break
                if loss == "answer":
                    lost_answers.add(xid)
                server.sendall(frame)
        except OSError:
            pass
        self._cut(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, lost: set[int]) -> None:
        try:
            client.sendall(_frame(server))
            while True:
                frame = _frame(server)
                if struct.unpack_from(">i", frame, 4)[0] in lost:
                    self.on_loss()
                    break
                client.sendall(frame)
        except OSError:
            pass
        self._cut(client, server)

    def _next_loss(self) -> Loss | None:
        with self._lock:
            self.transactions += 1
            return next(self.lose, None)

    def _cut(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _frame(connection: socket.socket) -> bytes:
    """One request or answer, with its length; `OSError` where the connection ends."""
    length = _exactly(connection, 4)
    return length + _exactly(connection, struct.unpack(">i", length)[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the connection has ended")
        data += more
    return data
