"""Every call of metadata, hot tier, tier and audit log in a topic's life fails, is unknown, or ends the process.

After each the topic is opened anew, as another process does: every entry that was acknowledged is read, in order and
once; an entry whose call failed is there only if the call said that it may be; every copy that the record calls
complete is there. Then the same is done again, to its end, and nothing is left behind in either tier.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from crash_points import FAULTS, Fault, Killed, Points
from effort import Sample
from managed_ledgers import NAME, ColdLedger, environment_of
from scenes.segments import SegmentedOffloads

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo, segments_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import (
    Environment,
    HotLedgers,
    ManagedLedger,
    RolloverPolicy,
    delete_managed_ledger,
    open_managed_ledger,
)
from offload_drivers.local import LocalDriver
from offload_hooks.errors import LedgerFailedError, OffloadError, TopicDeletedError, TopicTerminatedError
from offload_hooks.ledger_stores import LedgerReader
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore
from pulsar_offload import open_tier

LAST = EntryPosition(1 << 40, 0)
START = EntryPosition(0, 0)


class CrashedTopic:
    """A topic whose record, ledgers and objects outlive processes."""

    def __init__(self, folder: Path) -> None:
        self.cold = folder / "cold"
        self.cold.mkdir(parents=True)
        self.tier = Tier(LocalDriver(str(self.cold)))
        self.segments = ColdReaders(KnownTiers(self.tier), memory=ReadMemory())
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgers()
        self.acknowledged: list[bytes] = []
        self.doubtful: set[bytes] = set()
        self.trimmed: set[bytes] = set()
        self.deleted = False
        self._numbers = itertools.count()

    def payload(self) -> bytes:
        """One that was never used before."""
        return b"entry %d" % next(self._numbers)

    def environment(self, points: Points) -> Environment:
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

    def open(self, points: Points, max_entries: int = 1000) -> ManagedLedger:
        rollover = RolloverPolicy(max_entries=max_entries, min_age_s=0)
        return open_managed_ledger(self.environment(points), NAME, rollover=rollover)

    def add(self, topic: ManagedLedger, *payloads: bytes) -> None:
        """Add entries; remember what became of them."""
        try:
            topic.add_entry(payloads[0]) if len(payloads) == 1 else topic.add_entries(payloads)
        except (LedgerFailedError, Killed):
            self.doubtful |= set(payloads)
            raise
        self.acknowledged += payloads

    # --- what there is -------------------------------------------------------------------------

    def info(self) -> ManagedLedgerInfo | None:
        known = ManagedLedgerRecords(self.metadata).read(NAME)
        return None if known is None else known.info

    def open_reader(self, record: LedgerRecord, *_: object) -> LedgerReader:
        """Cold if the record says so, else hot."""
        hot = MemoryLedgerStore(self.ledgers)
        if record.context is not None and record.context.segments:
            return TieredReaders(hot, self.segments).open(record)
        if record.has_complete_copy:
            return ColdLedger(self.cold, record)
        return hot.open(record.ledger_id)

    def check_cold(self, ledger: LedgerRecord, where: str) -> None:
        """What the record says to be in the tier is there."""
        if not ledger.has_complete_copy:
            return
        assert ledger.context is not None
        if not ledger.context.segments:
            assert len(ColdLedger(self.cold, ledger).entries) == ledger.info.entries, where
            return
        stop, found = ledger.offloaded_stop, 0
        assert stop is not None
        reader = self.segments.open(ledger)
        while found < stop:
            found = reader.read(found, stop - 1).stop_entry_id

    def check(self, where: str) -> None:
        """Open the topic anew, and compare."""
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
            return
        kept = [payload for payload in wanted if payload not in self.trimmed]
        assert known == wanted[len(wanted) - len(known) :], where
        assert len(known) >= len(kept), where
        info = self.info()
        assert info is not None
        for ledger in info.in_order:
            if ledger.is_marked_for_deletion:
                continue
            assert ledger.info.is_closed, where
            self.check_cold(ledger, where)
            if ledger.context is None or not ledger.context.bookkeeper_deleted:
                assert len(self.ledgers.find(ledger.ledger_id).entries) == ledger.info.entries, where

    def leftovers(self) -> set[object]:
        """Ledgers in the hot tier, objects and uploads in the cold one that no record has."""
        info = self.info() or ManagedLedgerInfo()
        hot = {
            ledger.ledger_id
            for ledger in info.ledgers
            if ledger.context is None or not ledger.context.bookkeeper_deleted
        }
        keys = set()
        for ledger in info.ledgers:
            context = ledger.context
            if context is not None and context.complete and not context.segments:
                key = f"{context.uuid}-ledger-{ledger.ledger_id}"
                keys |= {key, f"{key}-index"}
        for segment in segments_of(info):
            keys |= {str(segment.uuid), f"{segment.uuid}-index"}
        with open_tier(self.cold) as tier:
            files = {each.key for each in tier.store.list_objects()}
            uploads = {each.upload.upload_id for each in tier.store.list_uploads()}
        return (set(self.ledgers.ledgers) ^ hot) | (files - keys) | uploads


# --- what is done ------------------------------------------------------------------------------


def nothing(_: CrashedTopic) -> None:
    pass


def with_entries(world: CrashedTopic, sealed: int = 2) -> None:
    """Sealed ledgers, and one whose process was killed."""
    topic = world.open(Points())
    for i in range(sealed + 1):
        world.add(topic, *(b"%d-%d " % (i, j) + b"x" * 40 for j in range(4)))
        if i < sealed:
            topic.roll()


def killed_while_beginning(world: CrashedTopic) -> None:
    """And a ledger that was created and not recorded."""
    with_entries(world)
    HotLedgers(MemoryLedgerStore(world.ledgers)).create(NAME)


def with_two_ledgers(world: CrashedTopic) -> None:
    with_entries(world, sealed=1)


def offloaded(world: CrashedTopic) -> None:
    with_two_ledgers(world)
    world.open(Points()).offload_prefix(LAST)


def partly_cold(world: CrashedTopic) -> None:
    """A ledger in the cold tier only, one in both, one in the hot tier only."""
    with_entries(world)
    topic = world.open(Points())
    info = world.info()
    assert info is not None
    topic.offload_prefix(EntryPosition(info.in_order[1].ledger_id, 0))
    topic.delete_hot_copies(0)
    topic.offload_prefix(EntryPosition(info.in_order[2].ledger_id, 0))


def in_segments(world: CrashedTopic, completes: bool = True) -> None:
    """Three segments over three ledgers; the first ledger is in the cold tier only, the last in part."""
    with_entries(world)
    topic = world.open(Points())
    info = world.info()
    assert info is not None
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


def in_segments_one_of_which_is_unfinished(world: CrashedTopic) -> None:
    in_segments(world, completes=False)


def open_it(world: CrashedTopic, points: Points) -> None:
    world.open(points).close()


def add(world: CrashedTopic, points: Points) -> None:
    topic = world.open(points)
    for _ in range(4):
        with suppress(OffloadError):
            world.add(topic, world.payload())
    with suppress(OffloadError):
        world.add(topic, world.payload(), world.payload())
    topic.close()


def add_over_ledgers(world: CrashedTopic, points: Points) -> None:
    topic = world.open(points, max_entries=2)
    for i in range(5):
        with suppress(OffloadError):
            world.add(topic, world.payload())
        if i == 2:
            with suppress(OffloadError):
                topic.roll()
    topic.close()


def trim(world: CrashedTopic, points: Points) -> None:
    world.trimmed |= {payload for payload in world.acknowledged if payload[:2] in (b"0-", b"1-")}
    consumed = EntryPosition(2, 0)
    world.open(points).trim(RetentionPolicies(), consumed_before=consumed)


def terminate(world: CrashedTopic, points: Points) -> None:
    topic = world.open(points)
    with suppress(TopicTerminatedError):
        world.add(topic, world.payload())
    topic.terminate()


def offload_prefix(world: CrashedTopic, points: Points) -> None:
    world.open(points).offload_prefix(LAST)


def delete_hot_copies(world: CrashedTopic, points: Points) -> None:
    world.open(points).delete_hot_copies(0)


def delete_topic(world: CrashedTopic, points: Points) -> None:
    world.deleted = True
    delete_managed_ledger(world.environment(points), NAME)


VERBS: dict[str, tuple[Callable[[CrashedTopic], None], Callable[[CrashedTopic, Points], None]]] = {
    "open": (nothing, open_it),
    "open after a kill": (killed_while_beginning, open_it),
    "add": (nothing, add),
    "add after a kill": (with_entries, add),
    "rollover": (nothing, add_over_ledgers),
    "trim": (partly_cold, trim),
    "terminate": (with_entries, terminate),
    "offload_prefix": (with_two_ledgers, offload_prefix),
    "delete hot copies": (offloaded, delete_hot_copies),
    "delete topic": (partly_cold, delete_topic),
    "trim segments": (in_segments, trim),
    "delete hot copies of segments": (in_segments, delete_hot_copies),
    "delete topic in segments": (in_segments_one_of_which_is_unfinished, delete_topic),
}


def is_done(world: CrashedTopic, verb: str) -> bool:
    """Whether the verb has come to its end."""
    info = world.info()
    if verb.startswith("delete topic"):
        return info is None
    assert info is not None
    contexts = [ledger.context for ledger in info.ledgers]
    if verb.startswith("trim"):
        return len(info.ledgers) == 1
    if verb == "terminate":
        return info.terminated_at is not None
    if verb == "offload_prefix":
        return all(context is not None and context.complete for context in contexts)
    if verb == "delete hot copies":
        return all(context is not None and context.bookkeeper_deleted for context in contexts)
    if verb == "delete hot copies of segments":
        return [context is not None and context.bookkeeper_deleted for context in contexts] == [
            True,
            True,
            False,
        ]
    return True


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here, and the disk would take half of the time; what it keeps is tested with the driver."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("verb", VERBS)
def test_after_any_fault_at_any_call_nothing_is_lost_and_the_verb_goes_on_to_its_end(
    tmp_path: Path,
    verb: str,
    sample: Sample[tuple[int, Fault]],
    record_property: Callable[[str, object], None],
) -> None:
    prepare, run = VERBS[verb]
    world, counted = CrashedTopic(tmp_path / "calls"), Points()
    prepare(world)
    run(world, counted)
    assert is_done(world, verb)
    assert world.leftovers() == set()
    points = sample(list(itertools.product(range(1, len(counted.calls) + 1), FAULTS)), 19)
    record_property("crash points", len(points))
    for at, fault in points:
        where = f"{fault} call {at}, {counted.calls[at - 1]}"
        world = CrashedTopic(tmp_path / f"{at}-{fault}")
        prepare(world)
        with suppress(OffloadError, Killed):
            run(world, Points(at=at, fault=fault))
        world.check(where)
        run(world, Points())
        if not world.deleted:
            world.check(where)
        assert is_done(world, verb), where
        assert world.leftovers() == set(), where
    print(f"{verb}: {len(counted.calls)} calls, {len(points)} points")
