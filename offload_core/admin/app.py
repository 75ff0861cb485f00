"""The service as an ASGI application: its routes, and what is around all of them."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from offload_core.admin.policy_routes import policy_routes
from offload_core.admin.requests import AdminRoute, answer_error, answer_http_error, in_thread
from offload_core.admin.schema_routes import schema_routes
from offload_core.admin.tokens import Tokens
from offload_core.admin.topic_routes import topic_routes
from offload_core.admin.topics import Topics
from offload_core.admin.ui_routes import ui_routes
from offload_core.admin.watching import Guard, RequestMetrics, Watch
from offload_core.policy_store import PolicyStore
from offload_hooks.errors import OffloadError
from offload_hooks.metadata_stores import WritableMetadataStore


def make_app(
    store: WritableMetadataStore,
    policies: PolicyStore,
    topics: Topics,
    *,
    tokens: Tokens | None,
    registry: CollectorRegistry,
) -> Starlette:
    """The application over an open metadata store.

    Args:
        tokens: whose tokens are taken; None: nobody needs any.
        registry: what `/metrics` shows; what offloads counts into the same.
    """

    async def health(_: Request) -> Response:
        await in_thread(store.get, "/admin/policies")  # one request, which lists nothing: anybody may ask
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            AdminRoute("/admin/v2/brokers/health", health),
            AdminRoute("/metrics", metrics),
            *policy_routes(policies, lambda namespace: bool(topics.names(namespace))),
            *topic_routes(topics, policies),
            *schema_routes(policies),
            *ui_routes(topics),
        ],
        middleware=[
            Middleware(Watch, metrics=RequestMetrics(registry)),
            Middleware(Guard, tokens=tokens),
        ],
        exception_handlers={
            OffloadError: answer_error,
            HTTPException: answer_http_error,
            Exception: answer_error,
        },
    )
