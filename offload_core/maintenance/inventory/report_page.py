"""The page: HTML with its style, its program and its data in it, and a policy that lets nothing else in.

All that comes from a store is in one block of JSON, whose `<` are escaped, and reaches the page as text only: the
program sets `textContent`. The policy names the style and the program by their hashes, so that nothing else would run.
Source: docs/report.md; ADR 0042, ADR 0071.
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

_MARK = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, and the Content-Security-Policy that it is to be served with; without a server it has its own."""

    html: str
    policy: str


def report_page(data: Mapping[str, Any]) -> Page:
    """The page about a tier, with all data in it."""
    return _page(data, connect="'none'", title="Offloaded topics")


def live_page(*, tokens: bool) -> Page:
    """The page of a service, which asks it for `ui/status`; it has no data in it.

    Args:
        tokens: the service needs a token, which the page then asks for.
    """
    return _page({"live": "ui/status", "tokens": tokens}, connect="'self'", title="Offloads")


def _page(data: Mapping[str, Any], *, connect: str, title: str) -> Page:
    style, program = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; script-src {_source(program)}; style-src {_source(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    parts = {"title": title, "policy": policy, "style": style, "data": embedded(data), "program": program}
    html = _MARK.sub(lambda mark: parts[mark[1]], _asset("page.html"))
    return Page(html=html, policy=f"{policy}; frame-ancestors 'none'")


def embedded(data: Mapping[str, Any]) -> str:
    """JSON for a `script` element: nothing in it can end that, or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _source(text: str) -> str:
    """The source of the policy that allows this text, and no other, in an element of the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _asset(name: str) -> str:
    folder = files("offload_core.maintenance.inventory") / "report_assets"
    return (folder / name).read_text(encoding="utf-8")
