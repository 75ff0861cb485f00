"""Where a streaming segment may lie: the ledgers that it may begin in, go on into and end in.

What the record does not allow is refused with an `AttemptError`: then somebody else was there, or the caller is wrong.
Source: PIP-76; docs/formats/metadata.md.
"""

from __future__ import annotations

from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import EntryPosition
from offload_core.metadata.segment_shares import shares_of
from offload_hooks.errors import AttemptError


def ledger_of(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    """The ledger of this id; `AttemptError` if the managed ledger has none."""
    ledger = info.ledger(ledger_id)
    if ledger is None:
        raise AttemptError("the managed ledger has no such ledger", ledger_id=ledger_id)
    return ledger


def check_free(ledger: LedgerRecord) -> LedgerRecord:
    """Refuse a ledger that cannot have another segment, wherever that would begin."""
    ledger_id, context = ledger.ledger_id, ledger.context
    if context is None:
        return ledger
    if not ledger.has_hot_copy:
        raise AttemptError("the ledger's hot copy is gone", ledger_id=ledger_id)
    if context.uuid is not None and not context.segments:
        raise AttemptError(
            "the ledger is offloaded as one object, or about to be", ledger_id=ledger_id, found=context.uuid
        )
    return ledger


def next_ledger(info: ManagedLedgerInfo, behind: int, ledger_id: int) -> LedgerRecord:
    """The ledger of this id, which must be the next behind another that has entries or may get some."""
    following = next(
        (
            each.ledger_id
            for each in info.in_order
            if each.ledger_id > behind and not (each.info.is_closed and not each.info.entries)
        ),
        None,
    )
    if following != ledger_id:
        raise AttemptError(
            "a segment goes on into the next ledger", ledger_id=ledger_id, expected=following, found=ledger_id
        )
    return _without_shares(check_free(ledger_of(info, ledger_id)))


def closed_ledgers(
    info: ManagedLedgerInfo, begin: EntryPosition, end: EntryPosition
) -> list[tuple[LedgerRecord, int]]:
    """The closed ledgers with entries from one position to another, and the last entry of each that is in between."""
    chosen: list[tuple[LedgerRecord, int]] = []
    for ledger in info.in_order:
        if not begin.ledger_id <= ledger.ledger_id <= end.ledger_id:
            continue
        if ledger.info.is_closed and not ledger.info.entries:
            continue
        check_free(ledger)
        if not ledger.info.is_closed:
            raise AttemptError("a segment with an end has closed ledgers only", ledger_id=ledger.ledger_id)
        if chosen:
            _without_shares(ledger)
        last = (ledger.info.entries or 0) - 1
        chosen.append((ledger, min(last, end.entry_id) if ledger.ledger_id == end.ledger_id else last))
    reached = EntryPosition(chosen[-1][0].ledger_id, chosen[-1][1]) if chosen else None
    if reached != end or end < begin:
        raise AttemptError(
            "a segment ends with an entry behind its begin",
            ledger_id=end.ledger_id,
            expected=reached,
            found=end,
        )
    return chosen


def check_whole(ledger: LedgerRecord, first: int, last: int | None, end: EntryPosition) -> None:
    """Refuse a segment's share of a ledger with a gap: an entry before its end is not in it."""
    entries = ledger.info.entries or 0
    if last is None:
        is_whole = ledger.ledger_id > end.ledger_id
    elif ledger.ledger_id == end.ledger_id:
        is_whole = first <= last and not (ledger.info.is_closed and last >= entries)
    else:
        is_whole = ledger.info.is_closed and first <= last == entries - 1
    if not is_whole:
        raise AttemptError(
            "the segment has not all entries from its begin to its end",
            ledger_id=ledger.ledger_id,
            expected=f"from entry {first} to {end}",
            found="none of it" if last is None else f"to entry {last}",
        )


def _without_shares(ledger: LedgerRecord) -> LedgerRecord:
    if shares_of(ledger):
        raise AttemptError("the next ledger has segments of its own", ledger_id=ledger.ledger_id)
    return ledger
