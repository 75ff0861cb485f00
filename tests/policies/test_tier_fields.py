"""What of a tier a lower level inherits: credentials only where nothing is changed of where they are sent."""

from __future__ import annotations

import pytest

from offload_core.metadata.policies import OffloadPolicies, parse_policies, resolve_policies
from offload_core.metadata.policies.tier_fields import TIER_FIELDS, asks_by_surroundings
from offload_hooks.errors import OptionError

SECRET = "hunter2"
S3 = {
    "driver": "aws-s3",
    "bucket": "b",
    "region": "r",
    "s3_service_endpoint": "https://store",
    "s3_credential_id": "id",
    "s3_credential_secret": SECRET,
    "s3_role": "arn:aws:iam::1:role/r",
}
GCS = {
    "driver": "gcs",
    "bucket": "b",
    "extra_configurations": {"token": SECRET, "prefix": "p", "proxy": "http://p"},
}


def holding(broker, below, level="namespace"):
    return resolve_policies(broker=parse_policies(broker), **{level: OffloadPolicies(**below)})


@pytest.mark.parametrize("level", ["namespace", "topic"])
@pytest.mark.parametrize("broker", [S3, GCS], ids=["s3", "gcs"])
@pytest.mark.parametrize(
    "below",
    [
        {},
        {"bucket": "another"},
        {"s3_bucket": "another"},
        {"driver": "S3"},
        {"max_threads": 5, "threshold_in_bytes": 7, "filter": "transactions"},
        {"s3_role_session_name": "pulsar-s3-offload"},
        {"s3_max_block_size_in_bytes": 5 << 20},
    ],
    ids=str,
)
def test_credentials_are_inherited_where_requests_go_to_the_same_server(level, broker, below):
    if broker is GCS and "driver" in below:
        below = {"driver": "google-cloud-storage"}
    found = holding(broker, below, level)
    assert SECRET in found.driver_options().values()


@pytest.mark.parametrize("level", ["namespace", "topic"])
@pytest.mark.parametrize("broker", [S3, GCS], ids=["s3", "gcs"])
@pytest.mark.parametrize(
    "below",
    [
        {name: "x"}
        for name in TIER_FIELDS
        if name
        not in ("bucket", "s3_bucket", "gcs_bucket", "s3_role_session_name", "driver", "extra_configurations")
    ]
    + [{"service_endpoint": "http://thief"}, {"driver": "azure"}, {"driver": "gcs2"}]
    + [
        {"extra_configurations": options}
        for options in ({"proxy": "http://thief"}, {"x": "y"}, {"Prefix": "y"})
    ],
    ids=str,
)
def test_credentials_are_not_inherited_where_anything_else_of_the_tier_is_named(level, broker, below):
    found = holding(broker, below, level)
    assert SECRET not in str(found.named_options())
    assert SECRET not in str(found.tier())


def test_a_level_that_names_another_server_must_bring_credentials_or_none_at_all():
    for below in ({"service_endpoint": "https://other"}, {"region": "other"}, {"s3_service_endpoint": ""}):
        with pytest.raises(OptionError, match="the namespace names another way to the tier"):
            holding(S3, below).driver_options()
        own = below | {"s3_credential_id": "own", "s3_credential_secret": "own-secret"}
        assert "own-secret" in holding(S3, own).driver_options().values()
        assert holding(S3, below | {"extra_configurations": {"anonymous": "true"}}).driver_options()
    with pytest.raises(OptionError, match="another way"):
        holding(GCS, {"extra_configurations": {"prefix": "p"}}).driver_options()


def test_another_driver_inherits_nothing_of_the_tier():
    local = {"driver": "local", "extra_configurations": {"root": "/r"}}
    assert holding(S3, local).driver_options() == {"root": "/r"}
    s3 = {"driver": "s3", "bucket": "c"}
    assert holding(GCS, s3).driver_options() == {"managedLedgerOffloadBucket": "c"}


def test_ways_to_the_tier_stay_where_credentials_do_not():
    found = holding(GCS, {"service_endpoint": "https://other", "gcs_service_account_key_file": "/own"})
    assert found.driver_options() == {
        "managedLedgerOffloadBucket": "b",
        "managedLedgerOffloadServiceEndpoint": "https://other",
        "gcsManagedLedgerOffloadServiceAccountKeyFile": "/own",
        "prefix": "p",
        "proxy": "http://p",
    }


ELSEWHERE = {"driver": "gcs", "service_endpoint": "http://h"}


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ({"driver": "gcs", "bucket": "b"}, False),
        (ELSEWHERE, True),
        (ELSEWHERE | {"extra_configurations": {"token": " "}}, True),
        (ELSEWHERE | {"extra_configurations": {"token": "t"}}, False),
        (ELSEWHERE | {"extra_configurations": {"Anonymous": "TRUE"}}, False),
        (ELSEWHERE | {"extra_configurations": {"anonymous": "false"}}, True),
        ({"driver": "gcs", "extra_configurations": {"PROXY": "http://h"}}, True),
        ({"driver": "s3", "s3_service_endpoint": "http://h", "s3_credential_id": "i"}, True),
        ({"driver": "of-a-plugin", "extra_configurations": {"server": "h"}}, True),
        ({"driver": "local", "extra_configurations": {"root": "/r"}}, False),
    ],
)
def test_credentials_of_the_machine_are_asked_for_by_policies_that_hold_none(said, asks):
    assert asks_by_surroundings(OffloadPolicies(**said).model_dump()) is asks
