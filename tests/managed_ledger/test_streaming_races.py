"""A streamed topic where two things come at once: appends and turns, turns and closing, several that want memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from managed_ledgers import NAME, Clock
from streamed_topics import SETTINGS, Topic, left_in, pool_of

from offload_core.managed_ledger import Environment, StreamingPool, delete_managed_ledger, open_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, SegmentStatus, segments_of
from offload_core.tier import Tier
from offload_core.tier.chain import Layer
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import OffloadStoppedError, OwnershipLostError

SOON_S = 20


@pytest.fixture
def pool(tmp_path: Path, clock: Clock) -> StreamingPool:
    return pool_of(Tier(LocalDriver(str(tmp_path / "cold"))), clock)


@pytest.fixture
def topic(environment: Environment, pool: StreamingPool, tmp_path: Path) -> Iterator[Topic]:
    topic = Topic(replace(environment, streaming=pool), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    with closing(topic.ledger):
        yield topic


def test_an_entry_that_comes_when_a_turn_has_just_looked_is_streamed_when_it_is_old(
    topic: Topic, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    streaming = topic.ledger._streaming
    assert streaming is not None
    topic.add(1)
    topic.run()  # it rests, until more comes or that entry is old
    look = streaming._pending

    def look_and_append(info: object, begin: object) -> int:
        found: int = look(info, begin)  # type: ignore[arg-type]
        if not found and streaming._segment is None and len(topic.added) == 1:
            topic.add(1)
        return found

    monkeypatch.setattr(streaming, "_pending", look_and_append)
    clock.pass_s(60)
    topic.run()
    monkeypatch.undo()
    assert len(topic.added) == 2
    topic.run()
    clock.pass_s(60)
    topic.run()
    assert topic.cold_entries() == topic.added


def test_a_turn_that_is_too_slow_for_closing_gives_all_back_when_it_ends(
    environment: Environment, pool: StreamingPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = open_managed_ledger(replace(environment, streaming=pool), NAME)
    topic.set_streaming(SETTINGS)
    streaming = topic._streaming
    assert streaming is not None
    topic.add_entries([b"x" * 100] * 12)
    pool.run_due()
    is_in_it, gate = threading.Event(), threading.Event()
    step = streaming._step

    def slow_step() -> bool:
        is_in_it.set()
        assert gate.wait(SOON_S)
        return step()

    monkeypatch.setattr(streaming, "_step", slow_step)
    topic.add_entries([b"x" * 100] * 3)
    target = topic.last_position
    assert target is not None
    waiter = streaming._waiters.add(target)
    streaming.wake()
    turning = threading.Thread(target=pool.run_due)
    turning.start()
    assert is_in_it.wait(SOON_S)
    streaming.close(timeout_s=0.01)
    gate.set()
    turning.join()
    pool.run_due()
    with pytest.raises(OffloadStoppedError, match="was stopped"):
        waiter.result(0)
    assert pool.budget.taken_bytes == pool.buffer_budget.taken_bytes == 0
    known = environment.records.read(NAME)
    assert known is not None
    assert segments_of(known.info)[-1].status is SegmentStatus.FAILED
    topic.close()


def test_what_a_closing_topic_has_in_the_tier_is_deleted_if_the_topic_was(
    environment: Environment, tmp_path: Path, clock: Clock
) -> None:
    class Deleting:
        @hookimpl(wrapper=True)
        def write_index(self) -> Iterator[None]:
            delete_managed_ledger(environment, NAME)
            return (yield)

    tier = Tier(LocalDriver(str(tmp_path / "cold")), [Layer(name="deleting", make=lambda _: Deleting())])
    topic = Topic(replace(environment, streaming=pool_of(tier, clock)), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    topic.add(10)
    streaming = topic.ledger._streaming
    assert streaming is not None
    streaming.turn()
    assert topic.status.state == "closing"
    with pytest.raises(OwnershipLostError):
        topic.ledger.close()
    assert environment.records.read(NAME) is None
    assert left_in(topic.cold, ManagedLedgerInfo()) == set()
