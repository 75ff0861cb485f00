"""Copies of all kinds of messages are repaired: what is left is read as before, and what was lost is an error."""

from __future__ import annotations

from typing import Any

import pytest
from live.kinds import (
    KEYS,
    KINDS,
    assert_is_as_clients_read,
    damage,
    entries_of,
    messages_of,
    put_kinds,
    without,
)
from scenes.repairs import Lines

from offload_core.maintenance.repair import Action, Repair, Repaired
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.listing import stream_pairs
from offload_core.storage.tier import Tier
from offload_hooks.errors import DataLossError, FormatError, IncompleteMessageError
from offload_hooks.testing import MemoryDriver
from pulsar_offload import TierReader, scan

GOES_ON_BEHIND = (1, 11)
"""The third chunk of five."""

LATER = 1 << 42
"""Long after all of them were written, in ms."""


@pytest.fixture
def tier() -> Tier:
    made = Tier(MemoryDriver())
    put_kinds(made)
    return made


def repaired(tier: Tier, **options: Any) -> list[Repaired]:
    """All is done that there is to do."""
    work, lines = Repair(tier, now_ms=lambda: LATER, **options), Lines()
    return [work.do(each, lines) for each in work.plan() if each.changes]


def stored_messages(reader: TierReader, kind: str) -> list[dict[str, Any]]:
    """All messages, or the chunks of them."""
    names = ["__ledgerId", "__entryId", "__producerName", "__sequenceId", "__chunkId", "__numChunks"]
    own = {"isolation": "uncommitted"} | KEYS
    return scan(reader, KINDS[kind], columns=names, chunks="raw", **own).to_table().to_pylist()


def test_by_indexes_that_were_made_anew_all_is_read_as_pulsars_clients_read_it(tier: Tier) -> None:
    tier.delete([pair.key.index_key for pair in stream_pairs(tier)])
    assert {each.planned.choice.action for each in repaired(tier)} == {Action.REBUILD_INDEX}
    for kind in KINDS:
        assert_is_as_clients_read(TierReader(tier), kind)
    assert list(Verification(tier, deep=True)) == []


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("compressed batches", (17, 1)),
        ("schema", (21, 1)),
        ("transactions", (49, 7)),
        pytest.param("chunks", GOES_ON_BEHIND, id="a chunk"),
        pytest.param("chunks", (2, 18), id="a chunk whose message ends in the next ledger"),
        ("encrypted", (5, 1)),
        ("encrypted chunks", (7, 5)),
    ],
)
def test_of_a_damaged_entry_only_its_messages_are_lost_and_that_is_an_error(
    tier: Tier, kind: str, place: tuple[int, int]
) -> None:
    reader, (ledger_id, entry_id) = TierReader(tier), place
    before = messages_of(reader, kind)
    hit = [
        row
        for row in stored_messages(reader, kind)
        if (row["__ledgerId"], row["__entryId"]) == (ledger_id, entry_id)
    ]
    damage(tier, place, entries_of(reader, kind)[place])
    with pytest.raises(FormatError):
        messages_of(TierReader(tier), kind)

    (done,) = repaired(tier)
    assert (done.planned.choice.action, done.planned.lost.count) == (Action.SALVAGE, 1)
    reader = TierReader(tier)
    with pytest.raises(DataLossError, match=f"1 entries: {ledger_id}:{entry_id}"):
        messages_of(reader, kind)
    if place == GOES_ON_BEHIND:
        with pytest.raises(IncompleteMessageError, match="chunk 2 is missing before chunk 3"):
            messages_of(reader, kind, fail_on_data_loss=False)
    expected = without(before, hit)
    assert 0 < len(before) - len(expected) <= len(hit)
    assert messages_of(reader, kind, fail_on_data_loss=False, mode="PERMISSIVE") == expected
    assert Code.LOST_ENTRIES in {each.code for each in Verification(tier, deep=True)}


def test_a_transaction_whose_end_was_lost_is_open(tier: Tier) -> None:
    kind = "transactions"
    reader = TierReader(tier)
    before, everything = (messages_of(reader, kind, isolation=each) for each in ("committed", "uncommitted"))
    entries = entries_of(reader, kind)
    with_messages = {(row["__ledgerId"], row["__entryId"]) for row in everything}
    marker = min(set(entries) - with_messages)
    damage(tier, marker, entries[marker])
    repaired(tier)
    reader = TierReader(tier)
    for isolation in ("committed", "uncommitted"):
        with pytest.raises(DataLossError, match=f"1 entries: {marker[0]}:{marker[1]}"):
            messages_of(reader, kind, isolation=isolation)
    read = messages_of(reader, kind, fail_on_data_loss=False)
    assert 0 < len(read) < len(before)
    assert read == before[: len(read)]
    assert messages_of(reader, kind, fail_on_data_loss=False, isolation="uncommitted") == everything
