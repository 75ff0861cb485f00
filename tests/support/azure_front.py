"""An HTTP server before Azurite that tells what was asked, loses answers, and answers as only Azure itself does.

It also is a forward proxy: a request line may hold a whole URL.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that does not come from the server, which is not asked."""

    status: int
    code: str
    headers: Mapping[str, str] = field(default_factory=dict)


LOST = "lost"
"""The server is asked, and its answer is not passed on: the connection ends."""

Decide = Callable[[str], Refusal | str | None]


class Front:
    """A front before `url`; `decide` is given each request as text, "PUT /account/container/k?comp=block"."""

    def __init__(self, url: str, decide: Decide = lambda _: None) -> None:
        self.decide = decide
        self.requests: list[str] = []
        self._target = urlsplit(url)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="azure-front")
        self._thread.start()

    @property
    def url(self) -> str:
        """The front's own URL, with the path that the server's has."""
        return f"http://127.0.0.1:{self._server.server_port}{self._target.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _serve(self) -> None:
                split = urlsplit(self.path)
                target = split.path + (f"?{split.query}" if split.query else "")
                request = f"{self.command} {target}"
                front.requests.append(request)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                decision = front.decide(request)
                if isinstance(decision, Refusal):
                    self._answer(decision.status, {**decision.headers, "x-ms-error-code": decision.code}, b"")
                    return
                upstream = http.client.HTTPConnection(
                    front._target.hostname or "", front._target.port, timeout=60
                )
                try:
                    upstream.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        upstream.putheader(name, value)
                    upstream.endheaders(body)
                    answer = upstream.getresponse()
                    data = answer.read()
                finally:
                    upstream.close()
                if decision == LOST:
                    self.close_connection = True
                    return
                self._answer(answer.status, dict(answer.getheaders()), data)

            def _answer(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
                self.send_response_only(status)
                hop_by_hop = ("connection", "keep-alive", "transfer-encoding", "content-length")
                for name, value in headers.items():
                    if name.lower() not in hop_by_hop:
                        self.send_header(name, value)
                size = headers.get("content-length") if self.command == "HEAD" else None
                self.send_header("Content-Length", size or str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815

        return Handler
