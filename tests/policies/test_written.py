"""Policies as brokers wrote them: read as Pulsar means them, though nobody may set them so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.metadata.policies import (
    OffloadPolicies,
    RetentionPolicies,
    parse_policies,
    pulsar_names,
    read_policies,
    read_retention,
)
from offload_hooks.errors import OptionError

BLOCK = "managedLedgerOffloadMaxBlockSizeInBytes"


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("managedLedgerOffloadThresholdInBytes", -5, -1),
        ("managedLedgerOffloadThresholdInBytes", 0, 0),
        ("managedLedgerOffloadThresholdInSeconds", -(2**63), -1),
        ("managedLedgerOffloadDeletionLagInMillis", -2, -1),
        (BLOCK, 0, None),
        (BLOCK, (5 << 20) - 1, None),
        (BLOCK, 5 << 20, 5 << 20),
        ("s3ManagedLedgerOffloadReadBufferSizeInBytes", 0, None),
        ("gcsManagedLedgerOffloadReadBufferSizeInBytes", 1, 1),
        ("managedLedgerOffloadMaxThreads", 0, None),
        ("managedLedgerOffloadMaxThreads", 4096, 1024),
        ("managedLedgerOffloadPrefetchRounds", -1, None),
        ("managedLedgerOffloadBucket", "", ""),
        ("managedLedgerOffloadDriver", "", ""),
        ("managedLedgerExtraConfigurations", {"a": None, "b": 1}, {"b": "1"}),
    ],
)
def test_what_a_broker_wrote_is_read_as_it_means(name, written, meant):
    assert getattr(read_policies({name: written}, "here"), pulsar_names()[name]) == meant


@given(
    policies=st.fixed_dictionaries(
        {},
        optional={
            "managedLedgerOffloadThresholdInBytes": st.integers(-1, 2**63 - 1),
            BLOCK: st.integers(5 << 20, 2**31 - 1),
            "managedLedgerOffloadMaxThreads": st.integers(1, 1024),
            "managedLedgerOffloadBucket": st.text(min_size=1),
            "tieredReadPriority": st.sampled_from(["OFFLOADED_ONLY", "BOOKKEEPER_FIRST"]),
        },
    )
)
def test_what_may_be_set_is_read_as_it_was_set(policies):
    assert read_policies(policies, "here") == parse_policies(policies)


@given(numbers=st.dictionaries(st.sampled_from(sorted(pulsar_names())), st.integers(-(2**63), 2**63 - 1)))
def test_no_number_of_a_broker_makes_a_record_unreadable(numbers):
    integers = {
        name: min(number, 2**31 - 1) if name.endswith("SizeInBytes") else number
        for name, number in numbers.items()
        if name.endswith(("Bytes", "Seconds", "Millis", "Threads", "Rounds"))
    }
    assert isinstance(read_policies(integers, "here"), OffloadPolicies)


def test_what_no_pulsar_writes_is_told_by_its_name_and_never_by_a_secret():
    with pytest.raises(OptionError, match=r"here: managedLedgerOffloadMaxThreads: .*found 'many'"):
        read_policies({"managedLedgerOffloadMaxThreads": "many"}, "here")
    with pytest.raises(OptionError) as caught:
        read_policies({"s3ManagedLedgerOffloadCredentialSecret": ["hunter2"]}, "here")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"retentionTimeInMinutes": -7, "retentionSizeInMB": -2}, (-1, -1)),
        ({"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, (0, 5)),
        ({"retentionTimeInMinutes": 3, "fromTheFuture": {}}, (3, 0)),
    ],
)
def test_retention_too(written, meant):
    expected = RetentionPolicies(time_in_minutes=meant[0], size_in_mb=meant[1])
    assert read_retention(written) == expected
