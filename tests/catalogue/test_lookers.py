"""Commands that inspect a tier ignore objects that vanish meanwhile, and report what fails."""

from __future__ import annotations

import pytest
from scenes.lookers import COMMANDS, GONE, lay_out_world, world
from tiers import MODIFIED_AT

from offload_core.maintenance.inventory.stored_amounts import survey_stored
from offload_core.storage.tier import Tier
from offload_hooks.errors import OffloadError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_world(root)
    return root


def cost(tier):
    return survey_stored(tier, now=lambda: MODIFIED_AT)


@pytest.mark.parametrize("command", [*COMMANDS, cost])
def test_an_object_that_vanishes_is_ignored(command, root):
    with_it = world(root)
    assert any(str(GONE) in each.key for each in with_it.list_objects())
    found = str(command(with_it))
    assert str(GONE) not in found
    if command.__name__ not in ("verify", "gc"):  # whose summaries count listed objects
        assert found == str(command(Tier.open(with_it.spec)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("hook", ["stat", "read_range"])
def test_an_error_of_the_store_is_reported(command, hook, root):
    tier = world(root, layers=[("fault-plan", {"faults": f"fail-before {hook} 100%"})])
    try:
        found = str(command(tier))
    except OffloadError as error:
        found = str(error)
    assert "by plan" in found
