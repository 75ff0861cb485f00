# ruff: noqa: D102 (the names of the cases state the promises)
"""Calls in any order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from offload_hooks.testing.metadata_cases.base import MakeStore, MetadataSuiteBase
from offload_hooks.testing.metadata_machine import metadata_state_machine


class MetadataSequenceCases(MetadataSuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_a_dict(self, open_store: MakeStore) -> None:
        if not self.max_examples:
            pytest.skip("the suite was given max_examples = 0")
        judged = settings(
            max_examples=self.max_examples,
            stateful_step_count=self.steps,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if self.shrink else [])],
        )
        run_state_machine_as_test(metadata_state_machine([open_store(), open_store()]), settings=judged)
