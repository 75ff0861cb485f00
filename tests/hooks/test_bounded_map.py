"""Work in threads: how many items are under way, in which order results come, and what an error ends."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from offload_hooks.bounded_map import bounded_map

MARK: ContextVar[str] = ContextVar("MARK", default="none")


def mapped(work, items, **options):
    return bounded_map(work, items, **{"at_once": 2, "name": "test"} | options)


def noted(drawn, count):
    """Items, each of which is in `drawn` from when it is drawn."""
    for item in range(count):
        drawn.append(item)
        yield item


def test_results_come_in_the_items_order_from_named_threads():
    later = threading.Event()

    def work(item):
        if item == 0:
            assert later.wait(10)
        if item == 1:
            later.set()
        return item, threading.current_thread().name.startswith("test")

    assert list(mapped(work, range(10))) == [(i, True) for i in range(10)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]


@pytest.mark.parametrize(("ahead", "expected"), [(None, 4), (2, 2), (7, 7)])
def test_no_more_items_are_drawn_than_may_be_under_way(ahead, expected):
    drawn = []
    results = mapped(str, noted(drawn, 100), ahead=ahead)
    assert next(results) == "0"
    assert len(drawn) == expected + 1  # and one in place of the one that was taken
    results.close()


def test_nothing_is_drawn_after_an_item_to_wait_for():
    drawn = []
    results = mapped(str, noted(drawn, 6), ahead=3, waits_after=lambda item: item in (1, 2))
    seen = [(result, len(drawn)) for result in results]
    assert seen == [("0", 2), ("1", 2), ("2", 3), ("3", 6), ("4", 6), ("5", 6)]


def test_the_first_error_comes_at_its_place_and_no_item_is_drawn_after_it():
    failed, drawn, done = threading.Event(), [], []

    def work(item):
        if item == 1:
            failed.set()
            raise KeyError(item)
        assert failed.wait(10)
        done.append(item)

    results = mapped(work, noted(drawn, 100), ahead=2)
    with pytest.raises(KeyError):
        list(results)
    assert 0 in done
    assert len(drawn) <= 3


def test_work_has_the_callers_context():
    token = MARK.set("caller")
    try:
        assert list(mapped(lambda _: MARK.get(), range(3))) == ["caller"] * 3
    finally:
        MARK.reset(token)


def test_closing_waits_for_what_has_begun_and_cancels_the_rest():
    begun, go = [], threading.Event()

    def work(item):
        begun.append(item)
        if item:
            assert go.wait(10)

    results = mapped(work, range(50), ahead=20)
    next(results)
    go.set()
    results.close()
    assert len(begun) < 50
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]
