"""Every call of a filtered offload fails, answers unknown, or ends the process; settling the transactions included.

After each the state is opened anew: no entry is lost, what the record calls complete has exactly the entries that are
to be left, the snapshot is right, and the same goes on to its end, leaving nothing behind.
"""

import pytest
from managed_ledgers import NAME, environment_of
from scenes.filters import END, FilteredTopic, chosen, short_record
from scenes.segments import left_in
from scenes.transactions import Model

from offload_core.metadata.records.filter_record import FilterMode
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.managed_ledger import topic_offloads


def offload(topic, points):
    """By another process, beside the owner."""
    environment = environment_of(
        topic.records,
        topic.hot,
        topic.folder,
        points,
        block_bytes=300,
        filter_of=lambda _: chosen(topic.mode),
    )
    topic_offloads(environment, NAME).offload_prefix(END)


def prepared(folder, mode):
    """Two ledgers that may go, of which nothing is settled yet, and one that waits."""
    topic = FilteredTopic(folder, mode=mode)
    topic.do("m", "1", "2", "a1", "m", "|", "1", "c2", "m", "|", "3", "m", "|")
    return topic


def check(topic, where):
    entries = topic.hot_entries()
    assert len(entries) == 10, where
    for ledger in topic.ledgers:
        if not ledger.has_complete_copy:
            continue
        left, found = topic.left(ledger), topic.cold(ledger)
        assert {i: found.get(i) for i in left} == left, where
        assert len(found) == (len(left) if topic.mode is FilterMode.GAP else ledger.info.entries), where
        record = short_record(ledger)
        assert record.kept.entries == len(left), where
        assert record.total_dropped.entries == (ledger.info.entries or 0) - len(left), where
    snapshot = SnapshotStore(topic.records.store).read(NAME)
    assert snapshot is not None, where
    Model.of(entries).check_snapshot(snapshot, where)


def check_done(topic, where):
    assert [ledger.has_complete_copy for ledger in topic.ledgers] == [True, True, False], where
    assert left_in(topic.folder, topic.topic.topic.read_info()) == set(), where


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", FilterMode)
def test_after_any_fault_at_any_call_what_is_left_is_right_and_the_offload_goes_on_to_its_end(
    crash_matrix, mode
):
    calls = crash_matrix(
        lambda folder: prepared(folder, mode), offload, check=check, check_done=check_done, every=38
    )
    assert len(calls) > 20
