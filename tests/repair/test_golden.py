"""Pulsar's own objects: an index that is lost is made anew as Pulsar wrote it; what Pulsar damaged is saved."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from golden import GOLDEN, PIP17_CASES, STREAMING_CASES
from mapfiles import lay_out_golden
from scenes.repairs import Lines, pairs_of, read_pair
from tiers import lay_out_broker_objects, lay_out_case

from offload_core.format.codec.index import ObjectIndex
from offload_core.maintenance.repair import Action, Repair, Repaired
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.listing import stream_pairs
from offload_core.storage.tier import Tier, open_store

LATER = 1 << 42
"""Long after all of them were written, in ms."""


def repaired(tier: Tier) -> list[Repaired]:
    """All is done that there is to do."""
    work, lines = Repair(tier, now_ms=lambda: LATER), Lines()
    return [work.do(each, lines) for each in work.plan() if each.changes]


def indexes(tier: Tier) -> dict[str, ObjectIndex]:
    """The indexes of a tier by the keys of their data."""
    return {
        pair.key.data_key: read_index(
            tier, pair.key, index_bytes=pair.index.size_bytes, data_bytes=pair.data.size_bytes
        )
        for pair in stream_pairs(tier)
        if pair.index is not None and pair.data is not None
    }


@pytest.mark.parametrize(
    ("folder", "case"),
    [*(("pip17", case) for case in PIP17_CASES), *(("streaming", case) for case in STREAMING_CASES)],
)
def test_a_lost_index_has_the_same_blocks_as_pulsars(tmp_path: Path, folder: str, case: str) -> None:
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


@pytest.mark.parametrize("case", PIP17_CASES)
def test_an_index_whose_blocks_are_damaged_is_pulsars_byte_for_byte(tmp_path: Path, case: str) -> None:
    lay_out_case(tmp_path, "pip17", case)
    with open_store(tmp_path) as tier:
        (pair,) = stream_pairs(tier)
        assert pair.index is not None
        stat = tier.stat(pair.key.index_key)
        sound = bytes(tier.read_range(pair.key.index_key, 0, pair.index.size_bytes))
        wrong = sound[:-1] + bytes([sound[-1] ^ 1])
        tier.write_index(pair.key.index_key, wrong, user_metadata=stat.user_metadata)
        (done,) = repaired(tier)
        assert done.planned.choice.action is Action.REBUILD_INDEX
        assert bytes(tier.read_range(pair.key.index_key, 0, len(sound))) == sound


def test_the_indexes_of_a_brokers_mapfiles_are_hadoops_but_for_their_syncs(tmp_path: Path) -> None:
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


def test_the_indexes_of_a_brokers_objects_have_the_same_blocks(tmp_path: Path) -> None:
    lay_out_broker_objects(tmp_path, ["keyed", "json"])
    with open_store(tmp_path) as tier:
        before = indexes(tier)
        assert before
        tier.delete([f"{key}-index" for key in before])
        repaired(tier)
        after = indexes(tier)
        assert {key: each.ledgers[0].blocks for key, each in after.items()} == {
            key: each.ledgers[0].blocks for key, each in before.items()
        }
        assert list(Verification(tier, deep=True)) == []


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("case", ["st-drift", "v1-oversized-entry"])
def test_what_pulsar_damaged_is_saved_as_it_was_offered(tmp_path: Path, case: str, has_index: bool) -> None:
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
