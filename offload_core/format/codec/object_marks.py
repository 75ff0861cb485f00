"""Marks in an object's user metadata: entries that it lacks, and copies that it replaces.

Source: docs/formats/index.md, User metadata.

- `pulsaroffloadfiltered` names the filter that took entries out while the object was offloaded. By
  `pulsaroffloadfilteredmode` it left a `gap`, so that ids are missing, or put a `tombstone` of its own in each one's
  place. Without a mode it is `gap`.
- `pulsaroffloadlost` is `N entries: L:A-B,L:A,…`: entries that were lost before the object was made from a damaged one,
  with their ledgers; ranges have both ends, and `...` stands at the end where not all have room.
- `pulsaroffloadmapped` and `pulsaroffloadrepairedfrom` mark a placeholder: an object that replaces a copy which records
  that are not ours, as a live Pulsar's, may still name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_hooks.errors import MetadataError
from offload_hooks.json_text import WHOLE

if TYPE_CHECKING:
    from typing_extensions import Self

FILTERED_KEY = "pulsaroffloadfiltered"
FILTERED_TRANSACTIONS = "transactions"
"""The filter that keeps settled entries only, and of transactions those that were committed."""

FILTERED_MODE_KEY = "pulsaroffloadfilteredmode"
TOMBSTONE_MODE = "tombstone"
GAP_MODE = "gap"

FILTERED_STOP_KEY = "pulsaroffloadfilteredstop"
"""The first position that the filter did not decide on."""
FILTERED_KEPT_KEY = "pulsaroffloadfilteredkept"
FILTERED_DROPPED_KEY = "pulsaroffloadfiltereddropped"
"""Entries and bytes, of an index object only."""

LOST_KEY = "pulsaroffloadlost"
REPAIRED_FROM_KEY = "pulsaroffloadrepairedfrom"
"""The key of the damaged data object that an object was made from."""

MAPPED_KEY = "pulsaroffloadmapped"
"""A mapping of relocations names the object; records perhaps not yet."""

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
        is_all: the ranges have all of them.
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
        """Return True if a ledger lacks an entry from `first` on, below `stop`, or may: not all ranges are given."""
        if not self.is_all:
            return True
        return any(
            ledger == ledger_id and end > first and (stop is None or begin < stop)
            for ledger, begin, end in self.ranges
        )

    def pack(self) -> str:
        """The value of `pulsaroffloadlost`."""
        packed: list[str] = []
        for ledger_id, first, stop in self.ranges:
            text = f"{ledger_id}:{first}" + (f"-{stop - 1}" if stop - first > 1 else "")
            if sum(map(len, packed)) + len(packed) + len(text) > MOST_BYTES:
                packed.append(_MORE)
                break
            packed.append(text)
        else:
            if not self.is_all:
                packed.append(_MORE)
        return f"{self.count} entries: {','.join(packed)}"


def parse_lost(text: str) -> LostEntries:
    """Decode the value of `pulsaroffloadlost`.

    Raises:
        MetadataError: it is malformed.
    """
    match = _TEXT.fullmatch(text)
    parts = [] if match is None else [_RANGE.fullmatch(each) for each in match["ranges"].split(",") if each]
    if match is None or not all(parts):
        raise MetadataError("the list of an object's lost entries cannot be read", found=repr(text[:80]))
    ranges = tuple(
        (int(each[1]), int(each[2]), int(each[3] or each[2]) + 1) for each in parts if each is not None
    )
    if max(int(match["count"]), *(max(each) for each in ranges), 0) not in WHOLE:
        raise MetadataError("the list of an object's lost entries has too large numbers", found=text[:80])
    return LostEntries(count=int(match["count"]), ranges=ranges, is_all=match["more"] is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMarks:
    """The marks of one object.

    Attributes:
        filter_name: the filter that took entries out; None without.
        has_gaps: the filter left ids out. In other objects a missing id is damage.
        lost: entries that the object lacks; None if it states none.
        is_placeholder: it was made in place of a copy that records may still name.
    """

    filter_name: str | None = None
    has_gaps: bool = False
    lost: LostEntries | None = None
    is_placeholder: bool = False

    @classmethod
    def of(cls, user_metadata: Mapping[str, str]) -> Self:
        """The marks that user metadata has. A list of lost entries that cannot be read counts as one lost entry."""
        filter_name, lost = user_metadata.get(FILTERED_KEY), None
        if LOST_KEY in user_metadata:
            try:
                lost = parse_lost(user_metadata[LOST_KEY])
            except MetadataError:
                lost = LostEntries(count=1, ranges=(), is_all=False)
        return cls(
            filter_name=filter_name,
            has_gaps=filter_name is not None
            and user_metadata.get(FILTERED_MODE_KEY, GAP_MODE) != TOMBSTONE_MODE,
            lost=lost,
            is_placeholder=MAPPED_KEY in user_metadata or REPAIRED_FROM_KEY in user_metadata,
        )

    @property
    def is_filtered(self) -> bool:
        """True if a filter took entries out, whichever it was."""
        return self.filter_name is not None

    @property
    def is_settled(self) -> bool:
        """True if all entries of transactions count as committed, with or without a marker."""
        return self.filter_name == FILTERED_TRANSACTIONS

    @property
    def skips_ids(self) -> bool:
        """True if any ids may be missing: left out by a filter, or lost before the object was made."""
        return self.has_gaps or self.lost is not None


NO_MARKS = ObjectMarks()
