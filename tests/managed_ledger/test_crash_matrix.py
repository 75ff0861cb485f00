"""Every call of metadata, hot tier, tier and audit log in a topic's life fails, is unknown, or ends the process.

After each the topic is opened anew, as another process does: every entry that was acknowledged is read, in order and
once; an entry whose call failed is there only if the call said that it may be; every copy that the record calls
complete is there. Then the same is done again, to its end, and nothing is left behind in either tier.
"""

import itertools
import re
import subprocess
import sys
from contextlib import suppress

import kill_matrix
import pytest
from crash_points import Killed, Points
from entries import read_through
from managed_ledgers import NAME, ColdLedger, environment_of
from scenes.segments import SegmentedOffloads, left_in

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo, OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import (
    HotLedgers,
    RolloverPolicy,
    delete_managed_ledger,
    open_managed_ledger,
)
from offload_drivers.local import LocalDriver
from offload_hooks.errors import LedgerFailedError, OffloadError, TopicDeletedError, TopicTerminatedError
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

LAST = EntryPosition(1 << 40, 0)
START = EntryPosition(0, 0)


class CrashedTopic:
    """A topic whose record, ledgers and objects outlive processes."""

    def __init__(self, folder):
        self.cold = folder / "cold"
        self.cold.mkdir(parents=True)
        self.tier = Tier(LocalDriver(str(self.cold)))
        self.segments = ColdReaders(KnownTiers(self.tier), memory=ReadMemory())
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgers()
        self.acknowledged = []
        self.doubtful = set()
        self.trimmed = set()
        self.deleted = False
        self._numbers = itertools.count()

    def payload(self):
        """One that was never used before."""
        return b"entry %d" % next(self._numbers)

    def environment(self, points):
        """As a new process has it."""
        hot = MemoryLedgerStore(self.ledgers)
        return environment_of(
            self.metadata,
            hot,
            self.cold,
            points,
            block_bytes=250,
            open_reader=self.open_reader,
            cache_bytes=0,
        )

    def open(self, points, max_entries=1000):
        rollover = RolloverPolicy(max_entries=max_entries, min_age_s=0)
        return open_managed_ledger(self.environment(points), NAME, rollover=rollover)

    def add(self, topic, *payloads):
        """Add entries; remember what became of them."""
        try:
            topic.add_entry(payloads[0]) if len(payloads) == 1 else topic.add_entries(payloads)
        except (LedgerFailedError, Killed):
            self.doubtful |= set(payloads)
            raise
        self.acknowledged += payloads

    # --- what there is -------------------------------------------------------------------------

    def info(self):
        known = ManagedLedgerRecords(self.metadata).read(NAME)
        return None if known is None else known.info

    def open_reader(self, record, *_):
        """Cold if the record says so, else hot."""
        hot = MemoryLedgerStore(self.ledgers)
        if record.context is not None and record.context.segments:
            return TieredReaders(hot, self.segments).open(record)
        if record.has_complete_copy:
            return ColdLedger(self.cold, record)
        return hot.open(record.ledger_id)

    def check_cold(self, ledger, where):
        """What the record says to be in the tier is there."""
        if not ledger.has_complete_copy:
            return
        if not ledger.context.segments:
            assert len(ColdLedger(self.cold, ledger).entries) == ledger.info.entries, where
            return
        entries = list(read_through(self.segments.open(ledger), 0, ledger.offloaded_stop - 1))
        assert len(entries) == ledger.offloaded_stop, where

    def check(self, where):
        """Open the topic anew, and compare."""
        had_gone = self.deleted and self.info() is None
        try:
            topic = self.open(Points())
        except TopicDeletedError:
            assert self.deleted, where
            return
        found = [bytes(payload) for _, payload in topic.read_entries(START, 10_000, 1 << 30)]
        known = [payload for payload in found if payload not in self.doubtful]
        wanted = [payload for payload in self.acknowledged if payload not in self.doubtful]
        assert len(found) == len(set(found)), where
        if self.deleted and not found:
            if had_gone:  # this opening has made it anew
                delete_managed_ledger(self.environment(Points()), NAME)
            return
        kept = [payload for payload in wanted if payload not in self.trimmed]
        assert known == wanted[len(wanted) - len(known) :], where
        assert len(known) >= len(kept), where
        for ledger in self.info().in_order:
            if ledger.is_marked_for_deletion:
                continue
            assert ledger.info.is_closed, where
            self.check_cold(ledger, where)
            if ledger.context is None or not ledger.context.bookkeeper_deleted:
                assert len(self.ledgers.find(ledger.ledger_id).entries) == ledger.info.entries, where

    def leftovers(self):
        """Ledgers in the hot tier, objects and uploads in the cold one that no record has."""
        info = self.info() or ManagedLedgerInfo()
        hot = {
            ledger.ledger_id
            for ledger in info.ledgers
            if ledger.context is None or not ledger.context.bookkeeper_deleted
        }
        return (set(self.ledgers.ledgers) ^ hot) | left_in(self.cold, info)


