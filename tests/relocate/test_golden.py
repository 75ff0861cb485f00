"""Pulsar's own objects are moved, as they are and into each format, and every entry is what Pulsar wrote."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from golden import PIP17_CASES, STREAMING_CASES, as_entries, load_case
from managed_ledgers import Audit, Clock
from mapfiles import lay_out_golden
from records import closed, copied, managed_ledger, streaming_entries, streaming_record
from scenes.moves import BLOCK_BYTES
from tiers import lay_out_case

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Mover, Wanted, make_moves, plan_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.listing import list_pairs
from offload_core.metadata.catalogue.topics import (
    managed_ledger_of_topic,
    parse_topic,
    topic_of_managed_ledger,
)
from offload_core.metadata.records import DriverMetadata, ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier, scan

GOLDEN_TOPIC = "public/default/golden"
FORMATS = [None, *ObjectFormat]


def entries(tier: Path, topic: str, info: ManagedLedgerInfo) -> list[tuple[int, int, bytes]]:
    """What a scan by the record finds."""
    with open_tier(tier) as reader:
        planned = scan(reader, topic, level="entries", records={topic: info})
        return [(row["__ledgerId"], row["__entryId"], row["value"]) for row in planned.to_table().to_pylist()]


def relocate(
    folder: Path, topic: str, info: ManagedLedgerInfo, format_: ObjectFormat | None
) -> ManagedLedgerInfo:
    """Move all that there is from `source` to `target`; the record then."""
    name = parse_topic(topic)
    records = ManagedLedgerRecords(MemoryMetadataStore())
    records.write(managed_ledger_of_topic(name), info, None)
    (folder / "target").mkdir(exist_ok=True)
    with (
        closing(open_store(folder / "source")) as source,
        closing(open_store(folder / "target")) as target,
    ):
        wanted = Wanted(source=tier_record(source), target=tier_record(target), format=format_)
        mover = Mover(
            RecordRegistry(records, Clock()),
            source,
            target,
            Audit(),  # type: ignore[arg-type]
            now_ms=Clock(),
            block_bytes=BLOCK_BYTES,
        )
        plan = plan_topic(name, info, wanted)
        assert plan.left == ()
        for outcome in make_moves(mover, [plan], parallel=1):
            if outcome.error is not None:
                raise outcome.error
    known = records.read(managed_ledger_of_topic(name))
    assert known is not None
    return known.info


@pytest.mark.parametrize("format_", [None, ObjectFormat.STREAMING, ObjectFormat.MAPFILE])
@pytest.mark.parametrize("name", PIP17_CASES)
def test_ledgers(tmp_path: Path, name: str, format_: ObjectFormat | None) -> None:
    (tmp_path / "source").mkdir()
    lay_out_case(tmp_path / "source", "pip17", name)
    case = load_case("pip17", name)
    assert case.key.ledger_id is not None
    last = max(entry.entry_id for entry in case.entries)
    info = managed_ledger(closed(case.key.ledger_id, last + 1, copied(case.key.uuid, driver=None)))
    moved = relocate(tmp_path, GOLDEN_TOPIC, info, format_)
    rows = [
        {"__ledgerId": ledger_id, "__entryId": entry_id, "value": value}
        for ledger_id, entry_id, value in entries(tmp_path / "target", GOLDEN_TOPIC, moved)
    ]
    assert tuple(as_entries(rows)) == case.entries


@pytest.mark.parametrize("format_", [None, ObjectFormat.PIP17, ObjectFormat.MAPFILE])
def test_segments(tmp_path: Path, format_: ObjectFormat | None) -> None:
    (tmp_path / "source").mkdir()
    for name in STREAMING_CASES:
        lay_out_case(tmp_path / "source", "streaming", name)
    info = streaming_record()
    moved = relocate(tmp_path, GOLDEN_TOPIC, info, format_)
    rows = [
        {"__ledgerId": ledger_id, "__entryId": entry_id, "value": value}
        for ledger_id, entry_id, value in entries(tmp_path / "target", GOLDEN_TOPIC, moved)
    ]
    assert as_entries(rows) == streaming_entries()


@pytest.mark.parametrize("format_", FORMATS)
def test_mapfiles(tmp_path: Path, format_: ObjectFormat | None) -> None:
    source = tmp_path / "source"
    source.mkdir()
    lay_out_golden(source)
    with open_tier(source) as tier:
        topics = {str(topic.name): topic for topic in tier.catalogue().topics}
        pairs = list_pairs(tier.store)
    assert topics
    for label, topic in topics.items():
        ledgers = [
            closed(
                ledger.ledger_id,
                ledger.entries or 0,
                copied(pair.key.uuid, driver=DriverMetadata(name="filesystem")),
            )
            for ledger in topic.ledgers
            for pair in pairs
            if pair.key.ledger_id == ledger.ledger_id
            and pair.key.managed_ledger is not None
            and topic_of_managed_ledger(pair.key.managed_ledger) == topic.name
        ]
        info = managed_ledger(*ledgers)
        before = entries(source, label, info)
        assert before
        moved = relocate(tmp_path, label, info, format_)
        assert entries(tmp_path / "target", label, moved) == before
        if format_ in (None, ObjectFormat.MAPFILE):
            whole = sorted(
                path.read_bytes() for path in (source / managed_ledger_of_topic(topic.name)).rglob("*data*")
            )
            there = tmp_path / "target" / managed_ledger_of_topic(topic.name)
            assert sorted(path.read_bytes() for path in there.rglob("*data*")) == whole, "and the .crc files"
