"""What became of a topic's transactions in a range of positions: a pass over the topic's metadata, and a judgement.

Looked through are the range, what lies behind it while a transaction of it has no marker yet, and a bounded stretch
before it for those that were aborted there. Source: docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np
import numpy.typing as npt

from offload_core.format.messages.kernels.fields import ABORTED, OPEN
from offload_core.metadata.catalogue import Ledger, Topic
from offload_core.reading.scan.entry_ranges import EntryRanges
from offload_core.reading.scan.transactions.memory import SummaryMemory
from offload_core.reading.scan.transactions.outcomes import outcomes
from offload_core.reading.scan.transactions.parts import Looked, Place, Table, TopicParts
from offload_core.reading.scan.transactions.summary_store import SummaryStore
from offload_core.reading.scan.transactions.survey import MOST_WORKERS, survey
from offload_core.storage.tier import Tier

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

Numbered = tuple[int, Looked]
"""A part and its number: in the order of the topic, from 0 where the look begins, and less before it."""


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
        behind: Iterator[Numbered] = enumerate(parts.since(start, stop))
        within: list[Numbered] = []
        for each in behind:
            if each[1].first >= stop:
                behind = chain([each], behind)
                break
            within.append(each)
        ranges, markers = self._survey([each for each in within if not each[1].markers_only])
        ledger_ids = np.array([each.part.run.ledger_id for _, each in within], dtype=np.int64)
        in_ledger = ledger_ids[ranges[:, 0]]
        ranges = ranges[(in_ledger < stop[0]) | ((in_ledger == stop[0]) & (ranges[:, 1] < stop[1]))]
        states = outcomes(ranges[:, [0, 1, 3, 4]], markers)
        if len(unknown := np.flatnonzero(states == OPEN)):
            first = ranges[unknown[0], 0]
            filtered = [each for each in within if each[1].markers_only]
            later = [each for each in filtered if each[0] > first]
            earlier = filtered[: len(filtered) - len(later)]
            before = zip(count(-1, -1), parts.before(start), strict=False)
            self._look_behind(chain(later, behind), ranges, states)
            self._look_before(chain(reversed(earlier), before), ranges, markers, states)
        return _judge([each for _, each in within], ranges, states)

    def _look_behind(self, behind: Iterator[Numbered], ranges: Table, states: npt.NDArray[np.int8]) -> None:
        """Settle what is open by the markers behind the range, as far as there are any."""
        while len(unknown := np.flatnonzero(states == OPEN)):
            following = list(islice(behind, MOST_WORKERS))
            if not following:
                break
            _, later = self._survey(following)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], later)

    def _look_before(
        self, before: Iterator[Numbered], ranges: Table, markers: Table, states: npt.NDArray[np.int8]
    ) -> None:
        """Settle what is open since it came to transactions that had been aborted before the range."""
        left, together = LOOK_BACK_BYTES, [markers]
        while left > 0 and len(unknown := np.flatnonzero(states == OPEN)):
            nearest: list[Numbered] = []
            for each in islice(before, MOST_WORKERS):
                nearest.append(each)
                left -= each[1].part.run.data_bytes
                if left <= 0:
                    break
            if not nearest:
                break
            _, earlier = self._survey(nearest[::-1])
            together.insert(0, earlier)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], np.concatenate(together))

    def _survey(self, parts: Sequence[Numbered]) -> tuple[Table, Table]:
        """Ranges (part, first, stop, most, least) and markers (part, entry, most, least, type) of parts."""
        summaries = survey(
            self.tier,
            [each.part for _, each in parts],
            kept=self.kept,
            memory=self.memory,
            verify_checksums=self.verify_checksums,
        )
        ranges, markers = [np.empty((0, 5), dtype=np.int64)], [np.empty((0, 5), dtype=np.int64)]
        for (number, looked), summary in zip(parts, summaries, strict=True):
            clipped, of_part = looked.clip(summary)
            ranges.append(np.insert(clipped, 0, number, axis=1))
            markers.append(np.insert(of_part[:, [0, 2, 3, 1]], 0, number, axis=1))
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
