"""An HTTP server before another one: it passes requests on, or answers, changes or loses them as a test says.

It understands requests, unlike `proxy`, which counts bytes. It is a forward proxy as well: a request's target may be
a whole URL, of which the path is passed on.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

_NOT_PASSED_ON = {"connection", "expect", "proxy-authorization", "proxy-connection"}
_NOT_PASSED_BACK = {"connection", "date", "keep-alive", "server", "transfer-encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path, its %-escapes taken away."""
        return unquote(urlsplit(self.target).path)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the query."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered instead of the server behind."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Lost:
    """The connection is closed without an answer."""


NEVER_SENT = Lost()
"""The server behind does not get the request."""
NEVER_ANSWERED = Lost()
"""The server behind gets the request, and its answer is dropped."""

Rule = Callable[[Request], Answer | Lost | None]


class Front:
    """A server on a free loopback port before the one at `endpoint`, if any; with `tls`, a certificate and its key.

    Headers are passed on as they came, the host with them: a signature may cover them.

    Attributes:
        rule: what happens to a request; None passes it on.
        change: what is passed on for a request.
        requests: those that came, in order.
    """

    def __init__(
        self, endpoint: str = "", rule: Rule = lambda _: None, tls: tuple[Path, Path] | None = None
    ) -> None:
        self.rule = rule
        self.change: Callable[[Request], Request] = lambda request: request
        self.requests: list[Request] = []
        self._behind = urlsplit(endpoint)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answered))
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="http-front")

    @property
    def port(self) -> int:
        """The front's own port."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """The front's own URL, with the path that the endpoint has."""
        return f"{self._scheme}://127.0.0.1:{self.port}{self._behind.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answered(self, request: Request) -> Answer | Lost:
        self.requests.append(request)
        wanted = self.rule(request)
        if wanted is None or wanted is NEVER_ANSWERED:
            answer = _passed_on(self._behind, self.change(request))
        return wanted or answer


def _handler(answered: Callable[[Request], Answer | Lost]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client went away, or the server behind is down
                self.close_connection = True

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = answered(Request(method=self.command, target=self.path, headers=headers, body=body))
            if isinstance(answer, Lost):
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            has_size = any(name.lower() == "content-length" for name in answer.headers)
            if answer.status != 204 and not has_size:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        # The names are the library's.
        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = do_CONNECT = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _passed_on(behind: SplitResult, request: Request) -> Answer:
    if not behind.hostname:
        raise ConnectionRefusedError("no server is behind this one")
    target = urlsplit(request.target)
    connection = http.client.HTTPConnection(behind.hostname, behind.port, timeout=60)
    try:
        path = target.path + (f"?{target.query}" if target.query else "")
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name not in _NOT_PASSED_ON:
                connection.putheader(name, value)
        connection.endheaders(request.body)
        answer = connection.getresponse()
        headers = {n: v for n, v in answer.getheaders() if n.lower() not in _NOT_PASSED_BACK}
        return Answer(status=answer.status, body=answer.read(), headers=headers)
    finally:
        connection.close()
