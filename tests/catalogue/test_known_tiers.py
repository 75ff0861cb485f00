"""Which tier a record means, also with what it says of an attempt beside the place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import DRIVER

from offload_core.metadata.catalogue.known_tiers import (
    KnownTiers,
    broker_record,
    is_another_place,
    is_same_place,
    tier_record,
)
from offload_core.metadata.records import DriverMetadata
from offload_core.storage.tier import open_store
from offload_hooks.errors import OptionError


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


def bucket(name="golden", **more):
    return open_store(
        "s3",
        bucket=name,
        endpoint_url="http://127.0.0.1:5577",
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        **more,
    )


def test_a_tier_is_found_by_what_a_broker_records_of_it():
    """A broker has the kind of store as a property as well, by a name of its own."""
    other, tier = bucket("other"), bucket()
    assert KnownTiers(other, [tier]).find(DRIVER) is tier
    with pytest.raises(OptionError, match="aws-s3 at golden"):
        KnownTiers(other).find(DRIVER)


def test_a_tier_is_recorded_as_a_broker_does():
    recorded = broker_record(tier_record(bucket()), "aws-s3")
    assert recorded.name == DRIVER.name
    assert sorted(recorded.properties) == sorted(DRIVER.properties)
    assert KnownTiers(bucket("other"), [tier := bucket()]).find(recorded) is tier


@pytest.mark.parametrize(
    ("driver", "provider", "kind"),
    [("S3", "S3", "AWS_S3"), ("aws-s3", "AWS_S3", "S3"), ("azureblob", "AZURE_BLOB", "AZURE_BLOB")],
)
def test_each_driver_of_brokers_has_its_own_kind_of_store(driver, provider, kind):
    recorded = replace(tier_record(bucket()), name=kind)
    assert dict(broker_record(recorded, driver).properties)["managedLedgerOffloadDriver"] == provider


@pytest.mark.parametrize(
    ("driver", "more"), [("aws-s3", {"prefix": "cold"}), ("local", {}), ("filesystem", {}), ("azureblob", {})]
)
def test_a_tier_that_brokers_do_not_find_is_refused(driver, more):
    with pytest.raises(OptionError, match="brokers cannot read"):
        broker_record(tier_record(bucket(**more)), driver)


def test_our_own_records_have_the_prefix():
    assert dict(tier_record(bucket(prefix="cold")).properties)["location"] == "s3://golden/cold/"
    recorded = DriverMetadata(name="S3", properties=(("bucket", "golden"), ("location", "s3://golden/cold/")))
    with pytest.raises(OptionError):
        KnownTiers(bucket()).find(recorded)
