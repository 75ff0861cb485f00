"""Any sequence of calls to a topic that is streamed now and then, against a list.

Adds, rollovers, turns, time, a store that fails, kills, other owners, closes, switches, trims, deletions of hot copies,
ledger-based offloads, completion by hand, reads from any tier. In the end all is brought to an end, and the tier has
each entry once and nothing else.
"""

import os
from contextlib import nullcontext, suppress
from dataclasses import replace
from unittest import mock

from effort import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from managed_ledgers import NAME
from scenes.filters import PlainFilter, chosen
from scenes.machines import TopicRules
from scenes.segments import in_segments, left_in, pool_of

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, ReadPriority, unfinished_segment
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_core.writing.managed_ledger import RolloverPolicy, StreamingSettings, open_managed_ledger
from offload_core.writing.offload_filters import NO_FILTER
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    OffloadError,
    OwnershipLostError,
    StoreUnavailableError,
)

_places = st.integers(0, 1 << 16)
_sizes = st.one_of(st.integers(0, 20), st.integers(0, 600))
_bounds = st.builds(
    StreamingSettings,
    max_segment_bytes=st.sampled_from([1, 500, 3000]),
    max_segment_age_s=st.sampled_from([0, 20, 1000]),
    block_bytes=st.sampled_from([200, 900]),
)


class Broken:
    """A layer whose writes fail, as long as it is broken."""

    is_broken = False

    def _pass(self):
        if self.is_broken:
            raise StoreUnavailableError("it is broken")
        return (yield)

    @hookimpl(wrapper=True)
    def begin_data(self):
        return (yield from self._pass())

    @hookimpl(wrapper=True)
    def write_block(self):
        return (yield from self._pass())

    @hookimpl(wrapper=True)
    def commit_data(self):
        answer = yield
        if self.is_broken:
            raise StoreUnavailableError("it is broken, and has done it")
        return answer

    @hookimpl(wrapper=True)
    def delete(self):
        return (yield from self._pass())