# --- what is done ------------------------------------------------------------------------------


def nothing(_):
    pass


def with_entries(world, sealed=2):
    """Sealed ledgers, and one whose process was killed."""
    topic = world.open(Points())
    for i in range(sealed + 1):
        world.add(topic, *(b"%d-%d " % (i, j) + b"x" * 40 for j in range(4)))
        if i < sealed:
            topic.roll()


def killed_while_beginning(world):
    """And a ledger that was created and not recorded."""
    with_entries(world)
    HotLedgers(MemoryLedgerStore(world.ledgers)).create(NAME)


def with_two_ledgers(world):
    with_entries(world, sealed=1)


def offloaded(world):
    with_two_ledgers(world)
    world.open(Points()).offload_prefix(LAST)


def killed_while_offloading(world):
    """Some blocks of a ledger are there."""
    with_two_ledgers(world)
    with suppress(Killed):
        offload_prefix(world, Points(at=20, fault="kill after"))
    assert world.leftovers()


def partly_cold(world):
    """A ledger in the cold tier only, one in both, one in the hot tier only."""
    with_entries(world)
    topic = world.open(Points())
    info = world.info()
    topic.offload_prefix(EntryPosition(info.in_order[1].ledger_id, 0))
    topic.delete_hot_copies(0)
    topic.offload_prefix(EntryPosition(info.in_order[2].ledger_id, 0))


def in_segments(world, completes=True):
    """Three segments over three ledgers; the first ledger is in the cold tier only, the last in part."""
    with_entries(world)
    topic = world.open(Points())
    info = world.info()
    first, second, third = (ledger.ledger_id for ledger in info.in_order)
    offloads = SegmentedOffloads(
        name=NAME,
        records=ManagedLedgerRecords(world.metadata),
        hot=MemoryLedgerStore(world.ledgers),
        tier=world.tier,
        now_ms=lambda: 1000,
    )
    offloads.offload(EntryPosition(first, 1))
    offloads.offload(EntryPosition(second, 0))
    topic.delete_hot_copies(0)
    offloads.offload(EntryPosition(third, 1), completes=completes)


def in_segments_one_of_which_is_unfinished(world):
    in_segments(world, completes=False)


def open_it(world, points):
    world.open(points).close()


def add(world, points):
    topic = world.open(points)
    for _ in range(4):
        with suppress(OffloadError):
            world.add(topic, world.payload())
    with suppress(OffloadError):
        world.add(topic, world.payload(), world.payload())
    topic.close()


def add_over_ledgers(world, points):
    topic = world.open(points, max_entries=2)
    for i in range(5):
        with suppress(OffloadError):
            world.add(topic, world.payload())
        if i == 2:
            with suppress(OffloadError):
                topic.roll()
    topic.close()


def trim(world, points):
    world.trimmed |= {payload for payload in world.acknowledged if payload[:2] in (b"0-", b"1-")}
    consumed = EntryPosition(2, 0)
    world.open(points).trim(RetentionPolicies(), consumed_before=consumed)


