"""Records that were wiped come back from the objects, but for what no object tells."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from crash_points import left_open
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME, Clock, environment_of
from records import knowable, partly_offloaded, recover
from scenes.filters import FilteredTopic
from scenes.repairs import findings
from scenes.segments import StreamingSettings, Topic, pool_of
from tiers import TOPIC

from offload_core.maintenance.record_recovery import RecoveryOutcome
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, TieredReaders
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import HotLedgers, open_managed_ledger
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier, scan

# --- ours: records -> objects -> wipe -> recover -----------------------------------------------


def environment_in(folder, cold, clock):
    hot = left_open(FileLedgerStore(folder / "hot", sync="never"))
    return environment_of(
        MemoryMetadataStore(), hot, cold.store, streaming=pool_of(cold.store, clock), now_ms=clock
    )


def entries_of(environment, cold):
    """All that a managed ledger reads that has no hot copies."""
    with tempfile.TemporaryDirectory() as empty:
        hot = FileLedgerStore(empty, sync="never")
        readers = TieredReaders(hot, ColdReaders(KnownTiers(cold.store)))
        cold_only = {"offloads": None, "streaming": None, "open_reader": readers.open}
        environment = replace(environment, hot=HotLedgers(hot), **cold_only)
        managed = open_managed_ledger(environment, NAME, create=False)
        found = []
        position = EntryPosition(0, 0)
        while len(read := managed.read_entries(position, 1000)):
            found += [(at, bytes(payload)) for at, payload in read]
            position = read.next_position
        hot.close()
    return found


def wiped(environment):
    """The record that there was, and an environment without records."""
    known = environment.records.read(NAME)
    return known.info, replace(environment, records=ManagedLedgerRecords(MemoryMetadataStore()))


steps = st.lists(
    st.sampled_from(["add", "add", "roll", "run", "age", "complete", "offload", "stream"]),
    min_size=3,
    max_size=25,
)


@pytest.mark.long
@given(steps)
def test_what_was_wiped_comes_back_but_for_what_no_object_tells(happened):
    with tempfile.TemporaryDirectory() as name, open_tier(Path(name) / "cold") as cold:
        (Path(name) / "cold").mkdir()
        clock = Clock()
        topic = Topic(environment_in(Path(name), cold, clock), Path(name) / "cold")
        for step in [*happened, "add", "roll"]:
            do(topic, step, clock)
        original, empty = wiped(topic.environment)
        done = recover(cold.store, empty.records)
        back = empty.records.read(NAME)
        expected = knowable(original)
        if not expected.ledgers:
            assert back is None
            return
        assert [each.outcome for each in done] == [RecoveryOutcome.NEW]
        assert knowable(back.info, partly=partly_offloaded(original)) == expected
        assert [each.outcome for each in recover(cold.store, empty.records)] == [RecoveryOutcome.SAME]
        cold_entries = offloaded_entries(topic, original)
        assert entries_of(empty, cold) == cold_entries
        assert not findings(cold.store, {NAME: back.info})
        by_objects = scan(cold, TOPIC, level="entries").to_table()
        assert scan(cold, TOPIC, level="entries", records={TOPIC: back.info}).to_table() == by_objects
        assert by_objects.num_rows == len(cold_entries)


def do(topic, step, clock):
    """One of what happens to a topic."""
    if step == "add":
        topic.add(7)
    elif step == "roll":
        topic.ledger.roll()
    elif step == "run":
        topic.run()
    elif step == "age":
        clock.pass_s(61)
        topic.run()
    elif step == "complete":
        topic.ledger.complete_segment()
    elif step == "stream":
        topic.ledger.set_streaming(
            StreamingSettings(max_segment_bytes=1000, max_segment_age_s=60, block_bytes=300)
        )
    elif topic.status.state == "off" and not topic.segments:
        topic.ledger.offload_prefix(EntryPosition(1 << 40, 0))


def offloaded_entries(topic, info):
    """What was added and lies in a complete copy."""
    stops = {each.ledger_id: each.offloaded_stop or 0 for each in info.ledgers}
    return [(at, payload) for at, payload in topic.added if at.entry_id < stops.get(at.ledger_id, 0)]


@pytest.mark.parametrize("mode", FilterMode)
def test_filtered_ledgers_come_back_with_what_was_filtered(tmp_path, mode):
    topic = FilteredTopic(tmp_path / "cold", mode=mode)
    topic.do("m", "1", "a1", "m", "|", "2", "c2", "m", "|")
    topic.offload()
    original, empty = wiped(topic.environment)
    recover(topic.tier, empty.records)
    back = empty.records.read(NAME)
    assert knowable(back.info) == knowable(original)
    assert not findings(topic.tier, {NAME: back.info})
