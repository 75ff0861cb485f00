"""Sizes and durations as people type them, as `pulsar-admin` takes them: 10M, 1G, 300, 5m, 2h, 1d; and many ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

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


def id_ranges(ids: Sequence[int]) -> str:
    """Ascending ids in short: those that follow one another as first and last, as in `3, 5–9`."""
    firsts = [i for i, each in enumerate(ids) if not i or each != ids[i - 1] + 1]
    pairs = ((ids[begin], ids[end - 1]) for begin, end in pairwise([*firsts, len(ids)]))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in pairs)


def _parse(text: str, units: dict[str, int], what: str, expected: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    unit = None if match is None else units.get(match["unit"].lower())
    if match is None or unit is None or (match["unit"] and match["number"].startswith("-")):
        raise OptionError(f"this is not {what}", expected=expected, found=text)
    return int(match["number"]) * unit
