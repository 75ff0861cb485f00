"""Which ledgers may go through a filter, and what the others wait for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from managed_ledgers import NAME
from scenes.filters import FilteredTopic, every_ledger, positions

from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import delete_managed_ledger, keep_up, topic_offloads
from offload_core.writing.managed_ledger.environment import KnownWait
from offload_core.writing.managed_ledger.topic_filters import open_filter

EXAMPLE = ("1", "2", "2", "c1", "2", "3", "c2", "c3")
"""Of the proposal, with commits where it says that a transaction ends."""


STABLE = (-1, -1, -1, 0, 0, 0, 4, 7)


def cut(steps: Sequence[str], cuts: Sequence[int]) -> list[str]:
    """The same, a ledger sealed before each of these, and at the end."""
    parts = [["|", step] if i in cuts else [step] for i, step in enumerate(steps)]
    return [*itertools.chain.from_iterable(parts), "|"]


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (5,), (6, 7), (1, 2, 3, 4, 5, 6, 7)])
def test_of_the_proposals_example_those_ledgers_go_that_end_at_or_before_the_stable_position(
    tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    topic = FilteredTopic(tmp_path)
    added = 0
    for step in cut(EXAMPLE, cuts):
        topic.do(step)
        added += step != "|"
        if step != "|":
            continue
        first = topic.offload()
        stable, last = STABLE[added - 1], -1
        for ledger in topic.ledgers:
            assert ledger.info.entries is not None
            last += ledger.info.entries
            assert ledger.has_complete_copy == (last <= stable), (cuts, added)
        waiting = topic.topic.topic.offload_status.waiting
        assert set(waiting) == {each.ledger_id for each in topic.ledgers if not each.has_complete_copy}
        if waiting:
            assert first == EntryPosition(min(waiting), 0)
    assert positions(topic.ledgers) == list(range(len(cuts) + 1))
    assert [topic.cold(ledger) for ledger in topic.ledgers] == [
        topic.left(ledger) for ledger in topic.ledgers
    ]


@pytest.mark.nightly
def test_of_the_proposals_example_cut_in_any_way(tmp_path: Path) -> None:
    for number, chosen_cuts in enumerate(itertools.product([False, True], repeat=7)):
        topic = FilteredTopic(tmp_path / str(number))
        cuts = [i for i, is_cut in enumerate(chosen_cuts, 1) if is_cut]
        ends, added = [], 0
        for step in cut(EXAMPLE, cuts):
            topic.do(step)
            added += step != "|"
            if step != "|":
                continue
            ends.append(added - 1)
            for end, ledger in zip(ends, topic.ledgers, strict=True):
                last = EntryPosition(ledger.ledger_id, (ledger.info.entries or 0) - 1)
                run = open_filter(topic.environment, NAME, last, topic.topic.topic.read_info())
                assert run is not None
                assert run.takes(last) == (end <= STABLE[added - 1]), (cuts, added, end)


def test_a_ledger_that_waits_says_for_what_and_those_behind_it_for_that_ledger(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "m", "1", "|", "m", "|")
    settled, held, behind = (ledger.ledger_id for ledger in topic.ledgers)
    assert topic.offload() == EntryPosition(held, 0)
    assert positions(topic.ledgers) == [0]
    status = topic.topic.topic.offload_status
    assert status.state == "success"
    assert status.offloaded == (settled,)
    assert status.waiting == {
        held: f"waits for transaction {topic.begun[1]}, open since entry {held}:1",
        behind: f"ledger {held} comes before it",
    }
    topic.do("a1", "|")
    topic.offload()
    assert topic.topic.topic.offload_status.waiting == {}
    assert positions(topic.ledgers) == [0, 1, 2, 3]


def test_a_transaction_that_ends_in_the_open_ledger_is_waited_for(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("1", "|", "c1")
    topic.topic.snapshot()
    topic.offload()
    assert positions(topic.ledgers) == [0]  # its owner persisted what it knows
    topic.do("2", "|", "c2")
    topic.offload()
    assert positions(topic.ledgers) == [0]  # and here it did not


def test_a_topic_that_waits_is_not_read_again_until_there_is_more_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("1", "m", "|")
    topic.offload()
    why = topic.topic.topic.offload_status.waiting
    opened: list[int] = []
    open_hot = topic.hot.open
    monkeypatch.setattr(topic.hot, "open", lambda each: (opened.append(each), open_hot(each))[1])
    topic.offload()
    assert (opened, topic.topic.topic.offload_status.waiting) == ([], why)
    topic.do("3", "a3")
    topic.topic.snapshot()  # settled no farther: what was aborted is behind what is open
    topic.offload()
    assert (opened, topic.topic.topic.offload_status.waiting) == ([], why)
    topic.do("2", "|")  # a ledger more
    topic.offload()
    assert opened
    assert list(topic.topic.topic.offload_status.waiting) == [each.ledger_id for each in topic.ledgers]
    topic.do("c1", "c2")
    topic.topic.snapshot()  # its owner has seen the ends, in the ledger that is open
    topic.offload()
    assert positions(topic.ledgers) == [0, 1]


def test_what_a_topic_waits_for_is_forgotten_with_it(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("1", "m", "|")
    topic.offload()
    ledger = topic.ledgers[0].ledger_id
    known = KnownWait(None, EntryPosition(ledger, 1))
    assert topic.environment.waits.find(NAME, known) is not None
    delete_managed_ledger(topic.environment, NAME)
    assert topic.environment.waits.find(NAME, known) is None


@pytest.mark.parametrize("trigger", ["threshold_in_bytes", "threshold_in_seconds"])
def test_upkeep_leaves_out_what_waits_and_says_why(tmp_path: Path, trigger: str) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "1", "|", "m", "|")
    first, held, behind = (ledger.ledger_id for ledger in topic.ledgers)
    for kept in (topic.topic, topic_offloads(topic.environment, NAME)):
        done = keep_up(kept, every_ledger(trigger), now_ms=1000)
        assert done.failures == {}
        assert list(done.skipped) == [held, behind]
        assert done.skipped[held].startswith("waits for transaction (")
        assert done.skipped[behind] == f"ledger {held} comes before it"
    assert positions(topic.ledgers) == [0]
    assert first == topic.ledgers[0].ledger_id


def test_a_position_that_ends_before_the_waiting_ledger_is_reached_as_without_a_filter(
    tmp_path: Path,
) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "|", "1", "|")
    _, held = (ledger.ledger_id for ledger in topic.ledgers)
    assert topic.offload(EntryPosition(held, 0)) == EntryPosition(held, 0)
    assert topic.topic.topic.offload_status.waiting == {}
