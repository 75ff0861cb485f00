"""Copies go through the filter of transactions as they are moved: once, wholly settled, and readers get the same."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME, Audit
from scenes.filters import FilteredTopic
from scenes.transactions import Model, message
from tiers import uuid_of

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.entry import TransactionId, pack_marker, pack_tombstone, split_entry
from offload_core.maintenance.relocate import How, Mover, Wanted, make_moves, plan_topic
from offload_core.maintenance.relocate.copy_filters import AbortedEntries, CopyFilter
from offload_core.maintenance.relocate.moving import CopyMaker
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import DriverMetadata, EntryPosition, OtherRole, other_copies
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.relocations import MappingFile
from offload_core.reading.scan import read_task
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_core.writing.managed_ledger.followed_transactions import settle_transactions
from offload_core.writing.offload_filters import OffloadFilterDisable, has_unsettled_copies, recorded_filters
from offload_hooks.errors import DataLossError, OptionError, UnresolvedTransactionError
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

TOPIC = topic_of_managed_ledger(NAME)
PIP17, STREAMING, MAPFILE = ObjectFormat.PIP17, ObjectFormat.STREAMING, ObjectFormat.MAPFILE
GAP, TOMBSTONE = FilterMode.GAP, FilterMode.TOMBSTONE
STEPS = ["m", "1", "2", "m", "|", "1", "a1", "3", "m", "|", "c2", "a3", "m", "1", "|", "m", "|"]
"""Transaction 1 has an entry after its abort, which is the last of its ledger."""


@pytest.fixture
def topic(tmp_path):
    """A topic that was offloaded through no filter, and is settled."""
    return unfiltered(tmp_path)


def unfiltered(folder, steps=STEPS):
    made = FilteredTopic(folder, filter=OffloadFilterDisable())
    made.do(*steps)
    made.offload()
    settle_transactions(made.environment, NAME)
    return made


def wanted(topic, mode=TOMBSTONE, format_=None, **given):
    here = tier_record(topic.tier)
    return Wanted(source=here, target=here, format=format_, filter=mode, **given)


def mover(topic):
    return Mover(
        RecordRegistry(topic.records, topic.environment.now_ms),
        topic.tier,
        topic.tier,
        Audit(),
        now_ms=topic.environment.now_ms,
        block_bytes=topic.block_bytes,
    )


def info(topic):
    return topic.records.require(NAME).info


def plan(topic, wanted):
    return plan_topic(TOPIC, info(topic), wanted)


def filter_all(topic, wanted):
    """Move all through the filter, by one process; the moves."""
    moves, process = plan(topic, wanted).moves, mover(topic)
    for move in moves:
        process.move(move)
    return moves


def consumed(topic):
    """The positions that a scan by the records gives, as one read and as tasks apart from one another."""
    with open_tier(topic.folder) as tier:
        planned = scan(
            tier, TOPIC.full, records={TOPIC.full: info(topic)}, columns=["__ledgerId", "__entryId"]
        )
        apart = [batch for task in planned.tasks for batch in read_task(planned.tier, task, planned.options)]
        tables = planned.to_table(), pa.Table.from_batches(apart, schema=planned.schema)
        whole, parts = (list(zip(*table.to_pydict().values(), strict=True)) for table in tables)
        assert whole == parts
        return whole


def copies(topic):
    """What each ledger's copy has."""
    return {ledger.ledger_id: topic.cold(ledger) for ledger in topic.ledgers if ledger.has_complete_copy}


def objects(topic):
    return sorted(each.key for each in topic.tier.list_objects())


def expected(topic, mode, ledger_id):
    """What a ledger's copy has after the filter: markers stay, since other copies went through none."""
    model, left = Model.of(topic.hot_entries()), {}
    for (position, payload), transaction in zip(model.entries, model.transactions, strict=True):
        if position.ledger_id != ledger_id:
            continue
        if split_entry(payload).is_marker or transaction not in model.aborted:
            left[position.entry_id] = payload
        elif mode is TOMBSTONE:
            left[position.entry_id] = pack_tombstone(payload)
    return left


