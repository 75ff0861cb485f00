"""Any sequence of calls against a list: adds, rollovers, kills, trims, offloads, deletions of hot copies, reads.

Ledgers are offloaded as a whole or by segments, or partly, as it comes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from managed_ledgers import NAME, Clock, environment_of
from scenes.segments import SegmentedOffloads, segment_keys

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, segments_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import ManagedLedger, RolloverPolicy, open_managed_ledger
from offload_drivers.local import LocalDriver
from offload_hooks.errors import OwnershipLostError
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

LAST = EntryPosition(1 << 40, 0)
_places = st.integers(0, 1 << 16)
_sizes = st.one_of(st.integers(0, 20), st.integers(0, 600))


class TopicRules(RuleBasedStateMachine):
    """The base of all machines of a topic: its tiers and record, its expected entries, reads."""

    topic: ManagedLedger

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.cold = Path(self.folder.name)
        self.others = []
        self.clock = Clock()
        self.shared = MemoryLedgers()
        self.records = ManagedLedgerRecords(MemoryMetadataStore())
        self.entries = []

    def teardown(self):
        self.folder.cleanup()

    def tier_of_a_process(self):
        """The tier as a new process opens it."""
        return Tier(LocalDriver(str(self.cold)))

    def environment(self, cache_bytes, **given):
        """As a new process has it."""
        hot = MemoryLedgerStore(self.shared)
        self.tier = self.tier_of_a_process()
        tiers = KnownTiers(self.tier, self.others)
        return environment_of(
            self.records,
            hot,
            tiers,
            block_bytes=700,
            now_ms=self.clock,
            open_reader=TieredReaders(hot, ColdReaders(tiers, memory=ReadMemory())).open,
            cache_bytes=cache_bytes,
            **given,
        )

    def info(self):
        """The record."""
        return self.records.read(NAME).info

    def position(self, place):
        """One of an entry, or near it, or anywhere."""
        if not self.entries:
            return EntryPosition(place % 9, place % 3)
        found, _ = self.entries[place % len(self.entries)]
        return EntryPosition(found.ledger_id + place % 3 // 2, max(0, found.entry_id + place % 5 - 2))

    def add_entries(self, sizes, one_by_one):
        """Add entries of these sizes; where they are."""
        payloads = [bytes([len(self.entries) % 256]) * size for size in sizes]
        if one_by_one:
            positions = [self.topic.add_entry(payload) for payload in payloads]
        else:
            first = self.topic.add_entries(payloads)
            positions = [
                EntryPosition(first.ledger_id, first.entry_id + place) for place in range(len(payloads))
            ]
        self.entries += zip(positions, payloads, strict=True)
        return positions

    def forget(self, gone):
        """These ledgers were trimmed: the oldest ones."""
        kept = [(at, payload) for at, payload in self.entries if at.ledger_id not in gone]
        assert kept == self.entries[len(self.entries) - len(kept) :], "from the oldest on"
        self.entries = kept

    # --- rules of all machines -------------------------------------------------------------------

    @rule()
    def roll(self):
        self.topic.roll()

    @rule(place=_places, count=st.integers(1, 12), size=st.integers(1, 900))
    def read(self, place, count, size):
        position = self.position(place)
        read = self.topic.read_entries(position, count, size)
        found = [(at, bytes(payload)) for at, payload in read]
        expected = [(at, payload) for at, payload in self.entries if at >= position]
        self.check_read(found, expected, read.next_position)
        assert len(found) <= count
        assert not found or sum(len(each) for _, each in found) <= max(size, len(found[0][1]))

    @precondition(lambda self: self.entries)
    @rule()
    def read_all(self):
        read = self.topic.read_entries(EntryPosition(0, 0), 1 << 20, 1 << 30)
        found = [(at, bytes(payload)) for at, payload in read]
        self.check_read(found, self.entries, LAST)

    def check_read(self, found, expected, stop):
        """Check that a read gave the first entries, up to the stop."""
        assert found == (expected if stop == LAST else expected[: len(found)])
        assert bool(found) == bool(expected)


class TopicMachine(TopicRules):
    """A topic whose ledgers are offloaded as a whole, by segments, or partly."""

    def __init__(self):
        super().__init__()
        self.last = None
        self.open_anew(2, 0)

    def ledgers(self):
        """Those of the record, in order."""
        return list(self.info().in_order)

    # --- changes ---------------------------------------------------------------------------------

    @rule(sizes=st.lists(_sizes, min_size=1, max_size=6), one_by_one=st.booleans())
    def add(self, sizes, one_by_one):
        self.clock.pass_s(1)
        for position in self.add_entries(sizes, one_by_one):
            assert self.last is None or position > self.last
            self.last = position

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds):
        self.clock.pass_s(seconds)
        self.topic.roll_if_due()

    @rule(max_entries=st.integers(1, 9), cache=st.sampled_from([0, 1000, 1 << 20]))
    def open_anew(self, max_entries, cache):
        """Its process was killed; or has lost the topic, and must not know better."""
        former = getattr(self, "topic", None)
        rollover = RolloverPolicy(max_entries=max_entries, max_age_s=30, min_age_s=0)
        self.topic = open_managed_ledger(self.environment(cache), NAME, rollover=rollover)
        if former is not None:
            try:
                former.add_entry(b"never")
                raise AssertionError("a former owner added an entry")
            except OwnershipLostError:
                pass

    @rule(cache=st.sampled_from([0, 1 << 20]))
    def close_and_open(self, cache):
        self.topic.close()
        self.topic = open_managed_ledger(self.environment(cache), NAME)

    @rule(place=_places, megabytes=st.sampled_from([-1, 0]), minutes=st.sampled_from([-1, 0, 1]))
    def trim(self, place, megabytes, minutes):
        before = self.position(place)
        retention = RetentionPolicies(retentionTimeInMinutes=minutes, retentionSizeInMB=megabytes)
        gone = set(self.topic.trim(retention, consumed_before=before))
        assert all(at < before for at, _ in self.entries if at.ledger_id in gone)
        self.forget(gone)

    @rule(place=_places)
    def offload(self, place):
        before = self.position(place)
        first = self.topic.offload_prefix(before)
        stops = {ledger.ledger_id: ledger.offloaded_stop or 0 for ledger in self.ledgers()}
        hot = [at for at, _ in self.entries if at.entry_id >= stops[at.ledger_id]]
        assert first == (hot[0] if hot else first)

    @rule(place=_places, history=st.booleans())
    def stream(self, place, history):
        """A segment from the first entry on that is in none, if its ledger is not offloaded as a whole."""
        streamed = [
            ledger
            for ledger in self.ledgers()
            if ledger.context is None or (ledger.context.segments and not ledger.is_fully_offloaded)
        ]
        stops = {ledger.ledger_id: ledger.offloaded_stop or 0 for ledger in streamed}
        left = []
        for at, _ in self.entries:
            if at.entry_id >= stops.get(at.ledger_id, 1 << 30):
                left.append(at)
            elif left:
                break
        closed = {ledger.ledger_id for ledger in streamed if ledger.info.is_closed}
        if left and history:
            left = [at for at in left if at.ledger_id in closed]
        if left:
            offloads = SegmentedOffloads(
                name=NAME,
                records=self.records,
                hot=MemoryLedgerStore(self.shared),
                tier=self.tier,
                now_ms=self.clock,
            )
            offloads.offload(left[place % len(left)], begin=left[0], history=history)

    @rule(lag_s=st.sampled_from([0, 20]))
    def delete_hot_copies(self, lag_s):
        self.topic.delete_hot_copies(lag_s)

    # --- the stored entries ----------------------------------------------------------------------

    @invariant()
    def the_last_position_is_that_of_the_last_entry(self):
        assert self.topic.last_position == (self.entries[-1][0] if self.entries else None)

    @invariant()
    def both_tiers_have_what_the_record_says(self):
        info = self.info()
        hot = {
            ledger.ledger_id
            for ledger in info.ledgers
            if ledger.context is None or not ledger.context.bookkeeper_deleted
        }
        assert set(self.shared.ledgers) == hot
        segments = segment_keys([segment.uuid for segment in segments_of(info)])
        copies = [ledger for ledger in info.ledgers if ledger.context and not ledger.context.segments]
        keys = [each.key for each in self.tier.list_objects()]
        assert [key for key in keys if "-ledger-" not in key] == segments
        assert len(keys) - len(segments) == 2 * len(copies)
