"""The header `Retry-After` of HTTP (RFC 9110, 10.2.3): how long a server asks to wait before it is asked again."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from offload_hooks.json_text import whole_number


def seconds_to_wait(retry_after: str) -> float | None:
    """The header's value, seconds or a date, as seconds from now on; None for one that makes no sense."""
    text = retry_after.strip()
    seconds = whole_number(text)
    if seconds is not None:
        return float(seconds)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
