"""Which tier a record means, also with what it says of an attempt beside the place."""

from __future__ import annotations

import pytest
from records import DRIVER

from offload_core.catalogue.known_tiers import is_same_place


@pytest.mark.parametrize("said", ["lease", "status", "begin", "end"])
def test_what_is_said_of_an_attempt_does_not_change_the_place(said: str) -> None:
    assert is_same_place(DRIVER, DRIVER.with_property(said, "any"))
    assert is_same_place(DRIVER.with_property("location", "s3://golden"), DRIVER.with_property(said, "any"))


def test_another_bucket_or_property_is_another_place() -> None:
    assert is_same_place(DRIVER, DRIVER)
    assert not is_same_place(DRIVER, DRIVER.with_property("bucket", "another"))
    assert not is_same_place(DRIVER, DRIVER.with_property("storageBasePath", "/somewhere"))
