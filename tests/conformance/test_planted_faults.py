"""The suite finds each of the planted faults, by the cases that one would expect, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import lying_drivers
import planted_faults
import pytest

FILE = Path(planted_faults.__file__)
NAMES = {driver.__name__: cases for driver, cases in lying_drivers.FAULTS.items()}


def test_no_fault_is_found_where_there_is_none(outcomes):
    ends = outcomes["TestNoFault"]
    assert len(ends) > 200
    assert {case for case, end in ends.items() if end not in ("passed", "skipped")} == set()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("planted", NAMES)
def test_a_planted_fault_is_found(outcomes, planted):
    assert outcomes[f"Test{planted}"] == dict.fromkeys(NAMES[planted], "failure")


def test_there_are_many_and_no_one_of_them_is_found_by_sequences_only():
    assert len(NAMES) >= 14
    assert [name for name, cases in NAMES.items() if set(cases) <= {lying_drivers.SEQUENCES}] == []
