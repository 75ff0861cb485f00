"""Topics by Pulsar's admin paths: which there are, and what they are made of."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from offload_core.admin.policy_routes import TOPIC_PATH, topic_of
from offload_core.admin.requests import AdminRoute, BodyError, in_thread, mapping, shown
from offload_core.admin.topic_views import offload_to_json
from offload_core.admin.topics import Topics
from offload_core.metadata import EntryPosition
from offload_core.policy_store import namespace_of


def topic_routes(topics: Topics) -> list[AdminRoute]:
    """The routes of topics."""

    async def tenants(_: Request) -> Response:
        names = await in_thread(topics.names)
        return shown(sorted({namespace_of(name).partition("/")[0] for name in names}))

    async def namespaces(request: Request) -> Response:
        tenant = request.path_params["tenant"]
        found = {namespace_of(name) for name in await in_thread(topics.names)}
        return shown(sorted(name for name in found if name.partition("/")[0] == tenant))

    async def names(request: Request) -> Response:
        namespace = f"{request.path_params['tenant']}/{request.path_params['namespace']}"
        return shown([name.full for name in await in_thread(topics.names, namespace)])

    async def none(_: Request) -> Response:
        return shown([])

    async def info(request: Request) -> Response:
        return shown(await in_thread(topics.info, topic_of(request)))

    async def stats(request: Request) -> Response:
        return shown(await in_thread(topics.internal_stats, topic_of(request)))

    async def begin_offload(request: Request) -> Response:
        position = _position_of(await mapping(request))
        await in_thread(topics.begin_offload, topic_of(request), position)
        return Response(status_code=204)

    async def offload_status(request: Request) -> Response:
        return shown(offload_to_json(await in_thread(topics.offload_status, topic_of(request))))

    return [
        AdminRoute("/admin/v2/tenants", tenants),
        AdminRoute("/admin/v2/namespaces/{tenant}", namespaces),
        AdminRoute("/admin/v2/persistent/{tenant}/{namespace}", names),
        AdminRoute("/admin/v2/non-persistent/{tenant}/{namespace}", none),
        AdminRoute(f"{TOPIC_PATH}/internal-info", info),
        AdminRoute(f"{TOPIC_PATH}/internalStats", stats),
        AdminRoute(f"{TOPIC_PATH}/offload", begin_offload, methods=["PUT"]),
        AdminRoute(f"{TOPIC_PATH}/offload", offload_status),
    ]


def _position_of(message_id: dict[str, Any]) -> EntryPosition:
    """A position by the JSON of a message id."""
    ledger_id, entry_id = (message_id.get(name) for name in ("ledgerId", "entryId"))
    for each in (ledger_id, entry_id):
        if isinstance(each, bool) or not isinstance(each, int) or not -1 <= each < 2**63:
            raise BodyError("a body is no message id", expected='{"ledgerId": …, "entryId": …}')
    assert isinstance(ledger_id, int)
    assert isinstance(entry_id, int)
    return EntryPosition(ledger_id, entry_id)
