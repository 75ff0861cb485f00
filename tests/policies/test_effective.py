"""What holds for a topic of what three levels say; what a driver is told; what retention refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.metadata.policies import (
    DEFAULTS,
    OffloadPolicies,
    RetentionPolicies,
    outrun_thresholds,
    parse_policies,
    resolve_policies,
)
from offload_core.metadata.records import ReadPriority
from offload_core.storage.tier import open_store
from offload_hooks.errors import OptionError

MIB = 1 << 20

SAID = st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from(["s3", "gcs", "local"]),
        "bucket": st.sampled_from(["a", "b"]),
        "threshold_in_bytes": st.integers(-1, 5),
        "threshold_in_seconds": st.integers(-1, 5),
        "max_threads": st.integers(1, 5),
    },
)


@given(levels=st.tuples(SAID, SAID, SAID))
def test_each_field_is_the_lowest_levels_that_says_it(levels):
    topic, namespace, broker = (OffloadPolicies(**said) for said in levels)
    found = resolve_policies(topic=topic, namespace=namespace, broker=broker)
    expected = {name: (getattr(DEFAULTS, name), "default") for name in OffloadPolicies.model_fields}
    for said, origin in reversed(list(zip(levels, ("topic", "namespace", "broker"), strict=True))):
        before = expected["driver"][0]
        if before is not None and said.get("driver", before) != before:
            expected["bucket"] = (DEFAULTS.bucket, "default")  # of another driver's tier
        expected |= {name: (value, origin) for name, value in said.items()}
    for name in OffloadPolicies.model_fields:
        assert (found.settings[name].value, found.settings[name].origin) == expected[name]


def test_without_any_level_nothing_is_offloaded_and_the_defaults_hold():
    found = resolve_policies()
    assert (found.driver, found.threshold_bytes, found.threshold_s) == (None, None, None)
    assert found.deletion_lag_s == 4 * 3600
    assert found.read_priority is ReadPriority.OFFLOADED_FIRST
    assert (found.max_threads, found.max_block_bytes, found.read_buffer_bytes) == (2, 64 * MIB, MIB)
    assert found.rate_limit_bytes_per_s is None
    assert (found.is_streamed, found.max_segment_bytes, found.max_segment_age_s) == (False, 1 << 30, 600)
    with pytest.raises(OptionError, match="no tier is configured"):
        found.driver_options()


def test_streaming_is_said_at_each_level():
    on, off = OffloadPolicies(streaming=True), OffloadPolicies(streaming=False)
    assert resolve_policies(broker=on).is_streamed
    assert not resolve_policies(broker=on, topic=off).is_streamed
    namespace = OffloadPolicies(max_segment_size_in_bytes=MIB, max_segment_age_in_seconds=2)
    found = resolve_policies(namespace=namespace, broker=on)
    assert (found.is_streamed, found.max_segment_bytes, found.max_segment_age_s) == (True, MIB, 2)


def test_zero_offloads_at_once_and_minus_one_never():
    found = resolve_policies(topic=OffloadPolicies(threshold_in_bytes=0, threshold_in_seconds=-1))
    assert (found.threshold_bytes, found.threshold_s) == (0, None)
    never = resolve_policies(topic=OffloadPolicies(deletion_lag_in_millis=-1))
    assert never.deletion_lag_s is None


PULSARS = {"offloaded_read_priority": "bookkeeper-first"}


@pytest.mark.parametrize(
    ("topic", "broker", "priority"),
    [
        ({}, PULSARS, ReadPriority.BOOKKEEPER_FIRST),
        (PULSARS, {"tiered_read_priority": "OFFLOADED_ONLY"}, ReadPriority.BOOKKEEPER_FIRST),
        ({"tiered_read_priority": "OFFLOADED_ONLY"}, PULSARS, ReadPriority.OFFLOADED_ONLY),
        (PULSARS | {"tiered_read_priority": "BOOKKEEPER_ONLY"}, {}, ReadPriority.BOOKKEEPER_ONLY),
    ],
)
def test_the_lowest_level_says_the_read_priority(topic, broker, priority):
    found = resolve_policies(topic=parse_policies(topic), broker=parse_policies(broker))
    assert found.read_priority is priority


SEVEN = {"max_block_size_in_bytes": 7 * MIB}


@pytest.mark.parametrize(
    ("topic", "broker", "size"),
    [
        ({"driver": "google-cloud-storage"}, {}, 128 * MIB),
        ({"driver": "gcs"}, SEVEN, 7 * MIB),
        ({"driver": "gcs", "gcs_max_block_size_in_bytes": 8 * MIB}, SEVEN, 8 * MIB),
        ({"driver": "aws-s3"}, {"s3_max_block_size_in_bytes": 9 * MIB}, 9 * MIB),
        ({"driver": "local"}, {"s3_max_block_size_in_bytes": 9 * MIB}, 64 * MIB),
    ],
)
def test_a_drivers_own_size_counts_unless_a_lower_level_says_another(topic, broker, size):
    assert (
        resolve_policies(topic=parse_policies(topic), broker=parse_policies(broker)).max_block_bytes == size
    )


def test_a_driver_is_told_what_is_its_own_and_takes_it():
    policies = parse_policies(
        {
            "managedLedgerOffloadDriver": "aws-s3",
            "managedLedgerOffloadBucket": "general",
            "s3ManagedLedgerOffloadServiceEndpoint": "http://127.0.0.1:9",
            "s3ManagedLedgerOffloadCredentialId": "an-id",
            "s3ManagedLedgerOffloadCredentialSecret": "hunter2",
            "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 9 * MIB,
            "gcsManagedLedgerOffloadBucket": "another",
            "offloadersDirectory": "./offloaders",
            "managedLedgerExtraConfigurations": {"addressing_style": "path"},
        }
    )
    found = resolve_policies(namespace=policies)
    options = found.driver_options()
    assert options == {
        "managedLedgerOffloadBucket": "general",
        "s3ManagedLedgerOffloadServiceEndpoint": "http://127.0.0.1:9",
        "s3ManagedLedgerOffloadCredentialId": "an-id",
        "s3ManagedLedgerOffloadCredentialSecret": "hunter2",
        "addressing_style": "path",
    }
    assert found.driver is not None
    with open_store(found.driver, **options) as store:
        assert "general" in store.describe().location
    assert "hunter2" not in f"{policies!r} {found!r} {found.explain()}"


def test_what_holds_is_explained_as_it_is_said_with_where_it_comes_from():
    root = {"root": "/cold"}
    found = resolve_policies(
        topic=OffloadPolicies(threshold_in_bytes=5, streaming=True),
        namespace=OffloadPolicies(driver="s3", s3_credential_secret="hunter2", extra_configurations=root),
        broker=OffloadPolicies(threshold_in_bytes=7, tiered_read_priority=ReadPriority.OFFLOADED_ONLY),
    )
    assert {
        ("managedLedgerOffloadThresholdInBytes", "5", "topic"),
        ("managedLedgerOffloadStreaming", "true", "topic"),
        ("managedLedgerExtraConfigurations", '{"root": "/cold"}', "namespace"),
        ("managedLedgerOffloadDriver", "s3", "namespace"),
        ("tieredReadPriority", "OFFLOADED_ONLY", "broker"),
        ("managedLedgerOffloadThresholdInSeconds", "-1", "default"),
        ("s3ManagedLedgerOffloadCredentialSecret", "********", "namespace"),
    } <= set(found.explain())


@pytest.mark.parametrize(
    ("policies", "retention", "refused"),
    [
        (
            {"threshold_in_seconds": 600},
            (10, -1),
            ["InSeconds = 600 (topic)", "retentionTimeInMinutes = 10 (600 s)"],
        ),
        ({"threshold_in_seconds": 599}, (10, -1), []),
        ({"threshold_in_seconds": 601}, (-1, -1), []),
        ({"threshold_in_seconds": 601}, (0, 0), []),
        ({"threshold_in_seconds": 0}, (1, 0), []),
        ({"threshold_in_seconds": -1}, (1, 1), []),
        (
            {"threshold_in_bytes": 3 * MIB},
            (-1, 3),
            ["InBytes = 3145728 (topic)", "retentionSizeInMB = 3 (3145728 bytes)"],
        ),
        ({"threshold_in_bytes": 3 * MIB - 1}, (-1, 3), []),
        ({"threshold_in_bytes": 3 * MIB}, (-1, -1), []),
    ],
)
def test_a_threshold_that_is_not_below_retention_is_refused_with_both_values(policies, retention, refused):
    kept = RetentionPolicies(time_in_minutes=retention[0], size_in_mb=retention[1])
    found = resolve_policies(topic=OffloadPolicies(**policies))
    refusals = [str(each.refusal("topic t")) for each in outrun_thresholds(found, kept)]
    assert len(refusals) == bool(refused)
    for refusal in refusals:
        assert refusal.startswith("topic t: retention would delete")
        assert all(text in refusal for text in refused)


def test_the_same_values_are_the_same_whoever_says_them():
    kept = RetentionPolicies(time_in_minutes=10, size_in_mb=1)
    said = OffloadPolicies(threshold_in_seconds=600, threshold_in_bytes=MIB)
    found = outrun_thresholds(resolve_policies(topic=said), kept)
    assert len(found) == 2
    assert found == outrun_thresholds(resolve_policies(broker=said), kept)


def test_an_empty_text_counts_and_names_nothing():
    namespace = OffloadPolicies(driver="aws-s3", bucket="cold", region="us-east-1")
    assert resolve_policies(topic=OffloadPolicies(driver=""), namespace=namespace).driver is None
    found = resolve_policies(topic=OffloadPolicies(region=""), namespace=namespace)
    assert found.driver_options() == {"managedLedgerOffloadBucket": "cold"}
