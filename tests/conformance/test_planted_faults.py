"""The suite finds each of the planted faults, by the cases that one would expect."""

from __future__ import annotations

from pathlib import Path

import lying_drivers
import planted_faults
import pytest

pytestmark = pytest.mark.long

FILE = Path(planted_faults.__file__)
NAMES = {driver.__name__: cases for driver, cases in lying_drivers.FAULTS.items()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("planted", NAMES)
def test_a_planted_fault_is_found(outcomes, planted):
    assert outcomes[f"Test{planted}"] == dict.fromkeys(NAMES[planted], "failure")


def test_there_are_many_and_no_one_of_them_is_found_by_sequences_only():
    assert len(NAMES) >= 14
    assert [name for name, cases in NAMES.items() if set(cases) <= {lying_drivers.SEQUENCES}] == []
