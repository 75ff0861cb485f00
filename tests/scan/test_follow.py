"""A tier that grows is read piece by piece: everything once, in order, whatever the limits and wherever it restarts."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from effort import effort
from entries import LedgerPart, pip17_object, streaming_object
from hypothesis import given
from hypothesis import strategies as st
from records import closed, copied, managed_ledger, segment, still_open
from tiers import TOPIC, Names, lay_out, uuid_of

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.records import OffloadContext
from offload_core.reading.scan import (
    Bounds,
    Position,
    ReadOptions,
    Scan,
    ScanOptions,
    Selection,
    plan_tasks,
    select_catalogue,
)
from offload_core.reading.scan.following import BatchLimit, Frontier, TopicFollower, advance, between
from offload_hooks.errors import DataLossError
from pulsar_offload import TierReader, open_tier

pytestmark = pytest.mark.long

NAME = parse_topic(TOPIC)
OTHER = parse_topic("acme/cold/others")


@dataclass
class Stream:
    """What a streaming query does, by hand: it looks, advances, and reads what lies between."""

    tier: TierReader
    records: Mapping[str, object] | None = None
    fail_on_data_loss: bool = True
    frontier: Frontier = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    follower: TopicFollower | None = None

    def restart(self):
        self.follower = None

    def trigger(self, max_bytes=None, max_entries=None):
        """One micro-batch; how many entries it read."""
        if self.follower is None:
            selection = Selection(topics_pattern=".*")
            self.follower = TopicFollower(
                lambda known: select_catalogue(
                    self.tier, selection, ScanOptions(records=self.records), known=known
                ),
                selection,
                interval_s=0,
            )
        topics = self.follower.topics()
        fail = self.fail_on_data_loss
        self.follower.check_late(topics, self.frontier, fail_on_data_loss=fail)
        limit = BatchLimit(max_bytes=max_bytes, max_entries=max_entries)
        end = advance(topics, self.frontier, limit, fail_on_data_loss=fail)
        values = self.read(self.frontier, end)
        self.values += values
        self.frontier = end
        return len(values)

    def read(self, start, end):
        """What lies between two frontiers, planned anew."""
        narrowed, starts, stops = between(self.follower.topics(), start, end)
        bounds = Bounds(start=starts, stop=stops, fail_on_data_loss=self.fail_on_data_loss)
        options = ReadOptions(level="entries", fail_on_data_loss=self.fail_on_data_loss)
        tasks = tuple(plan_tasks(self.tier.store, narrowed, bounds))
        values: list[bytes] = (
            Scan(tier=self.tier.store, planned=tasks, options=options).to_table()["value"].to_pylist()
        )
        return values


def put_ledger(root, ledger_id, payloads, topic="orders"):
    """A PIP-17 ledger in blocks of about three entries."""
    names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
    lay_out(
        root,
        pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=128 + 3 * 16),
        attempt=ledger_id,
        names=names,
    )


def put_segment(root, ledger_id, first, payloads):
    """A segment of a streaming ledger, from its entry `first` on."""
    part = LedgerPart(ledger_id=ledger_id, blocks=[list(payloads)], first_entry_id=first)
    lay_out(root, streaming_object([part]), attempt=1000 * ledger_id + first)


@dataclass(frozen=True)
class Arrival:
    """What comes to the tier at once: a ledger, or a segment of one."""

    ledger_id: int
    first: int
    count: int
    is_segment: bool

    def payloads(self):
        return [f"{self.ledger_id:02}{self.first + i:02}".encode() for i in range(self.count)]

    def put(self, root):
        if self.is_segment:
            put_segment(root, self.ledger_id, self.first, self.payloads())
        else:
            put_ledger(root, self.ledger_id, self.payloads())


@st.composite
def histories(draw):
    arrivals = []
    ledger_id = 0
    for _ in range(draw(st.integers(1, 4))):
        ledger_id += draw(st.integers(1, 3))
        if draw(st.booleans()):
            arrivals.append(Arrival(ledger_id, 0, draw(st.integers(1, 8)), False))
            continue
        first = 0
        for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
            arrivals.append(Arrival(ledger_id, first, count, True))
            first += count
    return arrivals


TRIGGERS = st.lists(
    st.tuples(st.sampled_from([None, 1, 60, 400]), st.sampled_from([None, 1, 2, 5]), st.booleans()),
    max_size=3,
)


@effort(0.4)
@given(histories(), st.data())
def test_everything_is_read_once_and_in_order(arrivals, data):
    with tempfile.TemporaryDirectory() as folder, open_tier(folder) as tier:
        stream = Stream(tier)
        for arrival in arrivals:
            arrival.put(Path(folder))
            for max_bytes, max_entries, restarts in data.draw(TRIGGERS):
                if restarts:
                    stream.restart()
                before = stream.frontier
                count = stream.trigger(max_bytes, max_entries)
                assert max_entries is None or count <= max_entries
                assert stream.read(before, stream.frontier) == stream.values[len(stream.values) - count :]
        while stream.trigger():
            pass
        assert stream.values == [payload for arrival in arrivals for payload in arrival.payloads()]
        assert stream.trigger() == 0


def test_an_entry_is_read_at_a_time_if_that_is_the_limit(tmp_path):
    put_ledger(tmp_path, 1, [b"0", b"1", b"2"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        for limits in ({"max_entries": 1}, {"max_bytes": 1}, {"max_bytes": 1, "max_entries": 9}):
            assert stream.trigger(**limits) == 1
        assert stream.frontier == {NAME: Position(2, 0)}


def test_topics_share_a_limit(tmp_path):
    put_ledger(tmp_path, 1, [b"a%d" % i for i in range(9)])
    put_ledger(tmp_path, 2, [b"b%d" % i for i in range(9)], topic="others")
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        stream.trigger(max_entries=6)
        assert stream.frontier == {NAME: Position(1, 3), OTHER: Position(2, 3)}


def test_a_new_topic_is_read_from_its_beginning(tmp_path):
    put_ledger(tmp_path, 5, [b"a"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        assert stream.trigger() == 1
        put_ledger(tmp_path, 2, [b"b", b"c"], topic="others")
        assert stream.trigger() == 2
    assert stream.values == [b"a", b"b", b"c"]


def test_a_ledger_that_is_deleted_after_it_was_read_is_not_missed(tmp_path):
    put_ledger(tmp_path, 1, [b"a"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        stream.trigger()
        for path in tmp_path.glob("*ledger-1*"):
            path.unlink()
        put_ledger(tmp_path, 2, [b"b"])
        stream.restart()
        assert stream.trigger() == 1


def test_a_ledger_that_is_deleted_when_half_of_it_was_read_is_loss(tmp_path):
    put_ledger(tmp_path, 1, [b"a", b"b"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        stream.trigger(max_entries=1)
        for path in tmp_path.glob("*ledger-1*"):
            path.unlink()
        put_ledger(tmp_path, 2, [b"c"])
        stream.restart()
        with pytest.raises(DataLossError, match="1:1"):
            stream.trigger()


def test_a_ledger_that_comes_after_later_ones_were_read_is_noticed(tmp_path, caplog):
    put_ledger(tmp_path, 2, [b"b"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        stream.trigger()
        put_ledger(tmp_path, 1, [b"a"])
        with pytest.raises(DataLossError, match=r"came to the tier after later ones.*ledger 1"):
            stream.trigger()
        put_ledger(tmp_path, 0, [b"a"])
        stream.fail_on_data_loss = False
        assert stream.trigger() == 0
    assert "ledgers 0" in caplog.text


def test_an_attempt_that_failed_is_loss_once_later_ledgers_are_there(tmp_path):
    put_ledger(tmp_path, 1, [b"a"])
    lay_out(tmp_path, pip17_object([b"x"], ledger_id=2), attempt=2, parts=["data"])
    with open_tier(tmp_path) as tier:
        stream = Stream(tier)
        assert stream.trigger() == 1  # it may be on its way
        assert stream.frontier == {NAME: Position(2, 0)}
        put_ledger(tmp_path, 3, [b"c"])
        with pytest.raises(DataLossError, match=r"no complete copy.*ledger 2"):
            stream.trigger()
        stream.fail_on_data_loss = False
        assert stream.trigger() == 1
    assert stream.values == [b"a", b"c"]


def records(*ledgers):
    return {TOPIC: managed_ledger(*ledgers)}


def test_by_its_record_a_stream_waits_for_a_ledger_that_is_not_offloaded_yet(tmp_path):
    put_ledger(tmp_path, 1, [b"a"])
    put_ledger(tmp_path, 3, [b"c"])
    first, last = closed(1, 1, copied(uuid_of(1))), closed(3, 1, copied(uuid_of(3)))
    with open_tier(tmp_path) as tier:
        stream = Stream(tier, records(first, closed(2, 1), last, still_open(4)))
        assert stream.trigger() == 1
        assert stream.trigger() == 0
        put_ledger(tmp_path, 2, [b"b"])
        stream.records = records(first, closed(2, 1, copied(uuid_of(2))), last, still_open(4))
        assert stream.trigger() == 2
    assert stream.values == [b"a", b"b", b"c"]


def test_by_its_record_a_copy_that_is_gone_is_loss_and_an_empty_ledger_none(tmp_path):
    put_ledger(tmp_path, 3, [b"c"])
    last = closed(3, 1, copied(uuid_of(3)))
    with open_tier(tmp_path) as tier:
        stream = Stream(tier, records(closed(1, 0), closed(2, 1, copied(uuid_of(2))), last))
        with pytest.raises(DataLossError, match=r"no complete copy.*ledger 2"):
            stream.trigger()
        stream = Stream(tier, records(closed(1, 0), last))
        assert stream.trigger() == 1


def test_by_its_record_a_stream_waits_for_the_rest_of_a_streaming_ledger(tmp_path):
    put_segment(tmp_path, 1, 0, [b"a", b"b"])
    put_ledger(tmp_path, 2, [b"d"])
    one = segment(uuid_of(1000), 1)
    last = closed(2, 1, copied(uuid_of(2)))
    with open_tier(tmp_path) as tier:
        stream = Stream(tier, records(closed(1, 3, OffloadContext.of_segments([one])), last))
        assert stream.trigger() == 2
        assert stream.frontier == {NAME: Position(1, 2)}
        put_segment(tmp_path, 1, 2, [b"c"])
        both = OffloadContext.of_segments([one, segment(uuid_of(1002), 2)], complete=True)
        stream.records = records(closed(1, 3, both), last)
        assert stream.trigger() == 2
    assert stream.values == [b"a", b"b", b"c", b"d"]


def test_nothing_new_is_looked_for_before_its_time_or_when_it_is_frozen(tmp_path):
    put_ledger(tmp_path, 1, [b"a"])
    now = 100.0
    looks = 0
    selection = Selection()
    with open_tier(tmp_path) as tier:

        def look(known):
            nonlocal looks
            looks += 1
            return select_catalogue(tier, selection, ScanOptions(), known=known)

        follower = TopicFollower(look, selection, interval_s=10, clock=lambda: now)

        def ledgers():
            return [ledger.ledger_id for topic in follower.topics() for ledger in topic.ledgers]

        assert ledgers() == [1]
        put_ledger(tmp_path, 2, [b"b"])
        now = 109.9
        assert ledgers() == [1]
        now = 110.0
        assert ledgers() == [1, 2]
        put_ledger(tmp_path, 3, [b"c"])
        follower.freeze()
        put_ledger(tmp_path, 4, [b"d"])
        now = 1000.0
        assert ledgers() == [1, 2, 3]
    assert looks == 3


def test_what_is_known_is_not_read_again(tmp_path):
    put_ledger(tmp_path, 1, [b"a"])
    selection = Selection()
    with open_tier(tmp_path) as tier:
        known = select_catalogue(tier, selection, ScanOptions())
        put_ledger(tmp_path, 2, [b"b"])
        again = select_catalogue(tier, selection, ScanOptions(), known=known)
        ours, theirs = known.topics[0].ledgers[0], again.topics[0].ledgers[0]
        assert theirs.attempts[0] is ours.attempts[0]
        (replaced,) = tmp_path.glob("*ledger-1-index")
        replaced.touch()
        anew = select_catalogue(tier, selection, ScanOptions(), known=again)
        assert anew.topics[0].ledgers[0].attempts[0] is not ours.attempts[0]
        assert anew.topics[0].ledgers[1].attempts[0] is again.topics[0].ledgers[1].attempts[0]
