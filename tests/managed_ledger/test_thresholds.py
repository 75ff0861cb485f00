"""The thresholds of a policy choose the oldest sealed ledgers, as Pulsar's do."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.policies import parse_policies, resolve_policies
from offload_core.metadata.records import (
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
)
from offload_core.writing.managed_ledger.upkeep import due_ledgers

NOW_MS = 1_700_000_000_000
OFFLOADED = OffloadContext(complete=True)


def policies(size=None, seconds=None, driver="local"):
    given = {"driver": driver, "threshold_in_bytes": size, "threshold_in_seconds": seconds}
    return resolve_policies(topic=parse_policies(given))


def sealed(ledger_id, size=10, age_s=0, context=None):
    info = LedgerInfo(ledger_id=ledger_id, entries=1, size=size, timestamp_ms=NOW_MS - age_s * 1000)
    return LedgerRecord(info=info, context=context)


def due(ledgers, **given):
    return due_ledgers(ManagedLedgerInfo(ledgers=tuple(ledgers)), policies(**given), NOW_MS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ()),
        ({"size": -1, "seconds": -1}, ()),
        ({"size": 0}, (1, 2, 3)),
        ({"size": 9}, (1, 2, 3)),
        ({"size": 10}, (1, 2)),
        ({"size": 29}, (1,)),
        ({"size": 30}, ()),
        ({"seconds": 0}, (1, 2, 3)),
        ({"seconds": 20}, (1, 2)),
        ({"seconds": 21}, (1,)),
        ({"seconds": 31}, ()),
        ({"size": 29, "seconds": 20}, (1, 2)),
        ({"size": 10, "seconds": 30}, (1, 2)),
    ],
)
def test_either_threshold_is_enough(given, expected):
    ledgers = [sealed(1, age_s=30), sealed(2, age_s=20), sealed(3, age_s=10)]
    assert due(ledgers, **given).ledger_ids == expected


def test_what_is_offloaded_counts_as_held_and_is_not_offloaded_again():
    ledgers = [sealed(1), sealed(2, context=OFFLOADED), sealed(3)]
    assert due(ledgers, size=19).ledger_ids == (1,)
    assert due([sealed(1, context=OFFLOADED), sealed(2)], size=0).ledger_ids == (2,)


def test_an_open_ledger_neither_counts_nor_goes():
    chosen = due([sealed(1), LedgerRecord(info=LedgerInfo(ledger_id=2, size=1000))], size=10)
    assert chosen.ledger_ids == ()
    assert chosen.skipped[2] == "it is open"


def test_the_status_says_why_a_ledger_does_not_go():
    segments = OffloadContext(segments=(OffloadSegment(uuid=UUID(int=1)),))
    empty = sealed(2)
    empty = replace(empty, info=replace(empty.info, entries=0))
    ledgers = [sealed(1, context=segments), empty, sealed(3, age_s=5)]
    assert due(ledgers, size=10, seconds=6).skipped == {
        1: "it is offloaded by segments",
        2: "it has no entries",
        3: "10 bytes from it on; the threshold is 10 bytes, and sealed 5 s ago; the threshold is 6 s",
    }
    assert due([sealed(1)]).skipped == {1: "no threshold is set"}
    assert due([sealed(1)], size=0, driver=None).skipped == {1: "no tier is configured"}


def test_the_target_is_behind_the_newest_ledger_that_is_due():
    chosen = due([sealed(1, age_s=9), sealed(7, age_s=9), sealed(8)], seconds=9)
    assert chosen.target == EntryPosition(8, 0)
    assert due([sealed(1)]).target is None


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans()), max_size=12),
    st.one_of(st.none(), st.integers(-1, 200)),
    st.one_of(st.none(), st.integers(-1, 60)),
)
def test_it_is_what_the_words_say(drawn, size, seconds):
    age, ledgers = sum(step for _, step, _ in drawn), []
    for i, (held, step, offloaded) in enumerate(drawn):
        ledgers.append(sealed(i, size=held, age_s=age, context=OFFLOADED if offloaded else None))
        age -= step
    expected = {
        ledger.ledger_id
        for i, ledger in enumerate(ledgers)
        if not ledger.has_complete_copy
        and (
            (size is not None and 0 <= size < sum(later.info.size for later in ledgers[i:]))
            or (seconds is not None and 0 <= seconds * 1000 <= NOW_MS - ledger.info.timestamp_ms)
        )
    }
    chosen = due(ledgers, size=size, seconds=seconds)
    assert set(chosen.ledger_ids) == expected
    assert (
        set(chosen.skipped) == {each.ledger_id for each in ledgers if not each.has_complete_copy} - expected
    )