@pytest.mark.parametrize("mode", FilterMode)
@pytest.mark.parametrize("format_", [None, STREAMING, MAPFILE])
def test_copies_are_as_an_offload_through_the_filter_leaves_them(topic, mode, format_):
    old, ledger_ids = objects(topic), [each.ledger_id for each in topic.ledgers]
    asked, seen = wanted(topic, mode, format_), consumed(topic)
    moves = filter_all(topic, asked)
    assert consumed(topic) == seen
    assert {move.how for move in moves} == {How.FILTERED}
    assert [move.ledger_ids for move in moves] == [(each,) for each in ledger_ids]
    assert copies(topic) == {each: expected(topic, mode, each) for each in ledger_ids}
    records = [record for each in topic.ledgers for record in recorded_filters(each)]
    assert {(each.name, each.mode) for each in records} == {("transactions", mode)}
    assert sum(each.total_dropped.entries for each in records) == 4
    assert (plan(topic, asked).moves, plan(topic, asked).left) == ((), ())
    found = {finding.code for finding in Verification(topic.tier, deep=True)}
    assert found <= {Code.SUPERSEDED}, "the old copies are there as well"
    assert set(old) <= set(objects(topic)), "old copies stay until they are deleted"
    assert {each.role for each in other_copies(info(topic))} == {OtherRole.REPLACED}


def test_a_copy_waits_for_each_transaction_before_its_end(tmp_path):
    topic = unfiltered(tmp_path, ["m", "1", "c1", "|", "m", "2", "|", "m", "|"])
    asked, before = wanted(topic), (objects(topic), info(topic))
    first, second, third = plan(topic, asked).moves
    for move in (second, third):
        with pytest.raises(UnresolvedTransactionError, match="is open") as caught:
            mover(topic).move(move)
        at = topic.ledgers[1].ledger_id
        assert (caught.value.ledger_id, caught.value.entry_id) == (at, 1)
        assert "(" in caught.value.found
        assert "hot still" in caught.value.hint
    assert (objects(topic), info(topic)) == before, "nothing was written down"
    mover(topic).move(first)
    topic.do("a2", "|")
    topic.offload()
    seen = consumed(topic)
    filter_all(topic, asked)
    assert consumed(topic) == seen
    assert copies(topic) == {
        each.ledger_id: expected(topic, TOMBSTONE, each.ledger_id) for each in topic.ledgers
    }


def test_a_ledger_after_one_whose_transaction_ends_in_the_hot_tier_waits_as_well(tmp_path):
    """Else readers, for which all before a filtered copy is settled, would miss the end."""
    topic = unfiltered(tmp_path, ["1", "|", "m", "|", "c1"])
    second = topic.ledgers[1].ledger_id
    (move,) = plan(topic, wanted(topic, ledger_ids=frozenset({second}))).moves
    with pytest.raises(UnresolvedTransactionError):
        mover(topic).move(move)
    assert consumed(topic) == []


def test_a_transaction_whose_end_is_too_far_away_is_not_decided(tmp_path, monkeypatch):
    topic = unfiltered(tmp_path, ["m", "1", *["m", "|"] * 6, "a1", "|"])
    first = topic.ledgers[0].ledger_id
    asked = wanted(topic, ledger_ids=frozenset({first}))

    def alone(self, tier, real=CopyFilter.decide):
        """The search is not to reach the ledgers after it."""
        return real(replace(self, tasks=tuple(replace(each, neighbours={}) for each in self.tasks)), tier)

    monkeypatch.setattr(CopyFilter, "decide", alone)
    before = objects(topic)
    (outcome,) = make_moves(mover(topic), [plan(topic, asked)])
    assert isinstance(outcome.error, UnresolvedTransactionError)
    assert (outcome.error.ledger_id, outcome.error.entry_id) == (first, 1)
    assert objects(topic) == before
    assert other_copies(info(topic)) == ()


def test_a_ledger_after_one_that_is_hot_waits(topic):
    first, second, *_ = topic.ledgers
    topic.records.update(NAME, lambda known: known.with_ledger(replace(first, context=None)))
    (move,) = plan(topic, wanted(topic, ledger_ids=frozenset({second.ledger_id}))).moves
    with pytest.raises(UnresolvedTransactionError, match="before it is not in the tier"):
        mover(topic).move(move)


def test_what_was_never_followed_is_decided_by_its_markers(tmp_path):
    """A broker's copies: its transactions are in no snapshot, or one begins after them."""
    topic = FilteredTopic(tmp_path, filter=OffloadFilterDisable())
    theirs = TransactionId(9, 1)
    topic.topic.topic.add_entries([message(), message(theirs)])
    topic.do("|")
    topic.topic.topic.add_entries([pack_marker(theirs, commits=False, publish_time_ms=1), message()])
    topic.do("|")
    topic.offload()
    seen = consumed(topic)
    topic.do("m", "5", "c5", "|")  # the first snapshot, long after
    topic.topic.snapshot()
    topic.offload()
    everything = consumed(topic)
    assert everything[: len(seen)] == seen
    filter_all(topic, wanted(topic))
    assert consumed(topic) == everything
    records = [record for each in topic.ledgers for record in recorded_filters(each)]
    assert sum(each.total_dropped.entries for each in records) == 1


