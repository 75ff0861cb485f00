"""What an object's user metadata says of a filter that it was written through."""

from __future__ import annotations

import pytest

from offload_core.format.codec.filtered_objects import filter_of, has_gaps, is_filtered, is_settled

FILTERED, MODE = "pulsaroffloadfiltered", "pulsaroffloadfilteredmode"


@pytest.mark.parametrize(
    ("metadata", "name", "gaps", "settled"),
    [
        ({}, None, False, False),
        ({MODE: "gap"}, None, False, False),
        ({FILTERED: "transactions"}, "transactions", True, True),
        ({FILTERED: "transactions", MODE: "gap"}, "transactions", True, True),
        ({FILTERED: "transactions", MODE: "tombstone"}, "transactions", False, True),
        ({FILTERED: "by-property"}, "by-property", True, False),
        ({FILTERED: "by-property", MODE: "tombstone"}, "by-property", False, False),
        ({FILTERED: ""}, "", True, False),
    ],
)
def test_the_key_makes_a_filtered_object_and_the_mode_its_gaps(
    metadata: dict[str, str], name: str | None, gaps: bool, settled: bool
) -> None:
    assert filter_of(metadata) == name
    assert is_filtered(metadata) is (name is not None)
    assert has_gaps(metadata) is gaps
    assert is_settled(metadata) is settled
