"""Pulsar's own objects are moved, as they are and into each format, and every entry is what Pulsar wrote."""

from contextlib import closing

import pytest
from golden import PIP17_CASES, STREAMING_CASES, as_entries, load_case
from live.kinds import KINDS, assert_is_as_clients_read, damage, entries_of, messages_of, put_kinds
from managed_ledgers import Audit, Clock
from mapfiles import lay_out_golden
from records import closed, copied, managed_ledger, recover, streaming_entries, streaming_record
from scenes.moves import BLOCK_BYTES
from scenes.repairs import Lines
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
from pulsar_offload import TierReader, open_tier, scan

GOLDEN_TOPIC = "public/default/golden"
FORMATS = [None, *ObjectFormat]


def entries(tier, topic, info):
    """What a scan by the record finds."""
    with open_tier(tier) as reader:
        planned = scan(reader, topic, level="entries", records={topic: info})
        return [(row["__ledgerId"], row["__entryId"], row["value"]) for row in planned.to_table().to_pylist()]


def relocate(folder, topic, info, format_):
    """Move all that there is from `source` to `target`; the record then."""
    name = parse_topic(topic)
    records = ManagedLedgerRecords(MemoryMetadataStore())
    records.write(managed_ledger_of_topic(name), info, None)
    (folder / "target").mkdir(exist_ok=True)
    with closing(open_store(folder / "source")) as source, closing(open_store(folder / "target")) as target:
        wanted = Wanted(source=tier_record(source), target=tier_record(target), format=format_)
        mover = Mover(
            RecordRegistry(records, Clock()), source, target, Audit(), now_ms=Clock(), block_bytes=BLOCK_BYTES
        )
        plan = plan_topic(name, info, wanted)
        assert plan.left == ()
        for outcome in make_moves(mover, [plan], parallel=1):
            if outcome.error is not None:
                raise outcome.error
    known = records.read(managed_ledger_of_topic(name))
    return known.info


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format_", [None, ObjectFormat.STREAMING, ObjectFormat.MAPFILE])
@pytest.mark.parametrize("name", PIP17_CASES)
def test_ledgers(tmp_path, name, format_):
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format_", [None, ObjectFormat.PIP17, ObjectFormat.MAPFILE])
def test_segments(tmp_path, format_):
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("format_", FORMATS)
def test_mapfiles(tmp_path, format_):
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


# --- Topics of all kinds of messages are moved, also what was saved of damaged copies: a scan gives the very same rows.


LOST = (5, 3)


class Moving:
    """Records of ours, by which all is moved from one folder to the other."""

    def __init__(self, folder):
        for name in ("source", "target"):
            (folder / name).mkdir()
        self.source, self.target = open_store(folder / "source"), open_store(folder / "target")
        self.records = ManagedLedgerRecords(MemoryMetadataStore())
        self.clock = Clock()
        put_kinds(self.source)

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
    made = Moving(tmp_path)
    yield made
    made.source.close()
    made.target.close()


def formats_in(tier):
    return {pair.key.object_format for pair in stream_pairs(tier)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("format_", "merge_bytes"),
    [(None, None), (ObjectFormat.STREAMING, None), (ObjectFormat.MAPFILE, None), (None, 1 << 20)],
    ids=["as it is", "streaming", "mapfile", "merged"],
)
def test_a_moved_topic_is_read_as_pulsars_clients_read_it(moving, format_, merge_bytes):
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


@pytest.mark.nightly
def test_what_was_merged_is_taken_apart_again(moving):
    recover(moving.source, moving.records)
    moving.move_all(merge_bytes=1 << 20)
    moving.delete_old()
    moving.source, moving.target = moving.target, moving.source
    moving.move_all(ObjectFormat.PIP17)
    moving.delete_old()
    for kind in KINDS:
        assert_is_as_clients_read(TierReader(moving.target), kind, records=moving.infos)


def test_of_a_copy_that_lost_entries_all_others_are_moved(moving):
    """A copy of encrypted messages is damaged, saved, its record rebuilt, and then it is moved."""
    damage(moving.source, LOST, entries_of(TierReader(moving.source), "encrypted")[LOST])
    work = Repair(moving.source, quarantine=True, now_ms=lambda: 1 << 42)
    for planned in work.plan():
        work.do(planned, Lines())
    moving.source.delete([each.key for each in moving.source.list_objects("quarantine/")])
    recover(moving.source, moving.records)

    def read(tier, **options):
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
