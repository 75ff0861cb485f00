"""The suite of metadata stores finds each planted fault, by the cases that one would expect."""

from __future__ import annotations

from pathlib import Path

import planted_in_metadata
import pytest

pytestmark = pytest.mark.long

FILE = Path(planted_in_metadata.__file__)
NAMES = {store.__name__: cases for store, cases in planted_in_metadata.FAULTS.items()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("planted", NAMES)
def test_a_planted_fault_is_found(outcomes, planted):
    assert outcomes[f"Test{planted}"] == dict.fromkeys(NAMES[planted], "failure")


def test_a_store_whose_fixture_is_missing_is_told(pytester):
    pytester.makepyfile(
        "from offload_hooks.testing import MetadataStoreConformance\n"
        "class TestIt(MetadataStoreConformance): pass\n"
    )
    shown = pytester.runpytest("-k", "closed_twice").stdout.str()
    assert "TestIt needs a fixture 'make_store'" in shown
