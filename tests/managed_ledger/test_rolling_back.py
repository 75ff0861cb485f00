"""A topic that was streamed goes back to ledger-based offload, read all the while; an old version has all then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from managed_ledgers import NAME, Audit, ColdLedger
from scenes.segments import SegmentedOffloads

from offload_core.maintenance.rollback import (
    Allowed,
    Need,
    Verdict,
    delete_judged,
    judge_tier,
    plan_rollback,
    release_recorded,
)
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.writing.managed_ledger import open_managed_ledger

START, END = EntryPosition(0, 0), EntryPosition(1 << 40, 0)
LAG_S = 3600
TOPIC = parse_topic("acme/cold/orders")


class Streamed:
    """Three sealed ledgers in two segments, which end inside the second and with the third; a fourth is written."""

    def __init__(self, environment, hot, cold, clock):
        readers = TieredReaders(hot, ColdReaders(KnownTiers(cold.store), memory=ReadMemory()))
        self.environment = replace(environment, open_reader=readers.open, cache_bytes=0)
        self.open = open_managed_ledger(self.environment, NAME)
        self.tier, self.records, self.audit = cold.store, environment.records, Audit()
        self.payloads: list[bytes] = []
        self.ids: list[int] = []
        for size in (4, 3, 5, 2):
            added = [b"%d-%d" % (len(self.ids), i) * 20 for i in range(size)]
            self.payloads += added
            self.ids.append(self.open.add_entries(added).ledger_id)
            if size != 2:
                self.open.roll()
        offloads = SegmentedOffloads(name=NAME, records=self.records, hot=hot, tier=self.tier, now_ms=clock)
        self.segments = [
            str(offloads.offload(EntryPosition(self.ids[place], end))) for place, end in ((1, 0), (2, 4))
        ]

    @property
    def info(self):
        known = self.records.read(NAME)
        return known.info

    def plan(self):
        return plan_rollback(self.tier, {TOPIC: self.info})

    def roll_back(self):
        judged = judge_tier(self.tier, lambda: release_recorded(self.records, [], dry_run=False).infos)
        delete_judged(self.tier, judged, self.audit, allowed=Allowed(recorded=False))
        return [each.verdict for each in judged]

    def read(self, opened=None):
        read = (opened or self.open).read_entries(START, 100)
        return [bytes(payload) for _, payload in read]

    def as_an_old_version(self, cold, hot):
        """What is read by who knows hot and one-object copies only: a complete record means the latter."""
        found = []
        for ledger in self.info.in_order:
            context = ledger.context
            if context is not None and context.complete:
                found += ColdLedger(cold, ledger).entries
            else:
                reader = hot.open(ledger.ledger_id)
                last = (ledger.info.entries or reader.status().entry_count) - 1
                found += [bytes(payload) for payload in reader.read(0, last)]
                reader.close()
        return found


@pytest.fixture
def topic(environment, hot, cold, clock):
    return Streamed(environment, hot, cold, clock)


def test_the_whole_way_back(topic, hot, clock, tmp_path):
    assert topic.as_an_old_version(tmp_path / "cold", hot) == topic.payloads, "from the hot copies"
    assert [ledger.ledger_id for ledger in topic.plan().of(Need.RELEASE)] == topic.ids[:3]
    assert topic.roll_back() == [Verdict.FREE, Verdict.FREE]
    assert topic.plan().loses_nothing
    assert topic.as_an_old_version(tmp_path / "cold", hot) == topic.payloads
    assert topic.read() == topic.payloads
    assert list(topic.tier.list_objects()) == []
    assert sorted(str(each.uuid) for each in topic.audit.deletions) == sorted(
        [topic.segments[0]] * 2 + [topic.segments[1]] * 2
    )
    topic.open.offload_prefix(END)
    clock.pass_s(LAG_S)
    assert topic.open.delete_hot_copies(LAG_S) == topic.ids[:3]
    assert topic.plan().loses_nothing
    assert topic.as_an_old_version(tmp_path / "cold", hot) == topic.payloads
    assert topic.read() == topic.payloads
    topic.open.close()
    with open_managed_ledger(topic.environment, NAME) as again:
        assert topic.read(again) == topic.payloads


def test_what_has_lost_its_hot_copy_stays_and_is_read_from_its_segments(topic, clock):
    clock.pass_s(LAG_S)
    assert topic.open.delete_hot_copies(LAG_S) == topic.ids[:3]
    plan = topic.plan()
    assert [(ledger.ledger_id, ledger.entries) for ledger in plan.of(Need.ONLY_COPY)] == [
        (topic.ids[0], 4),
        (topic.ids[1], 3),
        (topic.ids[2], 5),
    ]
    before = topic.info
    assert topic.roll_back() == [Verdict.NEEDED, Verdict.NEEDED]
    assert topic.info == before
    assert topic.read() == topic.payloads


def test_a_way_back_that_is_broken_off_can_be_gone_forth_again(topic, records, clock, hot):
    topic.roll_back()
    offloads = SegmentedOffloads(name=NAME, records=records, hot=hot, tier=topic.tier, now_ms=clock)
    offloads.offload(EntryPosition(topic.ids[2], 4))
    assert topic.read() == topic.payloads
    assert len(topic.plan().of(Need.RELEASE)) == 3
    clock.pass_s(LAG_S)
    assert topic.open.delete_hot_copies(LAG_S) == topic.ids[:3]
    assert topic.read() == topic.payloads
