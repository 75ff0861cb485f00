"""Every call of metadata, hot tier, tier and audit log in the life of a streamed topic goes wrong, in every way.

After each the topic is opened anew, as another process does: every entry that was acknowledged is in the hot tier, and
every segment that its record calls complete has exactly its entries. Then the same is done again, to its end: every
entry lies in the tier once, and nothing is left behind there. A sample by default, all of them in the nightly run.
"""

import itertools
from contextlib import contextmanager, suppress
from uuid import UUID

import pytest
from crash_points import Killed, Points, watched
from managed_ledgers import NAME, Clock, ColdLedger, environment_of
from scenes.filters import PlainFilter, chosen
from scenes.segments import SETTINGS, in_segments, left_in, pool_of

from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo, segments_of, unfinished_segment
from offload_core.metadata.records.attempts import begin_attempt
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import RolloverPolicy, open_managed_ledger
from offload_core.writing.offload_filters import NO_FILTER
from offload_drivers.local import LocalDriver
from offload_hooks.errors import LedgerFailedError, OffloadError
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

LAST = EntryPosition(1 << 40, 0)
TRIES = 12
"""Each with a pause; more than any single fault takes."""


class CrashedStream:
    """A topic whose record, ledgers and objects outlive processes."""

    def __init__(self, folder):
        self.filter = None
        self.cold = folder / "cold"
        self.cold.mkdir(parents=True)
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgers()
        self.clock = Clock()
        self.acknowledged = []
        self.doubtful = set()
        self.numbers = itertools.count()

    def open(self, points):
        """As a new process does it, some time after the last one."""
        self.clock.pass_s(301)
        return Process(self, points)

    def info(self):
        known = ManagedLedgerRecords(self.metadata).read(NAME)
        return ManagedLedgerInfo() if known is None else known.info

    def hot_entries(self):
        return {
            EntryPosition(ledger.ledger_id, i): payload
            for ledger in self.info().in_order
            for i, payload in enumerate(self.ledgers.find(ledger.ledger_id).entries)
        }

    def filter_of(self, _):
        """What processes choose."""
        return NO_FILTER if self.filter is None else chosen(FilterMode.GAP, self.filter, "some")

    def left_entries(self):
        """What must be in the tier in the end."""
        entries = self.hot_entries().values()
        return [each for each in entries if self.filter is None or not self.filter.drops(each)]

    def cold_entries(self):
        info = self.info()
        found = in_segments(self.cold, info)
        for ledger in info.ledgers:
            if ledger.context is not None and ledger.context.complete and not ledger.context.segments:
                entries = ColdLedger(self.cold, ledger).entries
                found += [(EntryPosition(ledger.ledger_id, i), each) for i, each in enumerate(entries)]
        found.sort()
        assert len({position for position, _ in found}) == len(found), "an entry lies in two places"
        return [payload for _, payload in found]

    def check(self, where):
        """Open the topic anew, and compare."""
        Process(self, Points())
        hot = self.hot_entries()
        wanted = [payload for payload in self.acknowledged if payload not in self.doubtful]
        assert [payload for payload in hot.values() if payload not in self.doubtful] == wanted, where
        for position, payload in in_segments(self.cold, self.info()):
            assert hot[position] == payload, where


class Process:
    """One that has the topic open, until it is killed."""

    def __init__(self, world, points):
        self.world = world
        self.tier = Tier(LocalDriver(str(world.cold)), [watched(points)])
        self.pool = pool_of(self.tier, world.clock)
        environment = environment_of(
            world.metadata,
            MemoryLedgerStore(world.ledgers),
            self.tier,
            points,
            block_bytes=250,
            streaming=self.pool,
            filter_of=world.filter_of,
            cache_bytes=500,
            now_ms=world.clock,
        )
        rollover = RolloverPolicy(min_age_s=0)
        self.topic = open_managed_ledger(environment, NAME, rollover=rollover)

    def add(self, count):
        """Add entries; remember what became of them."""
        for _ in range(count):
            payload = (b"%d " % next(self.world.numbers)).ljust(100, b".")
            try:
                self.topic.add_entry(payload)
            except (LedgerFailedError, Killed):
                self.world.doubtful.add(payload)
                raise
            self.world.acknowledged.append(payload)

    def try_add(self, count):
        """Add entries, of which some may fail."""
        for _ in range(count):
            with suppress(OffloadError):
                self.add(1)
        self.pool.run_due()

    def until_done(self, do):
        """Do it until it succeeds, as an operator does."""
        for is_last in (*[False] * TRIES, True):
            try:
                do()
                return
            except OffloadError:
                if is_last:
                    raise
                self.world.clock.pass_s(61)


