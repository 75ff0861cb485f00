"""The parts of a topic's ledgers that are looked through for transactions, from a position on and back from it.

Of objects that a filter has cleaned only markers count: what else is left in them was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.extent import LedgerExtent
from offload_core.metadata.catalogue import Ledger, Topic, concurrently
from offload_core.reading.scan.runs import read_ledger
from offload_core.reading.scan.tasks import Run
from offload_core.reading.scan.transactions.summary import LedgerSummary
from offload_core.reading.scan.transactions.survey import MOST_WORKERS, Part
from offload_core.storage.tier import Tier

Table = npt.NDArray[np.int64]

Place = tuple[int, int]
"""Ledger and entry."""

END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A part that is looked through, and which of its entries count (`begin` … `end` − 1).

    `markers_only` of what a filter has left: it is worth a look only while others have transactions that are open.
    """

    part: Part
    begin: int
    end: int
    markers_only: bool

    @property
    def first(self) -> Place:
        """The first entry of it that counts."""
        run = self.part.run
        return run.ledger_id, max(self.begin, run.blocks[0].first_entry_id)

    def clip(self, summary: LedgerSummary) -> tuple[Table, Table]:
        """The part's ranges and markers, without what does not count."""
        ranges, markers = summary.ranges, summary.markers
        ranges = ranges[(ranges[:, 1] > self.begin) & (ranges[:, 0] < self.end)].copy()
        ranges[:, 0] = np.maximum(ranges[:, 0], self.begin)
        ranges[:, 1] = np.minimum(ranges[:, 1], self.end)
        return ranges, markers[(markers[:, 0] >= self.begin) & (markers[:, 0] < self.end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicParts:
    """Names the parts of a topic.

    Attributes:
        known: ledgers whose index has been read since the topic was listed, by id.
        whole: parts are whole, as summaries are; else they are the blocks that are needed.
    """

    tier: Tier
    topic: Topic
    known: Mapping[int, Ledger]
    whole: bool

    def since(self, start: Place, stop: Place) -> Iterator[Looked]:
        """What there is from a position on, in order; what lies behind `stop` in parts of its own."""
        for ledger in self._ledgers(start[0], stop[0]):
            begin = start[1] if ledger.ledger_id == start[0] else 0
            for extent in ledger.extents:
                end = END if extent.stop_entry_id is None else extent.stop_entry_id
                if not extent.ledger.blocks or end <= begin:
                    continue
                for part in self._split(_whole_part(self.topic, ledger, extent), begin, stop):
                    yield _looked(extent, part, max(begin, extent.first_entry_id), end)

    def before(self, start: Place) -> Iterator[Looked]:
        """What there is before a position, the nearest first, block by block unless parts are whole."""
        for ledger in reversed(self.topic.ledgers):
            if ledger.ledger_id > start[0] or (ledger.ledger_id == start[0] and not start[1]):
                continue
            read = read_ledger(self.tier, self.known.get(ledger.ledger_id, ledger))
            stop = start[1] if ledger.ledger_id == start[0] else END
            for extent in reversed(read.extents):
                end = stop if extent.stop_entry_id is None else min(stop, extent.stop_entry_id)
                if not extent.ledger.blocks or end <= extent.first_entry_id:
                    continue
                whole = _whole_part(self.topic, ledger, extent)
                for part in [whole] if self.whole else self._blocks_before(whole, end):
                    yield _looked(extent, part, extent.first_entry_id, end)

    def _ledgers(self, first_ledger: int, last_ledger: int) -> Iterator[Ledger]:
        """The ledgers from one on, with their indexes; those behind the last are read a few at a time."""
        from_there = [
            self.known.get(ledger.ledger_id, ledger)
            for ledger in self.topic.ledgers
            if ledger.ledger_id >= first_ledger
        ]
        begin, count = 0, sum(ledger.ledger_id <= last_ledger for ledger in from_there)
        while begin < len(from_there):
            some = from_there[begin : begin + max(count, MOST_WORKERS)]
            yield from concurrently(partial(read_ledger, self.tier), some)
            begin, count = begin + len(some), 0

    def _split(self, whole: Part, begin: int, stop: Place) -> Iterator[Part]:
        """Where parts need not be whole, only the blocks that are needed, those behind the stop apart."""
        if self.whole:
            yield whole
            return
        run = whole.run.starting_at(begin)
        here = len(run.blocks)
        if run.ledger_id >= stop[0]:
            below = stop[1] if run.ledger_id == stop[0] else 0
            here = int(np.searchsorted(run.blocks.first_entry_ids, below))
        for blocks in (run.blocks[:here], run.blocks[here:]):
            if blocks:
                yield replace(whole, run=replace(run, blocks=blocks, start_entry_id=0), is_whole=False)

    def _blocks_before(self, whole: Part, end: int) -> Iterator[Part]:
        blocks = whole.run.blocks
        for number in reversed(range(int(np.searchsorted(blocks.first_entry_ids, end)))):
            yield replace(whole, run=replace(whole.run, blocks=blocks[number : number + 1]), is_whole=False)


def _looked(extent: LedgerExtent, part: Part, begin: int, end: int) -> Looked:
    return Looked(part=part, begin=begin, end=end, markers_only=extent.marks.is_settled)


def _whole_part(topic: Topic, ledger: Ledger, extent: LedgerExtent) -> Part:
    run = Run(
        topic=topic.full_name,
        partition=topic.partition,
        ledger_id=ledger.ledger_id,
        object_format=extent.object_format,
        data_key=extent.data_key,
        blocks=extent.ledger.blocks,
        sequence_file=extent.sequence_file,
        has_gaps=extent.marks.skips_ids,
    )
    return Part(run=run, data_bytes=ledger.stored(extent).data_bytes or 0, is_whole=True)
