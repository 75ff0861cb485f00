"""Copies that no record tells of: of each ledger that is in several objects, which is read, and do they go together.

As readers choose without records: the newest whole copy; without one, of segments that begin with the same entry the
newest. A copy that stands in for another supersedes none, nor is it superseded: records may name either. Of a topic's
first ledger here the beginning may have been trimmed. Source: offload_core/catalogue/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from offload_core.codec.object_format import ObjectFormat
from offload_core.verify.codes import Code
from offload_core.verify.findings import Finding
from offload_core.verify.objects import LedgerExtent
from offload_core.verify.survey import Surveyed

Copy = tuple[Surveyed, LedgerExtent]
"""A ledger's entries in one object."""

HasBroken = Callable[[str | None, str | None], bool]


def check_copies(copies: Iterable[Copy], has_broken: HasBroken) -> Iterator[Finding]:
    """What is wrong with the copies of ledgers; those of one ledger together, segments by their first entries.

    `has_broken` tells of cluster and managed ledger whether there are objects of which nobody knows what they hold.
    """
    topic_before: tuple[str | None, str | None] | None = None
    for (cluster, managed_ledger, _), of_ledger in groupby(copies, key=_ledger_of):
        is_first, topic_before = (cluster, managed_ledger) != topic_before, (cluster, managed_ledger)
        if cluster is None and managed_ledger is None:
            continue  # ids of two clusters collide: nothing tells whether these are of one ledger
        found = list(of_ledger)
        whole = [each for each in found if each[0].key.object_format is not ObjectFormat.STREAMING]
        segments = [each for each in found if each[0].key.object_format is ObjectFormat.STREAMING]
        if whole:
            yield from _check_whole(whole, segments)
        else:
            is_first = is_first and managed_ledger is not None and not has_broken(cluster, managed_ledger)
            yield from _check_segments(segments, is_first=is_first)


def _ledger_of(copy: Copy) -> tuple[str | None, str | None, int]:
    return copy[0].cluster, copy[0].managed_ledger, copy[1].ledger_id


def _age(copy: Copy) -> tuple[float, str]:
    return copy[0].modified_at, copy[0].key.data_key


def _check_whole(whole: Sequence[Copy], segments: Sequence[Copy]) -> Iterator[Finding]:
    *older, newest = sorted(whole, key=_age)
    for copy in older:
        if copy[1].entries != newest[1].entries and not (copy[0].has_gaps or newest[0].has_gaps):
            yield _finding(
                Code.COPIES_DIFFER,
                copy,
                expected=f"{newest[1].entries} entries as in {newest[0].key.data_key}",
                found=f"{copy[1].entries} entries",
            )
        else:
            yield from _superseded(copy, newest)
    for copy in segments:
        yield from _superseded(copy, newest)


def _check_segments(segments: Sequence[Copy], *, is_first: bool) -> Iterator[Finding]:
    chosen: list[Copy] = []
    for _, same in groupby(segments, key=lambda copy: copy[1].first_entry_id):
        *older, newest = sorted(same, key=_age)
        for copy in older:
            yield from _superseded(copy, newest)
        chosen.append(newest)
    # What was trimmed stays in an object as long as a later ledger is in it.
    may_be_trimmed = is_first and (chosen[0][0].last_ledger_id or 0) > chosen[0][1].ledger_id
    stop: int | None = chosen[0][1].first_entry_id if may_be_trimmed else 0
    has_gaps = False
    for copy in chosen:
        first = copy[1].first_entry_id
        has_gaps |= copy[0].has_gaps
        if stop is not None and first > stop and not has_gaps:
            yield _finding(
                Code.GAP, copy, entry_id=stop, expected=f"entry {stop}", found=f"entries from {first} on"
            )
        elif stop is not None and first < stop:
            yield _finding(
                Code.OVERLAP, copy, entry_id=first, expected=f"entries from {stop} on", found=f"entry {first}"
            )
        has_gaps = copy[0].has_gaps
        stop = copy[1].stop_entry_id


def _superseded(copy: Copy, newest: Copy) -> Iterator[Finding]:
    if not (copy[0].stands_in or newest[0].stands_in):
        found = f"a newer copy in {newest[0].key.data_key}"
        yield _finding(Code.SUPERSEDED, copy, expected=None, found=found)


def _finding(
    code: Code, copy: Copy, *, expected: str | None, found: str, entry_id: int | None = None
) -> Finding:
    return Finding(
        code=code,
        what=code.meaning,
        key=copy[0].key.data_key,
        ledger_id=copy[1].ledger_id,
        entry_id=entry_id,
        expected=expected,
        found=found,
    )
