"""Python searches for cycles rarely in a block, and as before after it."""

from __future__ import annotations

import gc
import threading

import pytest

from offload_core.format.cycle_search import rare_search_for_cycles


@pytest.fixture(autouse=True)
def threshold():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_rare_in_the_block_and_as_before_afterwards():
    with rare_search_for_cycles():
        with rare_search_for_cycles():
            assert gc.isenabled()
        assert gc.get_threshold()[0] > 100_000
    assert gc.get_threshold() == (700, 10, 10)


@rare_search_for_cycles()
def _fail():
    raise ValueError(gc.get_threshold())


def test_an_error_ends_it_as_well():
    with pytest.raises(ValueError, match="200000"):
        _fail()
    assert gc.get_threshold() == (700, 10, 10)


def test_blocks_of_threads_that_overlap_end_with_the_last():
    begun, may_end = threading.Event(), threading.Event()

    def other():
        with rare_search_for_cycles():
            begun.set()
            may_end.wait(10)

    with rare_search_for_cycles():
        thread = threading.Thread(target=other)
        thread.start()
        assert begun.wait(10)
    assert gc.get_threshold()[0] > 100_000
    may_end.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [0, 1_000_000])
def test_a_threshold_that_is_none_or_higher_stays(own):
    gc.set_threshold(own, 10, 10)
    with rare_search_for_cycles():
        assert gc.get_threshold()[0] == own
    assert gc.get_threshold()[0] == own
