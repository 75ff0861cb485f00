"""An HTTP server before an S3 server: requests are passed on as signed, unless a test's rule has it otherwise.

It differs from `http_front` in that all headers are passed on, the host with them: the signature covers them.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from http_front import NEVER_ANSWERED, NEVER_SENT, Answer, Lost, Request
from servers.versitygw import Versitygw

__all__ = ["NEVER_ANSWERED", "NEVER_SENT", "Answer", "Request", "S3Front", "refusal", "signed_anew"]

_NOT_SIGNED_ANEW = {"authorization", "x-amz-security-token", "x-amz-date", "expect", "connection"}


class S3Front:
    """A server on a free loopback port before `endpoint`.

    Attributes:
        rule: what happens to a request; None passes it on.
        change: what is passed on for a request.
        requests: those that came, in order.
    """

    def __init__(self, endpoint: str) -> None:
        target = urlsplit(endpoint)
        self.rule: Callable[[Request], Answer | Lost | None] = lambda _: None
        self.change: Callable[[Request], Request] = lambda request: request
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
                if wanted is None or wanted is NEVER_ANSWERED:
                    answer = self.passed_on(front.change(request))
                if isinstance(wanted, Lost):
                    self.close_connection = True
                    return
                self.answer(wanted or answer)

            def passed_on(self, request: Request) -> Answer:
                connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
                try:
                    connection.putrequest(
                        request.method, request.target, skip_host=True, skip_accept_encoding=True
                    )
                    for name, value in request.headers.items():
                        if name != "expect":
                            connection.putheader(name, value)
                    connection.endheaders(request.body)
                    answer = connection.getresponse()
                    headers = {
                        n: v for n, v in answer.getheaders() if n.lower() not in ("connection", "date")
                    }
                    return Answer(status=answer.status, body=answer.read(), headers=headers)
                finally:
                    connection.close()

            def answer(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name in answer.headers):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = do  # noqa: N815 - the names are the library's

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="s3-front")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def refusal(status: int, code: str, message: str = "", **headers: str) -> Answer:
    """An answer of S3 that refuses."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=body, headers={"Content-Type": "application/xml", **named})


def signed_anew(request: Request, server: Versitygw, **parameters: object) -> Request:
    """The request with more parameters, signed by the server's root user."""
    named = {name.replace("_", "-"): value for name, value in parameters.items()}
    more = ("&" if "?" in request.target else "?") + urlencode(named) if named else ""
    headers = {name: value for name, value in request.headers.items() if name not in _NOT_SIGNED_ANEW}
    url = f"http://{headers['host']}{request.target}{more}"
    again = AWSRequest(request.method, url, headers, data=request.body)
    credentials = Credentials(server.root.access_key, server.root.secret_key)
    S3SigV4Auth(credentials, "s3", server.region).add_auth(again)
    signed = {name.lower(): value for name, value in again.headers.items()}
    return replace(request, target=request.target + more, headers=signed)
