# ruff: noqa: D102 (the names of the cases state the promises)
"""Calls in any order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.state_machine import driver_state_machine


class SequenceCases(SuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_a_dict(
        self, make_driver: Callable[[], object], back_door: BackDoor
    ) -> None:
        if not self.max_examples:
            pytest.skip("the suite was given max_examples = 0")
        judged = settings(
            max_examples=self.max_examples,
            stateful_step_count=self.steps,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[phase for phase in Phase if self.shrink or phase is not Phase.shrink],
        )
        run_state_machine_as_test(driver_state_machine(make_driver, back_door), settings=judged)
