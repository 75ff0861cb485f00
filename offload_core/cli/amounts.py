"""Sizes and durations as people type them, as `pulsar-admin` takes them: 10M, 1G, 300, 5m, 2h, 1d."""

from __future__ import annotations

import re

from offload_hooks.errors import OptionError

_AMOUNT = re.compile(r"(?P<number>-?[0-9]{1,18})\s*(?P<unit>[a-zA-Z]*)")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_size(text: str) -> int:
    """Bytes; `OptionError` for text that is no size. Negative ones have no unit: they stand for none."""
    return _parse(text, _SIZES, "a size", "10M, 1G or a number of bytes")


def parse_seconds(text: str) -> int:
    """Seconds; `OptionError` for text that is no duration. Negative ones have no unit: they stand for none."""
    return _parse(text, _SECONDS, "a duration", "300, 5m, 2h or 1d")


def _parse(text: str, units: dict[str, int], what: str, expected: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    unit = None if match is None else units.get(match["unit"].lower())
    if match is None or unit is None or (match["unit"] and match["number"].startswith("-")):
        raise OptionError(f"this is not {what}", expected=expected, found=text)
    return int(match["number"]) * unit