def terminate(world, points):
    topic = world.open(points)
    with suppress(TopicTerminatedError):
        world.add(topic, world.payload())
    topic.terminate()


def offload_prefix(world, points):
    world.open(points).offload_prefix(LAST)


def delete_hot_copies(world, points):
    world.open(points).delete_hot_copies(0)


def delete_topic(world, points):
    world.deleted = True
    delete_managed_ledger(world.environment(points), NAME)


def has_gone(world):
    return world.info() is None


def contexts(world):
    info = world.info()
    return [ledger.context or OffloadContext() for ledger in info.ledgers]


def is_trimmed(world):
    return len(contexts(world)) == 1


def is_terminated(world):
    info = world.info()
    return info is not None and info.terminated_at is not None


def is_offloaded(world):
    return all(context.complete for context in contexts(world))


def is_cold_only(world):
    return all(context.bookkeeper_deleted for context in contexts(world))


def are_two_cold_only(world):
    return [context.bookkeeper_deleted for context in contexts(world)] == [True, True, False]


def is_there(world):
    return world.info() is not None


VERBS = {
    "open": (nothing, open_it, is_there),
    "open after a kill": (killed_while_beginning, open_it, is_there),
    "add": (nothing, add, is_there),
    "add after a kill": (with_entries, add, is_there),
    "rollover": (nothing, add_over_ledgers, is_there),
    "trim": (partly_cold, trim, is_trimmed),
    "terminate": (with_entries, terminate, is_terminated),
    "offload_prefix": (with_two_ledgers, offload_prefix, is_offloaded),
    "offload_prefix after a kill": (killed_while_offloading, offload_prefix, is_offloaded),
    "delete hot copies": (offloaded, delete_hot_copies, is_cold_only),
    "delete topic": (partly_cold, delete_topic, has_gone),
    "trim segments": (in_segments, trim, is_trimmed),
    "delete hot copies of segments": (in_segments, delete_hot_copies, are_two_cold_only),
    "delete topic in segments": (in_segments_one_of_which_is_unfinished, delete_topic, has_gone),
}
"""What there is before, what is done, and how it ends."""


EACH_DAY = ("offload_prefix", "offload_prefix after a kill", "delete hot copies")
"""Between these an entry has a copy more or less: more of their calls are tried each day."""


def after_any_fault_at_any_call(crash_matrix, verb, every):
    prepare, run, is_done = VERBS[verb]

    def scene(folder):
        world = CrashedTopic(folder)
        prepare(world)
        return world

    def check_done(world, where):
        assert is_done(world), where
        assert world.leftovers() == set(), where

    crash_matrix(scene, run, check=CrashedTopic.check, check_done=check_done, every=every)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in EACH_DAY])
def test_after_any_fault_at_any_call_nothing_is_lost_and_the_verb_goes_on_to_its_end(crash_matrix, verb):
    after_any_fault_at_any_call(crash_matrix, verb, every=38)


@pytest.mark.long
@pytest.mark.parametrize("verb", EACH_DAY)
def test_after_any_fault_of_an_offload_nothing_is_lost_and_it_goes_on_to_its_end(crash_matrix, verb):
    after_any_fault_at_any_call(crash_matrix, verb, every=14)


WITHIN_S = 1200.0
"""How many points of each verb are tried where not all are."""


def run(folder, verb, limit):
    """How many points were tried, of how many."""
    # From 3.12 on Python warns of a fork where libraries have threads; those of Python there are none of.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, kill_matrix.__file__, str(folder), verb, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    counts = re.fullmatch(rf"{verb}: (\d+) of (\d+) points, \d+ calls\n", done.stdout)
    assert counts is not None, done.stdout
    return int(counts[1]), int(counts[2])


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("verb", kill_matrix.VERBS)
def test_a_process_that_is_killed_at_a_call_loses_nothing_and_another_goes_on(tmp_path, verb, pytestconfig):
    most = sys.maxsize if pytestconfig.option.nightly else 8
    tried, points = run(tmp_path, verb, most)
    assert tried == min(most, points)
    assert points >= 10
