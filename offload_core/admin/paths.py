"""Namespaces and topics in the paths of requests."""

from __future__ import annotations

from urllib.parse import unquote, unquote_plus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from offload_core.catalogue import TopicName

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
