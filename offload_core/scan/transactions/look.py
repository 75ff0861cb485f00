"""What became of a topic's transactions in a range of positions: a pass over the topic's metadata, and a judgement.

Looked through are the range, what lies behind it while a transaction of it has no marker yet, and a bounded stretch
before it for those that were aborted there. Source: docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from offload_core.catalogue import Ledger, Topic
from offload_core.messages.kernels.fields import ABORTED, OPEN
from offload_core.scan.entry_ranges import EntryRanges
from offload_core.scan.transactions.memory import SummaryMemory
from offload_core.scan.transactions.outcomes import outcomes
from offload_core.scan.transactions.parts import Looked, Place, Table, TopicParts
from offload_core.scan.transactions.summary_store import SummaryStore
from offload_core.scan.transactions.survey import MOST_WORKERS, survey
from offload_core.tier import Tier

LOOK_BACK_BYTES = 128 << 20
"""An abort is looked for in about so many stored bytes before a range; where parts are whole, to a ledger more."""

_NAMED = 10
"""So many open transactions are named."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """By data object and ledger the entries that were aborted, and those that are open.

    Attributes:
        unsettled: ledger, first entry, and transaction (most and least bits) of the ranges of entries that are open.
    """

    aborted: Mapping[tuple[str, int], EntryRanges]
    open: Mapping[tuple[str, int], EntryRanges]
    unsettled: Sequence[tuple[int, int, int, int]] = ()

    @property
    def first_open(self) -> Place | None:
        """Where the first open entry is."""
        return self.unsettled[0][:2] if self.unsettled else None

    def name_open(self) -> tuple[int, str]:
        """How many transactions are open, and the first of them with their places."""
        firsts: dict[tuple[int, int], str] = {}
        for ledger_id, entry_id, *transaction in self.unsettled:
            firsts.setdefault((transaction[0], transaction[1]), f"{ledger_id}:{entry_id}")
        named = [f"({most},{least}) at {place}" for (most, least), place in firsts.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return len(named), ", ".join(named[:_NAMED]) + more


NOTHING = Outcome(aborted={}, open={})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLook:
    """Looks topics through.

    Attributes:
        kept: the summaries that are kept; None for none.
        memory: what was looked through before in this process; None for nothing.
    """

    tier: Tier
    verify_checksums: bool
    kept: SummaryStore | None = None
    memory: SummaryMemory | None = None

    def look(self, topic: Topic, known: Mapping[int, Ledger], start: Place, stop: Place) -> Outcome:
        """What became of the transactions of a topic's entries from `start` up to `stop`.

        `known` are ledgers whose index has been read since the topic was listed, by id.

        Raises:
            FormatError, StoreError: of the objects that are looked through.
        """
        parts = TopicParts(tier=self.tier, topic=topic, known=known, whole=self.kept is not None)
        behind = parts.since(start, stop)
        within: list[Looked] = []
        filtered: list[Looked] = []
        for each in behind:
            if each.first >= stop:
                behind = chain([each], behind)
                break
            (filtered if each.markers_only else within).append(each)
        ranges, markers = self._survey(within, 0)
        ledger_ids = np.array([each.part.run.ledger_id for each in within], dtype=np.int64)
        in_ledger = ledger_ids[ranges[:, 0]]
        ranges = ranges[(in_ledger < stop[0]) | ((in_ledger == stop[0]) & (ranges[:, 1] < stop[1]))]
        states = outcomes(ranges[:, [0, 1, 3, 4]], markers)
        if len(unknown := np.flatnonzero(states == OPEN)):
            part, first = ranges[unknown[0], :2].tolist()
            place = (within[part].part.run.ledger_id, first)
            border = sum(each.first < place for each in filtered)
            behind = chain(filtered[border:], behind)
            before = chain(filtered[:border][::-1], parts.before(start))
            self._look_behind(behind, len(within), ranges, states)
            self._look_before(before, ranges, markers, states)
        return _judge(within, ranges, states)

    def _look_behind(
        self, behind: Iterator[Looked], looked: int, ranges: Table, states: npt.NDArray[np.int8]
    ) -> None:
        """Settle what is open by the markers behind the range, as far as there are any."""
        while len(unknown := np.flatnonzero(states == OPEN)):
            following = list(islice(behind, MOST_WORKERS))
            if not following:
                break
            _, later = self._survey(following, looked)
            looked += len(following)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], later)

    def _look_before(
        self, before: Iterator[Looked], ranges: Table, markers: Table, states: npt.NDArray[np.int8]
    ) -> None:
        """Settle what is open since it came to transactions that had been aborted before the range."""
        left, looked, together = LOOK_BACK_BYTES, 0, [markers]
        while left > 0 and len(unknown := np.flatnonzero(states == OPEN)):
            nearest: list[Looked] = []
            for each in islice(before, MOST_WORKERS):
                nearest.append(each)
                left -= sum(block.length for block in each.part.run.blocks)
                if left <= 0:
                    break
            if not nearest:
                break
            looked += len(nearest)
            _, earlier = self._survey(nearest[::-1], -looked)
            together.insert(0, earlier)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], np.concatenate(together))

    def _survey(self, parts: Sequence[Looked], number: int) -> tuple[Table, Table]:
        """Ranges (part, first, stop, most, least) and markers (part, entry, most, least, type) of parts.

        The parts are numbered from `number`.
        """
        summaries = survey(
            self.tier,
            [each.part for each in parts],
            kept=self.kept,
            memory=self.memory,
            verify_checksums=self.verify_checksums,
        )
        ranges, markers = [np.empty((0, 5), dtype=np.int64)], [np.empty((0, 5), dtype=np.int64)]
        for i, (looked, summary) in enumerate(zip(parts, summaries, strict=True), start=number):
            clipped, of_part = looked.clip(summary)
            ranges.append(np.insert(clipped, 0, i, axis=1))
            markers.append(np.insert(of_part[:, [0, 2, 3, 1]], 0, i, axis=1))
        return np.concatenate(ranges), np.concatenate(markers)


def _judge(parts: Sequence[Looked], ranges: Table, states: npt.NDArray[np.int8]) -> Outcome:
    by_state: dict[int, dict[tuple[str, int], EntryRanges]] = {ABORTED: {}, OPEN: {}}
    for state, found in by_state.items():
        of_state = ranges[states == state]
        numbers, begins = np.unique(of_state[:, 0], return_index=True)
        for i, bounds in zip(numbers.tolist(), np.split(of_state[:, 1:3], begins[1:]), strict=False):
            run = parts[i].part.run
            found[(run.data_key, run.ledger_id)] = EntryRanges.of(bounds)
    unsettled = [
        (parts[part].part.run.ledger_id, first, most, least)
        for part, first, _, most, least in ranges[states == OPEN].tolist()
    ]
    return Outcome(aborted=by_state[ABORTED], open=by_state[OPEN], unsettled=unsettled)
