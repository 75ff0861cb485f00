"""Where the read of a topic ends: before its first transaction that is open, as a broker's max read position.

A Pulsar transaction ends, at the latest when its coordinator times it out. So what is open lies near the end of a
topic, and only its tail is read: what was published within the timeout before its newest entry, in small steps from
the end on. What lies before the tail counts as settled; a task that finds otherwise reports it.
Source: docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.messages.kernels.entry_fields import OPEN
from offload_core.metadata.catalogue import Ledger, Topic, concurrently
from offload_core.reading.scan.extents import extents_of, read_ledger, read_scan_ledger
from offload_core.reading.scan.options import ScanOptions
from offload_core.reading.scan.plan import Bounds, first_asked
from offload_core.reading.scan.tasks import Neighbours, Place, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.transactions.outcomes import (
    END,
    NO_RANGES,
    Table,
    clip,
    name_transactions,
    outcomes,
)
from offload_core.reading.scan.transactions.pieces import Piece, PieceReader
from offload_core.storage.tier import Tier

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailReader:
    """Finds the open transactions of topics in their tails, and remembers them while the topics are the same.

    Attributes:
        asked: the scan's options, with the limits of a tail.
    """

    tier: Tier
    asked: ScanOptions
    _known: dict[str | None, tuple[Topic, Place, Table]] = field(default_factory=dict)

    def open_in(self, topic: Topic, start: Place, stop: Place) -> Table:
        """The ranges of entries between two positions (half-open) whose transactions are open.

        int64: ledger, first and stop entry, most and least bits of the transaction, a row each, ascending.

        Raises:
            FormatError, StoreError: of the objects.
        """
        known = self._known.get(topic.full_name)
        if known is None or known[0] != topic or start < known[1]:
            known = self._known[topic.full_name] = (topic, start, self._read(topic, start))
        return clip(known[2], start, stop)

    def _read(self, topic: Topic, start: Place) -> Table:
        pieces: list[Piece] = []
        unsettled, left, judged = NO_RANGES, self.asked.transaction_search_bytes, 0
        tail: Place | None = None  # where it begins, once all its bytes are read

        def extents() -> Iterator[LedgerExtent]:
            for ledger in reversed(topic.ledgers):
                if _is_settled(ledger) and not len(unsettled):
                    return  # a filter takes only what is settled: so is all before it
                for extent in reversed(read_ledger(self.tier, ledger).extents):
                    if extent.blocks:
                        yield extent

        reader = PieceReader(tier=self.tier, verify_checksums=self.asked.verify_checksums)
        for piece in reader.backwards(extents()):
            pieces.append(piece)
            left -= piece.data_bytes
            if left > 0 and len(pieces) < judged * 5 // 4:
                continue  # of many small ones, not after each
            judged = len(pieces)
            unsettled = _open_of(pieces, start if tail is None else tail)
            if self._reaches(pieces, unsettled, start):
                return unsettled
            if left > 0:
                continue
            if tail is not None or not len(unsettled):
                return unsettled
            tail = max(start, piece.first)
            place = tuple(unsettled[0, :2].tolist())
            before = sum(each.data_bytes for each in pieces if each.stop <= place)
            left = self.asked.transaction_search_bytes - before  # as far before it aborts are searched for
            if left <= 0:
                return unsettled
        return _open_of(pieces, start if tail is None else tail)

    def _reaches(self, pieces: Sequence[Piece], unsettled: Table, start: Place) -> bool:
        """True if nothing that was published before the pieces can be open, or abort what is."""
        last = pieces[-1]
        if last.first <= start and not len(unsettled):
            return True
        newest = max((each.last_ms for each in pieces if each.last_ms is not None), default=None)
        if newest is None or last.first_ms is None:
            return False
        if len(unsettled):
            holder = next(each for each in pieces if each.first <= tuple(unsettled[0, :2].tolist()))
            newest = min(newest, newest if holder.first_ms is None else holder.first_ms)
        slack = self.asked.time_slack_ms + self.asked.transaction_timeout_ms
        return last.first_ms + slack <= newest


def _is_settled(ledger: Ledger) -> bool:
    """True if a filter left out the aborted entries, so that all others count as committed."""
    if ledger.unread is not None:
        return ledger.unread.marks.is_settled
    return bool(ledger.extents) and all(extent.marks.is_settled for extent in ledger.extents)


def _open_of(pieces: Sequence[Piece], start: Place) -> Table:
    """The open ranges from a position on, of pieces from the end backwards."""
    if not pieces:
        return NO_RANGES
    ranges = np.concatenate([each.ranges for each in reversed(pieces)])
    markers = np.concatenate([each.markers for each in reversed(pieces)])
    return clip(ranges[outcomes(ranges, markers) == OPEN], start, (END, 0))


class Cuts:
    """The positions before which the reads of a scan's topics end.

    Args:
        planned: the tasks of the scan.
        topics: the topics of the scan, with all ledgers that may be read for it.
        bounds: what was asked for, if conditions left out some of it: a transaction that is open there counts.

    Attributes:
        counts_more: there are such bounds.
    """

    def __init__(
        self,
        tier: Tier,
        asked: ScanOptions,
        planned: Iterable[ScanTask],
        topics: Iterable[Topic],
        bounds: Bounds | None = None,
    ) -> None:
        self._tier = tier
        self._asked = asked
        self._tails = TailReader(tier=tier, asked=asked)
        self._topics = {topic.full_name: topic for topic in topics}
        self._bounds = bounds
        self._ranges: dict[str | None, tuple[Place, Place]] = {}
        unsettled: dict[str | None, None] = {}
        for each in (each for task in planned for each in task.extents):
            begin, _ = self._ranges.get(each.topic, (_begin_of(each), None))
            self._ranges[each.topic] = begin, _end_of(each)
            if not _is_resolved(each):
                unsettled[each.topic] = None
        self._unsettled = list(unsettled)
        self._places: dict[str | None, Place | None] = {}
        self.counts_more = bounds is not None

    def of(self, topic: str | None) -> Place | None:
        """The position before which a topic's read ends; None if nothing is open. Read when it is first asked for.

        Raises:
            FormatError, StoreError: of the objects.
        """
        if topic not in self._places:
            start, stop = self._ranges[topic]
            begin = (
                None if self._bounds is None else first_asked(self._tier, self._topics[topic], self._bounds)
            )
            if begin is not None:
                start = min(start, (begin.ledger_id, begin.entry_id))
            self.set(topic, self._tails.open_in(self._topics[topic], start, stop))
        return self._places[topic]

    def set(self, topic: str | None, unsettled: Table) -> None:
        """End a topic's read before the first of these open ranges, if there are any."""
        self._places[topic] = None
        if not len(unsettled):
            return
        ledger_id, entry_id = unsettled[0, :2].tolist()
        self._places[topic] = ledger_id, entry_id
        count, named = name_transactions(unsettled)
        _log.warning(
            "%s: the outcome of %d transactions is not known%s: %s. Nothing from %d:%d on is read, as by a consumer; "
            "isolation uncommitted reads all",
            self._topics[topic].label,
            count,
            ""
            if self._asked.ledger is None
            else " from this ledger alone, their markers may lie in later ones",
            named,
            ledger_id,
            entry_id,
        )

    @property
    def search_bytes(self) -> int:
        """The most stored bytes of a topic's end that are read."""
        return self._asked.transaction_search_bytes

    def searched(self) -> Iterator[tuple[Topic, Place]]:
        """The topics whose ends `plan` reads, each with the first position of its range."""
        for name in self._unsettled:
            yield self._topics[name], self._ranges[name][0]

    def plan(self, tasks: Sequence[ScanTask]) -> tuple[ScanTask, ...]:
        """Cut all tasks where their topics end; errors as of `of`, and DataLossError."""
        concurrently(self.of, self._unsettled)
        return tuple(cut for task in tasks if (cut := self.cut(task)) is not None)

    def cut(self, task: ScanTask) -> ScanTask | None:
        """Cut a task where those of its topics end for which that is known; None if nothing is left of it."""
        places = {
            each.topic: place for each in task.extents if (place := self._places.get(each.topic)) is not None
        }
        if not places:
            return task
        extents: list[ScanExtent | ScanLedger] = []
        cut_off: dict[str | None, list[ScanExtent | ScanLedger]] = {topic: [] for topic in places}
        for each in task.extents:
            place = places.get(each.topic)
            if place is None or each.ledger_id < place[0]:
                extents.append(each)
            elif each.ledger_id > place[0]:
                cut_off[each.topic].append(each)
            else:
                for extent in self._extents_of(each):
                    before = extent.stopping_at(place[1])
                    extents += [] if before is None else [before]
                    cut_off[each.topic] += [] if before is extent else [extent.starting_at(place[1])]
        if not extents:
            return None
        # The ends of transactions before the cut may come after it.
        neighbours = dict(task.neighbours)
        for topic, of_topic in cut_off.items():
            near = neighbours.get(topic, Neighbours())
            neighbours[topic] = replace(near, after=(*of_topic, *near.after))
        return replace(task, extents=tuple(extents), neighbours=neighbours, cuts=places)

    def _extents_of(self, planned: ScanExtent | ScanLedger) -> Iterable[ScanExtent]:
        if isinstance(planned, ScanExtent):
            return (planned,)
        return extents_of(read_scan_ledger(self._tier, planned), self._asked.fail_on_data_loss)


def _begin_of(planned: ScanExtent | ScanLedger) -> Place:
    entry_id = planned.start_entry_id if isinstance(planned, ScanExtent) else planned.asked.start
    return planned.ledger_id, entry_id


def _end_of(planned: ScanExtent | ScanLedger) -> Place:
    entry_id = planned.stop_entry_id if isinstance(planned, ScanExtent) else planned.asked.stop
    return planned.ledger_id, END if entry_id is None else entry_id


def _is_resolved(planned: ScanExtent | ScanLedger) -> bool:
    if isinstance(planned, ScanExtent):
        return planned.marks.is_settled
    return _is_settled(planned.ledger)
