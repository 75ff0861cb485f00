"""What an object's user metadata says of a filter that it was written through."""

from __future__ import annotations

import pytest

from offload_core.format.codec.object_marks import ObjectMarks

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
def test_the_key_makes_a_filtered_object_and_the_mode_its_gaps(metadata, name, gaps, settled):
    assert ObjectMarks.of(metadata).filter_name == name
    assert ObjectMarks.of(metadata).is_filtered is (name is not None)
    assert ObjectMarks.of(metadata).has_gaps is gaps
    assert ObjectMarks.of(metadata).is_settled is settled
