"""What an author sees of the suite: what is missing, what was skipped and why, and a failure with its values."""

from __future__ import annotations

import subprocess
import sys

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


def run(tmp_path, text, *cases):
    file = tmp_path / "test_it.py"
    file.write_text(text)
    options = ["-rs", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    where = [f"{file}::TestIt::{case}" for case in cases]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *where],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_fixture_that_is_missing_is_named(tmp_path):
    text = "from offload_hooks.testing import DriverConformance\nclass TestIt(DriverConformance): pass\n"
    shown = run(tmp_path, text, "test_the_limits_make_sense")
    assert "TestIt needs a fixture 'make_driver'" in shown
    assert "1 error" in shown
    text = HEAD.partition("    @pytest.fixture\n    def back_door")[0]
    shown = run(tmp_path, text, "test_an_object_may_have_one_small_block", "test_the_limits_make_sense")
    assert "TestIt needs a fixture 'back_door'" in shown
    assert "1 passed, 1 error" in shown


def test_a_case_that_is_skipped_names_the_capability(tmp_path):
    text = HEAD + "    capabilities = replace(CAPABILITIES, create_only=False, ordered_parts=True)\n"
    cases = ("test_of_two_uploads_the_first_create_only_commit_wins", "test_blocks_may_come_all_at_once")
    shown = run(tmp_path, text, *cases)
    assert "the driver does not declare the capability create_only" in shown
    assert "the driver declares the capability ordered_parts" in shown
    assert "2 skipped" in shown


def test_the_same_driver_every_time_skips_what_needs_two(tmp_path):
    text = HEAD.replace("return lambda: self", "one = self").replace(
        "ies)\n    @", "ies)\n        return lambda: one\n    @"
    )
    shown = run(tmp_path, text, "test_it_is_gone_for_other_instances", "test_a_deleted_object_is_gone")
    assert "make_driver() gives the same driver every time" in shown
    assert "1 passed, 1 skipped" in shown


def test_a_failure_shows_the_values(tmp_path):
    text = HEAD + "    clock_skew_s = 0\n"
    shown = run(tmp_path, text, "test_the_time_is_in_utc_and_now[data]")
    assert "datetime.timedelta" in shown
    assert "1 failed" in shown


def test_drivers_are_closed_after_each_case(tmp_path):
    closing = """
    class driver(MemoryDriver):
        def close(self):
            pytest.fail("it was closed")
"""
    shown = run(tmp_path, HEAD + closing, "test_it_is_gone_for_other_instances")
    assert "it was closed" in shown
    assert "1 passed, 1 error" in shown
