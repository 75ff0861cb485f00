"""The page: HTML with its style, its program, Plotly and its data in it, and a policy that lets nothing else in.

All that comes from a store is in one block of JSON, whose `<` are escaped, and reaches the page as text only: the
program sets `textContent`. The policy names the programs by their hashes, so that nothing else would run.
Source: docs/report.md; ADR 0042.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from offload_hooks.errors import MissingExtraError

_MARK = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, and the Content-Security-Policy that it is to be served with; without a server it has its own."""

    html: str
    policy: str


def report_page(data: Mapping[str, Any]) -> Page:
    """The page about a tier, with all data in it.

    Raises:
        MissingExtraError: Plotly is not installed.
    """
    return _page(data, connect="'none'", title="Offloaded topics")


@functools.cache
def live_page() -> Page:
    """The page of a service, which asks it for `ui/status`; it has no data in it.

    Raises:
        MissingExtraError: as `report_page`.
    """
    return _page({"live": "ui/status"}, connect="'self'", title="Offloads")


def _page(data: Mapping[str, Any], *, connect: str, title: str) -> Page:
    plotly, program = _plotly(), _asset("report.js")
    scripts = " ".join(f"'sha256-{_digest(each)}'" for each in (plotly, program))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": title,
        "policy": policy,
        "style": _asset("report.css"),
        "data": embedded(data),
        "plotly": plotly,
        "program": program,
    }
    html = _MARK.sub(lambda mark: parts[mark[1]], _asset("page.html"))
    return Page(html=html, policy=f"{policy}; frame-ancestors 'none'")


def embedded(data: Mapping[str, Any]) -> str:
    """JSON for a `script` element: nothing in it can end that, or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.lru_cache(maxsize=8)
def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _asset(name: str) -> str:
    return (
        files("offload_core.maintenance.inventory")
        .joinpath("report_assets", name)
        .read_text(encoding="utf-8")
    )


@functools.cache
def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a report needs a library that is not installed",
            found=error.name,
            hint="Run: pip install 'pulsar-offload[report]'.",
        ) from error
    program: str = get_plotlyjs()
    if "</script" in program.lower():
        raise AssertionError("Plotly's program cannot stand in a page")
    return program
