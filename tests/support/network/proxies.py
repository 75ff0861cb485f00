"""A TCP proxy that spoils connections: it delays, cuts, truncates, resets, refuses or falls silent.

It runs on a thread of its own. What it does to a connection is decided when the connection is made, by `Spoil`; what is
under way changes only by `cut_all`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoil:
    """The faults of one connection; bytes are counted from its beginning, over all its requests.

    Attributes:
        delay_s: every chunk comes later by this, in both directions; the rate stays.
        refuse: it is reset at once.
        silent_after: after this number of bytes of answers nothing is passed on any more, and nothing is closed.
        truncate_after: after this number of bytes of answers it is closed as if they were complete.
        reset_after: after this number of bytes of answers it is reset.
        reset_request_after: after this number of bytes of requests it is reset.
    """

    delay_s: float = 0.0
    refuse: bool = False
    silent_after: int | None = None
    truncate_after: int | None = None
    reset_after: int | None = None
    reset_request_after: int | None = None


WHOLE = Spoil()
Choose = Callable[[int], Spoil]


class Proxy:
    """A proxy on a free loopback port before `url`'s host and port.

    Attributes:
        choose: from the number of a connection (from 0) to what happens to it.
        connections: how many there were.
        spoiled: how many of them were cut short.
    """

    def __init__(self, url, choose=lambda _: WHOLE):
        split = urlsplit(url)
        assert split.hostname
        assert split.port
        self._target = (split.hostname, split.port)
        self._scheme = split.scheme
        self.choose = choose
        self.connections = 0
        self.spoiled = 0
        self._open = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="spoiling-proxy")
        self._thread.start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._listener, self._accept)
        self.port = self._listener.getsockname()[1]

    @property
    def url(self):
        """The proxy's own URL, for clients."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def cut_all(self):
        """Reset all connections that are open."""

        async def cut():
            for writer in list(self._open):
                _reset(writer)

        self._run(cut())

    def close(self):
        """Stop listening, drop all connections, end the thread."""

        async def end():
            self._loop.remove_reader(self._listener)
            self._listener.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:  # it has gone already
            return
        client.setblocking(False)
        serving = self._loop.create_task(self._serve(client))
        serving.add_done_callback(lambda _: client.close())  # a task cancelled before it begins, too

    async def _serve(self, client):
        number, self.connections = self.connections, self.connections + 1
        spoil = self.choose(number)
        reader, writer = await asyncio.open_connection(sock=client)
        self._open.add(writer)
        upstream = None
        try:
            if spoil.refuse:
                self._spoil(writer)
                return
            try:
                answers, upstream = await asyncio.open_connection(*self._target)
            except OSError:  # the server is down: so is the proxy
                _reset(writer)
                return
            self._open.add(upstream)
            await asyncio.gather(
                self._requests(reader, upstream, writer, spoil), self._answers(answers, writer, spoil)
            )
        except OSError:
            pass
        finally:
            for each in (writer, upstream):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _requests(self, reader, upstream, client, spoil):
        passed = 0
        async for chunk in _delayed(reader, spoil.delay_s):
            room = None if spoil.reset_request_after is None else spoil.reset_request_after - passed
            if room is not None and len(chunk) >= room:
                upstream.write(chunk[: max(room, 0)])
                self._spoil(client)
                upstream.transport.abort()
                return
            upstream.write(chunk)
            await upstream.drain()
            passed += len(chunk)
        if upstream.can_write_eof():
            upstream.write_eof()

    async def _answers(self, answers, client, spoil):
        passed = 0
        limits = (spoil.silent_after, spoil.truncate_after, spoil.reset_after)
        limit = min((each for each in limits if each is not None), default=None)
        async for chunk in _delayed(answers, spoil.delay_s):
            if limit is not None and passed + len(chunk) >= limit:
                client.write(chunk[: max(limit - passed, 0)])
                await client.drain()
                if limit == spoil.silent_after:
                    self.spoiled += 1
                    await asyncio.Event().wait()
                if limit == spoil.truncate_after:
                    self.spoiled += 1
                    client.close()
                else:
                    self._spoil(client)
                return
            client.write(chunk)
            await client.drain()
            passed += len(chunk)
        client.close()

    def _spoil(self, client):
        self.spoiled += 1
        _reset(client)


async def _delayed(reader, delay_s):
    """The chunks as they come, each `delay_s` later than it came."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue(maxsize=256)

    async def fill():
        try:
            while chunk := await reader.read(CHUNK):
                await queue.put((loop.time() + delay_s, chunk))
        finally:
            await queue.put((0.0, b""))

    filling = asyncio.ensure_future(fill())
    try:
        while True:
            due, chunk = await queue.get()
            if not chunk:
                await filling
                return
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            yield chunk
    finally:
        filling.cancel()


def _reset(writer):
    """Close with RST instead of FIN."""
    handle = writer.get_extra_info("socket")
    if handle is not None and handle.fileno() >= 0:  # not closed already
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# --- A proxy before a ZooKeeper that loses writes, or their answers: it knows where each request begins.
#
# with ZooKeeperProxy(server.port) as proxy:
# proxy.lose = iter(["answer"])   # of the next transaction, or change of a node
#
# A connection is cut where something is lost, so the client does not know. Requests of other kinds are let through.


_WRITES = (5, 14)
"""The kinds of requests that change a node, and of transactions."""


class ZooKeeperProxy:
    """A proxy on a free loopback port.

    Attributes:
        lose: what is lost of each transaction from now on, `request` or `answer`; None of one that is let through.
            At its end all are.
        transactions: how many there were.
        on_loss: called before the connection is cut, when the server has done all that it will.
    """

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self.lose = iter(())
        self.transactions = 0
        self.on_loss = lambda: None
        self._lock = threading.Lock()
        self._sockets = set()
        self._threads = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def endpoint(self):
        """The URL of our metadata store."""
        return f"zk://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut(*self._sockets)
        for thread in self._threads:
            thread.join()

    def _start(self, work):
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(lambda client=client: self._serve(client))

    def _serve(self, client):
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        self._sockets |= {client, server}
        lost_answers = set()
        self._start(lambda: self._answers(client, server, lost_answers))
        with suppress(OSError):
            server.sendall(_frame(client))  # the beginning of a session
            while True:
                frame = _frame(client)
                xid, kind = struct.unpack_from(">ii", frame, 4)
                loss = self._next_loss() if kind in _WRITES else None
                if loss == "request":
                    self.on_loss()
                    break
                if loss == "answer":
                    lost_answers.add(xid)
                server.sendall(frame)
        self._cut(client, server)

    def _answers(self, client, server, lost):
        with suppress(OSError):
            client.sendall(_frame(server))
            while True:
                frame = _frame(server)
                if struct.unpack_from(">i", frame, 4)[0] in lost:
                    self.on_loss()
                    break
                client.sendall(frame)
        self._cut(client, server)

    def _next_loss(self):
        with self._lock:
            self.transactions += 1
            return next(self.lose, None)

    def _cut(self, *sockets):
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _frame(connection):
    """One request or answer, with its length; `OSError` where the connection ends."""
    length = _exactly(connection, 4)
    return length + _exactly(connection, struct.unpack(">i", length)[0])


def _exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the connection has ended")
        data += more
    return data
