"""Copies go through the filter of transactions as they are moved: once, wholly settled, and readers get the same."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import pytest
from managed_ledgers import NAME, Audit
from scenes.filters import FilteredTopic, PlainFilter
from scenes.transactions import Model

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.entry import pack_tombstone, split_entry
from offload_core.maintenance.relocate import How, Mover, Wanted, copy_filters, make_moves, plan_topic
from offload_core.maintenance.relocate.copy_filters import Filtering, WantedFilter
from offload_core.maintenance.relocate.moving import CopyMaker
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import DriverMetadata, OtherRole, other_copies
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.storage.tier import open_store
from offload_core.storage.tier.registry import PluginSpec
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_core.writing.managed_ledger.followed_transactions import (
    persisted_transactions,
    settle_transactions,
    settled_transactions,
)
from offload_core.writing.offload_filters import OffloadFilterDisable, recorded_filters
from offload_hooks.errors import DataLossError, OptionError, UnresolvedTransactionError

TOPIC = topic_of_managed_ledger(NAME)
PIP17, STREAMING, MAPFILE = ObjectFormat.PIP17, ObjectFormat.STREAMING, ObjectFormat.MAPFILE
GAP, TOMBSTONE = FilterMode.GAP, FilterMode.TOMBSTONE
STEPS = ["m", "1", "2", "m", "|", "1", "a1", "3", "m", "|", "1", "m", "c2", "a3", "|", "m", "|"]
"""Transaction 1 has an entry after its abort."""


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


def wanted(topic, mode=TOMBSTONE, format_=None, name="transactions", **given):
    here = tier_record(topic.tier)
    through = WantedFilter(plugin=PluginSpec(name=name), mode=mode)
    return Wanted(source=here, target=here, format=format_, filter=through, **given)


def mover(topic, wanted, settle=None):
    settle = settle or partial(persisted_transactions, topic.environment.snapshots)
    return Mover(
        RecordRegistry(topic.records, topic.environment.now_ms),
        topic.tier,
        topic.tier,
        Audit(),
        now_ms=topic.environment.now_ms,
        block_bytes=topic.block_bytes,
        filtering=Filtering(wanted=wanted.filter, settle=settle),
    )


def info(topic):
    return topic.records.require(NAME).info


def plan(topic, wanted):
    return plan_topic(TOPIC, info(topic), wanted)


def filter_all(topic, wanted, **given):
    """Move all through the filter; the moves."""
    moves = plan(topic, wanted).moves
    for move in moves:
        mover(topic, wanted, **given).move(move)
    return moves


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
    asked = wanted(topic, mode, format_)
    moves = filter_all(topic, asked)
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


def test_a_copy_waits_until_all_of_it_is_settled(tmp_path):
    topic = unfiltered(tmp_path, ["m", "1", "c1", "|", "m", "2", "|", "m", "|"])
    asked, before = wanted(topic), (objects(topic), info(topic))
    first, second, third = plan(topic, asked).moves
    for move in (second, third):
        with pytest.raises(UnresolvedTransactionError) as caught:
            mover(topic, asked).move(move)
        assert "its owner to settle its transactions" in str(caught.value)
        with pytest.raises(UnresolvedTransactionError, match="open since entry") as caught:
            mover(topic, asked, partial(settled_transactions, topic.environment)).move(move)
        assert caught.value.ledger_id == move.ledger_ids[0]
    assert (objects(topic), info(topic)) == before
    mover(topic, asked).move(first)
    topic.do("a2", "|")
    settle_transactions(topic.environment, NAME)
    filter_all(topic, asked)
    assert copies(topic) == {
        move.ledger_ids[0]: expected(topic, TOMBSTONE, move.ledger_ids[0]) for move in (first, second, third)
    }


def test_without_a_snapshot_entries_of_transactions_are_an_error_and_others_are_moved(topic):
    def none(*_):
        return None

    asked = wanted(topic)
    before = objects(topic)
    outcomes = list(make_moves(mover(topic, asked, none), [plan(topic, asked)], parallel=2))
    assert [type(each.error) for each in sorted(outcomes, key=lambda each: each.move.ledger_ids)] == [
        *[UnresolvedTransactionError] * 3,
        type(None),
    ]
    assert len(objects(topic)) == len(before) + 2
    assert len(other_copies(info(topic))) == 1


def test_a_copy_goes_through_one_filter_once(topic):
    filter_all(topic, wanted(topic, GAP, ledger_ids=frozenset({topic.ledgers[0].ledger_id})))
    for other in (
        wanted(topic, TOMBSTONE),
        wanted(topic, GAP, name="by-test"),
        wanted(topic, TOMBSTONE, MAPFILE),
    ):
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
        mover(topic, wanted(topic)).move(move)
    left = plan(topic, wanted(topic)).left
    assert [each.ledger_ids for each in left] == [(each.ledger_id,) for each in topic.ledgers]
    assert {each.why for each in left} == {
        "it is in segments, which become one object as they are filtered: give its format"
    }
    filter_all(topic, wanted(topic, format_=PIP17))
    assert copies(topic) == {
        each.ledger_id: expected(topic, TOMBSTONE, each.ledger_id) for each in topic.ledgers
    }


def test_another_process_makes_it_by_the_order_alone(topic):
    asked = wanted(topic)
    moving = mover(topic, asked)
    maker = pickle.loads(pickle.dumps(CopyMaker(open_store(topic.folder), open_store(topic.folder), 400)))
    for move in plan(topic, asked).moves:
        with moving.begin(move) as begun:
            made = maker(pickle.loads(pickle.dumps(begun.order)))
            moving.end(begun, made)
    assert copies(topic) == {
        each.ledger_id: expected(topic, TOMBSTONE, each.ledger_id) for each in topic.ledgers
    }


class Fickle:
    """A filter that drops other entries each time it is opened."""

    opened = 0

    def open(self, _):
        Fickle.opened += 1
        turn = Fickle.opened % 2
        return PlainFilter(lambda payload: int(hash(payload) % 2 == turn))


def test_a_copy_that_is_not_what_the_filter_says_is_not_read(topic, monkeypatch):
    monkeypatch.setattr(copy_filters, "make_filter", lambda *_: Fickle())
    before = objects(topic), copies(topic)
    with pytest.raises(DataLossError, match="not those of the old one"):
        filter_all(topic, wanted(topic, GAP, name="fickle"))
    assert (objects(topic), copies(topic)) == before


def test_a_filter_that_has_nothing_to_do_is_recorded_all_the_same(topic, monkeypatch):
    monkeypatch.setattr(copy_filters, "make_filter", lambda *_: OffloadFilterDisable())
    before = copies(topic)
    asked = wanted(topic, name="idle")
    assert len(filter_all(topic, asked)) == len(before)
    assert copies(topic) == before
    assert plan(topic, asked).moves == ()


def test_wrong_use():
    here = DriverMetadata(name="here")
    through = WantedFilter(plugin=PluginSpec(name="transactions"), mode=GAP)
    with pytest.raises(OptionError, match="filtered first"):
        Wanted(source=here, target=here, filter=through, merge_bytes=1)
    with pytest.raises(OptionError, match="leaves nothing out"):
        WantedFilter(plugin=PluginSpec(name="disabled"), mode=GAP)
