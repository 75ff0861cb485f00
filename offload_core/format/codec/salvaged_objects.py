"""What an object's user metadata says of entries that were lost before it was made anew from a damaged one.

`pulsaroffloadlost` is `N entries: L:A-B,L:A,…`: how many of which ledgers are missing, ranges with both ends; `...` in
the end where not all have room. Who has the key lacks entries that its ledger had, so whoever reads it says so. Source:
docs/formats/index.md, User metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from offload_core.format.codec.filtered_objects import has_gaps
from offload_hooks.errors import MetadataError
from offload_hooks.json_text import WHOLE

LOST_KEY = "pulsaroffloadlost"
REPAIRED_FROM_KEY = "pulsaroffloadrepairedfrom"
"""The key of the damaged data object that an object was made from."""

MOST_BYTES = 1000
"""Of the ranges; stores take some 2 KiB of user metadata."""

_MORE = "..."
_TEXT = re.compile(r"(?P<count>[1-9][0-9]{0,18}) entries: (?P<ranges>[0-9:,-]*?),?(?P<more>\.\.\.)?")
_RANGE = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEntries:
    """Entries that an object lacks.

    Attributes:
        count: how many.
        ranges: (ledger, first, one past the last), in order.
        is_all: whether the ranges have all of them.
    """

    count: int
    ranges: tuple[tuple[int, int, int], ...]
    is_all: bool = True

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int]]) -> Self:
        """All of these ranges."""
        ordered = tuple(sorted(each for each in ranges if each[1] < each[2]))
        return cls(count=sum(stop - first for _, first, stop in ordered), ranges=ordered)

    def touches(self, ledger_id: int, first: int, stop: int | None) -> bool:
        """Whether one of them is an entry of a ledger from `first` on, below `stop`; if not all are said, it may be."""
        if not self.is_all:
            return True
        return any(
            ledger == ledger_id and end > first and (stop is None or begin < stop)
            for ledger, begin, end in self.ranges
        )

    def pack(self) -> str:
        """As user metadata has it."""
        said: list[str] = []
        for ledger_id, first, stop in self.ranges:
            text = f"{ledger_id}:{first}" + (f"-{stop - 1}" if stop - first > 1 else "")
            if sum(map(len, said)) + len(said) + len(text) > MOST_BYTES:
                said.append(_MORE)
                break
            said.append(text)
        else:
            if not self.is_all:
                said.append(_MORE)
        return f"{self.count} entries: {','.join(said)}"


def parse_lost(text: str) -> LostEntries:
    """Decode the value of `pulsaroffloadlost`.

    Raises:
        MetadataError: it is none.
    """
    match = _TEXT.fullmatch(text)
    parts = [] if match is None else [_RANGE.fullmatch(each) for each in match["ranges"].split(",") if each]
    if match is None or not all(parts):
        raise MetadataError("what an object says of lost entries cannot be read", found=repr(text[:80]))
    ranges = tuple(
        (int(each[1]), int(each[2]), int(each[3] or each[2]) + 1) for each in parts if each is not None
    )
    if max(int(match["count"]), *(max(each) for each in ranges), 0) not in WHOLE:
        raise MetadataError("what an object says of lost entries has too large numbers", found=text[:80])
    return LostEntries(count=int(match["count"]), ranges=ranges, is_all=match["more"] is None)


def lost_of(user_metadata: Mapping[str, str]) -> LostEntries | None:
    """What an object lacks by its user metadata; None if it says nothing of it.

    What cannot be read says that something is lost, and no more.
    """
    text = user_metadata.get(LOST_KEY)
    if text is None:
        return None
    try:
        return parse_lost(text)
    except MetadataError:
        return LostEntries(count=1, ranges=(), is_all=False)


def skips_ids(user_metadata: Mapping[str, str]) -> bool:
    """Whether any ids may be missing in an object's blocks: left out by a filter, or lost before it was made."""
    return has_gaps(user_metadata) or lost_of(user_metadata) is not None
