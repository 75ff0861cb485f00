"""How far a stream may read on that sees of transactions what a consumer does: `advance`, up to the first open one.

A topic whose next entry is of an open transaction waits for its marker, and the others go on. Source:
docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from offload_core.metadata.catalogue import Topic, TopicName
from offload_core.reading.scan.advance import Budget, advance
from offload_core.reading.scan.frontier import BEGINNING, Frontier, between
from offload_core.reading.scan.positions import Position
from offload_core.reading.scan.transactions import TransactionResolver

ResolverOf = Callable[[Sequence[Topic]], TransactionResolver]
"""Makes what looks through topics; what it remembers should outlive it."""

_log = logging.getLogger(__name__)


class SettledAdvance:
    """Advances a stream of messages again and again.

    Args:
        resolver_of: who knows of transactions.
    """

    def __init__(self, resolver_of: ResolverOf) -> None:
        self._resolver_of = resolver_of
        self._asked: tuple[object, ...] = ()
        self._topics: list[Topic] = []
        self._answer: dict[TopicName, Position] = {}
        self._waits: dict[TopicName, Position] = {}

    def __call__(
        self,
        topics: Sequence[Topic],
        start: Frontier,
        *,
        max_bytes: int | None,
        max_entries: int | None,
        fail_on_data_loss: bool,
    ) -> dict[TopicName, Position]:
        """As `advance`, and before the first entry of each topic whose transaction is open.

        What did not change since it was asked for last is not looked at again.

        Raises:
            DataLossError: as of `advance`.
            FormatError, StoreError: of the objects that are looked through.
        """
        asked = (dict(start), max_bytes, max_entries, fail_on_data_loss)
        same = len(topics) == len(self._topics) and all(
            ours is theirs for ours, theirs in zip(topics, self._topics, strict=True)
        )
        if same and asked == self._asked:
            return self._answer
        resolver = self._resolver_of(topics)
        stops: dict[TopicName, Position] = {}
        while True:
            budget = Budget(max_bytes=max_bytes, max_entries=max_entries)
            reached = advance(topics, start, budget, stops=stops, fail_on_data_loss=fail_on_data_loss)
            found = self._open_in(resolver, topics, start, reached)
            if not found:
                break
            stops |= found  # each topic is stopped once, where its first open entry is
        self._asked, self._topics, self._answer = asked, list(topics), reached
        self._waits = {name: at for name, at in self._waits.items() if name in stops}
        return reached

    def _open_in(
        self, resolver: TransactionResolver, topics: Sequence[Topic], start: Frontier, end: Frontier
    ) -> dict[TopicName, Position]:
        """Where the first open entry of each topic lies between two frontiers."""
        narrowed, _, _ = between(topics, start, end)
        ranges = {}
        for topic in narrowed:
            if topic.name is not None:
                first, last = start.get(topic.name, BEGINNING), end[topic.name]
                ranges[topic.name] = (first.ledger_id, first.entry_id), (last.ledger_id, last.entry_id)
        found = {}
        for name, outcome in resolver.open_in(ranges).items():
            if outcome.first_open is None:
                continue
            found[name] = Position(*outcome.first_open)
            if self._waits.get(name) != found[name]:
                self._waits[name] = found[name]
                count, named = outcome.name_open()
                _log.info(
                    "%s: the stream waits at %d:%d for the outcome of %d transactions: %s",
                    name,
                    *outcome.first_open,
                    count,
                    named,
                )
        return found
