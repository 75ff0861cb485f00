"""Which entries a topic's next segment begins with, and how far it can go: by the record, without effects.

A segment begins directly behind what is offloaded of a ledger, of the oldest ledger that is not offloaded wholly. It
goes on into the next ledger, unless that has a copy of its own, or streaming was switched off: then it ends with its
ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.segment_shares import (
    Segment,
    offered_stop,
    share_of,
    shares_of,
    unfinished_segment,
)


def next_begin(info: ManagedLedgerInfo, *, is_on: bool) -> EntryPosition | None:
    """Where the next segment begins, all segments being complete; None if there is no ledger for it.

    Switched off, only a ledger that is partly in segments is gone on with.
    """
    for ledger in info.in_order:
        stop = offered_stop(ledger)
        if (
            ledger.is_condemned
            or has_whole_copy(ledger)
            or (ledger.info.is_closed and stop >= (ledger.info.entries or 0))
        ):
            continue
        if is_on or shares_of(ledger):
            return EntryPosition(ledger.ledger_id, stop)
    return None


def is_left(info: ManagedLedgerInfo) -> bool:
    """Whether segments have something to finish, also where streaming is off."""
    return unfinished_segment(info) is not None or next_begin(info, is_on=False) is not None


def has_whole_copy(ledger: LedgerRecord) -> bool:
    """Whether segments have nothing to do with a ledger: it is offloaded as a whole, or to be deleted."""
    context = ledger.context
    return context is not None and not context.segments and (context.complete or context.bookkeeper_deleted)


def has_attempt(ledger: LedgerRecord) -> bool:
    """Whether an offload of the whole ledger is under way, or was left."""
    context = ledger.context
    return (
        context is not None
        and context.uuid is not None
        and not context.segments
        and not has_whole_copy(ledger)
    )


def following(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord | None:
    """The next ledger that has or may get entries; None if there is none yet."""
    return next(all_following(info, ledger_id), None)


def all_following(info: ManagedLedgerInfo, ledger_id: int) -> Iterator[LedgerRecord]:
    """The ledgers behind one that have or may get entries, in their order."""
    return (
        ledger
        for ledger in info.in_order
        if ledger.ledger_id > ledger_id and not (ledger.info.is_closed and not ledger.info.entries)
    )


def takes_segment(ledger: LedgerRecord, uuid: UUID | None = None) -> bool:
    """Whether a segment of the ledger before may go on into this one, or, if it is this one, has."""
    context = ledger.context
    if context is None or (uuid is not None and share_of(ledger, uuid) is not None):
        return True
    return context.uuid is None and ledger.has_hot_copy


def stop_in(ledger_id: int, stop: int, bound: EntryPosition | None) -> int:
    """A ledger's entries before `stop` end there, or at a bound that lies before it."""
    if bound is None or ledger_id < bound.ledger_id:
        return stop
    return min(stop, bound.entry_id) if ledger_id == bound.ledger_id else 0


def can_be_whole(info: ManagedLedgerInfo, segment: Segment) -> bool:
    """Whether the entries of an unfinished segment are there: of a ledger that was cut, they may have gone."""
    known = (position for position in (segment.begin, segment.end) if position is not None)
    return all(_may_have(info.ledger(position.ledger_id), position) for position in known)


def _may_have(ledger: LedgerRecord | None, position: EntryPosition) -> bool:
    """Whether a ledger has an entry, or may get it; one that was deleted need not."""
    return ledger is None or not ledger.info.is_closed or position.entry_id < (ledger.info.entries or 0)


def pending_bytes(
    info: ManagedLedgerInfo,
    view: LedgersView,
    begin: EntryPosition,
    enough: int,
    stop: EntryPosition | None = None,
) -> int:
    """About how many bytes of payloads are acknowledged from a position on, before `stop`; 0 only if there is no entry.

    No more is counted than enough.
    """
    found = 0
    for place in range(view.find(begin.ledger_id), len(view.ledger_ids)):
        ledger_id, count = view.ledger_ids[place], view.entry_count(place)
        first = begin.entry_id if ledger_id == begin.ledger_id else 0
        end = stop_in(ledger_id, count, stop)
        if first >= end:
            continue
        writer = view.writer
        if writer is not None and writer.ledger_id == ledger_id:
            size = writer.status.size_bytes
        else:
            ledger = info.ledger(ledger_id)
            size = 0 if ledger is None else ledger.info.size or 0
        found += max(1, size * (end - first) // count)
        if found >= enough:
            break
    return found
