"""Requests and answers of the service: topics in paths, who may ask, bodies, and errors as Pulsar's clients read them.

An error is `{"reason": "…"}` with a status. What the core refuses as it was asked for wrongly is 412, as Pulsar's
refusals of policies are; a body that cannot be read is 400.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any
from urllib.parse import unquote, unquote_plus

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from offload_core.interfaces.service.tokens import NoTokenError
from offload_core.metadata.catalogue import TopicName
from offload_hooks.errors import (
    AccessDeniedError,
    AttemptError,
    FormatError,
    InvalidKeyError,
    OffloadError,
    OptionError,
    PluginError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnknownTopicError,
    VersionConflictError,
)
from offload_hooks.json_text import read_json

NAMESPACE_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"
_OF_TENANTS = ("namespaces", "persistent", "non-persistent", "schemas")
TOPIC_PATH = "/admin/v2/persistent/{tenant}/{namespace}/{topic:path}"
BUFFER_STATS_PATH = "/admin/v3/transactions/transactionBufferStats/{tenant}/{namespace}/{topic:path}"


def tenant_of_path(scope: Scope) -> str | None:
    """The tenant that all of a request's path is of, whichever way it is read; None if there is no such.

    Routes see the path decoded, topics' names are taken from it as it came.
    """
    decoded = scope["path"].split("/")
    given = [unquote(part) for part in scope["raw_path"].decode("ascii").split("/")]
    if decoded[:3] != ["", "admin", "v2"] or len(decoded) < 5 or decoded[3] not in _OF_TENANTS:
        return None
    if decoded[:5] != given[:5] or {".", ".."}.intersection(decoded):
        return None
    tenant: str = decoded[4]
    return tenant or None


def namespace_of_path(request: Request) -> str:
    """The namespace of a request's path, `tenant/namespace`."""
    return f"{request.path_params['tenant']}/{request.path_params['namespace']}"


def topic_of_path(request: Request, *, before: int = 4, after: int = 1) -> TopicName:
    """The topic of a request's path, whose own name is encoded as in a managed ledger's: a `+` is a space.

    Args:
        before: how many parts of the path come before it.
        after: how many come after it.

    Raises:
        HTTPException: 404, where a `/` that is encoded stands outside the topic's own name.
    """
    path = request.scope["raw_path"].decode("ascii").split("/")
    end = len(path) - after
    parts, around = path[before:end], [*path[: before + 2], *path[end:]]
    if len(parts) < 3 or "/" in unquote("".join(around)):
        raise HTTPException(404)
    return TopicName(f"persistent://{unquote('/'.join(parts[:2]))}/{unquote_plus('/'.join(parts[2:]))}")


MAX_BODY_BYTES = 1 << 20
_RETRY_AFTER_S = 1

_STATUSES: tuple[tuple[type[OffloadError], int], ...] = (
    (NoTokenError, 401),
    (AccessDeniedError, 403),
    (UnknownTopicError, 404),
    (AttemptError, 409),
    (VersionConflictError, 409),
    (InvalidKeyError, 412),
    (OptionError, 412),
    (PluginError, 412),
    (StoreUnavailableError, 503),
    (StoreTimeoutError, 504),
)

log = structlog.get_logger("offload.admin")


class BodyError(OptionError):
    """A request's body that cannot be read."""


def refused(status: int, reason: str) -> Response:
    """The answer to a request that is refused or fails."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if status in (429, 503):
        headers = {"Retry-After": str(_RETRY_AFTER_S)}
    return JSONResponse({"reason": reason}, status_code=status, headers=headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to a request that failed by an error of ours; any other exception is 500, without its text.

    A tenant's role gets the reason only, unless it is of what it sent: places and findings may be the operator's.
    """
    if isinstance(error, BodyError):
        return refused(400, str(error))
    text = text_for(request, error)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return refused(status, text)
    if isinstance(error, OffloadError):
        log.error("request failed", error=str(error), kind=type(error).__name__)
        return refused(500, text)
    log.error("request failed", exc_info=error)
    return refused(500, "an unexpected error; the service's log has it")


def text_for(request: Request, error: Exception) -> str:
    """Return an error's text for the role that asked; see `answer_error`."""
    is_of_stores = isinstance(error, (StoreError, FormatError)) or request.method == "GET"
    if (
        isinstance(error, OffloadError)
        and (is_of_stores or _opens_tier(request))
        and request.scope.get("by_tenant")
    ):
        if error.fields().keys() != {"what"}:
            log.warning("request failed", error=str(error), kind=type(error).__name__)
        return error.what
    return str(error)


def _opens_tier(request: Request) -> bool:
    route = request.scope.get("route")
    return isinstance(route, AdminRoute) and route.opens_tier


async def answer_http_error(_: Request, error: Exception) -> Response:
    """The answer where no path or method fits."""
    assert isinstance(error, HTTPException)
    return refused(error.status_code, error.detail)


async def body(request: Request) -> Any:
    """The JSON of a request.

    Raises:
        BodyError: another content type, too long, or no JSON. Only JSON is taken: a page in a browser cannot send it
            elsewhere without being asked first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BodyError(
            "a body must be JSON", expected="Content-Type: application/json", found=kind or "none"
        )
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_BODY_BYTES:
                raise BodyError("a body is too long", expected=f"at most {MAX_BODY_BYTES} bytes")
    except ClientDisconnect:
        raise BodyError("the client went away") from None
    return await in_thread(lambda: read_json(bytes(data), "a body", error=BodyError))


async def number(request: Request) -> int:
    """A body that is one whole number of 64 bits."""
    given = await body(request)
    if isinstance(given, bool) or not isinstance(given, int) or not -(2**63) <= given < 2**63:
        raise BodyError("a body is no whole number")
    return given


async def mapping(request: Request) -> dict[str, Any]:
    """A body that is a JSON object."""
    given = await body(request)
    if not isinstance(given, dict):
        raise BodyError("a body is no JSON object")
    return given


def is_by_tenant(request: Request) -> bool:
    """True if a role of a tenant makes a request, and not a superuser's role; `Guard` sets it."""
    by_tenant: bool = request.scope["by_tenant"]
    return by_tenant


def shown(value: object) -> Response:
    """An answer of JSON; for None an empty one, as Pulsar's."""
    return Response(status_code=200) if value is None else JSONResponse(value)


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do what waits for a store without holding up other requests."""
    return await run_in_threadpool(work, *arguments)


class AdminRoute(Route):
    """A route that puts itself into its scope, so that requests are counted by routes, not by names of topics.

    Args:
        opens_tier: errors of its changes may be of what an operator set, not of what was sent.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        *,
        methods: Collection[str] | None = None,
        opens_tier: bool = False,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.opens_tier = opens_tier

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Route`."""
        scope["route"] = self
        await super().handle(scope, receive, send)
