"""The service as an ASGI application: its routes, and what is around all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from offload_core.admin.policy_routes import policy_routes
from offload_core.admin.requests import AdminRoute, answer_error, answer_http_error, refused
from offload_core.admin.schema_routes import schema_routes
from offload_core.admin.tokens import Tokens
from offload_core.admin.topic_routes import topic_routes
from offload_core.admin.topics import Topics
from offload_core.admin.ui_routes import ui_routes
from offload_core.admin.watching import Guard, Limits, RequestMetrics, Watch
from offload_core.configuration import ServiceSettings
from offload_core.policy_store import PolicyStore
from offload_hooks.errors import OffloadError
from offload_hooks.metadata_stores import WritableMetadataStore

_T = TypeVar("_T")

_HEALTH_WITHIN_S = 0.8
_METRICS_WITHIN_S = 10.0


def make_app(
    store: WritableMetadataStore,
    policies: PolicyStore,
    topics: Topics,
    *,
    tokens: Tokens | None,
    registry: CollectorRegistry,
    service: ServiceSettings,
) -> Starlette:
    """The application over an open metadata store.

    Args:
        tokens: whose tokens are taken; None: nobody needs any.
        registry: what `/metrics` shows; what offloads counts into the same.
    """
    has_answered = _Asked(
        lambda: store.get("/admin/policies"), _HEALTH_WITHIN_S
    )  # it lists nothing: anybody may ask
    collected = _Asked(lambda: generate_latest(registry), _METRICS_WITHIN_S)

    async def health(_: Request) -> Response:
        try:
            await has_answered()
        except TimeoutError:
            return refused(503, "the metadata store does not answer")
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        try:
            return Response(await collected(), media_type=CONTENT_TYPE_LATEST)
        except TimeoutError:
            return refused(503, "metrics cannot be collected in time")

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
            Middleware(Limits, most=service.max_requests, most_of_tenant=service.max_requests_per_tenant),
        ],
        exception_handlers={
            OffloadError: answer_error,
            HTTPException: answer_http_error,
            Exception: answer_error,
        },
    )


class _Asked(Generic[_T]):
    """A question that is asked once at a time, in a thread of its own; requests that come meanwhile get that answer.

    Raises:
        TimeoutError: there is no answer in time; the next request waits for the same one.
    """

    def __init__(self, ask: Callable[[], _T], within_s: float) -> None:
        self._ask, self._within_s = ask, within_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="asked")
        self._answer: Future[_T] | None = None

    async def __call__(self) -> _T:
        if self._answer is None or self._answer.done():
            self._answer = self._thread.submit(self._ask)
        answer = self._answer
        await asyncio.wait([asyncio.wrap_future(answer)], timeout=self._within_s)
        if not answer.done():
            raise TimeoutError
        return answer.result()
