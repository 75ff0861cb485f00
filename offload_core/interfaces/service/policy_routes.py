"""Policies of namespaces and topics by Pulsar's admin paths, as `pulsar-admin` asks them.

Source: the requests of pulsar-admin 4.0.8 and the answers of its broker; docs/service.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from offload_core.interfaces.service.admin_requests import (
    NAMESPACE_PATH,
    TOPIC_PATH,
    AdminRoute,
    in_thread,
    is_by_tenant,
    mapping,
    namespace_of_path,
    number,
    shown,
    topic_of_path,
)
from offload_core.metadata.policies import OffloadPolicies, RetentionPolicies
from offload_core.metadata.policies.level import (
    NAMESPACE_NAMES,
    LevelPolicies,
    Part,
    parse_offload,
    parse_retention,
    unmasked,
)
from offload_core.metadata.policies.offload_policies import shown_value
from offload_core.writing.policy_store import PolicyStore, ResolvedPolicies

Change = Callable[[LevelPolicies], LevelPolicies]

_DONE = 204

log = structlog.get_logger("offload.admin")


def policy_routes(policies: PolicyStore, has_topics: Callable[[str], bool]) -> list[AdminRoute]:
    """The routes of policies in a store; `has_topics` returns True if a namespace has any."""
    namespaces = _Level(
        lambda request: policies.namespace(namespace_of_path(request)),
        lambda request, change: policies.change_namespace(
            namespace_of_path(request), change, by_tenant=is_by_tenant(request)
        ),
        lambda request, part: policies.remove_from_namespace(
            namespace_of_path(request), part, by_tenant=is_by_tenant(request)
        ),
        lambda request: policies.resolve_namespace(namespace_of_path(request)),
    )
    topics = _Level(
        lambda request: policies.topic(topic_of_path(request)),
        lambda request, change: policies.change_topic(
            topic_of_path(request), change, by_tenant=is_by_tenant(request)
        ),
        lambda request, part: policies.remove_from_topic(
            topic_of_path(request), part, by_tenant=is_by_tenant(request)
        ),
        lambda request: policies.resolve(topic_of_path(request)),
    )

    # A topic's own name may hold a `/`, so its paths are tried in this order, the longest names last.
    async def namespace(request: Request) -> Response:
        name = namespace_of_path(request)
        found: LevelPolicies = await in_thread(policies.namespace, name)
        if found == LevelPolicies() and not await in_thread(has_topics, name):
            raise HTTPException(404, "Namespace does not exist")
        return shown(_namespace_to_json(found))

    return [
        AdminRoute(NAMESPACE_PATH, namespace),
        *_level_routes(NAMESPACE_PATH, namespaces),
        AdminRoute(f"{NAMESPACE_PATH}/removeOffloadPolicies", namespaces.remove_offload, methods=["DELETE"]),
        *_field_routes(namespaces, "offloadThreshold", "threshold_in_bytes", unset=-1),
        *_field_routes(namespaces, "offloadThresholdInSeconds", "threshold_in_seconds", unset=-1),
        *_field_routes(namespaces, "offloadDeletionLagMs", "deletion_lag_in_millis", unset=None),
        *_level_routes(TOPIC_PATH, topics),
    ]


def _level_routes(path: str, level: _Level) -> list[AdminRoute]:
    """The routes that namespaces and topics have alike."""
    return [
        AdminRoute(f"{path}/offloadPolicies", level.get_offload, methods=["GET"]),
        AdminRoute(f"{path}/offloadPolicies", level.set_offload, methods=["POST"]),
        AdminRoute(f"{path}/offloadPolicies", level.remove_offload, methods=["DELETE"]),
        AdminRoute(f"{path}/retention", level.get_retention, methods=["GET"]),
        AdminRoute(f"{path}/retention", level.set_retention, methods=["POST"]),
        AdminRoute(f"{path}/retention", level.remove_retention, methods=["DELETE"]),
    ]


class _Level:
    """The requests that namespaces and topics have in common."""

    def __init__(
        self,
        read: Callable[[Request], LevelPolicies],
        change: Callable[[Request, Change], LevelPolicies],
        remove: Callable[[Request, Part], None],
        resolve: Callable[[Request], ResolvedPolicies],
    ) -> None:
        self.read, self.change, self.remove, self.resolve = read, change, remove, resolve

    async def get_offload(self, request: Request) -> Response:
        if _is_applied(request):
            resolved: ResolvedPolicies = await in_thread(self.resolve, request)
            return shown(_applied(resolved))
        level: LevelPolicies = await in_thread(self.read, request)
        return shown(level.shown_offload())

    async def set_offload(self, request: Request) -> Response:
        given = await mapping(request)

        def change(level: LevelPolicies) -> LevelPolicies:
            offload, unknown = parse_offload(unmasked(given, level), "offload policies")
            if unknown:
                log.warning("policies of unknown names are kept and do nothing", names=sorted(unknown))
            return replace(level, offload=offload, unknown_offload=unknown, vouched=True)

        await in_thread(self.change, request, change)
        return Response(status_code=_DONE)

    async def remove_offload(self, request: Request) -> Response:
        await in_thread(self.remove, request, "offload")
        return Response(status_code=_DONE)

    async def get_retention(self, request: Request) -> Response:
        retention: RetentionPolicies | None
        if _is_applied(request):
            retention = (await in_thread(self.resolve, request)).retention
        else:
            retention = (await in_thread(self.read, request)).retention
        return shown(None if retention is None else retention.model_dump(mode="json", by_alias=True))

    async def set_retention(self, request: Request) -> Response:
        retention = parse_retention(await mapping(request), "retention")
        await in_thread(self.change, request, lambda level: replace(level, retention=retention))
        return Response(status_code=_DONE)

    async def remove_retention(self, request: Request) -> Response:
        await in_thread(self.remove, request, "retention")
        return Response(status_code=_DONE)


def _field_routes(level: _Level, path: str, field: str, *, unset: int | None) -> list[AdminRoute]:
    """A namespace's path of one number of its offload policies; `unset` is the answer if it is not set."""

    async def get(request: Request) -> Response:
        offload = (await in_thread(level.read, request)).offload
        value = getattr(offload, field, None)
        return shown(unset if value is None else value)

    async def put(request: Request) -> Response:
        value = await number(request)
        await in_thread(level.change, request, partial(_say, field, value))
        return Response(status_code=_DONE)

    async def delete(request: Request) -> Response:
        await in_thread(level.change, request, partial(_say, field, None))
        return Response(status_code=_DONE)

    whole = f"{NAMESPACE_PATH}/{path}"
    removing = [AdminRoute(whole, delete, methods=["DELETE"])] if unset is None else []
    return [AdminRoute(whole, get, methods=["GET"]), AdminRoute(whole, put, methods=["PUT"]), *removing]


def _say(field: str, value: int | None, level: LevelPolicies) -> LevelPolicies:
    return level.with_fields(**{field: value if value is None else max(value, -1)})


def _namespace_to_json(level: LevelPolicies) -> dict[str, Any]:
    """The policies of a namespace, as Pulsar's `Policies`."""
    fields: dict[str, Any] = shown_value(dict(level.others))
    if level.offload is not None:
        fields[NAMESPACE_NAMES.offload] = level.shown_offload()
    if level.retention is not None:
        fields[NAMESPACE_NAMES.retention] = level.retention.model_dump(mode="json", by_alias=True)
    return fields


def _is_applied(request: Request) -> bool:
    return request.query_params.get("applied", "false").lower() == "true"


def _applied(resolved: ResolvedPolicies) -> dict[str, Any] | None:
    """The policies in force, if there is a driver: without one nothing is offloaded, whatever the thresholds."""
    if resolved.offload.driver is None:
        return None
    values = {name: setting.value for name, setting in resolved.offload.settings.items()}
    return OffloadPolicies.model_validate(values).shown()