# --- what is done ------------------------------------------------------------------------------


def nothing(_):
    pass


def with_history(world):
    """Three sealed ledgers, the middle one offloaded by an attempt of its own."""
    process = world.open(Points())
    for count in (4, 13, 12):
        process.add(count)
        process.topic.roll()
    first, second, _ = process.topic.read_info().in_order
    uuid = UUID(int=5)
    process.topic._environment.records.update(  # as an older process left it
        NAME, lambda info: begin_attempt(info, first.ledger_id, uuid, tier_record(process.tier))
    )
    process.tier.write_index(f"{uuid}-ledger-{first.ledger_id}-index", b"left")
    assert second.info.entries == 13


def with_unfinished(world):
    """A segment over two ledgers, of which some blocks are there, and whose process was killed."""
    process = world.open(Points())
    process.topic.set_streaming(SETTINGS)
    process.add(5)
    process.pool.run_due()
    process.topic.roll()
    process.add(4)
    process.pool.run_due()
    assert unfinished_segment(world.info()) is not None


def with_filter(world):
    """Of fifteen entries that follow one another twelve are dropped."""
    world.filter = PlainFilter(lambda payload: int(payload.split()[0]) % 15 not in (0, 1, 14))


def with_unfinished_and_filter(world):
    """The same, where the former owner had another filter."""
    with_unfinished(world)
    with_filter(world)


@contextmanager
def streaming(world, points):
    """A process that streams the topic, and in the end completes its segment and closes it."""
    process = world.open(points)
    process.topic.set_streaming(SETTINGS)
    yield process
    process.until_done(process.topic.complete_segment)
    process.topic.close()


def held(world, points):
    """The filter decides of some entries first, and of more when the next owner has it."""
    process = world.open(points)
    process.topic.set_streaming(SETTINGS)
    process.try_add(13)
    stop = process.topic.last_position
    world.filter.stop = None if stop is None else (stop.ledger_id, max(0, stop.entry_id - 5))
    process.until_done(process.topic.complete_segment)
    process.try_add(2)
    process.topic.close()
    world.filter.stop = None
    with streaming(world, points) as process:
        process.until_done(process.topic.roll)


def stream(world, points):
    with streaming(world, points) as process:
        process.try_add(6)
        process.until_done(process.topic.roll)
        process.try_add(9)


def stream_history(world, points):
    with streaming(world, points) as process:
        process.pool.run_due()


def close_early(world, points):
    """It is closed while a segment is open, and the next owner goes on."""
    process = world.open(points)
    process.topic.set_streaming(SETTINGS)
    process.try_add(13)
    process.topic.close()
    with streaming(world, points):
        pass


def switch(world, points):
    with streaming(world, points) as process:
        process.try_add(12)
        process.topic.set_streaming(None)
        process.try_add(2)
        process.until_done(process.topic.roll)
        process.until_done(process.topic.complete_segment)
        process.try_add(2)
        process.until_done(process.topic.roll)
        process.until_done(lambda: process.topic.offload_prefix(LAST))
        process.topic.set_streaming(SETTINGS)
        process.try_add(3)


SCENARIOS = {
    "live": (nothing, stream),
    "history": (with_history, stream_history),
    "resumed": (with_unfinished, stream),
    "closed early": (nothing, close_early),
    "switched": (nothing, switch),
    "filtered": (with_filter, stream),
    "filtered and resumed": (with_unfinished_and_filter, stream),
    "held": (with_filter, held),
}


def check_done(world, where):
    """All that is there is in the tier, once, and nothing else is."""
    assert unfinished_segment(world.info()) is None, where
    assert world.cold_entries() == world.left_entries(), where
    assert left_in(world.cold, world.info()) == set(), where
    assert all(segment.end is not None for segment in segments_of(world.info())), where


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_a_fault_at_any_call_nothing_is_lost_and_streaming_goes_on(crash_matrix, scenario):
    prepare, run = SCENARIOS[scenario]

    def scene(folder):
        world = CrashedStream(folder)
        prepare(world)
        return world

    crash_matrix(scene, run, check=CrashedStream.check, check_done=check_done, every=106)
