"""Where planted faults are listed: drivers that lie, each in one way, and the cases that find it out."""

from __future__ import annotations

SECRET = "hunter2"
SEQUENCES = "test_any_sequence_of_calls_matches_a_dict"

FAULTS: dict[type, tuple[str, ...]] = {}
"""The drivers, and the cases that must fail."""


def caught_by(*cases):
    """The driver below is found out by these cases."""

    def planted(driver):
        FAULTS[driver] = cases
        return driver

    return planted
