"""Topics whose entries are filtered, and the entries that remain in the tier."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path

from entries import read_sparse_through
from managed_ledgers import NAME, environment_of
from scenes.segments import SETTINGS, Topic
from scenes.transactions import NEVER, Model, message

from offload_core.format.messages.entry import TransactionId, split_entry
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import RECORD_KEY, FilterMode, parse_filter_record
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import RolloverPolicy, TransactionalTopic, open_managed_ledger
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_core.writing.offload_filters import ChosenFilter
from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_drivers.local import LocalDriver
from offload_hooks.filters import OffloadFilter
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

END = EntryPosition(1 << 40, 0)


def chosen(mode, offload_filter=None, name="transactions"):
    """A filter as policies choose it; by default that of transactions."""
    made = TransactionOffloadFilter() if offload_filter is None else offload_filter
    return ChosenFilter(name=name, mode=mode, filter=made)


def short_record(ledger):
    """The filter record in a ledger's offload context."""
    driver = None if ledger.context is None else ledger.context.driver
    text = None if driver is None else driver.get(RECORD_KEY)
    return None if text is None else parse_filter_record(text)


@dataclass
class FilteredTopic:
    """A topic with transactions, its ledgers in memory and its objects in a folder."""

    folder: Path
    mode: FilterMode = FilterMode.GAP
    filter: OffloadFilter | None = None
    block_bytes: int = 400
    begun: dict[int, TransactionId] = field(default_factory=dict)

    def __post_init__(self):
        self.records = ManagedLedgerRecords(MemoryMetadataStore())
        self.hot = MemoryLedgerStore(MemoryLedgers())
        self.tier = Tier(LocalDriver(str(self.folder)))
        self.tiers = KnownTiers(self.tier)
        self.environment = environment_of(
            self.records,
            self.hot,
            self.tiers,
            block_bytes=self.block_bytes,
            filter_of=lambda _: chosen(self.mode, self.filter),
        )
        self.open()

    def open(self, **changes):
        """Open it, as a new process does."""
        self.environment = replace(self.environment, **changes)
        managed = open_managed_ledger(
            self.environment, NAME, rollover=RolloverPolicy(max_entries=1 << 20, min_age_s=0)
        )
        self.topic = TransactionalTopic(self.environment, managed, NEVER)

    def do(self, *steps):
        """`m`: a message; `1`: one of transaction 1; `c1`, `a1`: its end; `|`: the ledger is sealed."""
        for step in steps:
            if step == "|":
                self.topic.topic.roll()
            elif step == "m":
                self.topic.add_entries([message()])
            else:
                number = int(step[-1])
                if number not in self.begun:
                    self.begun[number] = self.topic.begin()
                transaction = self.begun[number]
                if step[0] == "c":
                    self.topic.commit(transaction)
                elif step[0] == "a":
                    self.topic.abort(transaction)
                else:
                    self.topic.add_entries([message(transaction)])

    def offload(self, position=END):
        """Offload sealed ledgers."""
        return self.topic.topic.offload_prefix(position)

    # --- the stored entries --------------------------------------------------------------------

    @property
    def ledgers(self):
        """Of its record, those with entries."""
        return [ledger for ledger in self.topic.topic.read_info().in_order if ledger.info.entries]

    def hot_entries(self):
        """All that was added."""
        ledgers = map(self._hot, self.hot.ledger_ids())
        return [(position, bytes(payload)) for entries in ledgers for position, payload in entries]

    def _hot(self, ledger_id):
        reader = self.hot.open(ledger_id)
        count = reader.status().entry_count
        entries = list(reader.read(0, count - 1, 1 << 30)) if count else []
        return [(EntryPosition(ledger_id, i), payload) for i, payload in enumerate(entries)]

    def cold(self, ledger, stop=None):
        """The entries of a ledger's copy, by their ids, in several reads; all, or those below a stop."""
        reader = ColdReaders(self.tiers).open(ledger, NAME)
        last = (ledger.info.entries or 0 if stop is None else stop) - 1
        found = dict(read_sparse_through(reader, 0, last, 300))
        assert list(found) == sorted(found)
        return found

    def left(self, ledger):
        """The entries of a ledger after a filter of transactions, by a plain model; with tombstones markers, too."""
        model = Model.of(self.hot_entries())
        return {
            position.entry_id: payload
            for (position, payload), transaction in zip(model.entries, model.transactions, strict=True)
            if position.ledger_id == ledger.ledger_id
            and (
                self.mode is FilterMode.TOMBSTONE
                if split_entry(payload).is_marker
                else transaction not in model.aborted
            )
        }


def positions(ledgers):
    """Their places, of those that are in the tier."""
    return [place for place, ledger in enumerate(ledgers) if ledger.has_complete_copy]


class PlainFilter:
    """Drops entries by a function of their payload, up to `stop`; or fails on request."""

    def __init__(self, drops, stop=None, waits_for="more"):
        self.drops = drops
        self.stop = stop
        self.waits_for = waits_for
        self.causes = ("unwanted",)

    def open(self, _):
        """See `OffloadFilter`."""
        return self

    def look(self, _, entries):
        """See `TopicFilter`."""
        return memoryview(array("i", [int(self.drops(bytes(each))) for each in entries]))


# --- A streamed topic with a filter that drops entries by their numbers, and what must be left of it.


class Asked(PlainFilter):
    """Counts how often it is opened; drops entries by their numbers."""

    def __init__(self):
        super().__init__(lambda payload: int(payload.split()[0]) in self.unwanted, waits_for="a sign")
        self.unwanted = set()
        self.opened = 0
        self.error = None

    def open(self, topic):
        self.opened += 1
        if self.error is not None:
            raise self.error
        return super().open(topic)

    def stop_at(self, position):
        self.stop = None if position is None else (position.ledger_id, position.entry_id)


class Filtered(Topic):
    """A streamed topic, and what must be in its complete segments."""

    choice: ChosenFilter
    filter: Asked
    tier: Tier

    @classmethod
    def streamed(cls, environment, pool, tier, folder):
        """One whose filter leaves gaps, and drops nothing yet."""
        topic = cls(replace(environment, streaming=pool, filter_of=lambda _: topic.choice), folder)
        topic.filter, topic.tier = Asked(), tier
        topic.choice = chosen(FilterMode.GAP, topic.filter, "numbers")
        topic.ledger.set_streaming(SETTINGS)
        return topic

    def sparse_entries(self):
        """Its entries in the tier, by its record."""
        found = []
        tiers = KnownTiers(self.tier)
        for ledger in self.info.in_order:
            context = ledger.context
            if context is None or not any(share.complete for share in context.segments):
                continue
            ends = [share.end_entry_id for share in context.segments if share.complete]
            last = max(end for end in ends if end is not None)
            read = read_sparse_through(ColdReaders(tiers).open(ledger), 0, last, 500)
            found += [(EntryPosition(ledger.ledger_id, i), payload) for i, payload in read]
            if ledger.is_fully_offloaded:
                check_cold_copies(tiers, NAME, ledger)
        return found

    def kept(self, count=None):
        """The first entries without those filtered out."""
        return [each for i, each in enumerate(self.added[:count]) if i not in self.filter.unwanted]

    def position(self, number):
        return self.added[number][0]
