"""What a driver declares and cannot do is a failure; what it does not declare is skipped, and the skip names it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long

MODULE = """
from dataclasses import replace

import pytest
from offload_hooks import hookimpl
from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.memory import CAPABILITIES


class Says(MemoryDriver):
    "A driver that can do one thing and says another."

    said = {}

    @hookimpl
    def describe(self):
        found = super().describe()
        return replace(found, capabilities=replace(found.capabilities, **self.said))


class ListsNoUploads(Says):
    @hookimpl
    def list_uploads(self, prefix):
        return iter(())


class Suite(DriverConformance):
    driver, can, said = Says, {}, {}

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def make_driver(self, tier):
        def make():
            driver = self.driver(tier, replace(CAPABILITIES, **self.can))
            driver.said = self.said
            return driver

        return make

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)
"""

LIES = {
    # capability: what the driver can do, what a liar says, and the case that tells
    "create_only": (False, True, "create_only_leaves_an_object_as_it_is[data]"),
    "exclusive_uploads": (False, True, "a_commit_ends_the_other_uploads_of_the_key"),
    "stale_uploads": (False, True, "an_upload_is_listed_with_its_time"),
    "ordered_parts": (True, False, "blocks_may_come_in_any_order"),
    "min_block_bytes": (1, 10, "blocks_that_are_too_small_are_refused_at_the_commit"),
    "max_blocks": (2**31 - 1, 3, "more_blocks_than_the_store_takes_are_refused"),
    "max_block_bytes": (2**63 - 1, 1000, "a_block_that_is_larger_than_the_store_takes_is_refused"),
}
SKIPS = {
    "ordered_parts": "the driver declares the capability ordered_parts",
    "min_block_bytes": "the driver declares no limit min_block_bytes",
    "max_blocks": "the driver declares no limit max_blocks",
    "max_block_bytes": "blocks of max_block_bytes are too large to try",
}
"""Why a case is skipped, where it is not that the capability is not declared."""


def run(pytester, capability, declared):
    """Run the case that tells, with a driver that declares so: what passed, was skipped, and failed."""
    can, _, case = LIES[capability]
    driver = "ListsNoUploads" if capability == "stale_uploads" else "Says"
    options = f"{driver}, {{{capability!r}: {can}}}, {{{capability!r}: {declared}}}"
    suite = f"class TestIt(Suite):\n    driver, can, said = {options}\n"
    file = pytester.makepyfile(test_it=f"{MODULE}\n\n{suite}")
    return pytester.inline_run(f"{file}::TestIt::test_{case}").listoutcomes()


@pytest.mark.parametrize("capability", LIES)
def test_what_is_declared_and_does_not_work_is_a_failure(pytester, capability):
    passed, skipped, (failed,) = run(pytester, capability, LIES[capability][1])
    assert (passed, skipped, failed.when) == ([], [], "call")


@pytest.mark.parametrize("capability", LIES)
def test_what_is_not_declared_is_skipped_by_its_name(pytester, capability):
    passed, (skipped,), failed = run(pytester, capability, LIES[capability][0])
    assert (passed, failed) == ([], [])
    why = SKIPS.get(capability, f"the driver does not declare the capability {capability}")
    assert skipped.longrepr[2] == f"Skipped: {why}"
