"""An HTTP server before another one: it passes requests on, or answers, delays or drops them as a test says.

It understands requests, unlike `proxy`, which counts bytes. It can be an HTTP proxy as well, and speak TLS.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit


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
    """A server on a free loopback port before `host:port`.

    Attributes:
        rule: what happens to a request; None passes it on.
        requests: those that came, in order.
    """

    def __init__(self, host: str = "", port: int = 0, rule: Rule = lambda _: None) -> None:
        self.rule = rule
        self.requests: list[Request] = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:  # the client went away
                    self.close_connection = True

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(method=self.command, target=self.path, headers=headers, body=body)
                front.requests.append(request)
                wanted = front.rule(request)
                if wanted is NEVER_SENT:
                    self.close_connection = True
                    return
                answer = wanted if isinstance(wanted, Answer) else _passed_on(host, port, request)
                if wanted is NEVER_ANSWERED:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_DELETE = do_PUT = do_CONNECT = do  # noqa: N815 - the names are the library's

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="http-front")

    def speak_tls(self, certificate: str) -> None:
        """Before it is entered: speak TLS with the certificate and key in this file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _passed_on(host: str, port: int, request: Request) -> Answer:
    target = urlsplit(request.target)
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        path = target.path + (f"?{target.query}" if target.query else "")
        skipped = {"connection", "host", "proxy-authorization", "proxy-connection"}
        headers = {name: value for name, value in request.headers.items() if name not in skipped}
        connection.request(request.method, path, request.body or None, headers)
        answer = connection.getresponse()
        kept = {"content-type", "content-range", "etag"}
        headers = {name: value for name, value in answer.getheaders() if name.lower() in kept}
        return Answer(status=answer.status, body=answer.read(), headers=headers)
    finally:
        connection.close()
