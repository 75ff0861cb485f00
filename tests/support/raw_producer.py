"""A producer of entries as they are: what no client would send, stored by a running broker for the clients to judge.

Pulsar's binary protocol, as far as it takes: https://pulsar.apache.org/docs/developing-binary-protocol. A command is a
protobuf message `BaseCommand`, whose field 1 is its type, and which has the command in a field of a number of its own.
"""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

ANSWERED_WITHIN_S = 60.0

CONNECT, CONNECTED, PRODUCER, SEND, SEND_RECEIPT, PRODUCER_SUCCESS = 2, 3, 5, 6, 7, 17
"""Types of commands, which are also the numbers of their fields."""

_PING, _PONG = 18, 19
_PROTOCOL_VERSION = 19


class RawProducer:
    """Publishes to one topic; a context manager that drops its connection, as a producer that is killed.

    Args:
        service_url, admin_url: the broker's `pulsar://` and `http://`.
    """

    def __init__(self, service_url: str, admin_url: str, topic: str, name: str = "raw") -> None:
        _look_up(admin_url, topic)
        place = urlsplit(service_url)
        assert place.hostname is not None
        assert place.port is not None
        self._socket = socket.create_connection((place.hostname, place.port), timeout=ANSWERED_WITHIN_S)
        self._stream = self._socket.makefile("rb")
        self._sent = 0
        self._ask(CONNECT, _text(1, "tests") + _number(4, _PROTOCOL_VERSION), CONNECTED)
        self._ask(
            PRODUCER, _text(1, topic) + _number(2, 0) + _number(3, 1) + _text(4, name), PRODUCER_SUCCESS
        )

    def send(self, entries: Sequence[bytes]) -> None:
        """Publish entries, checksum and metadata included, one after another."""
        for entry in entries:
            self._ask(SEND, _number(1, 0) + _number(2, self._sent), SEND_RECEIPT, entry)
            self._sent += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def _ask(self, command: int, fields: bytes, answer: int, entry: bytes = b"") -> None:
        self._write(command, fields, entry)
        while (found := self._read()) == _PING:
            self._write(_PONG, b"")
        assert found == answer, f"command {command} was answered by {found}"

    def _write(self, command: int, fields: bytes, entry: bytes = b"") -> None:
        base = _number(1, command) + _bytes(command, fields)
        frame = struct.pack(">I", len(base)) + base + entry
        self._socket.sendall(struct.pack(">I", len(frame)) + frame)

    def _read(self) -> int:
        """The type of the next command, which comes first in it."""
        (length,) = struct.unpack(">I", self._stream.read(4))
        frame = self._stream.read(length)
        assert frame[4] == 0x08
        return frame[5]


def _look_up(admin_url: str, topic: str) -> None:
    """Have the broker serve the topic."""
    place = urlsplit(admin_url)
    connection = http.client.HTTPConnection(place.netloc, timeout=ANSWERED_WITHIN_S)
    try:
        connection.request("GET", f"/lookup/v2/topic/{quote(topic.replace('://', '/'))}")
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())
