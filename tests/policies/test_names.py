"""Policies by the names that people write: ours, Pulsar's, broker.conf's, PIP-17's, PIP-76's; and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from offload_core.metadata.policies import OffloadPolicies, parse_policies, pulsar_names
from offload_core.metadata.policies.offload_policies import shown_value
from offload_core.metadata.records import ReadPriority, parse_read_priority
from offload_drivers.azure.options import AzureOptions
from offload_drivers.gcs.options import GcsOptions
from offload_drivers.s3.options import S3Options
from offload_hooks.errors import OptionError
from offload_hooks.shown_urls import MASK

# The fields of org.apache.pulsar.common.policies.data.OffloadPoliciesImpl, 4.0.8.
PULSARS = sorted(
    [
        *(
            "managedLedgerExtraConfigurations",
            "offloadersDirectory",
            "fileSystemProfilePath",
            "fileSystemURI",
        ),
        *(
            f"managedLedgerOffload{each}"
            for each in ("Driver", "MaxThreads", "ReadThreads", "PrefetchRounds")
        ),
        *(f"managedLedgerOffloadThresholdIn{each}" for each in ("Seconds", "Bytes")),
        *("managedLedgerOffloadDeletionLagInMillis", "managedLedgerOffloadedReadPriority"),
        *(f"s3ManagedLedgerOffloadCredential{each}" for each in ("Id", "Secret")),
        *(f"s3ManagedLedgerOffloadRole{each}" for each in ("", "SessionName")),
        *(f"{each}anagedLedgerOffloadServiceEndpoint" for each in ("m", "s3M")),
        "gcsManagedLedgerOffloadServiceAccountKeyFile",
        *(
            f"{family}anagedLedgerOffload{each}"
            for family in ("m", "s3M", "gcsM")
            for each in ("Region", "Bucket", "MaxBlockSizeInBytes", "ReadBufferSizeInBytes")
        ),
    ]
)
OURS = {
    "tieredReadPriority",
    "managedLedgerOffloadRateLimitInBytesPerSecond",
    "managedLedgerOffloadFilter",
    "managedLedgerOffloadFilterMode",
    "managedLedgerOffloadFilterOptions",
    "managedLedgerOffloadChecksums",
    "managedLedgerOffloadStreaming",
    "maxOffloadSegmentSizeInBytes",
    "maxOffloadSegmentRolloverTimeInSeconds",
}

MIB = 1 << 20


def a_value(name):
    if name in ("managedLedgerExtraConfigurations", "managedLedgerOffloadFilterOptions"):
        return {"a": "b"}
    if name == "managedLedgerOffloadFilterMode":
        return "gap"
    if "Priority" in name:
        return "BOOKKEEPER_FIRST"
    if name.endswith(("Streaming", "OffloadChecksums")):
        return True
    numbers = ("Bytes", "Seconds", "Millis", "Threads", "Rounds", "Second")
    return 6 * MIB if name.endswith(numbers[:3]) else 7 if name.endswith(numbers[3:]) else "text"


def test_every_field_of_pulsar_is_known_and_some_are_ours():
    assert set(pulsar_names()) == set(PULSARS) | OURS


@pytest.mark.parametrize("name", [*PULSARS, *sorted(OURS)])
def test_a_field_by_its_name_is_said_and_given_back(name):
    policies = parse_policies({name: a_value(name)})
    assert policies.to_json() == {name: a_value(name)}
    assert parse_policies(json.loads(json.dumps(policies.to_json()))) == policies
    assert parse_policies({pulsar_names()[name]: a_value(name)}) == policies


@pytest.mark.parametrize(
    ("name", "value", "field", "said"),
    [
        ("offloadSizeInMB", 10, "threshold_in_bytes", 10 * MIB),
        ("offloadSizeInMB", "10", "threshold_in_bytes", 10 * MIB),
        ("maxSizePerOffloadSegmentMbytes", 256, "max_segment_size_in_bytes", 256 * MIB),
        ("maxOffloadSegmentRolloverTimeMinutes", "5", "max_segment_age_in_seconds", 300),
        ("managedLedgerOffloadStreaming", "true", "streaming", True),
        ("offloadSizeInMB", -1, "threshold_in_bytes", -1),
        ("offloadSizeInMB", 0, "threshold_in_bytes", 0),
        ("offloadTimeInMinutes", 3, "threshold_in_seconds", 180),
        ("offloadTimeInMinutes", -5, "threshold_in_seconds", -1),
        ("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "77", "threshold_in_bytes", 77),
        ("managedLedgerOffloadDeletionLagMs", 5, "deletion_lag_in_millis", 5),
        (
            "managedLedgerDataReadPriority",
            "bookkeeper-first",
            "offloaded_read_priority",
            ReadPriority.BOOKKEEPER_FIRST,
        ),
        ("managedLedgerOffloadExtraConfigSome", "x", "extra_configurations", {"Some": "x"}),
        ("managedLedgerOffloadFilterOption.property", "x", "filter_options", {"property": "x"}),
    ],
)
def test_names_of_pip_17_and_of_broker_conf_are_taken(name, value, field, said):
    policies = parse_policies({name: value})
    assert getattr(policies, field) == said
    assert len(policies.to_json()) == 1


def test_none_sets_nothing_and_one_value_by_two_names_is_no_contradiction():
    assert parse_policies(dict.fromkeys(PULSARS)) == OffloadPolicies()
    assert parse_policies({"offloadSizeInMB": 1, "threshold_in_bytes": MIB}).threshold_in_bytes == MIB


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"managedLedgerOffloadDrivers": "s3"},
            "no policy 'managedLedgerOffloadDrivers'.*mean managedLedgerOffloadDriver\\?",
        ),
        (
            {"managedLedgerOffloadThresholdInBytes": 5, "offloadSizeInMB": 5},
            "are the same and differ.*5 by managed.*5242880 by off",
        ),
        ({"managedLedgerOffloadThresholdInBytes": -2}, "managedLedgerOffloadThresholdInBytes.*found -2"),
        (
            {"managedLedgerOffloadThresholdInSeconds": "soon"},
            "managedLedgerOffloadThresholdInSeconds.*'soon'",
        ),
        ({"offloadTimeInMinutes": "soon"}, "offloadTimeInMinutes is no whole number: found 'soon'"),
        ({"managedLedgerOffloadMaxThreads": 0}, "managedLedgerOffloadMaxThreads"),
        (
            {"s3ManagedLedgerOffloadMaxBlockSizeInBytes": 5 * MIB - 1},
            "s3ManagedLedgerOffloadMaxBlockSizeInBytes",
        ),
        ({"max_block_size_in_bytes": 2**31}, "max_block_size_in_bytes"),
        *(
            ({name: ""}, f"{name} is empty")
            for name in ("managedLedgerOffloadBucket", "s3_bucket", "fileSystemURI")
        ),
        ({"tieredReadPriority": "hot"}, "no such tiered read priority.*found hot"),
        ({"managedLedgerExtraConfigurations": {"a": 1}}, "managedLedgerExtraConfigurations"),
        ({"managedLedgerOffloadFilterMode": "hole"}, "managedLedgerOffloadFilterMode.*'tombstone' or 'gap'"),
        ({"managedLedgerOffloadFilter": ""}, "managedLedgerOffloadFilter is empty"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(given, message):
    with pytest.raises(OptionError, match=message) as caught:
        parse_policies(given, "namespace public/default")
    if "tieredReadPriority" not in given:
        assert "namespace public/default: " in str(caught.value)


def test_a_credential_is_in_no_repr_error_or_answer_but_is_kept():
    policies = parse_policies(
        {"s3ManagedLedgerOffloadCredentialSecret": "hunter2", "s3ManagedLedgerOffloadBucket": "b"}
    )
    assert "hunter2" not in f"{policies!r} {policies} {policies.shown()}"
    assert policies.shown() == {
        "s3ManagedLedgerOffloadCredentialSecret": "********",
        "s3ManagedLedgerOffloadBucket": "b",
    }
    assert policies.to_json()["s3ManagedLedgerOffloadCredentialSecret"] == "hunter2"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("BOOKKEEPER_ONLY", ReadPriority.BOOKKEEPER_ONLY),
        ("bookkeeper-first", ReadPriority.BOOKKEEPER_FIRST),
        ("Offloaded-Only", ReadPriority.OFFLOADED_ONLY),
        ("OFFLOADED_FIRST", ReadPriority.OFFLOADED_FIRST),
        ("tiered-storage-first", ReadPriority.OFFLOADED_FIRST),
        (" TIERED_STORAGE_FIRST ", ReadPriority.OFFLOADED_FIRST),
    ],
)
def test_read_priorities_by_all_their_names(text, priority):
    assert parse_read_priority(text) is priority


def test_pulsars_read_priority_has_its_two_words_and_no_other():
    said = parse_policies({"managedLedgerOffloadedReadPriority": "OFFLOADED_FIRST"}).to_json()
    assert said == {"managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST"}
    with pytest.raises(OptionError, match="tieredReadPriority has"):
        parse_policies({"managedLedgerOffloadedReadPriority": "BOOKKEEPER_ONLY"})


def test_extra_configurations_that_may_be_secret_are_masked():
    policies = parse_policies(
        {"managedLedgerOffloadExtraConfigAccountKey": "k", "managedLedgerOffloadExtraConfigX": "y"}
    )
    assert policies.shown() == {"managedLedgerExtraConfigurations": {"AccountKey": "********", "X": "y"}}
    assert policies.to_json() == {"managedLedgerExtraConfigurations": {"AccountKey": "k", "X": "y"}}
    policies = parse_policies({"managedLedgerExtraConfigurations": {"sas_token": "hunter2"}})
    assert "hunter" not in repr(policies)


def test_what_a_read_priority_means():
    meanings = [(each.hot_first, each.falls_back) for each in ReadPriority]
    assert meanings == [(True, False), (True, True), (False, False), (False, True)]


@pytest.mark.parametrize("options", [AzureOptions, GcsOptions, S3Options])
def test_what_drivers_hold_for_secret_is_masked_in_extra_configurations(options):
    secret = [each.name for each in fields(options) if not each.repr]
    assert secret
    assert shown_value(dict.fromkeys(secret, "hunter2")) == dict.fromkeys(secret, MASK)


@pytest.mark.parametrize(
    "given",
    [
        {"managedLedgerExtraConfigurations": {"sas_token": "hunter2", "port": 5}},
        {"managedLedgerExtraConfigurations": "hunter2"},
        {"extra_configurations": "hunter2", "managedLedgerOffloadExtraConfigport": "5"},
        {"s3_credential_secret": "hunter2", "s3ManagedLedgerOffloadCredentialSecret": "hunter3"},
        {"s3ManagedLedgerOffloadCredentialSecret": ["hunter2"]},
    ],
)
def test_no_error_holds_what_may_be_secret(given):
    with pytest.raises(OptionError) as caught:
        parse_policies(given)
    assert "hunter" not in f"{caught.value} {caught.value!r} {caught.value.__context__}"
