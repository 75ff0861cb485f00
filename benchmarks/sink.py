"""An S3 endpoint that takes bytes, forgets them, and answers: what is measured against it is the client alone.

It speaks as much HTTP and S3 as uploads need: objects, multipart uploads, lookups and deletions. Bytes are read into
one buffer for each connection, and nothing is checked.
"""

from __future__ import annotations

import email.utils
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from servers.process import free_port

_BUFFER_BYTES = 4 << 20
_UPLOAD = b"<InitiateMultipartUploadResult><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
_COMMIT = b'<CompleteMultipartUploadResult><ETag>"0123456789abcdef"</ETag></CompleteMultipartUploadResult>'
_DELETED = b"<DeleteResult></DeleteResult>"


@contextmanager
def running_sink() -> Iterator[SimpleNamespace]:
    """A sink in a process of its own, with what a benchmark asks of an S3 service: `endpoint`, `region`, `root`."""
    port = free_port()
    with subprocess.Popen([sys.executable, __file__, str(port)]) as process:
        try:
            _wait_for(port)
            root = SimpleNamespace(access_key="key", secret_key="secret")
            yield SimpleNamespace(endpoint=f"http://127.0.0.1:{port}", region="us-east-1", root=root)
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the sink does not listen")


def serve(port: int) -> None:
    """Answer on this port until the process is killed."""
    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer_all, args=(connection,), daemon=True).start()


def _answer_all(connection: socket.socket) -> None:
    view = memoryview(bytearray(_BUFFER_BYTES))
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            more = connection.recv(1 << 16)
            if not more:
                return
            received += more
        head, received = received.split(b"\r\n\r\n", 1)
        lines = head.split(b"\r\n")
        method, target, _ = lines[0].split(b" ")
        fields = dict(line.lower().split(b":", 1) for line in lines[1:])
        if b"100-continue" in fields.get(b"expect", b""):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(fields.get(b"content-length", b"0"))
        left, received = length - min(len(received), length), received[length:]
        while left:
            taken = connection.recv_into(view[: min(len(view), left)])
            if not taken:
                return
            left -= taken
        connection.sendall(_answer(method, target))


def _answer(method: bytes, target: bytes) -> bytes:
    body = b""
    if method == b"POST":
        body = _UPLOAD if b"uploads" in target else _DELETED if b"delete" in target else _COMMIT
    now = email.utils.formatdate(usegmt=True).encode()
    length = 1000 if method == b"HEAD" else len(body)
    fields = (
        b"Date: " + now,
        b"Last-Modified: " + now,
        b'ETag: "0123456789abcdef0123456789abcdef"',
        b"Content-Type: application/xml",
        b"Content-Length: %d" % length,
    )
    return b"\r\n".join([b"HTTP/1.1 200 OK", *fields, b"", b""]) + body


if __name__ == "__main__":
    serve(int(sys.argv[1]))
