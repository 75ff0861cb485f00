"""Pulsar's own objects are moved, as they are and into each format, and every entry is what Pulsar wrote."""

import pytest
from golden import PIP17_CASES, STREAMING_CASES, as_entries, load_case
from live.kinds import KINDS, assert_is_as_clients_read, damage, entries_of, messages_of, put_kinds
from managed_ledgers import Audit, Clock
from mapfiles import lay_out_golden
from records import closed, copied, managed_ledger, recover, streaming_entries, streaming_record
from scenes.moves import BLOCK_BYTES
from tiers import lay_out_case

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Mover, Wanted, make_moves, plan_topic
from offload_core.maintenance.repair import Repair
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.listing import list_pairs, stream_pairs
from offload_core.metadata.catalogue.topics import (
    managed_ledger_of_topic,
    parse_topic,
    topic_of_managed_ledger,
)
from offload_core.metadata.records import DriverMetadata
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_hooks.errors import DataLossError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import TierReader, scan

pytestmark = pytest.mark.long

GOLDEN_TOPIC = "persistent://public/default/golden"


def entries(tier, topic, info):
    """What a scan by the record finds."""
    planned = scan(TierReader(tier), topic, level="entries", records={topic: info})
    return as_entries(planned.to_table().to_pylist())


class Moving:
    """Records of ours, by which all is moved from one folder to the other."""

    def __init__(self, folder):
        for name in ("source", "target"):
            (folder / name).mkdir()
        self.source, self.target = open_store(folder / "source"), open_store(folder / "target")
        self.records = ManagedLedgerRecords(MemoryMetadataStore())
        self.clock = Clock()

    def add(self, topic, info):
        self.records.write(managed_ledger_of_topic(parse_topic(topic)), info, None)

    @property
    def infos(self):
        found = {str(topic_of_managed_ledger(name)): self.records.read(name) for name in self.records.names()}
        return {topic: known.info for topic, known in found.items() if known is not None}

    def move_all(self, format_=None, merge_bytes=None):
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

    def delete_old(self):
        """Delete what was moved, so that nothing is left."""
        for old in [self.mover.delete_replaced(topic, 0) for topic in self.topics]:
            if old.error is not None:
                raise old.error
        assert list(self.source.list_objects()) == []

    @property
    def topics(self):
        return [topic_of_managed_ledger(name) for name in self.records.names()]

    @property
    def mover(self):
        return Mover(
            RecordRegistry(self.records, self.clock),
            self.source,
            self.target,
            Audit(),
            now_ms=self.clock,
            block_bytes=BLOCK_BYTES,
        )


@pytest.fixture
def moving(tmp_path):
    return Moving(tmp_path)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("format_", [None, ObjectFormat.STREAMING, ObjectFormat.MAPFILE])
@pytest.mark.parametrize("name", PIP17_CASES)
def test_ledgers(moving, tmp_path, name, format_):
    lay_out_case(tmp_path / "source", "pip17", name)
    case = load_case("pip17", name)
    last = max(entry.entry_id for entry in case.entries)
    ledger = closed(case.key.ledger_id, last + 1, copied(case.key.uuid, driver=None))
    moving.add(GOLDEN_TOPIC, managed_ledger(ledger))
    moving.move_all(format_)
    assert tuple(entries(moving.target, GOLDEN_TOPIC, moving.infos[GOLDEN_TOPIC])) == case.entries


@pytest.mark.sampled(6)
@pytest.mark.parametrize("format_", [None, ObjectFormat.PIP17, ObjectFormat.MAPFILE])
def test_segments(moving, tmp_path, format_):
    for name in STREAMING_CASES:
        lay_out_case(tmp_path / "source", "streaming", name)
    moving.add(GOLDEN_TOPIC, streaming_record())
    moving.move_all(format_)
    assert entries(moving.target, GOLDEN_TOPIC, moving.infos[GOLDEN_TOPIC]) == streaming_entries()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("format_", [None, *ObjectFormat])
