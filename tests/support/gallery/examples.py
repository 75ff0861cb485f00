"""Examples in the place of what differs each time: moments, durations, rates, random ids; each as long as it was.

What is the same each time stays, such as the times and keys of what a broker wrote long ago.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from random import Random
from uuid import UUID

from golden import stored_objects

_HOUR = timedelta(hours=1)
OLD = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(days=8)
"""The beginning of the hour that old objects have their times from, so that their age is the same each time."""

_OLD, _NOW = "2026-11-13 08", "2026-11-21T08:30:00.000000Z"

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)[\d:.]*Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CHECK_S = re.compile(r"(?<=ok        )\d\.\d{3}(?=  )")
_TOOK = re.compile(r"\d+\.\d (?=s\b|ms\b)")
_RATE = re.compile(r"[\d,]+(?= MB/s)")
_AGE = re.compile(r"(?<=  )[\d,]{7,} s$")
_LONG_WORK = re.compile(r"offload: \w+: .* \d+\.\d s$")
"""The line of what took more than some seconds, on a slow machine."""


class Examples:
    """Of one page, on which the same id is the same everywhere."""

    def __init__(self) -> None:
        self._uuids = {key[:36]: key[:36] for key, _, _ in stored_objects()}
        self._numbers = Random(0)

    def of_names(self, printed: str) -> str:
        """What a terminal is sent, with examples of ids and moments, before it breaks lines."""
        return _MOMENT.sub(_moment, _UUID.sub(self._uuid, printed))

    def of_numbers(self, lines: Iterable[str]) -> list[str]:
        """What a terminal shows, with examples of numbers, which may have come in colours."""
        return [_numbers(line) for line in lines if not _LONG_WORK.fullmatch(line)]

    def _uuid(self, match: re.Match[str]) -> str:
        if match[0] not in self._uuids:
            self._uuids[match[0]] = str(UUID(int=self._numbers.getrandbits(128), version=4))
        return self._uuids[match[0]]


def _moment(match: re.Match[str]) -> str:
    moment = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
    text = match[0]
    if OLD <= moment < OLD + _HOUR:
        return _OLD + text[len(_OLD) :]
    if abs(datetime.now(timezone.utc) - moment) < _HOUR:
        return f"{_NOW[:10]}{text[10]}{_NOW[11 : len(text) - 1]}{text[-1]}"
    return text


def _numbers(line: str) -> str:
    line = _CHECK_S.sub("0.001", line)
    line = _TOOK.sub("0.4 ", line)
    line = _RATE.sub("800", line)
    return _AGE.sub("34,022 s", line)
