"""`/ui`: a page for people, and what it asks for: topics, what of them is offloaded, and how their offloads stand."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from offload_core.admin.requests import AdminRoute, in_thread, shown
from offload_core.admin.topics import Topics
from offload_core.catalogue import TopicName
from offload_core.report import live_page
from offload_hooks.errors import OptionError, UnknownTopicError

MOST_TOPICS = 200
"""So many topics are told of at once; more are asked for by their namespace."""

_KEPT_S = 2.0
"""Pages that ask at the same time are told the same."""

_MOST_KEPT = 64

_SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def ui_routes(topics: Topics) -> list[Route]:
    """The page, which anybody may have, and its data, which is told to whom the other routes tell theirs."""
    told = _Kept(lambda namespace: status_to_json(topics, namespace))

    async def page(_: Request) -> Response:
        html, policy = await in_thread(_page)
        return HTMLResponse(html, headers={**_SAFE, "Content-Security-Policy": policy})

    async def status(request: Request) -> Response:
        namespace = request.query_params.get("namespace", "").strip() or None
        if namespace is not None and (namespace.count("/") != 1 or not all(namespace.split("/"))):
            raise OptionError("this is no namespace", expected="tenant/namespace", found=namespace)
        answer = shown(await in_thread(told, namespace))
        answer.headers.update(_SAFE)
        return answer

    return [AdminRoute("/ui", page), AdminRoute("/ui/status", status)]


@functools.cache
def _page() -> tuple[bytes, str]:
    """The page, encoded once for all requests: it is large, and anybody may have it."""
    made = live_page()
    return made.html.encode(), made.policy


def status_to_json(topics: Topics, namespace: str | None) -> dict[str, Any]:
    """The first topics of a namespace, or of all, and how many there are."""
    names = topics.names(namespace)
    rows = [row for name in names[:MOST_TOPICS] if (row := _row(topics, name)) is not None]
    return {"count": len(names), "topics": rows}


def _row(topics: Topics, name: TopicName) -> dict[str, Any] | None:
    """A topic; None if it has gone meanwhile."""
    try:
        ledgers = topics.internal_stats(name)["ledgers"]
        status = topics.offload_status(name)
    except UnknownTopicError:
        return None
    why = str(status.error) if status.error is not None else "; ".join(status.waiting.values())
    offloaded = [ledger for ledger in ledgers if ledger["offloaded"]]
    cold = sum(ledger["size"] for ledger in offloaded)
    return {
        "name": name.full,
        "status": status.state,
        "ledgers": len(ledgers),
        "offloaded": len(offloaded),
        "cold": cold,
        "hot": sum(ledger["size"] for ledger in ledgers) - cold,
        "why": why,
    }


class _Kept:
    """What was told a moment ago, told again; one asks at a time."""

    def __init__(self, ask: Callable[[str | None], dict[str, Any]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._told: dict[str | None, tuple[float, dict[str, Any]]] = {}

    def __call__(self, namespace: str | None) -> dict[str, Any]:
        with self._lock:
            at, told = self._told.get(namespace, (0.0, {}))
            if not told or time.monotonic() - at > _KEPT_S:
                told = self._ask(namespace)
                if len(self._told) >= _MOST_KEPT:
                    self._told.clear()
                self._told[namespace] = time.monotonic(), told
            return told
