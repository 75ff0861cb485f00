"""Topics' schemas by Pulsar's admin paths: those that are saved beside the tier which a topic's policies name.

Source: the answers of a broker 4.0.8; docs/schemas.md.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from offload_core.admin.paths import topic_of_path
from offload_core.admin.requests import AdminRoute, in_thread, shown
from offload_core.catalogue import TopicName
from offload_core.policy_store import PolicyStore
from offload_core.schemas import saved_in
from offload_core.tier import open_store
from offload_hooks.schemas import SchemaHistory, SchemaVersion

_PATH = "/admin/v2/schemas/{tenant}/{namespace}/{topic:path}"


def schema_routes(policies: PolicyStore) -> list[AdminRoute]:
    """The routes of schemas of topics whose policies are these."""

    async def newest(request: Request) -> Response:
        history: SchemaHistory | None = await in_thread(_saved, policies, topic_of_path(request))
        return _answer(None if history is None else history.newest)

    async def numbered(request: Request) -> Response:
        history: SchemaHistory | None = await in_thread(_saved, policies, topic_of_path(request, after=2))
        return _answer(None if history is None else history.find(request.path_params["version"]))

    async def every(request: Request) -> Response:
        history: SchemaHistory | None = await in_thread(_saved, policies, topic_of_path(request))
        versions = () if history is None else history.versions
        return shown({"getSchemaResponses": [_to_json(each) for each in versions]})

    return [
        AdminRoute(f"{_PATH}/schema", newest),
        AdminRoute(f"{_PATH}/schema/{{version:int}}", numbered),
        AdminRoute(f"{_PATH}/schemas", every),
    ]


def _saved(policies: PolicyStore, topic: TopicName) -> SchemaHistory | None:
    """What `offload schemas pull` saved of a topic; None if there is nothing, or no tier."""
    offload = policies.resolve(topic).offload
    if offload.driver is None:
        return None
    options: dict[str, Any] = offload.driver_options()
    with closing(open_store(offload.driver, **options)) as tier:
        return saved_in(tier).history(topic.base)


def _answer(version: SchemaVersion | None) -> Response:
    if version is None:
        raise HTTPException(404, "Schema not found")
    return shown(_to_json(version))


def _to_json(version: SchemaVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "type": version.type,
        "timestamp": version.timestamp_ms or 0,
        "data": version.definition,
        "properties": dict(version.properties),
    }
