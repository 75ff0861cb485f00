"""Deleting streaming objects and releasing their records: by every crash, and in any layout, nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress

from crash_points import FAULTS, Fault, Killed, Metadata, Points, watched
from effort import Sample, effort
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import Audit
from records import closed, failed, managed_ledger, segment, still_open
from scenes.rollbacks import (
    NAMELESS,
    ORDERS,
    in_one_object,
    in_segments,
    keys,
    put_segment,
    put_whole,
)
from tiers import MANAGED_LEDGER, uuid_of

from offload_core.maintenance.rollback import Allowed, delete_judged, judge_tier, release_recorded
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo, OffloadContext
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_hooks.errors import StoreError
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore

# --- every crash, with the release of the records -----------------------------------------------


LEDGERS = (
    in_segments(5, 3, (1, 2)),
    in_segments(6, 4, (1, 1), (2, 3)),
    in_segments(7, 2, (2, 0), (3, 1), gone=True),
    closed(8, 2),
)


def rolled_back(tier: Tier, records: ManagedLedgerRecords) -> None:
    """The whole deletion with a release, as the command does it."""
    judged = judge_tier(tier, lambda: release_recorded(records, [], dry_run=False).infos)
    delete_judged(tier, judged, Audit(), allowed=Allowed(recorded=False), at_once=1)


def laid_out() -> tuple[MemoryDriver, MemoryMetadataStore]:
    driver, store = MemoryDriver(), MemoryMetadataStore()
    tier = Tier(driver)
    put_segment(tier, 1, (5, 0, 3), (6, 0, 2))
    put_segment(tier, 2, (6, 2, 2), (7, 0, 1))
    put_segment(tier, 3, (7, 1, 1))
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, managed_ledger(*LEDGERS), None)
    return driver, store


def crashes() -> list[tuple[int, Fault]]:
    driver, store = laid_out()
    points = Points()
    rolled_back(Tier(driver, [watched(points)]), ManagedLedgerRecords(Metadata(store, points)))
    assert points.calls.count("put") == 1
    assert points.calls.count("delete") == 3  # the index, what lies beside, the data
    return list(itertools.product(range(1, len(points.calls) + 1), FAULTS))


def test_whatever_ends_it_nothing_is_lost_and_the_same_call_goes_on(
    sample: Sample[tuple[int, Fault]],
) -> None:
    for at, fault in sample(crashes(), 7):
        driver, store = laid_out()
        points = Points(at, fault)
        with suppress(StoreError, Killed):
            rolled_back(Tier(driver, [watched(points)]), ManagedLedgerRecords(Metadata(store, points)))
        plain, records = Tier(driver), ManagedLedgerRecords(store)
        known = records.read(MANAGED_LEDGER)
        assert known is not None
        for ledger in known.info.in_order:
            assert readable(plain, ledger) == set(range(ledger.info.entries or 0)), (at, fault, points.calls)
            for share in ledger.context.segments if ledger.context else ():
                assert {str(share.uuid), f"{share.uuid}-index"} <= keys(plain), (at, fault)  # released before
        rolled_back(plain, records)
        known = records.read(MANAGED_LEDGER)
        assert known is not None
        assert known.info == as_written(managed_ledger(closed(5, 3), closed(6, 4), LEDGERS[2], closed(8, 2)))
        assert keys(plain) == {str(uuid_of(2)), f"{uuid_of(2)}-index", str(uuid_of(3)), f"{uuid_of(3)}-index"}


def readable(tier: Tier, ledger: LedgerRecord) -> set[int]:
    """The entries of a ledger that can be read from some copy that its record names: a plain model."""
    there, context = keys(tier), ledger.context
    entries = set(range(ledger.info.entries or 0))
    if context is None or ledger.has_hot_copy:
        return entries
    if not context.segments:
        name = f"{context.uuid}-ledger-{ledger.ledger_id}"
        return entries if context.complete and {name, f"{name}-index"} <= there else set()
    found: set[int] = set()
    begin = 0
    for share in context.segments:
        stop = (share.end_entry_id or 0) + 1
        if share.complete and {str(share.uuid), f"{share.uuid}-index"} <= there:
            found |= set(range(begin, stop))
        begin = stop
    return found


# --- any layout --------------------------------------------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[LedgerRecord], list[tuple[int, list[tuple[int, int, int]], str]]]:
    """Ledgers in any state, and objects: number, shares, and which parts of them are there."""
    ledgers: list[LedgerRecord] = []
    shares_of: dict[int, list[tuple[int, int, int]]] = {}
    number = 1
    for ledger_id in range(3, 3 + draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["hot", "whole", "segments", "segments", "trimmed"]))
        gone = draw(st.booleans())
        if kind == "hot":
            ledgers.append(closed(ledger_id, 4))
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))  # left of an attempt
        elif kind == "whole":
            ledgers.append(in_one_object(ledger_id, 4, 100 + ledger_id, gone=gone))
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))
        elif kind == "trimmed":
            shares_of.setdefault(number, []).append((ledger_id, 0, 4))
        else:
            shares, first = [], 0
            for _ in range(draw(st.integers(1, 3))):
                if draw(st.booleans()):
                    number += 1
                count = draw(st.integers(1, 3))
                status = draw(st.sampled_from(["offloaded", "offloaded", "assigned", "failed"]))
                share = segment(uuid_of(number), first + count - 1, complete=status == "offloaded")
                if uuid_of(number) not in {each.uuid for each in shares}:
                    shares.append(failed(share) if status == "failed" else share)
                    shares_of.setdefault(number, []).append((ledger_id, first, count))
                    first += count
            entries = first + draw(st.sampled_from([0, 0, 2]))
            context = OffloadContext.of_segments(shares, complete=True, bookkeeper_deleted=gone)
            ledgers.append(closed(ledger_id, entries, context))
    parts = st.sampled_from(["both", "both", "both", "data", "index"])
    return ledgers, [(each, shares, draw(parts)) for each, shares in shares_of.items()]


@given(layout=layouts(), loss=st.booleans(), release=st.booleans(), named=st.booleans())
@effort(2)
def test_no_entry_is_lost_that_a_record_has(
    layout: tuple[list[LedgerRecord], Sequence[tuple[int, list[tuple[int, int, int]], str]]],
    loss: bool,
    release: bool,
    named: bool,
) -> None:
    ledgers, objects = layout
    tier, store = Tier(MemoryDriver()), MemoryMetadataStore()
    for ledger in ledgers:
        if ledger.context is not None and not ledger.context.segments:
            put_whole(tier, 100 + ledger.ledger_id, ledger.ledger_id, 4)
    whole = keys(tier)
    for number, shares, parts in objects:
        names = {} if named else {"names": NAMELESS}
        put_segment(tier, number, *shares, parts=["data", "index"] if parts == "both" else [parts], **names)
    records = ManagedLedgerRecords(store)
    records.write(MANAGED_LEDGER, managed_ledger(*ledgers, still_open(99)), None)
    before = {ledger.ledger_id: readable(tier, ledger) for ledger in ledgers}

    def infos() -> Mapping[TopicName, ManagedLedgerInfo]:
        if release:
            return release_recorded(records, [], dry_run=False).infos
        known = records.read(MANAGED_LEDGER)
        assert known is not None
        return {ORDERS: known.info}

    judged = judge_tier(tier, infos)
    allowed = Allowed(recorded=not release, loss=loss)
    delete_judged(tier, judged, Audit(), allowed=allowed)
    assert whole <= keys(tier)
    known = records.read(MANAGED_LEDGER)
    assert known is not None
    under_way = {
        str(share.uuid)
        for ledger in known.info.in_order
        if ledger.context is not None and not ledger.is_marked_for_deletion
        for share in ledger.context.segments
        if not share.complete and share.status.value == "assigned"
    }
    left = {key.removesuffix("-index") for key in keys(tier) - whole}
    there = {str(uuid_of(number)) for number, _, _ in objects}
    if not loss:
        for ledger in known.info.in_order:
            assert ledger.ledger_id == 99 or before[ledger.ledger_id] <= readable(tier, ledger)
    elif not release and named:
        assert left == under_way & there
    assert under_way & there <= left
