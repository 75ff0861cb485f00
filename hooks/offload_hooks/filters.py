"""Offload filters, which decide which of a topic's entries are kept when they are offloaded.

Its entry-point group is `pulsar_offload.filters`: a class or factory whose keyword arguments are its options; they may
all be text. It is constructed where topics are offloaded; calls may come from many threads at once.

A dropped entry cannot come back. So a filter makes final decisions only, keeps an entry that it is not sure of, and
answers the same for the same entry every time, in any process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.values import ReadableBuffer

Position = tuple[int, int]
"""Ledger id and entry id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledTransactions:
    """The recorded state of a topic's transactions, up to a position.

    Attributes:
        stop: the first position that is not settled: an entry of a transaction that is open may be there.
        aborted: transactions that were aborted (most and least bits, as int64).
        waits_for: in words, the reason why the entries from `stop` on are not settled.
        markers_matter: entries of the topic are in the tier that were offloaded before they were settled: for readers
            of these, the markers of where transactions ended are to be kept.
    """

    stop: Position
    aborted: Collection[tuple[int, int]]
    waits_for: str
    markers_matter: bool = False


class FilteredTopic(Protocol):
    """The topic whose entries are to be filtered."""

    @property
    def name(self) -> str:
        """Its full name, as in `persistent://tenant/namespace/topic`."""

    def settle(self) -> SettledTransactions | None:
        """Settle its transactions as far as can be now; None if none were ever used. Reads the entries needed.

        Errors: of the metadata and of where entries are read.
        """


class TopicFilter(Protocol):
    """The filter of one topic, for its next offload. It is used by one thread at a time."""

    @property
    def stop(self) -> Position | None:
        """The first position that it does not decide yet; entries from there on are not offloaded now."""

    @property
    def waits_for(self) -> str:
        """A text for users: the reason why the entries from `stop` on wait."""

    @property
    def causes(self) -> Sequence[str]:
        """The causes for which entries were dropped; grows as entries are inspected."""

    def look(self, ledger_id: int, entries: EntryBatch) -> ReadableBuffer:
        """Decide on entries before `stop`: an int32 (format `i`) each: 0 keeps it, n drops it for `causes[n - 1]`.

        The answer is read later: it stays as it is, whatever is asked next. The entries are not changed.

        Raises:
            FormatError: a malformed entry, with its place; nothing is offloaded then.
        """


class OffloadFilter(Protocol):
    """Filters the entries that are offloaded."""

    def open(self, topic: FilteredTopic) -> TopicFilter | None:
        """The filter as it is for a topic now; None if it drops nothing of the topic, now or later.

        Errors: those of `FilteredTopic.settle`.
        """
