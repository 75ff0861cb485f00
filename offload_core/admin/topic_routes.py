"""Topics by Pulsar's admin paths: which there are, and what they are made of."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from offload_core.admin.policy_routes import TOPIC_PATH, topic_of
from offload_core.admin.requests import AdminRoute, in_thread, shown
from offload_core.admin.topics import Topics
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

    return [
        AdminRoute("/admin/v2/tenants", tenants),
        AdminRoute("/admin/v2/namespaces/{tenant}", namespaces),
        AdminRoute("/admin/v2/persistent/{tenant}/{namespace}", names),
        AdminRoute("/admin/v2/non-persistent/{tenant}/{namespace}", none),
        AdminRoute(f"{TOPIC_PATH}/internal-info", info),
        AdminRoute(f"{TOPIC_PATH}/internalStats", stats),
    ]