def test_an_id_that_lived_twice_is_decided_by_the_marker_after_each_entry(tmp_path):
    topic = FilteredTopic(tmp_path, filter=OffloadFilterDisable())
    for transaction, commits in ((TransactionId(0, 0), True), (TransactionId(0, 1), False)):
        for turn in (commits, not commits):
            topic.topic.topic.add_entries(
                [message(transaction), pack_marker(transaction, commits=turn, publish_time_ms=1), message()]
            )
            topic.do("|")
    topic.offload()
    seen = consumed(topic)
    filter_all(topic, wanted(topic))
    assert consumed(topic) == seen


def test_a_filtered_copy_does_not_end_transactions_of_those_that_went_through_none(tmp_path):
    """Their topic is followed anew while the marker of one is in the ledger that is written."""
    topic = unfiltered(tmp_path, ["1", "|", "m", "c1", "|", "2", "m", "|", "m", "a2"])
    third = topic.ledgers[2].ledger_id
    for each in topic.ledgers[:2]:
        filter_all(topic, wanted(topic, ledger_ids=frozenset({each.ledger_id})))
    topic.environment.snapshots.reset(NAME)
    settled = settle_transactions(topic.environment, NAME)
    assert settled.stable_position < EntryPosition(third, 0)
    topic.do("|")
    settled = settle_transactions(topic.environment, NAME)
    assert set(settled.aborted) == {topic.begun[2]}


HISTORIES = st.lists(
    st.lists(st.sampled_from(["m", "1", "2", "3", "c1", "c2", "a1", "a2", "a3"]), min_size=1, max_size=5),
    min_size=2,
    max_size=5,
)


def possible(ledgers):
    """The steps that a topic may have: none of a transaction that was committed, and each ends once."""
    begun, ended, steps = set(), {}, []
    for ledger in ledgers:
        for step in ledger:
            number = step[-1]
            if step == "m" or (len(step) == 1 and ended.get(number) != "c"):
                steps.append(step)
                begun.add(number)
            elif len(step) == 2 and number in begun and number not in ended:
                ended[number] = step[0]
                steps.append(step)
        steps.append("|")
    return steps


@effort(0.2)
@given(HISTORIES, st.data())
def test_any_copies_in_any_order_and_what_is_consumed_stays(tmp_path_factory, ledgers, data):
    topic = FilteredTopic(tmp_path_factory.mktemp("topic"), filter=OffloadFilterDisable())
    topic.do(*possible(ledgers))
    topic.offload()
    seen = consumed(topic)
    for _ in range(2):
        cold = [each.ledger_id for each in topic.ledgers if each.has_complete_copy]
        chosen = data.draw(st.sets(st.sampled_from(cold), min_size=1)) if cold else set()
        mode, format_ = (
            data.draw(st.sampled_from([*FilterMode])),
            data.draw(st.sampled_from([None, STREAMING])),
        )
        planned = plan(topic, wanted(topic, mode, format_, ledger_ids=frozenset(chosen)))
        errors = [each.error for each in make_moves(mover(topic), [planned], parallel=2) if each.error]
        assert all(isinstance(each, UnresolvedTransactionError) for each in errors), errors
        assert consumed(topic) == seen


def test_segments_are_judged_by_those_that_are_complete(topic):
    """As of a topic that is streamed, and has one under way."""
    filter_all(topic, wanted(topic, format_=STREAMING))
    first = topic.ledgers[0]
    share = first.context.segments[0]
    more = replace(share, uuid=uuid_of(9), complete=False, end_entry_id=None)
    ledger = replace(first, context=replace(first.context, segments=(share, more)))
    topic.records.update(NAME, lambda known: known.with_ledger(ledger))
    assert plan(topic, wanted(topic)).left == ()


