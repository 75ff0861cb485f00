"""A proxy before a bookie that knows where frames begin: it records requests, and changes answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from servers.process import LOOPBACK

_LENGTH = struct.Struct(">i")

Change = Callable[[bytes], bytes | None]
"""What becomes of a frame, with its length; None resets the connection."""


def unchanged(frame: bytes) -> bytes:
    """Pass a frame on."""
    return frame


class BookieProxy:
    """A proxy on a free loopback port; a context manager.

    Attributes:
        requests: all frames that were asked so far.
        on_answer: what becomes of answers, of connections from now on.
    """

    def __init__(self, port: int, on_request: Change = unchanged, on_answer: Change = unchanged) -> None:
        self.requests: list[bytes] = []
        self._target = (LOOPBACK, port)
        self._on_request = on_request
        self.on_answer = on_answer
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                bookie = socket.create_connection(self._target)
                self._sockets += [client, bookie]
                for origin, target, change in ((client, bookie, self._ask), (bookie, client, self.on_answer)):
                    threading.Thread(target=self._pass, args=(origin, target, change), daemon=True).start()

    def _ask(self, frame: bytes) -> bytes | None:
        self.requests.append(frame)
        return self._on_request(frame)

    def _pass(self, origin: socket.socket, target: socket.socket, change: Change) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = _read(origin, _LENGTH.size)
                frame = change(head + _read(origin, _LENGTH.unpack(head)[0]))
                if frame is None:
                    break
                target.sendall(frame)
        for each in (origin, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _read(origin: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := origin.recv(size - len(data))):
            raise EOFError
        data += part
    return data