def test_mapfiles(moving, tmp_path, format_):
    lay_out_golden(tmp_path / "source")
    topics = {str(topic.name): topic for topic in TierReader(moving.source).catalogue().topics}
    pairs = list_pairs(moving.source)
    assert topics
    before = {}
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
        moving.add(label, managed_ledger(*ledgers))
        before[label] = entries(moving.source, label, moving.infos[label])
        assert before[label]
    moving.move_all(format_)
    for label, topic in topics.items():
        assert entries(moving.target, label, moving.infos[label]) == before[label]
        if format_ in (None, ObjectFormat.MAPFILE):
            folder = managed_ledger_of_topic(topic.name)
            whole, there = (
                sorted(path.read_bytes() for path in (tmp_path / place / folder).rglob("*data*"))
                for place in ("source", "target")
            )
            assert there == whole, "and the .crc files"


# --- Topics of all kinds of messages are moved, also what was saved of damaged copies: a scan gives the very same rows.


LOST = (5, 3)


@pytest.fixture
def kinds(moving):
    put_kinds(moving.source)
    return moving


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("format_", "merge_bytes"),
    [(None, None), (ObjectFormat.STREAMING, None), (ObjectFormat.MAPFILE, None), (None, 1 << 20)],
    ids=["as it is", "streaming", "mapfile", "merged"],
)
def test_a_moved_topic_is_read_as_pulsars_clients_read_it(kinds, format_, merge_bytes):
    recover(kinds.source, kinds.records)
    assert len(kinds.infos) == len(KINDS)
    kinds.move_all(format_, merge_bytes)
    kinds.delete_old()
    expected = ObjectFormat.STREAMING if merge_bytes else format_ or ObjectFormat.PIP17
    assert {pair.key.object_format for pair in stream_pairs(kinds.target)} == {expected}
    reader = TierReader(kinds.target)
    for kind in KINDS:
        assert_is_as_clients_read(reader, kind, records=kinds.infos)
    assert list(Verification(kinds.target, deep=True)) == []


@pytest.mark.nightly
def test_what_was_merged_is_taken_apart_again(kinds):
    recover(kinds.source, kinds.records)
    kinds.move_all(merge_bytes=1 << 20)
    kinds.delete_old()
    kinds.source, kinds.target = kinds.target, kinds.source
    kinds.move_all(ObjectFormat.PIP17)
    kinds.delete_old()
    for kind in KINDS:
        assert_is_as_clients_read(TierReader(kinds.target), kind, records=kinds.infos)


def test_of_a_copy_that_lost_entries_all_others_are_moved(kinds):
    """A copy of encrypted messages is damaged, saved, its record rebuilt, and then it is moved."""
    damage(kinds.source, LOST, entries_of(TierReader(kinds.source), "encrypted")[LOST])
    work = Repair(kinds.source, quarantine=True, now_ms=lambda: 1 << 42)
    for planned in work.plan():
        work.do(planned, Audit())
    kinds.source.delete([each.key for each in kinds.source.list_objects("quarantine/")])
    recover(kinds.source, kinds.records)

    def read(tier, **options):
        return messages_of(TierReader(tier), "encrypted", records=kinds.infos, **options)

    before = read(kinds.source, fail_on_data_loss=False)
    kinds.move_all()
    with pytest.raises(DataLossError, match="1 entries: 5:3"):
        read(kinds.target)
    assert read(kinds.target, fail_on_data_loss=False) == before
    assert [each.code for each in Verification(kinds.target, deep=True)] == [Code.LOST_ENTRIES]
    with pytest.raises(DataLossError, match="not there as a whole"):
        kinds.delete_old()  # only its operator may state that the lost entries are lost
    left = {each.key[:36] for each in kinds.source.list_objects()}
    assert len(left) == 1
    for kind in set(KINDS) - {"encrypted"}:
        assert_is_as_clients_read(TierReader(kinds.target), kind, records=kinds.infos)