def test_a_copy_goes_through_one_filter_once(topic):
    filter_all(topic, wanted(topic, GAP, ledger_ids=frozenset({topic.ledgers[0].ledger_id})))
    for other in (wanted(topic, TOMBSTONE), wanted(topic, TOMBSTONE, MAPFILE)):
        planned = plan(topic, other)
        assert [each.ledger_ids for each in planned.left] == [(topic.ledgers[0].ledger_id,)]
        assert (
            planned.left[0].why
            == "it went through the filter transactions before, which left a gap for each entry"
        )
        assert len(planned.moves) == len(topic.ledgers) - 1
    there = plan(topic, wanted(topic, GAP, MAPFILE))
    assert [move.how for move in there.moves] == [How.ENTRIES, *[How.FILTERED] * 3]


def test_what_a_record_does_not_say_the_index_does(topic):
    """A copy whose record was lost, and made anew, is not filtered a second time."""
    filter_all(topic, wanted(topic))

    def forget(known):
        ledgers = [
            replace(each, context=each.context and replace(each.context, driver=tier_record(topic.tier)))
            for each in known.ledgers
        ]
        return replace(known, ledgers=tuple(ledgers))

    topic.records.update(NAME, forget)
    with pytest.raises(OptionError, match="went through a filter before"):
        filter_all(topic, wanted(topic))


def test_segments_are_filtered_into_objects_of_whole_ledgers(topic):
    asked = replace(wanted(topic), format=STREAMING, filter=None)
    for move in plan(topic, asked).moves:
        mover(topic).move(move)
    left = plan(topic, wanted(topic)).left
    assert [each.ledger_ids for each in left] == [(each.ledger_id,) for each in topic.ledgers]
    assert {each.why for each in left} == {
        "it is in segments, which become one object as they are filtered: --format pip17"
    }
    filter_all(topic, wanted(topic, format_=PIP17))
    assert copies(topic) == {
        each.ledger_id: expected(topic, TOMBSTONE, each.ledger_id) for each in topic.ledgers
    }


def test_a_mapping_names_the_filtered_copies(topic, tmp_path):
    before, seen = info(topic), consumed(topic)
    with MappingFile(tmp_path / "mapping.jsonl") as file:
        registry = MappingRegistry(file, lambda _: before, topic.environment.now_ms)
        process = Mover(registry, topic.tier, topic.tier, Audit(), now_ms=topic.environment.now_ms)
        for move in plan(topic, wanted(topic)).moves:
            process.move(move)
        mapped = registry.info(NAME)
    assert info(topic) == before
    assert plan_topic(TOPIC, mapped, wanted(topic)).moves == ()
    with open_tier(topic.folder) as tier:
        columns = ["__ledgerId", "__entryId"]
        rows = scan(tier, TOPIC.full, records={TOPIC.full: mapped}, columns=columns).to_table().to_pydict()
    assert list(zip(*rows.values(), strict=True)) == seen


def test_another_process_makes_it_by_the_order_alone(topic):
    asked = wanted(topic)
    moving = mover(topic)
    maker = pickle.loads(pickle.dumps(CopyMaker(open_store(topic.folder), open_store(topic.folder), 400)))
    for move in plan(topic, asked).moves:
        with moving.begin(move) as begun:
            made = maker(pickle.loads(pickle.dumps(begun.order)))
            moving.end(begun, made)
    assert copies(topic) == {
        each.ledger_id: expected(topic, TOMBSTONE, each.ledger_id) for each in topic.ledgers
    }


def test_a_copy_that_is_not_what_the_filter_says_is_not_read(topic, monkeypatch):
    real, turns = AbortedEntries.run, []

    def fickle(aborted):
        turns.append(aborted)
        return real(aborted if len(turns) % 2 else replace(aborted, rows=aborted.rows[:0]))

    monkeypatch.setattr(AbortedEntries, "run", fickle)
    before = objects(topic), copies(topic)
    with pytest.raises(DataLossError, match="not those that it was made of"):
        filter_all(topic, wanted(topic, GAP))
    assert (objects(topic), copies(topic)) == before


def test_markers_stay_while_an_old_copy_may_be_read(tmp_path):
    topic = unfiltered(tmp_path, ["m", "1", "c1", "m", "|"])
    assert has_unsettled_copies(info(topic))
    filter_all(topic, wanted(topic, GAP))
    assert has_unsettled_copies(info(topic)), "a reader may have the old copy open"
    assert mover(topic).delete_replaced(TOPIC, -1).error is None
    assert not has_unsettled_copies(info(topic))


def test_wrong_use():
    here = DriverMetadata(name="here")
    with pytest.raises(OptionError, match="filtered first"):
        Wanted(source=here, target=here, filter=GAP, merge_bytes=1)
