"""Sequences of calls that a suite draws, the same in every run, and compares with plain values."""

from __future__ import annotations

from typing import ClassVar, Protocol

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


class SequenceSettings(Protocol):
    """What an author says of sequences, by attributes of his suite."""

    max_examples: ClassVar[int]
    steps: ClassVar[int]
    shrink: ClassVar[bool]


def run_sequences(machine: type[RuleBasedStateMachine], suite: SequenceSettings) -> None:
    """Draw sequences of a state machine's calls, as many and as long as the suite says."""
    if not suite.max_examples:
        pytest.skip("the suite was given max_examples = 0")
    judged = settings(
        max_examples=suite.max_examples,
        stateful_step_count=suite.steps,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if suite.shrink or phase is not Phase.shrink],
    )
    run_state_machine_as_test(machine, settings=judged)
