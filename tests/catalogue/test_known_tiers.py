"""Which tier a record means, also with what it says of an attempt beside the place."""

from __future__ import annotations

import pytest
from records import DRIVER

from offload_core.metadata.catalogue.known_tiers import is_another_place, is_same_place
from offload_core.metadata.records import DriverMetadata


@pytest.mark.parametrize("said", ["lease", "status", "begin", "end"])
def test_what_is_said_of_an_attempt_does_not_change_the_place(said):
    assert is_same_place(DRIVER, DRIVER.with_property(said, "any"))
    assert is_same_place(DRIVER.with_property("location", "s3://golden"), DRIVER.with_property(said, "any"))


def test_another_bucket_or_property_is_another_place():
    assert is_same_place(DRIVER, DRIVER)
    assert not is_same_place(DRIVER, DRIVER.with_property("bucket", "another"))
    assert not is_same_place(DRIVER, DRIVER.with_property("storageBasePath", "/somewhere"))


IN_BUCKET = DRIVER.with_property("bucket", "cold").with_property("location", "s3://cold")
IN_FOLDER = DriverMetadata(name="local", properties=(("location", "file:///cold"),))
IN_HDFS = DriverMetadata(name="hdfs", properties=(("location", "hdfs://cold/"), ("storageBasePath", "/")))


def test_no_bucket_is_a_folder_that_a_record_names():
    assert is_another_place(IN_BUCKET, IN_FOLDER)
    assert is_another_place(IN_BUCKET, IN_HDFS)
    assert is_another_place(IN_BUCKET, DriverMetadata(name="filesystem", properties=()))
    assert not is_another_place(IN_BUCKET, DriverMetadata(name="aws-s3", properties=()))
    assert not is_another_place(IN_FOLDER, IN_BUCKET)  # it may hold a copy of the bucket
    assert not is_another_place(IN_FOLDER, IN_FOLDER)
