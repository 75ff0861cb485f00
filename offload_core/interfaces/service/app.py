"""The service as an ASGI application: its routes, and the layers around all of them.

    /admin/v2/persistent/…   topics: which there are, and what they are made of
    /admin/v2/schemas/…      schemas that are saved beside the tier which a topic's policies name
    /healthz, /readyz        probes: this process answers; its metadata store does, too
    /                        leads to the page
    /ui                      a page for people: topics, what of them is offloaded, how their offloads stand
    policies                 see `policy_routes`

Source: the answers of a broker 4.0.8; docs/schemas.md.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Generic, TypeVar

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from offload_core.interfaces.service.admin_requests import (
    BUFFER_STATS_PATH,
    NAMESPACE_PATH,
    TOPIC_PATH,
    AdminRoute,
    BodyError,
    answer_error,
    answer_http_error,
    in_thread,
    mapping,
    namespace_of_path,
    refused,
    shown,
    text_for,
    topic_of_path,
)
from offload_core.interfaces.service.policy_routes import policy_routes
from offload_core.interfaces.service.request_guards import Guard, Limits, RequestMetrics, Watch
from offload_core.interfaces.service.served_topics import (
    RecordedTopics,
    buffer_stats_to_json,
    offload_to_json,
)
from offload_core.interfaces.service.tokens import Tokens
from offload_core.maintenance.inventory.ledger_history import time_of_ms
from offload_core.maintenance.inventory.report_page import live_page
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.policy_places import namespace_of
from offload_core.metadata.records import EntryPosition, LedgerRecord
from offload_core.metadata.records.attempts import AttemptLease, lease_of
from offload_core.reading.schema_providers import saved_in
from offload_core.storage.clock import system_now_ms
from offload_core.storage.tier import open_store
from offload_core.writing.configuration import ServiceSettings
from offload_core.writing.managed_ledger import OffloadStatus
from offload_core.writing.offload.running_attempt import this_process
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import OffloadError, OptionError, UnknownTopicError
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.schemas import SchemaHistory, SchemaVersion


def topic_routes(topics: RecordedTopics, policies: PolicyStore) -> list[AdminRoute]:
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
    """The schemas that `offload schemas pull` saved of a topic; None if there are none, or no tier."""
    offload = policies.resolve(topic).offload
    if offload.driver is None:
        return None
    options: dict[str, Any] = offload.driver_options()
    with closing(open_store(offload.driver, driver=offload.driver, **options)) as tier:
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


MOST_TOPICS = 200
"""The most topics of an answer; a namespace narrows them."""

_KEPT_S = 2.0
"""Pages that ask within this time get the same answer."""

_MOST_KEPT = 64

_SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def ui_routes(topics: RecordedTopics, *, tokens: bool) -> list[Route]:
    """The page, which needs no token, and its data, which needs one as the other routes do, if there are `tokens`."""
    made = live_page(tokens=tokens)
    html = made.html.encode()
    status_of = _RecentAnswers(lambda namespace: status_to_json(topics, namespace))

    async def begin(_: Request) -> Response:
        return RedirectResponse("ui", headers=_SAFE)

    async def page(_: Request) -> Response:
        return HTMLResponse(html, headers={**_SAFE, "Content-Security-Policy": made.policy})

    async def status(request: Request) -> Response:
        namespace = request.query_params.get("namespace", "").strip() or None
        if namespace is not None and (namespace.count("/") != 1 or not all(namespace.split("/"))):
            raise OptionError("this is no namespace", expected="tenant/namespace", found=namespace)
        answer = shown(await in_thread(status_of, namespace))
        answer.headers.update(_SAFE)
        return answer

    return [AdminRoute("/", begin), AdminRoute("/ui", page), AdminRoute("/ui/status", status)]


def status_to_json(topics: RecordedTopics, namespace: str | None) -> dict[str, Any]:
    """The first topics of a namespace, or of all, and how many there are."""
    names = topics.names(namespace)
    rows = [row for name in names[:MOST_TOPICS] if (row := _row(topics, name)) is not None]
    return {"count": len(names), "topics": rows}


def _row(topics: RecordedTopics, name: TopicName) -> dict[str, Any] | None:
    """A topic; None if it has gone meanwhile."""
    try:
        ledgers = topics.record(name).info.ledgers
        status = topics.offload_status(name)
    except UnknownTopicError:
        return None
    offloaded = [ledger for ledger in ledgers if ledger.is_fully_offloaded]
    cold = sum(ledger.info.size or 0 for ledger in offloaded)
    last = time_of_ms(max((_completed_ms(ledger) for ledger in ledgers), default=0))
    state = _state_of(status, ledgers)
    return {
        "name": name.full,
        "status": state,
        "ledgers": len(ledgers),
        "offloaded": len(offloaded),
        "cold": cold,
        "hot": sum(ledger.info.size or 0 for ledger in ledgers) - cold,
        "last": None if last is None else f"{last:%Y-%m-%d %H:%M}",
        "why": _why(status, state, is_offloaded=last is not None),
    }


def _state_of(status: OffloadStatus, ledgers: Sequence[LedgerRecord]) -> str:
    """In words: by the service's own offload while that runs or has failed, else by the record, of any process."""
    sealed = [ledger for ledger in ledgers if ledger.info.is_closed]
    offloaded = sum(ledger.is_fully_offloaded for ledger in sealed)
    holders = {lease.holder for ledger in ledgers if (lease := _lease_held(ledger)) is not None}
    if status.state == "running" or this_process() in holders:
        return "offloading"
    if holders:
        return "offloading, by another process"
    if not sealed:
        return "nothing to offload"
    if offloaded == len(sealed):
        return "offloaded"
    if status.state == "error":
        return "failed"
    return "partly offloaded" if offloaded else "not offloaded"


