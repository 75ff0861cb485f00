"""Who looks at objects, threads or other processes, makes no difference to what commands tell."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scenes.lookers import (
    COMMANDS,
    GONE,
    Command,
    assert_same,
    gc,
    lay_out_world,
    ls,
    outcome,
    verify,
    world,
)
from tiers import MODIFIED_AT

from offload_core.maintenance.inventory.stored_amounts import survey_stored
from offload_core.metadata.catalogue import concurrency
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.testing import MemoryDriver


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tier, and batches that are small enough for several."""
    monkeypatch.setattr(concurrency, "AT_ONCE_BY_OTHERS", 5)
    root = tmp_path / "tier"
    lay_out_world(root)
    return root


@pytest.mark.parametrize("command", COMMANDS)
def test_threads_tell_what_this_process_tells(command: Command, root: Path) -> None:
    assert_same(command, ThreadExecutor(3), root)


@pytest.mark.parametrize("command", [ls, gc])
def test_processes_tell_what_this_process_tells(command: Command, root: Path) -> None:
    assert_same(command, ProcessExecutor(1), root)


def test_what_others_look_at_is_not_looked_at_here(root: Path) -> None:
    """But for one object of each topic, which tells a collection the records' cluster."""
    for command, most in ((ls, 0), (gc, 1)):
        tier = world(root)
        command(tier, Elsewhere())
        assert len(tier.looked_at) == most, command


class Elsewhere:
    """What processes and Spark do, without either: all is pickled, there and back."""

    def run(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Executor`."""
        there = pickle.loads(pickle.dumps(work))
        for item in items:
            yield pickle.loads(pickle.dumps(there(pickle.loads(pickle.dumps(item)))))


def test_an_object_that_vanished_is_told_of_by_nobody(root: Path) -> None:
    with_it, without = world(root), Tier.open(world(root).spec)  # type: ignore[arg-type]
    assert any(str(GONE) in each.key for each in with_it.list_objects())
    for command in (ls, verify):
        assert str(GONE) not in str(command(with_it, ThreadExecutor(2)))
    stored = survey_stored(with_it, now=lambda: MODIFIED_AT)
    assert stored == survey_stored(without, now=lambda: MODIFIED_AT)
    assert ls(with_it, ThreadExecutor(2))[:2] == ls(without, None)[:2]  # type: ignore[index]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_fails_fails_as_in_this_process(command: Command, root: Path) -> None:
    for hook in ("stat", "read_range"):
        tier = world(root, layers=[("fault-plan", {"faults": f"fail-before {hook} 100%"})])
        expected = outcome(command, tier, None)
        assert outcome(command, tier, ThreadExecutor(2)) == expected
        assert "by plan" in str(expected)


def test_a_tier_of_an_object_is_looked_at_by_threads_and_by_nobody_else() -> None:
    tier = Tier(MemoryDriver())
    assert ls(tier, ThreadExecutor(2)) == ls(tier, None)
    with pytest.raises(OptionError, match="made of a driver object"):
        ls(tier, ProcessExecutor(1))
