"""What an author sees of the suite: what is missing, what was skipped and why, and a failure with its values."""

from __future__ import annotations

import pytest

HEAD = """
import pytest
from dataclasses import replace
from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.memory import CAPABILITIES

class TestIt(DriverConformance):
    driver, capabilities = MemoryDriver, CAPABILITIES
    @pytest.fixture
    def tier(self):
        return MemoryTier()
    @pytest.fixture
    def make_driver(self, tier):
        return lambda: self.driver(tier, self.capabilities)
    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)
"""


@pytest.fixture
def run(pytester):
    """Run cases of a module that is given as text: what pytest prints."""

    def run(text, *cases):
        file = pytester.makepyfile(test_it=text)
        return pytester.runpytest("-rs", *(f"{file}::TestIt::{case}" for case in cases)).stdout.str()

    return run


def test_a_fixture_that_is_missing_is_named(run):
    text = "from offload_hooks.testing import DriverConformance\nclass TestIt(DriverConformance): pass\n"
    shown = run(text, "test_the_limits_make_sense")
    assert "TestIt needs a fixture 'make_driver'" in shown
    assert "1 error" in shown
    text = HEAD.partition("    @pytest.fixture\n    def back_door")[0]
    shown = run(text, "test_an_object_may_have_one_small_block", "test_the_limits_make_sense")
    assert "TestIt needs a fixture 'back_door'" in shown
    assert "1 passed, 1 error" in shown


def test_the_same_driver_every_time_skips_what_needs_two(run):
    text = HEAD.replace("return lambda: self", "one = self").replace(
        "ies)\n    @", "ies)\n        return lambda: one\n    @"
    )
    shown = run(text, "test_it_is_gone_for_other_instances", "test_a_deleted_object_is_gone")
    assert "make_driver() gives the same driver every time" in shown
    assert "1 passed, 1 skipped" in shown


def test_a_failure_shows_the_values(run):
    text = HEAD + "    clock_skew_s = 0\n"
    shown = run(text, "test_the_time_is_in_utc_and_now[data]")
    assert "datetime.timedelta" in shown
    assert "1 failed" in shown


def test_an_answer_in_the_place_of_an_error_is_shown(run):
    answering = """
    class driver(MemoryDriver):
        @hookimpl
        def read_range(self, key, offset, length):
            return b"!"
"""
    shown = run(f"from offload_hooks import hookimpl{HEAD}{answering}", "test_an_empty_object_has_no_range")
    assert "expected RangeError, and nothing was raised; read_range answered b'!'" in shown


def test_drivers_are_closed_after_each_case(run):
    closing = """
    class driver(MemoryDriver):
        def close(self):
            pytest.fail("it was closed")
"""
    shown = run(HEAD + closing, "test_it_is_gone_for_other_instances")
    assert "it was closed" in shown
    assert "1 passed, 1 error" in shown
