"""Limits and records of requests: a line in the log and a count, who may make it, and how many at a time."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter as Counts

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offload_core.interfaces.service.admin_requests import answer_error, refused, tenant_of_path
from offload_core.interfaces.service.tokens import Tokens
from offload_hooks.errors import AccessDeniedError

_PROBES = frozenset(("/healthz", "/readyz", "/admin/v2/brokers/health"))

OPEN_PATHS = _PROBES | {"/", "/ui"}
"""Paths that need no token: probes answer `ok` and no more, `/` leads to the page `/ui`, which is empty, and asks
for a token itself."""

MAX_TARGET_BYTES = 8 << 10
MAX_HEADERS = 100
MAX_HEAD_BYTES = 32 << 10
"""The most bytes of a request's line and headers together."""

_LOGGED_CHARACTERS = 1000
_PIECE_BYTES = 64 << 10
_UNHURRIED = _PROBES | {"/metrics"}
"""Paths without a limit: they need no thread, or have one of their own."""

log = structlog.get_logger("offload.admin")


class RequestMetrics:
    """The service's own metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self.requests = Counter("pulsar_offload_requests", "Requests answered", labels, registry=registry)
        self.seconds = Histogram(
            "pulsar_offload_request_seconds", "How long answers took", ("method", "route"), registry=registry
        )


class Watch:
    """Logs and counts each request; an unknown path or method is counted as `none`."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, began = 500, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await _send_in_pieces(send, message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - began
            found: Route | None = scope.get("route")
            route = "none" if found is None else found.path
            known = found is not None and scope["method"] in (found.methods or ())
            method = scope["method"] if known else "none"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(method, route).observe(seconds)
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:_LOGGED_CHARACTERS],
                status=status,
                seconds=round(seconds, 6),
                role=scope.get("role"),
            )


async def _send_in_pieces(send: Send, message: Message) -> None:
    """Send an answer as its client takes it: what is given to a connection at once, the connection holds in memory."""
    if message["type"] == "http.response.body":
        body = memoryview(message.get("body", b""))
        while len(body) > _PIECE_BYTES:
            await send({**message, "body": bytes(body[:_PIECE_BYTES]), "more_body": True})
            body = body[_PIECE_BYTES:]
        message = {**message, "body": bytes(body)}
    await send(message)


class Guard:
    """Lets in who has a good token of a role that may; without tokens, who names this machine by a loopback address.

    The latter keeps out pages that a browser here was made to take for this service (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http":
            request = Request(scope)
            by_tenant = self._tokens is not None
            try:
                if self._tokens is None:
                    _check_host(request)
                elif scope["path"] not in OPEN_PATHS:
                    role = scope["role"] = self._tokens.check(request.headers.get("authorization"))
                    self._tokens.check_may(role, tenant_of_path(scope))
                    by_tenant = not self._tokens.is_superuser(role)
            except AccessDeniedError as error:
                response = await answer_error(request, error)
                return await response(scope, receive, send)
            scope["by_tenant"] = by_tenant
        return await self._app(scope, receive, send)


class Limits:
    """Limit the requests at a time, and those of one tenant; others are refused until some are answered.

    Those of a superuser's role count by the role, so that a tenant's do not keep an operator out.

    Args:
        most: of all. most_of_tenant: of one tenant.
    """

    def __init__(self, app: ASGIApp, most: int, most_of_tenant: int) -> None:
        self._app, self._most, self._most_of_tenant = app, most, most_of_tenant
        self._answering: Counts[tuple[str, str | None]] = Counts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        refusal = _too_large(scope)
        if scope["path"] in _UNHURRIED and refusal is None:
            return await self._app(scope, receive, send)
        by = ("tenant", tenant_of_path(scope)) if scope["by_tenant"] else ("role", scope.get("role"))
        most_of_one = self._most if by == ("role", None) else self._most_of_tenant
        if refusal is None and self._answering[by] >= most_of_one:
            refusal = refused(429, f"{most_of_one} requests of the {by[0]} are being answered; ask again")
        elif refusal is None and self._answering.total() >= self._most:
            refusal = refused(503, f"{self._most} requests are being answered; ask again")
        if refusal is not None:
            return await refusal(scope, receive, send)
        self._answering[by] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._answering[by] -= 1
            if not self._answering[by]:
                del self._answering[by]


def _too_large(scope: Scope) -> Response | None:
    """The refusal of a request whose head is too large, though h11 had it at once and took it."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
        return refused(414, f"the path and query are longer than {MAX_TARGET_BYTES} bytes")
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
        return refused(431, f"there are more than {MAX_HEADERS} headers or {MAX_HEAD_BYTES} bytes of them")
    return None


def is_loopback(host: str) -> bool:
    """True if a host's name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host(request: Request) -> None:
    host = request.headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name):
        raise AccessDeniedError("without tokens this service is for this machine only", found=repr(host))
