"""Topics by Pulsar's admin paths: which there are, and what they are made of."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from offload_core.admin.paths import (
    BUFFER_STATS_PATH,
    NAMESPACE_PATH,
    TOPIC_PATH,
    namespace_of_path,
    topic_of_path,
)
from offload_core.admin.requests import AdminRoute, BodyError, in_thread, mapping, shown, text_for
from offload_core.admin.topic_views import buffer_stats_to_json, offload_to_json
from offload_core.admin.topics import Topics
from offload_core.metadata import EntryPosition
from offload_core.policy_store import PolicyStore, namespace_of


def topic_routes(topics: Topics, policies: PolicyStore) -> list[AdminRoute]:
    """The routes of topics, and of the namespaces that have topics or policies."""

    async def known_namespaces() -> list[str]:
        with_topics = {namespace_of(name) for name in await in_thread(topics.names)}
        return sorted(with_topics.union(await in_thread(policies.namespaces)))

    async def tenants(_: Request) -> Response:
        return shown(sorted({name.partition("/")[0] for name in await known_namespaces()}))

    async def namespaces(request: Request) -> Response:
        tenant = request.path_params["tenant"]
        return shown([name for name in await known_namespaces() if name.partition("/")[0] == tenant])

    async def names(request: Request) -> Response:
        if request.query_params.get("mode", "").upper() == "NON_PERSISTENT":
            return shown([])
        return shown([name.full for name in await in_thread(topics.names, namespace_of_path(request))])

    async def partitioned(request: Request) -> Response:
        found = await in_thread(topics.names, namespace_of_path(request))
        return shown(sorted({name.base for name in found if name.partition >= 0}))

    async def partitions(request: Request) -> Response:
        return shown(
            {"partitions": await in_thread(topics.partitions, topic_of_path(request)), "deleted": False}
        )

    async def none(_: Request) -> Response:
        return shown([])

    async def info(request: Request) -> Response:
        return shown(await in_thread(topics.info, topic_of_path(request)))

    async def stats(request: Request) -> Response:
        return shown(await in_thread(topics.internal_stats, topic_of_path(request)))

    async def begin_offload(request: Request) -> Response:
        position = _position_of(await mapping(request))
        await in_thread(topics.begin_offload, topic_of_path(request), position)
        return Response(status_code=204)

    async def offload_status(request: Request) -> Response:
        status = await in_thread(topics.offload_status, topic_of_path(request))
        return shown(offload_to_json(status, lambda error: text_for(request, error)))

    async def buffer_stats(request: Request) -> Response:
        topic = topic_of_path(request, before=5, after=0)
        return shown(buffer_stats_to_json(await in_thread(topics.transactions, topic)))

    return [
        AdminRoute("/admin/v2/tenants", tenants),
        AdminRoute("/admin/v2/namespaces/{tenant}", namespaces),
        AdminRoute(f"{NAMESPACE_PATH}/topics", names),
        AdminRoute("/admin/v2/persistent/{tenant}/{namespace}", names),
        AdminRoute("/admin/v2/persistent/{tenant}/{namespace}/partitioned", partitioned),
        AdminRoute("/admin/v2/non-persistent/{tenant}/{namespace}", none),
        AdminRoute("/admin/v2/non-persistent/{tenant}/{namespace}/partitioned", none),
        AdminRoute(f"{TOPIC_PATH}/partitions", partitions),
        AdminRoute(f"{TOPIC_PATH}/internal-info", info),
        AdminRoute(f"{TOPIC_PATH}/internalStats", stats),
        AdminRoute(f"{TOPIC_PATH}/offload", begin_offload, methods=["PUT"], opens_tier=True),
        AdminRoute(f"{TOPIC_PATH}/offload", offload_status),
        AdminRoute(BUFFER_STATS_PATH, buffer_stats),
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
