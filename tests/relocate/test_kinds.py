"""Topics of all kinds of messages are moved, also what was saved of damaged copies: a scan gives the very same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live.kinds import KINDS, assert_is_as_clients_read, damage, entries_of, messages_of, put_kinds
from managed_ledgers import Audit, Clock
from records import recover
from scenes.moves import BLOCK_BYTES
from scenes.repairs import Lines

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Mover, Wanted, make_moves, plan_topic
from offload_core.maintenance.repair import Repair
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.listing import stream_pairs
from offload_core.metadata.catalogue.topics import TopicName, topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier, open_store
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_hooks.errors import DataLossError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import TierReader

LOST = (5, 3)


class Moving:
    """Records of ours, by which all is moved from one folder to the other."""

    def __init__(self, folder: Path) -> None:
        for name in ("source", "target"):
            (folder / name).mkdir()
        self.source, self.target = open_store(folder / "source"), open_store(folder / "target")
        self.records = ManagedLedgerRecords(MemoryMetadataStore())
        self.clock = Clock()
        put_kinds(self.source)

    @property
    def infos(self) -> dict[str, ManagedLedgerInfo]:
        found = {str(topic_of_managed_ledger(name)): self.records.read(name) for name in self.records.names()}
        return {topic: known.info for topic, known in found.items() if known is not None}

    def move_all(self, format_: ObjectFormat | None = None, merge_bytes: int | None = None) -> None:
        """Move all that there is."""
        wanted = Wanted(
            source=tier_record(self.source),
            target=tier_record(self.target),
            format=format_,
            merge_bytes=merge_bytes,
        )
        plans = [plan_topic(topic, self.infos[str(topic)], wanted) for topic in self.topics]
        assert all(plan.left == () for plan in plans)
        for outcome in make_moves(self.mover, plans, parallel=1):
            if outcome.error is not None:
                raise outcome.error
        self.clock.pass_s(1)

    def delete_old(self) -> None:
        """Delete what was moved, so that nothing is left."""
        for old in [self.mover.delete_replaced(topic, 0) for topic in self.topics]:
            if old.error is not None:
                raise old.error
        assert list(self.source.list_objects()) == []

    @property
    def topics(self) -> list[TopicName]:
        return [topic_of_managed_ledger(name) for name in self.records.names()]

    @property
    def mover(self) -> Mover:
        return Mover(
            RecordRegistry(self.records, self.clock),
            self.source,
            self.target,
            Audit(),  # type: ignore[arg-type]
            now_ms=self.clock,
            block_bytes=BLOCK_BYTES,
        )


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    made = Moving(tmp_path)
    yield made
    made.source.close()
    made.target.close()


def formats_in(tier: Tier) -> set[ObjectFormat]:
    return {pair.key.object_format for pair in stream_pairs(tier)}


@pytest.mark.parametrize(
    ("format_", "merge_bytes"),
    [(None, None), (ObjectFormat.STREAMING, None), (ObjectFormat.MAPFILE, None), (None, 1 << 20)],
    ids=["as it is", "streaming", "mapfile", "merged"],
)
def test_a_moved_topic_is_read_as_pulsars_clients_read_it(
    moving: Moving, format_: ObjectFormat | None, merge_bytes: int | None
) -> None:
    recover(moving.source, moving.records)
    assert len(moving.infos) == len(KINDS)
    moving.move_all(format_, merge_bytes)
    moving.delete_old()
    assert formats_in(moving.target) == {
        ObjectFormat.STREAMING if merge_bytes else format_ or ObjectFormat.PIP17
    }
    reader = TierReader(moving.target)
    for kind in KINDS:
        assert_is_as_clients_read(reader, kind, records=moving.infos)
    assert list(Verification(moving.target, deep=True)) == []


def test_what_was_merged_is_taken_apart_again(moving: Moving) -> None:
    recover(moving.source, moving.records)
    moving.move_all(merge_bytes=1 << 20)
    moving.delete_old()
    moving.source, moving.target = moving.target, moving.source
    moving.move_all(ObjectFormat.PIP17)
    moving.delete_old()
    for kind in KINDS:
        assert_is_as_clients_read(TierReader(moving.target), kind, records=moving.infos)


def test_of_a_copy_that_lost_entries_all_others_are_moved(moving: Moving) -> None:
    """A copy of encrypted messages is damaged, saved, its record rebuilt, and then it is moved."""
    damage(moving.source, LOST, entries_of(TierReader(moving.source), "encrypted")[LOST])
    work = Repair(moving.source, quarantine=True, now_ms=lambda: 1 << 42)
    for planned in work.plan():
        work.do(planned, Lines())
    moving.source.delete([each.key for each in moving.source.list_objects("quarantine/")])
    recover(moving.source, moving.records)

    def read(tier: Tier, **options: object) -> list[dict[str, object]]:
        return messages_of(TierReader(tier), "encrypted", records=moving.infos, **options)

    before = read(moving.source, fail_on_data_loss=False)
    moving.move_all()
    with pytest.raises(DataLossError, match="1 entries: 5:3"):
        read(moving.target)
    assert read(moving.target, fail_on_data_loss=False) == before
    assert [each.code for each in Verification(moving.target, deep=True)] == [Code.LOST_ENTRIES]
    with pytest.raises(DataLossError, match="not there as a whole"):
        moving.delete_old()  # nobody but its operator says that the lost entries are lost
    left = {each.key[:36] for each in moving.source.list_objects()}
    assert len(left) == 1
    for kind in set(KINDS) - {"encrypted"}:
        assert_is_as_clients_read(TierReader(moving.target), kind, records=moving.infos)