class StreamedMachine(TopicRules):
    """A topic that is streamed now and then."""

    def __init__(self):
        super().__init__()
        self.no_sync = mock.patch.multiple(os, fsync=lambda _: None, fdatasync=lambda _: None)
        self.no_sync.start()  # no power fails here, and the disk would take most of the time
        self.broken = Broken()
        self.filter = None
        self.topic = self.opened(2, 0)

    def teardown(self):
        try:
            self.bring_to_an_end()
        finally:
            self.no_sync.stop()
            super().teardown()

    def tier_of_a_process(self):
        """One that may be broken."""
        broken = Layer(name="broken", make=lambda _: self.broken)
        tier = Tier(LocalDriver(str(self.cold)), [broken])
        self.pool = pool_of(tier, self.clock, buffer_bytes=3000, budget_bytes=4000)
        return tier

    def opened(self, max_entries, cache_bytes):
        """As a new process has it."""
        environment = self.environment(cache_bytes)
        environment = replace(
            environment,
            filter_of=lambda _: chosen(FilterMode.GAP, self.filter, "some") if self.filter else NO_FILTER,
            streaming=self.pool,
        )
        rollover = RolloverPolicy(max_entries=max_entries, max_age_s=30, min_age_s=0)
        topic = open_managed_ledger(environment, NAME, rollover=rollover)
        topic.set_streaming(None)
        return topic

    def drops(self, payload):
        """Whether the filter, if there is one, does not keep it."""
        return self.filter is not None and bool(self.filter.drops(payload))

    def is_settled(self, position):
        """Whether the filter, if there is one, decides of it."""
        stop = None if self.filter is None else self.filter.stop
        return stop is None or (position.ledger_id, position.entry_id) < stop

    # --- changes ---------------------------------------------------------------------------------

    @rule(sizes=st.lists(_sizes, min_size=1, max_size=6), one_by_one=st.booleans())
    def add_some(self, sizes, one_by_one):
        """Without a turn behind it."""
        self.add_entries(sizes, one_by_one)

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds):
        self.clock.pass_s(seconds)
        self.topic.roll_if_due()
        self.pool.run_due()

    @rule()
    def run(self):
        self.pool.run_due()

    @rule(turns=st.integers(1, 4))
    def run_a_little(self, turns):
        """Leaves calls that the next rule comes between."""
        for _ in range(turns):
            self.pool._give_turns()
            queue = self.pool._queue
            if len(queue):
                queue._calls.popleft()()

    @initialize(bounds=_bounds, filtered=st.booleans())
    def begin_streamed(self, bounds, filtered):
        if filtered:
            self.filter = PlainFilter(lambda payload: bool(payload) and payload[0] % 5 in (1, 2, 3))
        self.topic.set_streaming(bounds)

    @precondition(lambda self: self.filter is not None)
    @rule(place=st.none() | _places)
    def settle(self, place):
        """The filter decides of more, or all; never of less than it did."""
        stop = self.filter.stop
        if place is None:
            self.filter.stop = None
        elif stop is None:  # what comes from now on is held up
            last = self.topic.last_position
            self.filter.stop = (0, 0) if last is None else (last.ledger_id, last.entry_id + 1)
        else:
            position = self.position(place)
            self.filter.stop = max(stop, (position.ledger_id, position.entry_id))

    @rule(bounds=st.one_of(st.none(), _bounds, _bounds))
    def switch(self, bounds):
        self.topic.set_streaming(bounds)

    @rule(sizes=st.lists(_sizes, min_size=3, max_size=9))
    def add_and_run(self, sizes):
        self.add_entries(sizes, False)
        self.pool.run_due()

    @rule()
    def complete(self):
        try:
            self.topic.complete_segment()
        except OffloadError:  # perhaps of a call that was under way
            if self.broken.is_broken:
                return
            self.clock.pass_s(61)
            self.pool.run_due()
            self.topic.complete_segment()
        if self.topic.is_streamed:
            found = dict(in_segments(self.cold, self.info()))
            whole = {
                each.ledger_id
                for each in self.info().ledgers
                if each.context and each.context.complete and not each.context.segments
            }
            left = [
                at
                for at, payload in self.entries
                if at not in found and at.ledger_id not in whole and not self.drops(payload)
            ]
            assert not any(self.is_settled(at) for at in left)

    @rule(is_broken=st.booleans())
    def the_store_fails(self, is_broken):
        self.broken.is_broken = is_broken

    @rule(max_entries=st.integers(1, 9), cache=st.sampled_from([0, 1000]), kill=st.booleans())
    def open_anew(self, max_entries, cache, kill):
        """Its process was killed; or it lost the topic, and lives on for a while."""
        former, pool = self.topic, self.pool
        settings_then = former._streaming.settings if former._streaming else None
        if kill:
            self.clock.pass_s(301)
        self.topic = self.opened(max_entries, cache)
        if not kill:
            with suppress(OwnershipLostError):
                former.add_entry(b"never")
                raise AssertionError("a former owner added an entry")
            self.clock.pass_s(101)
            pool.run_due()
        self.topic.set_streaming(settings_then)

    @rule(cache=st.sampled_from([0, 1000]), bounds=st.one_of(st.none(), _bounds))
    def close_and_open(self, cache, bounds):
        self.topic.close()
        assert self.pool.buffer_budget.taken_bytes == 0
        self.topic = self.opened(9, cache)
        self.topic.set_streaming(bounds)

    @rule(place=_places, megabytes=st.sampled_from([-1, 0]), minutes=st.sampled_from([-1, 0, 1]))
    def trim(self, place, megabytes, minutes):
        retention = RetentionPolicies(retentionTimeInMinutes=minutes, retentionSizeInMB=megabytes)
        with suppress(StoreUnavailableError):
            self.topic.trim(retention, consumed_before=self.position(place))
        gone = set(range(1000)) - {
            each.ledger_id for each in self.info().ledgers if not each.is_marked_for_deletion
        }
        self.forget(gone)

    @rule(place=_places)
    def offload(self, place):
        with suppress(AttemptError, StoreUnavailableError):
            self.topic.offload_prefix(self.position(place))

    @rule()
    def delete_hot_copies(self):
        with suppress(DataLossError) if self.filter else nullcontext():  # no snapshot has settled it
            self.topic.delete_hot_copies(0)

    # --- what there is ---------------------------------------------------------------------------

    def check_read(self, found, expected, stop):
        """What was read is the first of what there is, up to the stop, perhaps without what the filter drops."""
        if self.filter is None:
            super().check_read(found, expected, stop)
            return
        read = dict(found)
        assert sorted(read) == list(read)
        passed = [(at, payload) for at, payload in expected if at < stop]
        assert [each for each in passed if each[0] in read or not self.drops(each[1])] == found
        assert passed or not expected

    @invariant()
    def complete_segments_have_what_was_added(self):
        have = dict(self.entries)
        found = in_segments(self.cold, self.info())
        assert len({at for at, _ in found}) == len(found)
        for at, payload in found:
            assert have.get(at, payload) == payload

    @invariant()
    def memory_is_within_its_budgets(self):
        assert 0 <= self.pool.buffer_budget.taken_bytes <= 3000
        assert 0 <= self.pool.budget.taken_bytes <= 4000

    def bring_to_an_end(self):
        """All is streamed; the tier has each entry once, and nothing that no record has."""
        self.broken.is_broken = False
        if self.filter is not None:
            self.filter.stop = None
        self.clock.pass_s(601)
        self.pool.run_due()  # what failed is told of
        self.clock.pass_s(61)
        self.topic.set_streaming(StreamingSettings(max_segment_bytes=3000, block_bytes=900))
        self.topic.trim(RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=-1))
        self.topic.complete_segment()
        self.topic.close()
        assert unfinished_segment(self.info()) is None
        assert left_in(self.cold, self.info()) == set()
        self.topic = self.opened(9, 0)
        read = self.topic.read_entries(
            EntryPosition(0, 0), 1 << 20, 1 << 30, priority=ReadPriority.OFFLOADED_ONLY
        )
        found = [(at, bytes(payload)) for at, payload in read]
        assert found == [each for each in self.entries if not self.drops(each[1])]


StreamedMachine.TestCase.settings = effort(0.4, stateful_step_count=25)
TestStreamedTopic = StreamedMachine.TestCase
