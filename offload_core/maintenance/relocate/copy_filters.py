"""Offload filters of copies that are moved: chosen and settled by the process that plans, opened by any that copies.

A copy goes through a filter at most once: what an earlier one left out is gone. One whose entries are not all settled
is not moved yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.storage.tier.registry import PluginSpec, make_filter
from offload_core.writing.offload_filters import ChosenFilter, FilterRun
from offload_hooks.errors import OptionError, UnresolvedTransactionError
from offload_hooks.filters import Position, SettledTransactions
from offload_hooks.ledger_stores import EntryBatch

Settle = Callable[[str, EntryPosition, ManagedLedgerInfo], SettledTransactions | None]
"""Settles the transactions of a managed ledger up to an entry, by its record; see `FilteredTopic.settle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFilter:
    """A filter that copies are to go through.

    Attributes:
        plugin: its name and its options.
    """

    plugin: PluginSpec
    mode: FilterMode

    def __post_init__(self) -> None:
        if self.plugin.name == "disabled":
            raise OptionError("this filter leaves nothing out", found=self.plugin.name)

    def is_as(self, record: FilterRecord) -> bool:
        """Return whether it is the filter that a copy went through."""
        return (record.name, record.mode) == (self.plugin.name, self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """A filter that copies go through, and what settles transactions for it."""

    wanted: WantedFilter
    settle: Settle

    def settled(self, topic: TopicName, last: EntryPosition, info: ManagedLedgerInfo) -> CopyFilter:
        """Return the filter of a copy that ends with `last`, of a topic with this record.

        Raises:
            UnresolvedTransactionError: not all of it is settled.
            OffloadError: of the filter, and of `settle`.
        """
        settled = self.settle(managed_ledger_of_topic(topic), last, info)
        made = CopyFilter(wanted=self.wanted, topic=topic, settled=settled)
        run = made.open()
        if not run.takes(last):
            raise UnresolvedTransactionError(
                f"the entries of a copy are not all settled: it waits for {run.waits_for}",
                ledger_id=last.ledger_id,
                expected=f"settled up to {last}",
                found=f"up to {run.stop}",
            )
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFilter:
    """The filter of one copy; picklable.

    Attributes:
        settled: the topic's transactions; None if none were ever used.
    """

    wanted: WantedFilter
    topic: TopicName
    settled: SettledTransactions | None

    @property
    def name(self) -> str:
        """See `FilteredTopic`."""
        return self.topic.full

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        return self.settled

    def open(self) -> FilterRun:
        """A run of it. Errors as of `ChosenFilter.open`, and of a plugin that is not installed."""
        plugin, mode = self.wanted.plugin, self.wanted.mode
        made = make_filter(plugin.name, plugin.options)
        run = ChosenFilter(name=plugin.name, mode=mode, filter=made).open(self)
        return FilterRun(plugin.name, mode, _KeepsAll()) if run is None else run


class _KeepsAll:
    """A `TopicFilter` where a filter has nothing to do: the copy's record states it all the same."""

    stop: Position | None = None
    waits_for = ""
    causes: Sequence[str] = ()

    def look(self, ledger_id: int, entries: EntryBatch) -> memoryview:
        del ledger_id
        return np.zeros(len(entries), dtype=np.int32).data
