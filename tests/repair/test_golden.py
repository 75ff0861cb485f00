"""Pulsar's own objects: an index that is lost is made anew as Pulsar wrote it; what Pulsar damaged is saved."""

import hashlib
import json

import pytest
from golden import GOLDEN, PIP17_CASES, STREAMING_CASES
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
from managed_ledgers import Audit
from mapfiles import lay_out_golden
from scenes.repairs import pairs_of, read_pair
from tiers import lay_out_case

from offload_core.maintenance.repair import Action, Repair
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.listing import stream_pairs
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import DataLossError, FormatError, IncompleteMessageError
from offload_hooks.testing import MemoryDriver
from pulsar_offload import TierReader, scan

pytestmark = pytest.mark.long

LATER = 1 << 42
"""Long after all of them were written, in ms."""


def repaired(tier, **options):
    """All is done that there is to do."""
    work, lines = Repair(tier, now_ms=lambda: LATER, **options), Audit()
    return [work.do(each, lines) for each in work.plan() if each.changes]


def indexes(tier):
    """The indexes of a tier by the keys of their data."""
    return {
        pair.key.data_key: read_index(
            tier, pair.key, index_bytes=pair.index.size_bytes, data_bytes=pair.data.size_bytes
        )
        for pair in stream_pairs(tier)
        if pair.index is not None and pair.data is not None
    }


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("folder", "case"),
    [*(("pip17", case) for case in PIP17_CASES), *(("streaming", case) for case in STREAMING_CASES)],
)
def test_a_lost_index_has_the_same_blocks_as_pulsars(tmp_path, folder, case):
    lay_out_case(tmp_path, folder, case)
    with open_store(tmp_path) as tier:
        ((key, before),) = indexes(tier).items()
        sound = [each.code for each in Verification(tier, deep=True)]
        tier.delete([f"{key}-index"])
        (done,) = repaired(tier)
        assert done.planned.choice.action is Action.REBUILD_INDEX
        after = indexes(tier)[key]
        assert after.data_length == before.data_length
        blocks, pulsars = (
            {each.ledger_id: each.blocks for each in index.ledgers} for index in (after, before)
        )
        assert blocks == pulsars
        if folder == "pip17":
            assert after.ledgers[0].payload_bytes == before.ledgers[0].payload_bytes
        assert [each.code for each in Verification(tier, deep=True)] == sound


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", PIP17_CASES)
def test_an_index_whose_blocks_are_damaged_is_pulsars_byte_for_byte(tmp_path, case):
    lay_out_case(tmp_path, "pip17", case)
    with open_store(tmp_path) as tier:
        (pair,) = stream_pairs(tier)
        stat = tier.stat(pair.key.index_key)
        sound = bytes(tier.read_range(pair.key.index_key, 0, pair.index.size_bytes))
        wrong = sound[:-1] + bytes([sound[-1] ^ 1])
        tier.write_index(pair.key.index_key, wrong, user_metadata=stat.user_metadata)
        (done,) = repaired(tier)
        assert done.planned.choice.action is Action.REBUILD_INDEX
        assert bytes(tier.read_range(pair.key.index_key, 0, len(sound))) == sound


def test_the_indexes_of_a_brokers_mapfiles_are_hadoops_but_for_their_syncs(tmp_path):
    lay_out_golden(tmp_path)
    with open_store(tmp_path) as tier:
        before = indexes(tier)
        assert before
        for key in before:
            folder = key.removesuffix("data")
            tier.delete([f"{folder}index", f"{folder}.index.crc"])
        repaired(tier)
        assert indexes(tier) == before
        assert list(Verification(tier, deep=True)) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("case", ["st-drift", "v1-oversized-entry"])
def test_what_pulsar_damaged_is_saved_as_it_was_offered(tmp_path, case, has_index):
    lay_out_case(tmp_path, "java-damaged", case)
    lines = (GOLDEN / "offloader" / "java-damaged" / case / "entries.jsonl").read_text().splitlines()
    offered = {(each["ledger_id"], each["entry_id"]): each["sha256"] for each in map(json.loads, lines)}
    with open_store(tmp_path) as tier:
        if not has_index:
            tier.delete([pair.key.index_key for pair in stream_pairs(tier)])
        (done,) = repaired(tier)
        planned = done.planned
        pair = pairs_of(tier)[planned.target or planned.key or ""]
        found = {place: hashlib.sha256(data).hexdigest() for place, data in read_pair(tier, pair).items()}
        assert found == {place: digest for place, digest in offered.items() if place in found}
        missing = sorted(set(offered) - set(found))
        assert missing == ([] if case == "st-drift" else [(1012, 2), (1012, 3)])
        said = {each.code for each in Verification(tier, prefix=pair.key.data_key, deep=True)}
        assert said == ({Code.LOST_ENTRIES} if missing else set())


# --- Copies of all kinds of messages are repaired: what is left is read as before, and what was lost is an error.


GOES_ON_BEHIND = (1, 11)
"""The third chunk of five."""


@pytest.fixture
def tier():
    made = Tier(MemoryDriver())
    put_kinds(made)
    return made


def stored_messages(reader, kind):
    """All messages, or the chunks of them."""
    names = ["__ledgerId", "__entryId", "__producerName", "__sequenceId", "__chunkId", "__numChunks"]
    own = {"isolation": "uncommitted"} | KEYS
    return scan(reader, KINDS[kind], columns=names, chunks="raw", **own).to_table().to_pylist()


def test_by_indexes_that_were_made_anew_all_is_read_as_pulsars_clients_read_it(tier):
    tier.delete([pair.key.index_key for pair in stream_pairs(tier)])
    assert {each.planned.choice.action for each in repaired(tier)} == {Action.REBUILD_INDEX}
    for kind in KINDS:
        assert_is_as_clients_read(TierReader(tier), kind)
    assert list(Verification(tier, deep=True)) == []


@pytest.mark.sampled(6)
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
def test_of_a_damaged_entry_only_its_messages_are_lost_and_that_is_an_error(tier, kind, place):
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


def test_a_transaction_whose_end_was_lost_is_open(tier):
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