def _lease_held(ledger: LedgerRecord) -> AttemptLease | None:
    """The lease of the process that offloads a ledger now; None if there is none, or it is expired."""
    leases = (lease_of(copy.driver) for copy in ledger.copies if not copy.complete)
    return next((each for each in leases if each is not None and each.until_ms > system_now_ms()), None)


def _completed_ms(ledger: LedgerRecord) -> int:
    """When the last copy of it was completed; 0 if there is none, or that is not recorded."""
    if ledger.context is None or not ledger.has_complete_copy:
        return 0
    times = [segment.offloaded_ms for segment in ledger.context.segments if segment.complete]
    return max(each or 0 for each in (*times, ledger.context.timestamp_ms))


def _why(status: OffloadStatus, state: str, *, is_offloaded: bool) -> str:
    if state == "failed":
        return str(status.error)
    if status.waiting:
        return "; ".join(status.waiting.values())
    if status.state == "not run" and is_offloaded:
        return "offloaded by another process, or before this service started"
    return ""


class _RecentAnswers:
    """Answers that are kept for a moment; one request at a time makes a new one."""

    def __init__(self, ask: Callable[[str | None], dict[str, Any]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answers: dict[str | None, tuple[float, dict[str, Any]]] = {}

    def __call__(self, namespace: str | None) -> dict[str, Any]:
        with self._lock:
            at, answer = self._answers.get(namespace, (0.0, {}))
            if not answer or time.monotonic() - at > _KEPT_S:
                answer = self._ask(namespace)
                if len(self._answers) >= _MOST_KEPT:
                    self._answers.clear()
                self._answers[namespace] = time.monotonic(), answer
            return answer


_T = TypeVar("_T")

log = structlog.get_logger("offload.admin")

_READY_WITHIN_S = 0.8
_READY_KEPT_S = 1.0
_METRICS_WITHIN_S = 10.0


def make_app(
    store: WritableMetadataStore,
    policies: PolicyStore,
    topics: RecordedTopics,
    *,
    tokens: Tokens | None,
    registry: CollectorRegistry,
    service: ServiceSettings,
) -> Starlette:
    """The application over an open metadata store.

    Args:
        tokens: whose tokens are accepted; None: none is needed.
        registry: what `/metrics` shows; what offloads counts into the same.
    """
    has_answered = _TimedAnswer(
        lambda: store.get("/admin/policies"), _READY_WITHIN_S, kept_s=_READY_KEPT_S
    )  # it lists nothing, and needs no token
    collected = _TimedAnswer(lambda: generate_latest(registry), _METRICS_WITHIN_S)

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_: Request) -> Response:
        try:
            await has_answered()
        except (TimeoutError, OffloadError) as error:
            log.warning("not ready", error=str(error) or f"no answer in {_READY_WITHIN_S} s")
            return refused(503, "the metadata store does not answer")
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        try:
            return Response(await collected(), media_type=CONTENT_TYPE_LATEST)
        except TimeoutError:
            return refused(503, "metrics cannot be collected in time")

    return Starlette(
        routes=[
            AdminRoute("/healthz", alive),
            AdminRoute("/readyz", ready),
            AdminRoute("/admin/v2/brokers/health", ready),
            AdminRoute("/metrics", metrics),
            *policy_routes(policies, lambda namespace: bool(topics.names(namespace))),
            *topic_routes(topics, policies),
            *schema_routes(policies),
            *ui_routes(topics, tokens=tokens is not None),
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


class _TimedAnswer(Generic[_T]):
    """A question that is asked once at a time, in a thread of its own; requests that come meanwhile get that answer.

    Args:
        kept_s: requests that come within this time after it was asked get that answer, too.

    Raises:
        TimeoutError: there is no answer in time; the next request waits for the same one. Others: those of `ask`.
    """

    def __init__(self, ask: Callable[[], _T], within_s: float, kept_s: float = 0.0) -> None:
        self._ask, self._within_s, self._kept_s = ask, within_s, kept_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="asked")
        self._answer: Future[_T] | None = None
        self._asked_at = 0.0

    async def __call__(self) -> _T:
        now = time.monotonic()
        if self._answer is None or (self._answer.done() and now - self._asked_at >= self._kept_s):
            self._answer, self._asked_at = self._thread.submit(self._ask), now
        answer = self._answer
        await asyncio.wait([asyncio.wrap_future(answer)], timeout=self._within_s)
        if not answer.done():
            raise TimeoutError
        return answer.result()
