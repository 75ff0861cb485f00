"""Feeds an open segment: entries in their order, over the ends of ledgers, up to where it closes."""

from __future__ import annotations

import enum
from collections.abc import Callable

from offload_core.managed_ledger.owned_record import OwnedRecord
from offload_core.managed_ledger.streaming.entry_source import EntrySource
from offload_core.managed_ledger.streaming.plan import following, stop_in, takes_segment
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, LedgerRecord
from offload_core.offload import OfferResult
from offload_core.offload.recorded_segments import RecordedSegment
from offload_hooks.errors import AttemptError, UnknownLedgerError

LOOKS = 8
"""So often it is only asked for memory, before entries that were refused are read and offered again."""
STALLED_STEPS = 20
"""So often in a row there was no memory: then there was none for long."""


class Fed(enum.Enum):
    """What a step of feeding came to."""

    MORE = "more can be fed at once"
    ALL = "nothing is left that is acknowledged, and that the filter decides of"
    FULL = "there is no memory just now"
    STALLED = "nor was there any"
    STARVED = "nor was there any for long: some segment is to be closed early"
    CLOSED = "the segment is closed"


class SegmentFeed:
    """Feeds the segments of one topic; used by one thread at a time."""

    def __init__(self, source: EntrySource, owned: OwnedRecord, view: Callable[[], LedgersView]) -> None:
        self._source = source
        self._owned = owned
        self._view = view
        self._refused_bytes: int | None = None
        self._looks = self._stalled = 0

    def step(self, segment: RecordedSegment, *, is_on: bool, close_behind: EntryPosition | None) -> Fed:
        """Offer some entries, go on into the next ledger, or close the segment.

        Args:
            is_on: else a segment that is open ends with its ledger.
            close_behind: the segment's last entry, if it does not close before.

        Raises:
            UnknownLedgerError: a ledger was deleted.
            OffloadError: of the hot tier and the record.
        """
        view, (ledger_id, next_id) = self._view(), (segment.next.ledger_id, segment.next.entry_id)
        ledger = self._owned.info.ledger(ledger_id)
        if ledger is None or not view.has(ledger_id):
            raise UnknownLedgerError("a ledger of the open segment was deleted", ledger_id=ledger_id)
        ended = ledger.info if ledger.info.is_closed and ledger.info.entries == next_id else None
        if close_behind is not None and segment.next > close_behind:
            segment.close(ended)
            return Fed.CLOSED
        stop = stop_in(ledger_id, view.entry_count(view.find(ledger_id)), segment.stop)
        if segment.end is not None and segment.end.ledger_id == ledger_id:
            stop = min(stop, segment.end.entry_id + 1)
        if next_id < stop:
            fed = self._offer(segment, ledger_id, next_id, stop)
            self._stalled = self._stalled % STALLED_STEPS + 1 if fed is Fed.STALLED else 0
            return Fed.STARVED if self._stalled == STALLED_STEPS else fed
        if ended is None:
            return Fed.ALL
        after = following(self._owned.read(), ledger_id)
        if segment.end is None and (not is_on or _is_border(after, segment)):
            segment.close(ended)
            return Fed.CLOSED
        if after is None:
            return Fed.ALL
        segment.extend(ended, after.ledger_id)
        return Fed.MORE

    def _offer(self, segment: RecordedSegment, ledger_id: int, first: int, stop: int) -> Fed:
        refused, self._looks = self._refused_bytes, self._looks + 1
        if refused is not None and self._looks < LOOKS and not segment.can_offer(refused):
            return Fed.STALLED
        entries = self._source.read(ledger_id, first, stop)
        offered = segment.offer(ledger_id, entries)
        self._refused_bytes, self._looks = None, 0
        self._source.pass_by(offered.accepted, ledger_id, first + offered.accepted)
        if offered.result is OfferResult.NOT_CONSECUTIVE:
            raise AttemptError("a segment was offered another entry than its next", ledger_id=ledger_id)
        if segment.is_closed:
            return Fed.CLOSED
        if offered.result is OfferResult.BUFFER_FULL:
            lengths = entries.offsets[offered.accepted : offered.accepted + 2]
            self._refused_bytes = int(lengths[1] - lengths[0])
            return Fed.FULL if offered.accepted else Fed.STALLED
        return Fed.MORE


def _is_border(after: LedgerRecord | None, segment: RecordedSegment) -> bool:
    """Whether a segment cannot go on into the ledger that comes next."""
    return after is not None and not takes_segment(after, segment.uuid)
